/*
 * Gets the next batch of an attached loader (see attached.h): takes it if it is ready; otherwise
 * waits on the queue's bell and checks the connection several times a second.
 *
 * A batch is leased if it is contiguous in shared memory. Otherwise, or if slots are page-locked,
 * it is copied into a slot of the loader's ring. Copies are made in pieces, each released at once,
 * so a batch may be larger than the queue's ring.
 *
 * Bad samples are reported and counted when their batch is delivered, as in an embedded loader.
 */
#include "agent/client/attached.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "loader/batch_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

/* Interval of checks of the connection while waiting on the bell. */
#define SLICE_NS UINT64_C(50000000)
/* Pause while a slot is still being copied to a device. */
#define SLOT_PAUSE_NS 200000

/* Result: no samples to take yet. */
#define WAIT 2

static uint64_t at(const struct hr__attached *a)
{
    return a->base + hr__attached_index(a);
}

/* Returns the number of samples in the next batch. */
static size_t batch_count(const struct hr__attached *a)
{
    if (a->pushed)
        return a->pushed->count;
    uint64_t left = a->samples - a->delivered * a->cut.batch_size;
    return (size_t)(left < a->cut.batch_size ? left : a->cut.batch_size);
}

/* Returns how many samples at the batch's end are padding that makes the ranks' shares equal: at
 * most one, in the last batch of an epoch. */
static size_t batch_padding(const struct hr__attached *a, size_t count)
{
    uint64_t rest = (a->cut.samples - a->cut.start) % a->cut.ranks;
    int is_last = a->delivered * a->cut.batch_size + count == a->samples;
    return is_last && rest && a->cut.rank >= rest;
}

/* Sets the fields of a batch that do not depend on its samples. */
static void begin_batch(const struct hr__attached *a, struct hr_batch *batch, size_t count)
{
    batch->count = count;
    batch->padding = batch_padding(a, count);
    batch->epoch = a->epoch;
    batch->number = a->first_number + a->delivered;
}

/* Records the bad and damaged samples among `count` samples of the batch, from `place` on. */
static void note_bad(struct hr__attached *a, struct hr_batch *batch, size_t place, size_t count,
                     const int64_t *instead)
{
    const int64_t *indices = batch->indices + place;
    uint64_t from = a->base + a->delivered * a->cut.batch_size + place;
    struct hr_error why = {0};
    /* An error here ends the session; the next turn returns it. */
    if (hr__session_receive(a, &why))
        a->broken = why;
    for (size_t i = 0; i < count && a->cursor; i++) {
        if (instead[i] < 0 || (uint64_t)instead[i] >= a->cut.samples)
            continue;
        struct hr__bad *bad = hr__bad_make(a->loader, batch, place + i, (uint64_t)instead[i],
                                           hr__session_bad_reason(a, from + i));
        int taken = instead[i] == indices[i];
        batch->bad += !taken;
        if (!bad)
            continue;
        bad->taken = taken;
        hr__bad_insert(&batch->skipped, bad);
    }
}

/* Counts and judges a batch that is to be delivered. Returns 1, or an error: do not deliver it. */
static int judge(struct hr__attached *a, struct hr_batch *batch, struct hr_error *error)
{
    struct hr_loader *l = a->loader;
    pthread_mutex_lock(&l->lock);
    l->epoch_seen += batch->count;
    l->epoch_bad += batch->bad;
    hr__bad_keep_locked(l, batch);
    int r = hr__bad_judge_locked(l, batch->epoch, 0, error);
    pthread_mutex_unlock(&l->lock);
    hr__count(&hr__counters_here(l)->bad_samples, batch->bad);
    if (r) {
        a->over = 1;
        return r;
    }
    hr__count(&hr__counters_here(l)->samples, batch->count);
    hr__count(&hr__counters_here(l)->batches, 1);
    hr__count(&hr__counters_here(l)->padded_samples, batch->padding);
    if (a->cursor) {
        hr__cursor_count(&a->cursor->control->batches, 1);
        hr__cursor_count(&a->cursor->control->samples, batch->count);
        hr__count(&a->alone, a->cursor->is_alone != 0);
    }
    a->delivered++;
    a->filled = 0;
    if (a->pushed)
        hr__pushed_took(a);
    a->futile = 0;
    a->garbled.code = 0;
    return 1;
}

