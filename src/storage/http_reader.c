/*
 * Reads of objects: the reader's backend, and single reads on the caller's thread.
 *
 * A read becomes a call (http_inside.h), with a buffer of the reader's pool. Calls are kept for
 * further reads.
 */
#include "storage/http_reader.h"

#include "base/clock.h"
#include "base/error.h"
#include "storage/http_inside.h"

#include <errno.h>
#include <string.h>

struct backend {
    struct hr__http_client *http;
    struct hr__http_channel *channel;
    const struct hr__transfer_rules *rules;
    struct hr__read_list *done;
    struct hr__http_call *idle; /* free calls */
    struct call_block *blocks;
};

/* Calls are allocated in blocks, and live as long as the backend. */
#define CALLS_A_BLOCK 32
struct call_block {
    struct call_block *next;
    struct hr__http_call calls[CALLS_A_BLOCK];
};

/* Describes a read as a call. */
static void describe(struct hr__http_call *call, struct hr__read *read,
                     const struct hr__transfer_rules *rules)
{
    uint64_t most =
        read->max_bytes && read->max_bytes < rules->max_bytes ? read->max_bytes : rules->max_bytes;
    *call = (struct hr__http_call){.url = read->path,
                                   .is_range = read->is_range,
                                   .offset = read->offset,
                                   .expected = read->is_range ? -1 : read->expected,
                                   .change = read->change,
                                   .max_bytes = read->is_range ? UINT64_MAX : most,
                                   .pool = rules->pool,
                                   .user = read};
    if (read->is_range)
        call->bytes_wanted = (uint64_t)read->expected;
    read->bytes = NULL;
    read->length = 0;
    read->submitted_ns = hr__now_ns();
}

/* Moves the results of a call to its read. */
static void fill(struct hr__read *read, struct hr__http_call *call)
{
    read->result = call->result;
    read->reason = call->reason;
    read->bytes = call->bytes;
    read->length = call->length;
    read->completed_ns = hr__now_ns();
}

static struct hr__http_call *take_call(struct backend *b)
{
    if (!b->idle) {
        struct call_block *block = hr__alloc(HR__TAG_STORAGE, 1, sizeof *block);
        if (!block)
            return NULL;
        block->next = b->blocks;
        b->blocks = block;
        for (int i = 0; i < CALLS_A_BLOCK; i++) {
            block->calls[i].next = b->idle;
            b->idle = &block->calls[i];
        }
    }
    struct hr__http_call *call = b->idle;
    b->idle = call->next;
    return call;
}

static void put_call(struct backend *b, struct hr__http_call *call)
{
    call->user = NULL;
    call->next = b->idle;
    b->idle = call;
}

int hr__http_open(void **self, struct hr__http_client *http, const struct hr__transfer_rules *rules,
                  struct hr__read_list *done)
{
    struct backend *b = hr__alloc(HR__TAG_STORAGE, 1, sizeof *b);
    if (!b)
        return -ENOMEM;
    b->http = hr__http_ref(http);
    b->rules = rules;
    b->done = done;
    int r = hr__http_channel_create(&b->channel, http, NULL);
    if (r) {
        hr__http_unref(&b->http);
        hr__free(b);
        return r;
    }
    *self = b;
    return 0;
}

static int submit(void *self, struct hr__read *read)
{
    struct backend *b = self;
    struct hr__http_call *call = take_call(b);
    if (!call)
        return -ENOMEM;
    describe(call, read, b->rules);
    hr__http_channel_start(b->channel, call);
    return 0;
}

static int progress(void *self, int64_t timeout_ns)
{
    struct backend *b = self;
    struct hr__http_call *next;
    struct hr__http_call *call = hr__http_channel_wait(b->channel, b->done->first ? 0 : timeout_ns);
    for (; call; call = next) {
        struct hr__read *read = call->user;
        next = call->next;
        fill(read, call);
        hr__read_list_append(b->done, read);
        put_call(b, call);
    }
    return 0;
}

static void destroy(void *self)
{
    struct backend *b = self;
    hr__http_channel_destroy(&b->channel);
    while (b->blocks) {
        struct call_block *block = b->blocks;
        for (int i = 0; i < CALLS_A_BLOCK; i++) {
            struct hr__http_call *call = &block->calls[i];
            struct hr__read *read = call->user;
            if (!read)
                continue;
            hr__free(call->bytes);
            hr__free(call->reason);
            read->result = -ECANCELED;
            hr__read_list_append(b->done, read);
        }
        b->blocks = block->next;
        hr__free(block);
    }
    hr__http_unref(&b->http);
    hr__free(b);
}

const struct hr__reader_backend hr__http_backend = {
    .submit = submit, .progress = progress, .destroy = destroy};

int hr__http_read(struct hr__read *read, uint64_t max_bytes)
{
    struct hr__transfer_rules rules = {.max_bytes = max_bytes};
    struct hr__http_call call;
    read->release = NULL;
    read->reason = NULL;
    describe(&call, read, &rules);
    hr__http_run(read->http, &call);
    fill(read, &call);
    return read->result;
}

int hr__http_piece(const struct hr__http_piece *piece, void *out, size_t capacity, size_t *got,
                   struct hr__object *object, struct hr_error *error)
{
    struct hr__http_call call = {.url = piece->url,
                                 .is_range = 1,
                                 .may_end = 1,
                                 .offset = piece->offset,
                                 .bytes_wanted = capacity,
                                 .expected = -1,
                                 .change = piece->change,
                                 .max_bytes = UINT64_MAX};
    int r = hr__http_run(piece->http, &call);
    *got = 0;
    if (object)
        *object = call.object;
    if (r)
        hr__fail(error, r, "cannot read %s: %s", piece->url,
                 call.reason ? call.reason : hr__errno_text(r));
    if (!r) {
        memcpy(out, call.bytes, call.length);
        *got = call.length;
    }
    hr__free(call.bytes);
    hr__free(call.reason);
    return r;
}
