/*
 * memcached's text protocol, as doc/protocol.txt of its sources describes it: "get" with many keys,
 * several "set" without waiting for the answers, "stats"; and its "Authentication", which sends
 * user and password in the clear.
 *
 * A refused "set" gets an answer like any other. The server skips the value that follows, so the
 * connection stays in step.
 */
#include "cluster/peer_text.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for "get", a blank and a key for each, and the line end. */
#define GET_BYTES(count) (8 + (count) * (HR__PEER_KEY + 1))

/* "set KEY 0 EXPIRES LENGTH\r\n" */
#define SET_BYTES (HR__PEER_KEY + 48)

/* More statistics than any server reports. */
#define STATS_MAX 1000

static int begins_with(const char *line, const char *word)
{
    return !strncmp(line, word, strlen(word));
}

/* Turns a line that is not the expected answer into an error. */
static int refusal(struct hr__peer_link *link, const char *line, struct hr_error *error)
{
    char shown[96];
    hr__printable(shown, sizeof shown, line);
    /* Without a login the server takes a "set" for one, and its value for user and password. */
    if (begins_with(line, "CLIENT_ERROR unauthenticated") ||
        begins_with(line, "CLIENT_ERROR authentication") ||
        begins_with(line, "CLIENT_ERROR bad authentication"))
        return hr__fail(error, -EACCES,
                        "%s requires a login: set user= and password-file=", link->label);
    if (begins_with(line, "ERROR Too many open connections"))
        return hr__fail(error, -ECONNREFUSED, "%s has no connection left: raise its -c",
                        link->label);
    if (begins_with(line, "SERVER_ERROR"))
        return hr__fail(error, -EPROTO, "%s cannot answer: \"%s\"", link->label, shown);
    return hr__peer_link_garbage(link, line, error);
}

static int send_word(struct hr__peer_link *link, const char *word, struct hr_error *error)
{
    struct iovec part = {(void *)(uintptr_t)word, strlen(word)};
    return hr__peer_link_send(link, &part, 1, error);
}

/* Requests a key that nobody stores. Returns 1 if the server asks for a user, 0 if it answers. The
 * request is as long as a frame of the binary protocol, so that a server that speaks only that
 * closes the connection at once. */
static int asks_for_user(struct hr__peer_link *link, struct hr_error *error)
{
    char *line;
    int r = send_word(link, "get hr1:is-a-user-needed\r\n", error);
    if (!r)
        r = hr__peer_link_line(link, &line, error);
    if (r)
        return r;
    if (begins_with(line, "CLIENT_ERROR unauthenticated"))
        return 1;
    return strcmp(line, "END") ? refusal(link, line, error) : 0;
}

/* Sends a login for an authfile: "set" of any key, with user and password as the value. */
static int send_login(struct hr__peer_link *link, const char *user, const char *password,
                      struct hr_error *error)
{
    char text[64 + 2 * HR__PEER_CREDENTIAL];
    int length = snprintf(text, sizeof text, "set hr1:login 0 0 %zu\r\n%s %s\r\n",
                          strlen(user) + 1 + strlen(password), user, password);
    struct iovec part = {text, (size_t)length};
    int r = hr__peer_link_send(link, &part, 1, error);
    explicit_bzero(text, sizeof text);
    return r;
}

int hr__peer_text_login(struct hr__peer_link *link, const char *user, const char *password,
                        struct hr_error *error)
{
    char *line = NULL;
    int r = asks_for_user(link, error);
    if (r < 0)
        return r;
    if (!r)
        return hr__fail(error, -EACCES,
                        "%s knows no users: it was started without -Y; leave user= out",
                        link->label);
    r = send_login(link, user, password, error);
    if (!r)
        r = hr__peer_link_line(link, &line, error);
    if (!r && !strcmp(line, "STORED"))
        return 0;
    if (!r && begins_with(line, "CLIENT_ERROR"))
        return hr__fail(error, -EACCES,
                        "%s refuses the user: does the file of its -Y have the user and the "
                        "password that user= and password-file= name?",
                        link->label);
    /* The server's text is not shown, because it could repeat the password. */
    if (!r || r == -EPROTO)
        r = hr__peer_link_garbage(link, "no answer to a login", error);
    return r;
}

