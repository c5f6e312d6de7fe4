/*
 * The public functions that the consumer calls: epochs, handing out batches, state.
 *
 * Bad samples are judged, and the counters and the list of skipped samples updated, when a batch is
 * handed out. So they do not depend on how far ahead the workers are.
 */

#include "base/clock.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/memory.h"
#include "loader/batch_rows.h"
#include "loader/inside.h"
#include "loader/schedule.h"
#include "loader/status.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct hr__cut hr__loader_cut(const struct hr_loader *l)
{
    int deals = !l->options.external_order;
    return (struct hr__cut){
        .samples = hr_dataset_count(l->dataset),
        .batch_size = (uint64_t)l->options.batch_size,
        .ranks = deals ? (uint64_t)l->options.world_size : 1,
        .rank = deals ? (uint64_t)l->options.rank : 0,
        .drop_last = l->options.drop_last,
    };
}

static int check_child(const struct hr_loader *l, struct hr_error *error)
{
    if (!hr__in_child(l))
        return 0;
    if (l->attachment != &hr__attachment_none)
        return hr__fail(error, -ECHILD,
                        "this loader is process %d's, from which this one was forked: make a new "
                        "loader here, which attaches to the same agent",
                        atomic_load(&l->pid));
    return hr__fail(error, -ECHILD,
                    "this loader's threads live in process %d, from which this one was forked: "
                    "make a new loader here, or make and use it only after forking",
                    atomic_load(&l->pid));
}

/* Digest of what determines the order: never 0, and almost surely different for different
 * orders. */
static uint64_t digest_of_order(const struct hr__epoch *plan, uint64_t rank)
{
    const uint64_t parts[] = {plan->shuffle ? plan->seed + 1 : 0, plan->cut.samples,
                              plan->cut.ranks, rank};
    uint64_t digest = 1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        digest = (digest ^ parts[i]) * UINT64_C(0x9E3779B97F4A7C15);
        digest ^= digest >> 29;
    }
    return digest | 1;
}

/* Makes the plan of an epoch from position from->position on. */
static int make_plan(const struct hr_loader *l, const struct hr_loader_state *from,
                     struct hr__epoch **out, struct hr_error *error)
{
    struct hr__epoch *plan = hr__alloc(HR__TAG_LOADER, 1, sizeof *plan);
    if (!plan)
        return hr__fail(error, -ENOMEM, "out of memory for an epoch's plan");
    atomic_init(&plan->refs, 1);
    plan->epoch = from->epoch;
    plan->shuffle = from->shuffle != 0;
    plan->seed = from->seed;
    plan->cut = hr__loader_cut(l);
    plan->cut.start = from->position;
    plan->first_number = from->position / (plan->cut.batch_size * plan->cut.ranks);
    plan->batches = UINT64_MAX;
    if (!l->options.external_order) {
        int r = hr__order_create(&plan->order, plan->cut.samples, from->shuffle != 0, from->seed,
                                 from->epoch, error);
        if (r) {
            hr__epoch_unref(&plan);
            return r;
        }
        plan->batches = hr__cut_batches(&plan->cut);
        plan->same_order = digest_of_order(plan, plan->cut.rank);
        plan->stream = digest_of_order(plan, 0);
    }
    *out = plan;
    return 0;
}

/* Drops the batches in preparation and begins `plan`; takes over the reference. */
static void begin(struct hr_loader *l, struct hr__epoch *plan)
{
    if (l->part->pause)
        l->part->pause(l);
    pthread_mutex_lock(&l->lock);
    struct hr_batch *slots = hr__cancel_locked(l);
    struct hr__epoch *before = l->plan;
    struct hr__bad *failed = l->failed;
    l->failed = NULL;
    l->plan = plan;
    l->opened = 0;
    l->no_more = 0;
    l->broken.code = 0;
    l->pushed_samples = plan->cut.start;
    l->push_ended = 0;
    l->delivered = 0;
    l->delivered_samples = 0;
    if (l->part->begin_locked)
        l->part->begin_locked(l);
    l->epoch_seen = l->epoch_bad = 0;
    l->over = 0;
    pthread_cond_broadcast(&l->room);
    hr__wake_claimers_locked(l);
    pthread_mutex_unlock(&l->lock);
    hr__return_slots(slots);
    hr__epoch_unref(&before);
    hr__free(failed);
}