/* Returns the error with which the agent ended the queue, as this loader's failure. */
static int fail_as_halted(struct hr__attached *a, const struct hr__wire_halt *halt,
                          struct hr_error *error)
{
    struct hr_loader *l = a->loader;
    struct hr_batch batch = {.epoch = a->epoch};
    struct hr__bad *bad =
        halt->has_sample ? hr__bad_make(l, &batch, 0, halt->index, halt->reason) : NULL;
    int code = halt->error.code < 0 ? halt->error.code : -EIO;
    hr__fail(error, code, "%s", halt->error.message);
    pthread_mutex_lock(&l->lock);
    hr__free(l->failed);
    l->failed = bad;
    pthread_mutex_unlock(&l->lock);
    hr__attached_drop_partial(a);
    a->over = 1;
    return code;
}

/* Called if samples before `to` are not ready. Returns WAIT, or the error that ended the queue. */
static int not_there(struct hr__attached *a, uint64_t to, struct hr_error *error)
{
    a->wants = to;
    uint64_t halt = atomic_load_explicit(&a->cursor->header->halt, memory_order_acquire);
    if (halt >= a->base + a->delivered * a->cut.batch_size + batch_count(a))
        return WAIT;
    int r = hr__session_receive(a, error);
    if (r)
        return r;
    return a->cursor->halt && a->cursor->halt->sequence == halt
               ? fail_as_halted(a, a->cursor->halt, error)
               : WAIT;
}

/* Our next sample is lost: the next turn seeks. */
static int lost(struct hr__attached *a)
{
    a->is_expelled = 1;
    return WAIT;
}

/* What a lent batch has beside its images. */
struct beside {
    struct hr__batch_rows *rows;
    uint8_t *masks;
    int64_t *mask_extents;
};

static void drop_beside(struct beside *beside)
{
    hr__batch_rows_destroy(&beside->rows);
    hr__free(beside->masks);
    hr__free(beside->mask_extents);
}

/* Copies the rows or the masks of samples that are to be lent. */
static int copy_beside(struct hr__attached *a, uint64_t from, size_t count, struct beside *out,
                       struct hr_error *error)
{
    const struct hr_dataset *dataset = a->loader->dataset;
    int r = 0;
    if (dataset->rows)
        r = hr__batch_rows_create(&out->rows, dataset->rows, count, error);
    if (!r && dataset->rows)
        r = hr__cursor_rows(a->cursor, from, count, out->rows, 0, error);
    if (!dataset->masks)
        return r;
    out->masks = hr__alloc_aligned_to(HR__TAG_SLOT, count * a->cursor->shape.record_bytes, 0, 64);
    if (a->cursor->is_padded)
        out->mask_extents = hr__alloc(HR__TAG_SLOT, count * 2, sizeof *out->mask_extents);
    if (!out->masks || (a->cursor->is_padded && !out->mask_extents))
        return hr__fail(error, -ENOMEM, "out of memory for the masks of %zu samples", count);
    hr__cursor_masks(a->cursor, from, count, out->masks);
    return 0;
}