/* Parses a number that ends at a blank or at the end; moves *at past it. */
static int number(char **at, uint64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return 0;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    if (errno || (*end && *end != ' '))
        return 0;
    *at = end + (*end == ' ');
    return 1;
}

/* Parses "VALUE KEY FLAGS LENGTH[ CAS]". Returns the value with that key, and its length. Servers
 * answer in the order of the keys, so the search continues where the last one ended. */
static struct hr__peer_value *announced(char *line, struct hr__peer_value *values, size_t count,
                                        size_t *next, uint64_t *length)
{
    char *key = line + 6, *at = strchr(key, ' ');
    uint64_t flags, cas;
    if (!at)
        return NULL;
    *at++ = 0;
    if (!number(&at, &flags) || !number(&at, length) || (*at && !number(&at, &cas)) || *at ||
        *length > HR__PEER_VALUE_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t k = (*next + i) % count;
        if (!strcmp(values[k].key, key)) {
            *next = k + 1;
            return values[k].bytes ? NULL : &values[k];
        }
    }
    return NULL;
}

/* Allocates a value with its slack; NULL: out of memory. */
static uint8_t *value_alloc(struct hr__blocks *blocks, size_t length)
{
    if (blocks)
        return hr__blocks_alloc(blocks, length + HR__PEER_SLACK);
    return hr__alloc_aligned(HR__TAG_CACHE, length + HR__PEER_SLACK, 0);
}

static int take_value(struct hr__peer_link *link, struct hr__blocks *blocks,
                      struct hr__peer_value *value, size_t length, struct hr_error *error)
{
    char end[2];
    uint8_t *bytes = value_alloc(blocks, length);
    if (!bytes)
        return hr__fail(error, -ENOMEM, "out of memory for an item of %zu bytes", length);
    int r = hr__peer_link_read(link, bytes, length, error);
    if (!r)
        r = hr__peer_link_read(link, end, 2, error);
    if (!r && memcmp(end, "\r\n", 2))
        r = hr__peer_link_garbage(link, "a value without its end", error);
    if (r) {
        hr__free(bytes);
        return r;
    }
    value->bytes = bytes;
    value->length = length;
    return 0;
}

static int send_get(struct hr__peer_link *link, const struct hr__peer_value *values, size_t count,
                    struct hr_error *error)
{
    char *text = hr__alloc(HR__TAG_CACHE, GET_BYTES(count), 1), *at = text;
    if (!text)
        return hr__fail(error, -ENOMEM, "out of memory for a request");
    at = stpcpy(at, "get");
    for (size_t i = 0; i < count; i++) {
        *at++ = ' ';
        at = stpcpy(at, values[i].key);
    }
    at = stpcpy(at, "\r\n");
    struct iovec part = {text, (size_t)(at - text)};
    int r = hr__peer_link_send(link, &part, 1, error);
    hr__free(text);
    return r;
}

int hr__peer_text_get(struct hr__peer_link *link, struct hr__blocks *blocks,
                      struct hr__peer_value *values, size_t count, struct hr_error *error)
{
    size_t next = 0;
    char *line;
    int r = send_get(link, values, count, error);
    while (!r && !(r = hr__peer_link_line(link, &line, error))) {
        uint64_t length;
        if (!strcmp(line, "END"))
            return 0;
        if (!begins_with(line, "VALUE "))
            return refusal(link, line, error);
        struct hr__peer_value *value = announced(line, values, count, &next, &length);
        if (!value)
            return hr__peer_link_garbage(link, "a value that was not asked for", error);
        r = take_value(link, blocks, value, (size_t)length, error);
    }
    return r;
}

/* Parses one answer to a "set". */
static int stored(struct hr__peer_link *link, const char *line, int *result, struct hr_error *error)
{
    if (!strcmp(line, "STORED"))
        *result = 0;
    else if (begins_with(line, "SERVER_ERROR object too large"))
        *result = -E2BIG;
    else if (begins_with(line, "SERVER_ERROR out of memory") ||
             begins_with(line, "SERVER_ERROR Out of memory"))
        *result = -ENOSPC;
    else
        return refusal(link, line, error);
    return 0;
}