int hr__loader_start_at(struct hr_loader *l, const struct hr_loader_state *state,
                        uint64_t first_chunk, struct hr_error *error)
{
    struct hr__epoch *plan = NULL;
    int r = make_plan(l, state, &plan, error);
    if (r)
        return r;
    plan->first_chunk = first_chunk;
    if (!hr__is_started(l)) {
        r = hr__threads_start(l, error);
        if (r) {
            hr__epoch_unref(&plan);
            return r;
        }
        atomic_store(&l->pid, getpid());
        if (l->ring)
            hr__ring_set_owner(l->ring, getpid());
    }
    if (l->keeper->begin_epoch)
        l->keeper->begin_epoch(l, plan);
    pthread_mutex_lock(&l->lock);
    l->seed = state->seed;
    l->shuffle = state->shuffle != 0;
    pthread_mutex_unlock(&l->lock);
    begin(l, plan);
    return 0;
}

static int start_from(struct hr_loader *l, const struct hr_loader_state *from, int is_restored,
                      struct hr_error *error)
{
    int r = hr__status_begin(l, error);
    if (!r)
        r = l->attachment->start(l, from, is_restored, error);
    if (r)
        return r;
    pthread_mutex_lock(&l->lock);
    struct hr__bad *failed = l->failed;
    l->failed = NULL;
    l->seed = from->seed;
    l->shuffle = from->shuffle != 0;
    l->epoch_seen = l->epoch_bad = 0;
    pthread_mutex_unlock(&l->lock);
    hr__free(failed);
    hr__status_start(l);
    return 0;
}

int hr_loader_start_epoch(struct hr_loader *loader, uint64_t epoch, struct hr_error *error)
{
    int r = check_child(loader, error);
    if (r)
        return r;
    struct hr_loader_state state = {
        .version = 1,
        .shuffle = (uint32_t)loader->shuffle,
        .seed = loader->seed,
        .epoch = epoch,
        .samples = hr_dataset_count(loader->dataset),
    };
    return start_from(loader, &state, 0, error);
}

int hr__state_check(const struct hr_loader *l, const struct hr_loader_state *state,
                    struct hr_error *error)
{
    uint64_t samples = hr_dataset_count(l->dataset);
    if (state->version != 1)
        return hr__fail(error, -EINVAL, "a loader state of version %u: this library knows 1",
                        state->version);
    if (state->samples != samples)
        return hr__fail(error, -EINVAL,
                        "the state is of a dataset of %" PRIu64 " samples, this one has %" PRIu64,
                        state->samples, samples);
    if (state->position > samples && !l->options.external_order)
        return hr__fail(error, -EINVAL,
                        "the state's position %" PRIu64 " is beyond the epoch's %" PRIu64
                        " samples",
                        state->position, samples);
    return 0;
}

int hr_loader_restore(struct hr_loader *loader, const struct hr_loader_state *state,
                      struct hr_error *error)
{
    int r = check_child(loader, error);
    if (!r)
        r = hr__state_check(loader, state, error);
    if (r)
        return r;
    return start_from(loader, state, 1, error);
}

static int get_state(const struct hr_loader *loader, struct hr_loader_state *state,
                     struct hr_error *error)
{
    struct hr_loader *l = (struct hr_loader *)loader;
    (void)error;
    *state = (struct hr_loader_state){
        .version = 1,
        .shuffle = (uint32_t)l->shuffle,
        .seed = l->seed,
        .samples = hr_dataset_count(l->dataset),
    };
    pthread_mutex_lock(&l->lock);
    if (l->plan) {
        state->epoch = l->plan->epoch;
        state->position = l->options.external_order ? l->plan->cut.start + l->delivered_samples
                                                    : hr__cut_position(&l->plan->cut, l->delivered);
    }
    pthread_mutex_unlock(&l->lock);
    return 0;
}

int hr_loader_get_state(const struct hr_loader *loader, struct hr_loader_state *state,
                        struct hr_error *error)
{
    int r = check_child(loader, error);
    return r ? r : loader->attachment->get_state(loader, state, error);
}

uint64_t hr_loader_batches(const struct hr_loader *loader)
{
    struct hr__cut cut = hr__loader_cut(loader);
    return loader->options.external_order ? 0 : hr__cut_batches(&cut);
}

/* Checks indices of an external order, for the function `name`. */
static int check_indices(const struct hr_loader *l, const char *name, const int64_t *indices,
                         size_t count, struct hr_error *error)
{
    int r = check_child(l, error);
    if (r)
        return r;
    if (!l->options.external_order)
        return hr__fail(error, -EINVAL, "%s needs a loader with external_order", name);
    if (!hr__is_started(l))
        return hr__fail(error, -EINVAL, "no epoch was started: call hr_loader_start_epoch first");
    size_t samples = hr_dataset_count(l->dataset);
    for (size_t i = 0; i < count; i++)
        if (indices[i] < 0 || (uint64_t)indices[i] >= samples)
            return hr__fail(error, -ERANGE,
                            "there is no sample %" PRId64 ": the dataset has %zu, from 0 on",
                            indices[i], samples);
    return 0;
}