static int lend(struct hr__attached *a, size_t count, struct hr_batch **out, struct hr_error *error)
{
    struct hr__lease *lease;
    uint64_t from = at(a);
    if (hr__cursor_is_lost(a->cursor, from))
        return lost(a);
    if (hr__cursor_ready(a->cursor, from) < count)
        return not_there(a, from + count, error);
    struct beside beside = {0};
    int r = copy_beside(a, from, count, &beside, error);
    if (!r)
        r = hr__lease_create(&lease, a->cursor, from, from + count, error);
    if (r)
        drop_beside(&beside);
    if (r)
        /* If the batch cannot be leased, the next turn copies it. */
        return r == -ESTALE ? lost(a) : r == -ENOTSUP ? WAIT : r;
    struct hr_batch *batch = &lease->batch;
    batch->rows = beside.rows;
    batch->masks = beside.masks;
    batch->mask_extents = beside.mask_extents;
    begin_batch(a, batch, count);
    hr__batch_set_mask_extents(batch);
    if (lease->seen.noted)
        note_bad(a, batch, 0, count, lease->seen.instead);
    if (beside.rows)
        hr__batch_rows_gather(beside.rows, count);
    r = judge(a, batch, error);
    if (r == 1)
        *out = batch;
    else
        hr_batch_release(&batch);
    return r;
}

/* Acquires a slot to copy to. */
static int get_slot(struct hr__attached *a, size_t count, struct hr_error *error)
{
    struct hr__ring *ring = a->loader->ring;
    size_t beyond;
    int r = hr__ring_acquire(ring, 0, &a->partial, &beyond, error);
    if (r == -EAGAIN)
        r = hr__ring_acquire(ring, 1, &a->partial, &beyond, error);
    a->waits_for_slot = r == -EBUSY;
    if (r) {
        a->partial = NULL;
        return r == -EBUSY ? WAIT : r;
    }
    a->filled = 0;
    a->partial->replaced = 0;
    begin_batch(a, a->partial, count);
    return 0;
}

/* Returns how many samples to copy at once: to the end of a chunk, or more if more are ready. */
static uint64_t piece_of(const struct hr__attached *a, size_t left)
{
    const struct hr__cursor_shape *s = &a->cursor->shape;
    uint64_t ready = hr__cursor_ready(a->cursor, at(a)),
             piece = s->chunk_samples - at(a) % s->chunk_samples;
    uint64_t most = s->ring_samples / 4;
    if (ready > piece)
        piece = ready < most ? ready : most > piece ? most : piece;
    return piece < left ? piece : left;
}

/* Allocates, once, room for the header's entries of a piece. */
static int make_seen(struct hr__attached *a, struct hr_error *error)
{
    size_t count = (size_t)a->cut.batch_size;
    /* A piece touches at most one chunk for each sample, plus one that it begins within. */
    if (!a->seen.instead)
        a->seen.instead = hr__alloc(HR__TAG_AGENT, 2 * count + 1, sizeof *a->seen.instead);
    if (!a->seen.instead)
        return hr__fail(error, -ENOMEM, "out of memory for a batch of %zu samples", count);
    a->seen.offsets = (uint64_t *)(a->seen.instead + count);
    a->seen.labels = a->partial->labels + a->filled;
    a->seen.indices = a->partial->indices + a->filled;
    if (a->partial->extents)
        a->seen.extents = a->partial->extents + a->filled * a->loader->spec.dims;
    return 0;
}

static int copy_piece(struct hr__attached *a, uint64_t piece, struct hr_error *error)
{
    struct hr_batch *batch = a->partial;
    uint64_t from = at(a);
    if (hr__cursor_is_lost(a->cursor, from))
        return lost(a);
    if (hr__cursor_ready(a->cursor, from) < piece)
        return not_there(a, from + piece, error);
    int r = make_seen(a, error);
    if (!r)
        r = hr__cursor_look(a->cursor, from, from + piece, &a->seen, error);
    if (!r && batch->rows)
        r = hr__cursor_rows(a->cursor, from, piece, batch->rows, a->filled, error);
    if (!r && batch->masks)
        hr__cursor_masks(a->cursor, from, piece,
                         batch->masks + a->filled * a->cursor->shape.record_bytes);
    if (!r)
        r = hr__lease_make_way(a->cursor, from, from + piece, error);
    if (!r)
        r = hr__cursor_take(a->cursor, from, from + piece);
    if (r)
        return r == -ESTALE ? lost(a) : r;
    char *images = (char *)batch->images + a->filled * a->loader->spec.bytes;
    r = hr__cursor_copy(a->cursor, from, piece, a->seen.offsets, images, error);
    if (r) {
        (void)hr__cursor_go_to(a->cursor, from, NULL);
        return r;
    }
    hr__cursor_settle(a->cursor);
    batch->replaced += a->seen.replaced;
    if (a->seen.noted)
        note_bad(a, batch, a->filled, piece, a->seen.instead);
    a->filled += piece;
    return 0;
}

