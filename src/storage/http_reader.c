/*
 * Reads of objects: the reader's backend, and single reads on the caller's thread.
 *
 * A read becomes a call (http_inside.h), with a buffer of the reader's pool. Calls are kept for
 * further reads. While no further request may begin, reads wait here; those of one container that
 * lie side by side then become one call, whose bytes are copied to each.
 */
#include "storage/http_reader.h"

#include "base/clock.h"
#include "base/error.h"
#include "storage/http_inside.h"

#include <errno.h>
#include <string.h>

/* Ranges become one request if so few bytes lie between them, and it asks for so many at most: one
 * that is larger saves nothing, and would keep the requests in flight few. */
#define GAP_BYTES  4096u
#define JOIN_BYTES (1u << 20)

struct backend {
    struct hr__http_client *http;
    struct hr__http_channel *channel;
    const struct hr__transfer_rules *rules;
    struct hr__read_list *done;
    struct hr__read_list waiting;
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
}

/* Moves the results of a call to its read. */
static void fill(struct hr__read *read, struct hr__http_call *call)
{
    read->result = call->result;
    read->reason = call->reason;
    read->bytes = call->bytes;
    read->length = call->length;
    read->version = call->is_range ? 0 : hr__object_version(&call->object);
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
    read->submitted_ns = hr__now_ns();
    hr__read_list_append(&b->waiting, read);
    return 0;
}

/* ---- neighbouring ranges ---- */

/* Returns whether a read lies beside the range of a call, and widens the range if so. */
static bool joins(struct hr__http_call *call, const struct hr__read *read)
{
    uint64_t first = read->offset, end = first + (uint64_t)read->expected;
    uint64_t call_end = call->offset + call->bytes_wanted;
    if (!read->is_range || read->expected <= 0 || read->change != call->change ||
        first > call_end + GAP_BYTES || end + GAP_BYTES < call->offset ||
        strcmp(read->path, call->url))
        return false;
    if (first > call->offset)
        first = call->offset;
    if (end < call_end)
        end = call_end;
    if (end - first > JOIN_BYTES)
        return false;
    call->offset = first;
    call->bytes_wanted = end - first;
    return true;
}

/* Moves the waiting reads that lie beside the call's to it, until no more do. */
static void join_waiting(struct backend *b, struct hr__http_call *call)
{
    struct hr__read *of_call = call->user;
    for (bool found = true; found;) {
        struct hr__read_list rest = {0};
        found = false;
        for (struct hr__read *read; (read = hr__read_list_take(&b->waiting));)
            if (joins(call, read)) {
                read->next = of_call->next;
                of_call->next = read;
                found = true;
            } else {
                hr__read_list_append(&rest, read);
            }
        b->waiting = rest;
    }
}

/* Begins calls for waiting reads while no call waits for the store. Errors: -ENOMEM. */
static int begin_waiting(struct backend *b)
{
    while (b->waiting.first && !hr__http_channel_is_full(b->channel)) {
        struct hr__http_call *call = take_call(b);
        if (!call)
            return -ENOMEM;
        describe(call, hr__read_list_take(&b->waiting), b->rules);
        if (call->is_range && call->bytes_wanted)
            join_waiting(b, call);
        hr__http_channel_start(b->channel, call);
    }
    return 0;
}

/* Gives a read of several its part of the call's bytes. */
static void copy_part(struct backend *b, struct hr__read *read, const struct hr__http_call *call)
{
    size_t bytes = (size_t)read->expected;
    read->bytes = NULL;
    read->result = call->result;
    read->reason = call->reason ? hr__strdup(HR__TAG_STORAGE, call->reason) : NULL;
    read->length = 0;
    read->completed_ns = hr__now_ns();
    if (read->result)
        return;
    read->bytes = hr__blocks_alloc(b->rules->pool, bytes + HR__READ_SLACK);
    if (!read->bytes) {
        read->result = -ENOMEM;
        return;
    }
    memcpy(read->bytes, call->bytes + (read->offset - call->offset), bytes);
    memset(read->bytes + bytes, 0, HR__READ_SLACK);
    read->length = bytes;
}

/* Hands over the reads of a call. Where a joined range ends too early, each read is asked for
 * alone: only some of them may. */
static void finish(struct backend *b, struct hr__http_call *call)
{
    struct hr__read *read = call->user, *next;
    int is_alone = !read->next;
    if (is_alone) {
        fill(read, call);
        hr__read_list_append(b->done, read);
        return;
    }
    for (; read; read = next) {
        struct hr__http_call *again = call->result == -ENODATA ? take_call(b) : NULL;
        next = read->next;
        read->next = NULL;
        if (again) {
            describe(again, read, b->rules);
            hr__http_channel_start(b->channel, again);
            continue;
        }
        copy_part(b, read, call);
        hr__read_list_append(b->done, read);
    }
    hr__free(call->bytes);
    hr__free(call->reason);
}

static int progress(void *self, int64_t timeout_ns)
{
    struct backend *b = self;
    struct hr__http_call *next;
    int r = begin_waiting(b);
    if (r && !b->done->first)
        return r;
    struct hr__http_call *call = hr__http_channel_wait(b->channel, b->done->first ? 0 : timeout_ns);
    for (; call; call = next) {
        next = call->next;
        finish(b, call);
        put_call(b, call);
    }
    return begin_waiting(b) && !b->done->first ? -ENOMEM : 0;
}

static void cancel(struct backend *b, struct hr__read *read)
{
    read->bytes = NULL;
    read->result = -ECANCELED;
    hr__read_list_append(b->done, read);
}

static void destroy(void *self)
{
    struct backend *b = self;
    hr__http_channel_destroy(&b->channel);
    for (struct hr__read *read; (read = hr__read_list_take(&b->waiting));)
        cancel(b, read);
    while (b->blocks) {
        struct call_block *block = b->blocks;
        for (int i = 0; i < CALLS_A_BLOCK; i++) {
            struct hr__http_call *call = &block->calls[i];
            struct hr__read *read = call->user;
            if (!read)
                continue;
            hr__free(call->bytes);
            hr__free(call->reason);
            for (struct hr__read *next; read; read = next) {
                next = read->next;
                cancel(b, read);
            }
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
    read->submitted_ns = hr__now_ns();
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
