/*
 * memcached's binary protocol, as doc/protocol-binary.txt of its sources describes it, for
 * servers that ask for a user (-S): they understand no other. Authentication is SASL PLAIN
 * (RFC 4616), which shows the password to the network as memcached's own clients do.
 *
 * A frame is 24 bytes, then extras, key and value. Numbers are big-endian. "opaque" comes back
 * in answers and is the index of what was asked for.
 */
#include "cluster/peer_protocol.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HEAD       24
#define REQUEST    0x80
#define RESPONSE   0x81
#define BODY_SMALL 1024 /* of answers that are no values */
#define STATS_MAX  1000

enum opcode { SET = 0x01, NOOP = 0x0a, GETKQ = 0x0d, STAT = 0x10, SASL_AUTH = 0x21 };

enum status {
    DONE = 0x00,
    TOO_LARGE = 0x03,
    AUTH_ERROR = 0x20,
    AUTH_CONTINUE = 0x21,
    UNKNOWN = 0x81,
    OUT_OF_MEMORY = 0x82
};

struct frame {
    unsigned opcode, status;
    size_t key_length, extras_length, body_length; /* the body holds the other two */
    uint32_t opaque;
};

static void put16(uint8_t *at, unsigned value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

static unsigned get16(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

/* The head of a request. */
static void head(uint8_t *at, const struct frame *frame)
{
    memset(at, 0, HEAD);
    at[0] = REQUEST;
    at[1] = (uint8_t)frame->opcode;
    put16(at + 2, (unsigned)frame->key_length);
    at[4] = (uint8_t)frame->extras_length;
    put32(at + 8, (uint32_t)frame->body_length);
    put32(at + 12, frame->opaque);
}

/* Of an answer; -EPROTO: it is none, or contradicts itself. */
static int understand(struct hr__peer_link *link, const uint8_t *at, struct frame *frame,
                      struct hr_error *error)
{
    *frame = (struct frame){.opcode = at[1],
                            .status = get16(at + 6),
                            .key_length = get16(at + 2),
                            .extras_length = at[4],
                            .body_length = get32(at + 8),
                            .opaque = get32(at + 12)};
    if (at[0] != RESPONSE || frame->key_length + frame->extras_length > frame->body_length)
        return hr__peer_link_garbage(link, "no frame of the binary protocol", error);
    return 0;
}

static int read_frame(struct hr__peer_link *link, struct frame *frame, struct hr_error *error)
{
    uint8_t bytes[HEAD];
    int r = hr__peer_link_read(link, bytes, HEAD, error);
    return r ? r : understand(link, bytes, frame, error);
}

/* The body of a frame that is no value; terminated. */
static int read_small(struct hr__peer_link *link, const struct frame *frame,
                      char out[BODY_SMALL + 1], struct hr_error *error)
{
    if (frame->body_length > BODY_SMALL)
        return hr__peer_link_garbage(link, "an answer that is too long", error);
    out[frame->body_length] = 0;
    return hr__peer_link_read(link, out, frame->body_length, error);
}

/* What is said instead of an answer; `text` is the server's. */
static int refusal(struct hr__peer_link *link, unsigned status, const char *text,
                   struct hr_error *error)
{
    char shown[96];
    hr__printable(shown, sizeof shown, text);
    if (status == AUTH_ERROR || status == AUTH_CONTINUE)
        return hr__fail(error, -EACCES,
                        "%s refuses the user: are user= and the password right, and does its "
                        "SASL know the mechanism PLAIN?",
                        link->label);
    return hr__fail(error, -EPROTO, "%s cannot answer: \"%s\" (status %u)", link->label, shown,
                    status);
}

static int send_one(struct hr__peer_link *link, const uint8_t *bytes, size_t length,
                    struct hr_error *error)
{
    struct iovec part = {(void *)(uintptr_t)bytes, length};
    return hr__peer_link_send(link, &part, 1, error);
}

static int binary_greet(struct hr__peer_link *link, const char *user, const char *password,
                        struct hr_error *error)
{
    static const char mechanism[] = "PLAIN";
    size_t user_length = strlen(user), password_length = strlen(password);
    struct frame frame = {.opcode = SASL_AUTH, .key_length = sizeof mechanism - 1};
    uint8_t bytes[HEAD + 16 + 2 * HR__PEER_CREDENTIAL];
    char text[BODY_SMALL + 1];
    frame.body_length = frame.key_length + 2 + user_length + password_length;
    head(bytes, &frame);
    uint8_t *at = bytes + HEAD;
    memcpy(at, mechanism, frame.key_length);
    at += frame.key_length;
    *at++ = 0;
    memcpy(at, user, user_length);
    at += user_length;
    *at++ = 0;
    memcpy(at, password, password_length);
    int r = send_one(link, bytes, HEAD + frame.body_length, error);
    explicit_bzero(bytes, sizeof bytes);
    if (!r)
        r = read_frame(link, &frame, error);
    if (!r && frame.opcode != SASL_AUTH)
        r = hr__peer_link_garbage(link, "an answer to something else", error);
    if (!r)
        r = read_small(link, &frame, text, error);
    if (!r && frame.status == UNKNOWN)
        r = hr__fail(error, -EACCES,
                     "%s knows no users: it was started without -S, and is to be used without "
                     "user=",
                     link->label);
    if (!r && frame.status)
        r = refusal(link, frame.status, text, error);
    return r;
}

static int send_get(struct hr__peer_link *link, const struct hr__peer_value *values, size_t count,
                    struct hr_error *error)
{
    uint8_t *bytes = hr__alloc(HR__TAG_CACHE, count + 1, HEAD + HR__PEER_KEY), *at = bytes;
    if (!bytes)
        return hr__fail(error, -ENOMEM, "out of memory for a request");
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(values[i].key);
        head(at, &(struct frame){.opcode = GETKQ,
                                 .key_length = length,
                                 .body_length = length,
                                 .opaque = (uint32_t)i});
        memcpy(at + HEAD, values[i].key, length);
        at += HEAD + length;
    }
    head(at, &(struct frame){.opcode = NOOP, .opaque = (uint32_t)count});
    int r = send_one(link, bytes, (size_t)(at - bytes) + HEAD, error);
    hr__free(bytes);
    return r;
}

static int take_value(struct hr__peer_link *link, struct hr__blocks *blocks,
                      struct hr__peer_value *value, const struct frame *frame,
                      struct hr_error *error)
{
    char before[4 + HR__PEER_KEY];
    size_t key_length = strlen(value->key),
           length = frame->body_length - frame->extras_length - frame->key_length;
    if (value->bytes || frame->extras_length != 4 || frame->key_length != key_length ||
        length > HR__PEER_VALUE_MAX)
        return hr__peer_link_garbage(link, "a value that was not asked for", error);
    int r = hr__peer_link_read(link, before, 4 + key_length, error);
    if (r)
        return r;
    if (memcmp(before + 4, value->key, key_length))
        return hr__peer_link_garbage(link, "a value that was not asked for", error);
    uint8_t *bytes = hr__peer_value_alloc(blocks, length);
    if (!bytes)
        return hr__fail(error, -ENOMEM, "out of memory for an item of %zu bytes", length);
    r = hr__peer_link_read(link, bytes, length, error);
    if (r) {
        hr__free(bytes);
        return r;
    }
    value->bytes = bytes;
    value->length = length;
    return 0;
}

static int binary_get(struct hr__peer_link *link, struct hr__blocks *blocks,
                      struct hr__peer_value *values, size_t count, struct hr_error *error)
{
    int r = send_get(link, values, count, error);
    while (!r) {
        struct frame frame;
        char text[BODY_SMALL + 1];
        r = read_frame(link, &frame, error);
        if (r)
            return r;
        if (!frame.status && frame.opcode == GETKQ && frame.opaque < count) {
            r = take_value(link, blocks, &values[frame.opaque], &frame, error);
            continue;
        }
        r = read_small(link, &frame, text, error);
        if (!r && frame.status)
            return refusal(link, frame.status, text, error);
        if (!r && frame.opcode == NOOP && frame.opaque == count)
            return 0;
        if (!r)
            r = hr__peer_link_garbage(link, "an answer to something else", error);
    }
    return r;
}

static size_t lay_out(struct iovec *parts, uint8_t (*heads)[HEAD + 8 + HR__PEER_KEY],
                      const struct hr__peer_store *stores, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const struct hr__peer_store *s = &stores[i];
        size_t length = strlen(s->key);
        head(heads[i], &(struct frame){.opcode = SET,
                                       .key_length = length,
                                       .extras_length = 8,
                                       .body_length = 8 + length + s->length + s->tail_length,
                                       .opaque = (uint32_t)i});
        put32(heads[i] + HEAD, 0);
        put32(heads[i] + HEAD + 4, s->expires_s);
        memcpy(heads[i] + HEAD + 8, s->key, length);
        parts[n++] = (struct iovec){heads[i], HEAD + 8 + length};
        parts[n++] = (struct iovec){(void *)(uintptr_t)s->bytes, s->length};
        parts[n++] = (struct iovec){(void *)(uintptr_t)s->tail, s->tail_length};
    }
    return n;
}