static size_t lay_out(struct iovec *parts, char (*heads)[SET_BYTES],
                      const struct hr__peer_store *stores, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const struct hr__peer_store *s = &stores[i];
        int length = snprintf(heads[i], SET_BYTES, "set %s 0 %u %zu\r\n", s->key, s->expires_s,
                              s->length + s->tail_length);
        parts[n++] = (struct iovec){heads[i], (size_t)length};
        parts[n++] = (struct iovec){(void *)(uintptr_t)s->bytes, s->length};
        parts[n++] = (struct iovec){(void *)(uintptr_t)s->tail, s->tail_length};
        parts[n++] = (struct iovec){"\r\n", 2};
    }
    return n;
}

/* Reads answers while it still sends, so that neither side blocks with full buffers. The last
 * answer may come before everything was sent, if the server only skips the value. */
int hr__peer_text_put(struct hr__peer_link *link, struct hr__peer_store *stores, size_t count,
                      struct hr_error *error)
{
    char(*heads)[SET_BYTES] = hr__alloc(HR__TAG_CACHE, count, SET_BYTES);
    struct iovec *parts = hr__alloc(HR__TAG_CACHE, count, 4 * sizeof *parts), *at = parts;
    size_t left = 0, answered = 0;
    int r = 0;
    if (!heads || !parts)
        r = hr__fail(error, -ENOMEM, "out of memory for a request");
    else
        left = lay_out(parts, heads, stores, count);
    while (!r && answered < count) {
        char *line;
        r = hr__peer_link_push(link, &at, &left, error);
        int has = r ? 0 : hr__peer_link_has_line(link, &line, error);
        if (has > 0)
            r = stored(link, line, &stores[answered++].result, error);
        else if (has < 0)
            r = has;
        else if (!r)
            r = hr__peer_link_turn(link, left > 0, error);
    }
    if (!r && left)
        r = hr__peer_link_send(link, at, left, error);
    hr__free(parts);
    hr__free(heads);
    return r;
}

/* Stores one statistic; ignores names that are not needed. */
static void take_statistic(struct hr__peer_about *about, const char *name, const char *value)
{
    const struct {
        const char *name;
        uint64_t *out;
    } numbers[] = {
        {"limit_maxbytes", &about->limit_bytes},
        {"bytes", &about->used_bytes},
        {"curr_items", &about->items},
        {"evictions", &about->evictions},
        {"uptime", &about->uptime_s},
        {"item_size_max", &about->item_max_bytes},
    };
    if (!strcmp(name, "version"))
        hr__printable(about->version, sizeof about->version, value);
    /* From "stats settings", where "evictions" is a word and not a number. */
    if (!strcmp(name, "evictions") && (!strcmp(value, "on") || !strcmp(value, "off"))) {
        about->evicts = !strcmp(value, "on");
        return;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(name, numbers[i].name))
            *numbers[i].out = strtoull(value, NULL, 10);
}

/* Reads "STAT NAME VALUE" lines until "END". */
static int stats(struct hr__peer_link *link, const char *request, struct hr__peer_about *about,
                 struct hr_error *error)
{
    char *line;
    int r = send_word(link, request, error);
    for (int i = 0; !r && i < STATS_MAX; i++) {
        r = hr__peer_link_line(link, &line, error);
        if (r || !strcmp(line, "END"))
            return r;
        if (!begins_with(line, "STAT "))
            return refusal(link, line, error);
        char *name = line + 5, *value = strchr(name, ' ');
        if (value) {
            *value = 0;
            take_statistic(about, name, value + 1);
        }
    }
    return r ? r : hr__peer_link_garbage(link, "statistics without an end", error);
}

int hr__peer_text_about(struct hr__peer_link *link, struct hr__peer_about *about,
                        struct hr_error *error)
{
    int r = stats(link, "stats\r\n", about, error);
    return r ? r : stats(link, "stats settings\r\n", about, error);
}