static int copy(struct hr__attached *a, size_t count, struct hr_batch **out, struct hr_error *error)
{
    int r = a->partial ? 0 : get_slot(a, count, error);
    while (!r && a->filled < count)
        r = a->cursor ? copy_piece(a, piece_of(a, count - a->filled), error) : WAIT;
    if (r)
        return r;
    struct hr_batch *batch = a->partial;
    if (a->cursor)
        hr__cursor_count(&a->cursor->control->copied, 1);
    if (batch->rows)
        hr__batch_rows_gather(batch->rows, batch->count);
    hr__batch_set_mask_extents(batch);
    r = judge(a, batch, error);
    if (r != 1) {
        hr__attached_drop_partial(a);
        return r;
    }
    a->partial = NULL;
    hr__batch_reset(batch);
    hr__ring_deliver(batch);
    *out = batch;
    return 1;
}

/* Ends the epoch. Returns 0, or an error if there were too many bad samples. */
static int finish(struct hr__attached *a, struct hr_error *error)
{
    struct hr_loader *l = a->loader;
    a->over = 1;
    /* For the queue, samples left over by drop_last count as taken. */
    if (a->cursor && a->state == HR__PLACED && !hr__attached_is_pushed(a))
        (void)hr__cursor_go_to(a->cursor, a->base + a->samples, NULL);
    pthread_mutex_lock(&l->lock);
    int r = hr__bad_judge_locked(l, a->epoch, 1, error);
    pthread_mutex_unlock(&l->lock);
    return r;
}

/* Returns whether the queue that expelled us has our next sample, so that we can return to it. */
static int has_caught_up(struct hr__attached *a)
{
    uint64_t index = hr__attached_index(a);
    if (!a->main || !a->cursor->is_alone || a->asked == index)
        return 0;
    struct hr__header *header = (struct hr__header *)(uintptr_t)a->main->header;
    uint64_t here = a->main_base + index;
    if (atomic_load_explicit(&header->epoch, memory_order_relaxed) != a->epoch ||
        atomic_load_explicit(&header->tail, memory_order_relaxed) + a->cut.batch_size > here ||
        atomic_load_explicit(&header->head, memory_order_relaxed) < here ||
        hr__cursor_is_lost(a->main, here))
        return 0;
    a->asked = index;
    return 1;
}

/* Handles pending events. Returns 0 if `cursor` has our next samples; WAIT; or an error. */
static int stand(struct hr__attached *a, struct hr_error *error)
{
    int r = a->state == HR__PLACED ? 0 : hr__session_receive(a, error);
    if (!r && a->is_hung_up)
        r = hr__session_recover(a, error);
    if (r)
        return r;
    if (a->state == HR__CLOSED) {
        if (error)
            *error = a->broken;
        return a->broken.code ? a->broken.code
                              : hr__fail(error, -ENOTCONN,
                                         "this loader is not attached to an agent: start an epoch");
    }
    if (a->state != HR__PLACED)
        return WAIT;
    if (a->is_expelled || has_caught_up(a)) {
        hr__session_seek(a);
        return WAIT;
    }
    if (a->cursors->next_cursor)
        hr__session_sweep(a);
    return 0;
}