/* Appends a pushed batch; owns it on success. */
static int append_push(struct hr_loader *loader, struct hr__push *push, struct hr_error *error)
{
    pthread_mutex_lock(&loader->lock);
    if (loader->push_ended) {
        pthread_mutex_unlock(&loader->lock);
        return hr__fail(error, -EINVAL, "a batch was pushed after push_end");
    }
    push->position = loader->pushed_samples;
    loader->pushed_samples += push->count;
    if (loader->pushed_last)
        loader->pushed_last->next = push;
    else
        loader->pushed = push;
    loader->pushed_last = push;
    hr__wake_claimers_locked(loader);
    pthread_mutex_unlock(&loader->lock);
    return 0;
}

int hr_loader_push(struct hr_loader *loader, const int64_t *indices, size_t count,
                   struct hr_error *error)
{
    int r = check_indices(loader, "push", indices, count, error);
    if (!r && (!count || count > (size_t)loader->options.batch_size))
        r = hr__fail(error, -EINVAL, "a batch of %zu samples was pushed: it must be from 1 to %d",
                     count, loader->options.batch_size);
    if (r)
        return r;
    struct hr__push *push =
        hr__alloc(HR__TAG_LOADER, 1, sizeof *push + count * sizeof *push->indices);
    if (!push)
        return hr__fail(error, -ENOMEM, "out of memory for a pushed batch of %zu indices", count);
    push->count = count;
    memcpy(push->indices, indices, count * sizeof *indices);
    if (loader->keeper->expect)
        loader->keeper->expect(loader, indices, count, count, 1);
    r = loader->attachment->push(loader, push, error);
    if (r)
        hr__free(push);
    return r;
}

int hr_loader_expect(struct hr_loader *loader, const int64_t *indices, size_t count, size_t first,
                     struct hr_error *error)
{
    int r = check_indices(loader, "expect", indices, count, error);
    if (!r && first > count)
        r = hr__fail(error, -EINVAL, "%zu samples are expected in this epoch, and %zu in all",
                     first, count);
    if (!r && loader->keeper->expect)
        loader->keeper->expect(loader, indices, count, first, 0);
    return r;
}

static int end_push(struct hr_loader *l, struct hr_error *error)
{
    (void)error;
    pthread_mutex_lock(&l->lock);
    l->push_ended = 1;
    pthread_mutex_unlock(&l->lock);
    return 0;
}

int hr_loader_push_end(struct hr_loader *loader, struct hr_error *error)
{
    int r = check_child(loader, error);
    if (r)
        return r;
    if (!loader->options.external_order || !hr__is_started(loader))
        return hr__fail(error, -EINVAL, "push_end needs external_order and a started epoch");
    return loader->attachment->push_end(loader, error);
}

/* Ends the epoch. Returns the slots for the caller to give back. */
static struct hr_batch *end_locked(struct hr_loader *l)
{
    l->over = 1;
    l->no_more = 1;
    return hr__cancel_locked(l);
}

/* Called when no batch is open. Returns 1 if one will come, 0 at the epoch's end, or an error. */
static int nothing_open_locked(struct hr_loader *l, struct hr_error *error)
{
    if (l->opening)
        return 1;
    if (l->options.external_order && !l->push_ended)
        return l->pushed ? 1
                         : hr__fail(error, -EAGAIN, "no batch was pushed: push one, or push_end");
    if (l->options.external_order ? l->pushed != NULL : l->opened < l->plan->batches)
        return 1;
    if (l->part->holds_end_locked && l->part->holds_end_locked(l)) {
        return 1;
    }
    l->over = 1;
    return hr__bad_judge_locked(l, l->plan->epoch, 1, error);
}

/* Takes the first batch of the window, which is complete. Returns 1 and the batch, or an error. */
static int take_complete_locked(struct hr_loader *l, struct hr_batch **out, struct hr_batch **slots,
                                struct hr_error *error)
{
    struct hr_batch *batch = l->window;
    if (batch->error.code) {
        if (error)
            *error = batch->error;
        int code = batch->error.code;
        hr__free(l->failed);
        l->failed = batch->failed;
        batch->failed = NULL;
        *slots = end_locked(l);
        return code;
    }
    l->epoch_seen += batch->count;
    l->epoch_bad += batch->bad;
    hr__count(&hr__counters_here(l)->bad_samples, batch->bad);
    hr__bad_keep_locked(l, batch);
    int r = hr__bad_judge_locked(l, l->plan->epoch, 0, error);
    if (r) {
        *slots = end_locked(l);
        return r;
    }
    *out = hr__window_pop_locked(l);
    l->delivered++;
    l->delivered_samples += batch->count;
    hr__count(&hr__counters_here(l)->batches, 1);
    hr__count(&hr__counters_here(l)->padded_samples, batch->padding);
    hr__wake_claimers_locked(l);
    return 1;
}