/* The next answer to a SET if it is there: 1; 0: not yet. */
static int stored(struct hr__peer_link *link, struct hr__peer_store *store, size_t index,
                  struct hr_error *error)
{
    struct frame frame;
    char text[BODY_SMALL + 1];
    const uint8_t *at = hr__peer_link_has(link, HEAD);
    int r = at ? understand(link, at, &frame, error) : 0;
    if (r || !at)
        return r;
    if (frame.body_length > BODY_SMALL || frame.opcode != SET || frame.opaque != index)
        return hr__peer_link_garbage(link, "an answer to something else", error);
    if (!hr__peer_link_has(link, HEAD + frame.body_length))
        return 0;
    memcpy(text, at + HEAD, frame.body_length);
    text[frame.body_length] = 0;
    hr__peer_link_take(link, HEAD + frame.body_length);
    if (frame.status == DONE)
        store->result = 0;
    else if (frame.status == TOO_LARGE)
        store->result = -E2BIG;
    else if (frame.status == OUT_OF_MEMORY)
        store->result = -ENOSPC;
    else
        return refusal(link, frame.status, text, error);
    return 1;
}

static int binary_put(struct hr__peer_link *link, struct hr__peer_store *stores, size_t count,
                      struct hr_error *error)
{
    uint8_t(*heads)[HEAD + 8 + HR__PEER_KEY] = hr__alloc(HR__TAG_CACHE, count, sizeof *heads);
    struct iovec *parts = hr__alloc(HR__TAG_CACHE, count, 3 * sizeof *parts), *at = parts;
    size_t left = 0, answered = 0;
    int r = 0;
    if (!heads || !parts)
        r = hr__fail(error, -ENOMEM, "out of memory for a request");
    else
        left = lay_out(parts, heads, stores, count);
    while (!r && answered < count) {
        r = hr__peer_link_push(link, &at, &left, error);
        if (r)
            break;
        r = stored(link, &stores[answered], answered, error);
        if (r > 0) {
            answered++;
            r = 0;
        } else if (!r) {
            r = hr__peer_link_turn(link, left > 0, error);
        }
    }
    if (!r && left)
        r = hr__peer_link_send(link, at, left, error);
    hr__free(parts);
    hr__free(heads);
    return r;
}