static int try_next(struct hr__attached *a, struct hr_batch **out, struct hr_error *error)
{
    if (!a->is_started)
        return hr__fail(error, -EINVAL, "no epoch was started: call hr_loader_start_epoch first");
    if (a->over)
        return 0;
    if (a->is_known && a->delivered >= a->batches)
        return finish(a, error);
    if (hr__attached_is_pushed(a) && !a->pushed)
        return hr__fail(error, -EAGAIN, "no batch was pushed: push one, or push_end");
    int r = stand(a, error);
    if (!r && hr__attached_is_pushed(a) && !a->filled)
        r = hr__pushed_line_up(a, error);
    if (r)
        return r;
    a->bell = hr__cursor_bell(a->cursor);
    size_t count = batch_count(a);
    if (a->partial || a->loader->options.pinned ||
        !hr__lease_is_possible(a->cursor, at(a), at(a) + count))
        return copy(a, count, out, error);
    return lend(a, count, out, error);
}

/* Sleeps until samples or messages may have come, at most until `until_ns`. Returns 0, -EINTR,
 * -ETIMEDOUT or another error. */
static int rest(struct hr__attached *a, uint64_t until_ns, struct hr_error *error)
{
    uint64_t slice_ns = hr__now_ns() + SLICE_NS;
    int is_last = until_ns <= slice_ns;
    if (is_last)
        slice_ns = until_ns;
    /* A message received during this turn has to be handled first. */
    if (a->is_hung_up || a->is_expelled)
        return 0;
    int r;
    if (a->waits_for_slot) {
        a->waits_for_slot = 0;
        r = nanosleep(&(struct timespec){.tv_nsec = SLOT_PAUSE_NS}, NULL) ? -errno : 0;
        if (!r && hr__now_ns() >= until_ns)
            r = -ETIMEDOUT;
        return r;
    }
    if (a->state != HR__PLACED) {
        hr__session_explain(a);
        r = hr__session_wait(a, slice_ns);
    } else {
        r = hr__cursor_wait(a->cursor, a->bell, a->wants, slice_ns);
    }
    if (r != -ETIMEDOUT)
        return r;
    r = hr__session_receive(a, error);
    return !r && is_last ? -ETIMEDOUT : r;
}

static int wait_next(struct hr__attached *a, struct hr_batch **out, struct hr_error *error)
{
    int limit_ms = a->loader->options.wait_ms;
    uint64_t until_ns = limit_ms ? hr__now_ns() + (uint64_t)limit_ms * 1000000u : UINT64_MAX;
    for (;;) {
        int r = try_next(a, out, error);
        if (r != WAIT)
            return r;
        r = a->state == HR__CLOSED ? 0 : rest(a, until_ns, error);
        if (r == -EINTR || r == -ETIMEDOUT)
            return hr__fail(error, -EINTR, "interrupted while waiting for a batch: call again");
        if (r)
            return r;
    }
}

int hr__turn_next(struct hr_loader *l, struct hr_batch **out, struct hr_error *error)
{
    struct hr__attached *a = l->attached;
    struct hr_error why = {0};
    uint64_t begin_ns = hr__now_ns();
    if (a->left_ns && a->cursor)
        hr__cursor_count(&a->cursor->control->step_ns, begin_ns - a->left_ns);
    int r = wait_next(a, out, &why);
    a->left_ns = hr__now_ns();
    if (a->cursor) {
        hr__cursor_count(&a->cursor->control->wait_ns, a->left_ns - begin_ns);
        atomic_store_explicit(&a->cursor->control->batch_samples, (uint32_t)a->cut.batch_size,
                              memory_order_relaxed);
    }
    if (r >= 0)
        return r;
    if (r != -EINTR && a->state == HR__CLOSED)
        a->broken = why;
    if (error)
        *error = why;
    return r;
}