/* Result of take_locked if the consumer has to wait. */
#define WAIT 2

static int take_locked(struct hr_loader *l, struct hr_batch **out, struct hr_batch **slots,
                       struct hr_error *error)
{
    if (!l->plan)
        return hr__fail(error, -EINVAL, "no epoch was started: call hr_loader_start_epoch first");
    if (l->over)
        return 0;
    struct hr_batch *batch = l->window;
    if (batch && batch->done == batch->count)
        return take_complete_locked(l, out, slots, error);
    /* The error of opening the next batch is reported when that batch is due, or at once if the
     * first batch cannot be completed either. */
    if (l->broken.code &&
        (!batch || (batch->claimed < batch->count && batch->done == batch->claimed))) {
        int code = l->broken.code;
        if (error)
            *error = l->broken;
        *slots = end_locked(l);
        return code;
    }
    if (batch)
        return WAIT;
    int r = nothing_open_locked(l, error);
    return r == 1 ? WAIT : r;
}

/* Sleeps until the word changes or until `until_ns`. Returns 0, -EINTR or -ETIMEDOUT. */
static int sleep_on(struct hr_loader *l, unsigned word, uint64_t until_ns)
{
    return hr__futex_wait(&l->ready_word, word, until_ns, 0);
}

/* Waits for the next batch and takes it. */
static int wait_unlocking(struct hr_loader *l, struct hr_batch **out, struct hr_batch **slots,
                          struct hr_error *error)
{
    uint64_t until_ns = l->options.wait_ms ? hr__now_ns() + (uint64_t)l->options.wait_ms * 1000000u
                                           : HR__FUTEX_EVER;
    for (;;) {
        int r = take_locked(l, out, slots, error);
        if (r != WAIT)
            return r;
        l->consumer_waits = 1;
        unsigned word = atomic_load_explicit(&l->ready_word, memory_order_relaxed);
        pthread_mutex_unlock(&l->lock);
        /* Never without a limit: after a signal handler, a futex wait with a timeout returns even
         * with SA_RESTART. */
        uint64_t tick_ns = hr__status_tick(l);
        r = sleep_on(l, word, tick_ns < until_ns ? tick_ns : until_ns);
        pthread_mutex_lock(&l->lock);
        l->consumer_waits = 0;
        if (r && (r != -ETIMEDOUT || hr__now_ns() >= until_ns))
            return hr__fail(error, -EINTR, "interrupted while waiting for a batch: call again");
    }
}

static void count_wait(struct hr_loader *l, uint64_t waited_ns)
{
    hr__count(&hr__counters_here(l)->wait_ns, waited_ns);
    hr__histogram_add(&hr__counters_here(l)->wait, waited_ns);
}

static int next(struct hr_loader *l, struct hr_batch **out, struct hr_error *error)
{
    struct hr_batch *batch = NULL, *slots = NULL;
    pthread_mutex_lock(&l->lock);
    int r = wait_unlocking(l, &batch, &slots, error);
    pthread_mutex_unlock(&l->lock);
    hr__return_slots(slots);
    if (batch) {
        hr__batch_reset(batch);
        if (batch->rows)
            hr__batch_rows_gather(batch->rows, batch->count);
        hr__ring_deliver(batch);
        *out = batch;
    }
    return r;
}

int hr_loader_next(struct hr_loader *loader, struct hr_batch **out, struct hr_error *error)
{
    *out = NULL;
    int r = check_child(loader, error);
    if (r)
        return r;
    uint64_t start_ns = hr__now_ns();
    hr__status_enter(loader, start_ns);
    r = loader->attachment->next(loader, out, error);
    uint64_t end_ns = hr__now_ns();
    count_wait(loader, end_ns - start_ns);
    hr__status_leave(loader, end_ns, r);
    return r;
}

static void destroy(struct hr_loader *l)
{
    if (hr__is_started(l))
        hr__threads_stop(l);
}

static int start(struct hr_loader *l, const struct hr_loader_state *from, int is_restored,
                 struct hr_error *error)
{
    (void)is_restored;
    return hr__loader_start_at(l, from, 0, error);
}

const struct hr__attachment hr__attachment_none = {
    .destroy = destroy,
    .start = start,
    .next = next,
    .push = append_push,
    .push_end = end_push,
    .get_state = get_state,
};