/* Frames of a name and its value each, until an empty one. */
static int stats(struct hr__peer_link *link, const char *which, struct hr__peer_about *about,
                 struct hr_error *error)
{
    uint8_t bytes[HEAD + 16];
    struct frame frame = {.opcode = STAT, .key_length = strlen(which)};
    frame.body_length = frame.key_length;
    head(bytes, &frame);
    memcpy(bytes + HEAD, which, frame.key_length);
    int r = send_one(link, bytes, HEAD + frame.key_length, error);
    for (int i = 0; !r && i < STATS_MAX; i++) {
        char text[BODY_SMALL + 1], name[BODY_SMALL + 1];
        r = read_frame(link, &frame, error);
        if (!r)
            r = read_small(link, &frame, text, error);
        if (!r && frame.opcode != STAT)
            r = hr__peer_link_garbage(link, "an answer to something else", error);
        if (!r && frame.status)
            r = refusal(link, frame.status, text, error);
        if (r || !frame.key_length)
            return r;
        memcpy(name, text + frame.extras_length, frame.key_length);
        name[frame.key_length] = 0;
        hr__peer_about_take(about, name, text + frame.extras_length + frame.key_length);
    }
    return r ? r : hr__peer_link_garbage(link, "statistics without an end", error);
}

static int binary_about(struct hr__peer_link *link, struct hr__peer_about *about,
                        struct hr_error *error)
{
    int r = stats(link, "", about, error);
    return r ? r : stats(link, "settings", about, error);
}

const struct hr__peer_protocol hr__peer_binary = {binary_greet, binary_get, binary_put,
                                                  binary_about};
