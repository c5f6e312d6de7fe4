/*
 * Chooses the sample to work on next.
 *
 * Everything here runs under the loader's lock and takes a fraction of a microsecond, except
 * opening a batch: one thread at a time does that, with the lock released, while the others go on
 * with the open batches.
 *
 * Which thread asks, and when, decides only who does the work. Batches are opened in order, and
 * their content is a function of the plan alone.
 */
#include "loader/schedule.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/memory.h"
#include "dataset/pair.h"
#include "loader/inside.h"
#include "recipe/recipe.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How much of the staging budget a file of unknown size is charged. */
#define TYPICAL_FILE_BYTES (128u << 10)

/* When to ask again for a sample that another process is reading: first after ASK_NS_MIN, in the
 * end every ASK_NS_MAX. With many waiting samples, pauses are at least ASK_NS_EACH times their
 * number, so that asking does not keep a core busy. */
#define ASK_NS_MIN  100000u
#define ASK_NS_MAX  1000000u
#define ASK_NS_EACH 10000u

struct hr__epoch *hr__epoch_ref(struct hr__epoch *plan)
{
    atomic_fetch_add_explicit(&plan->refs, 1, memory_order_relaxed);
    return plan;
}

void hr__epoch_unref(struct hr__epoch **pointer)
{
    struct hr__epoch *plan = *pointer;
    if (!plan)
        return;
    *pointer = NULL;
    if (atomic_fetch_sub_explicit(&plan->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (plan->deal)
        plan->deal->destroy(plan->deal);
    hr__order_destroy(&plan->order);
    hr__free(plan);
}

void hr__wake_consumer_locked(struct hr_loader *l)
{
    if (l->part->notify_consumer_locked)
        l->part->notify_consumer_locked(l);
    if (!l->consumer_waits)
        return;
    l->consumer_waits = 0;
    atomic_fetch_add_explicit(&l->ready_word, 1, memory_order_release);
    hr__futex_wake(&l->ready_word, 1, 0);
}

void hr__wake_worker_locked(struct hr_loader *l)
{
    if (l->part->notify_workers_locked)
        l->part->notify_workers_locked(l, 1);
    else if (l->idle_workers)
        pthread_cond_signal(&l->work);
}

static void wake_workers_locked(struct hr_loader *l)
{
    if (l->part->notify_workers_locked)
        l->part->notify_workers_locked(l, INT_MAX);
    else
        pthread_cond_broadcast(&l->work);
}

void hr__wake_claimers_locked(struct hr_loader *l)
{
    if (l->workers_read)
        hr__wake_worker_locked(l);
    else if (l->idle_fetchers)
        pthread_cond_signal(&l->fetch);
    if (l->part->wake_locked)
        l->part->wake_locked(l);
}

/* Returns non-zero if a batch can be opened: the plan has one, and the window has room. */
static int can_open_locked(const struct hr_loader *l)
{
    if (l->stop || !l->plan || l->no_more || l->opening ||
        l->window_count >= l->options.batches_ahead)
        return 0;
    if (l->part->can_open_locked && !l->part->can_open_locked(l))
        return 0;
    return l->options.external_order ? l->pushed != NULL : l->opened < l->plan->batches;
}

int hr__can_claim_locked(const struct hr_loader *l)
{
    return !l->broken.code && (l->cursor || can_open_locked(l));
}

uint64_t hr__size_of(const struct hr_loader *l, const struct hr_batch *batch, size_t place)
{
    size_t index = (size_t)batch->indices[place];
    int64_t bytes = hr__dataset_kept_bytes(l->dataset, index);
    return bytes < 0 ? TYPICAL_FILE_BYTES : (uint64_t)bytes;
}

uint64_t hr__next_size_locked(const struct hr_loader *l)
{
    return l->cursor ? hr__size_of(l, l->cursor, l->cursor->claimed) : TYPICAL_FILE_BYTES;
}

void hr__batch_reset(struct hr_batch *batch)
{
    hr__bad_free_list(batch->skipped);
    hr__free(batch->failed);
    batch->skipped = batch->failed = NULL;
    batch->bad = 0;
    batch->error.code = 0;
    batch->claimed = batch->done = 0;
    batch->cancelled = 0;
    batch->fetched = batch->fetched_last = NULL;
    hr__epoch_unref(&batch->plan);
}

void hr__return_slots(struct hr_batch *list)
{
    while (list) {
        struct hr_batch *next = list->next;
        hr__batch_reset(list);
        list->owner->give_back(list);
        list = next;
    }
}

/* Checks before each try of get_slot whether the slot is still needed. */
static int still_wanted(struct hr_loader *l, const struct hr__epoch *plan, int *stale)
{
    pthread_mutex_lock(&l->lock);
    int wanted = !l->stop && l->plan == plan;
    *stale = l->stale;
    pthread_mutex_unlock(&l->lock);
    return wanted;
}

/* Sleeps until a slot may have come back, for `ns` at most. */
static void wait_for_room(struct hr_loader *l, const struct hr__epoch *plan, uint64_t ns)
{
    struct timespec until = hr__timespec(hr__now_ns() + ns);
    pthread_mutex_lock(&l->lock);
    if (!l->stop && l->plan == plan)
        pthread_cond_timedwait(&l->room, &l->lock, &until);
    pthread_mutex_unlock(&l->lock);
}

/*
 * Gets a slot for the next batch of `plan`. Waits for slots that will come back without the
 * consumer (those of a dropped epoch, or with copies in progress on a device). Does not wait for
 * slots that the consumer holds: the ring grows instead. Errors: -ECANCELED: the slot is no longer
 * needed; -EAGAIN: it would have to wait, and `may_wait` is 0.
 */
static int get_slot(struct hr_loader *l, const struct hr__epoch *plan, int may_wait,
                    struct hr_batch **batch, struct hr_error *error)
{
    uint64_t pause_ns = 100000;
    size_t beyond = 0;
    int stale, r;
    for (;;) {
        if (!still_wanted(l, plan, &stale))
            return -ECANCELED;
        r = hr__ring_acquire(l->ring, 0, batch, &beyond, error);
        if (r != -EAGAIN && r != -EBUSY)
            return r;
        if (!stale && r == -EAGAIN) {
            r = hr__ring_acquire(l->ring, 1, batch, &beyond, error);
            break;
        }
        if (!may_wait)
            return -EAGAIN;
        wait_for_room(l, plan, pause_ns);
        if (pause_ns < 2000000)
            pause_ns *= 2;
    }
    /* A loop that looks one batch ahead, as frameworks do, makes the ring grow by one or two. */
    if (beyond == 3) {
        struct hr__ring_counts counts;
        hr__ring_counts(l->ring, &counts);
        hr__log(HR_LOG_WARNING,
                "more batches are held than planned for: the ring grows beyond %d slots of %llu "
                "bytes; release batches, or expect memory for all that are held",
                l->options.batches_ahead + 2, (unsigned long long)counts.slot_bytes);
    }
    return r;
}

/* Determines the samples of batch `opened` of the plan. */
static void fill(struct hr_loader *l, const struct hr__epoch *plan, uint64_t opened,
                 const struct hr__push *push, struct hr_batch *batch)
{
    batch->padding = 0;
    if (push) {
        batch->count = push->count;
        for (size_t i = 0; i < push->count; i++) {
            batch->positions[i] = push->position + i;
            batch->indices[i] = push->indices[i];
        }
    } else {
        batch->count =
            plan->deal ? plan->deal->batch(plan->deal, opened, batch->positions, &batch->padding)
                       : hr__cut_batch(&plan->cut, opened, batch->positions, &batch->padding);
        for (size_t i = 0; i < batch->count; i++)
            batch->indices[i] = (int64_t)hr__order_at(plan->order, batch->positions[i]);
    }
    for (size_t i = 0; i < batch->count; i++)
        batch->labels[i] = hr_dataset_label(l->dataset, (size_t)batch->indices[i]);
    batch->replaced = 0;
    batch->is_mixed = 0;
    batch->epoch = plan->epoch;
    batch->number = plan->first_number + opened;
    batch->opened_ns = plan->deal ? hr__now_ns() : 0;
}

static void append_locked(struct hr_loader *l, struct hr_batch *batch)
{
    batch->next = NULL;
    if (l->window_last)
        l->window_last->next = batch;
    else
        l->window = batch;
    l->window_last = batch;
    l->window_count++;
    if (!l->cursor)
        l->cursor = batch;
}

/* Undoes the start of an opening. No other thread changes `opened` or the pushed list's front
 * meanwhile. */
static void open_later_locked(struct hr_loader *l, struct hr__push *push)
{
    l->opened--;
    if (!push)
        return;
    push->next = l->pushed;
    l->pushed = push;
    if (!l->pushed_last)
        l->pushed_last = push;
}

/* Ends an opening. Returns 1 if the batch was appended to the window, with the reference to `plan`;
 * 0 if it was not. */
static int settle_opening_locked(struct hr_loader *l, struct hr__epoch *plan,
                                 struct hr_batch *batch, const struct hr_error *error)
{
    int wanted = !l->stop && l->plan == plan && !l->no_more;
    l->opening = 0;
    if (wanted && !error->code) {
        batch->plan = plan;
        append_locked(l, batch);
    } else if (wanted && error->code != -EAGAIN) {
        l->broken = *error;
        l->no_more = 1;
        hr__wake_consumer_locked(l);
    }
    if (l->part->opened_locked)
        l->part->opened_locked(l, l->broken.code);
    return wanted && !error->code;
}

/* Opens the next batch. The lock is free while it gets memory. Returns 0 if it would have to wait
 * and `may_wait` is 0. */
static int open_unlocking(struct hr_loader *l, int may_wait)
{
    struct hr__epoch *plan = hr__epoch_ref(l->plan);
    uint64_t number = l->opened++;
    struct hr__push *push = l->pushed;
    if (push) {
        l->pushed = push->next;
        if (!l->pushed)
            l->pushed_last = NULL;
    }
    l->opening = 1;
    pthread_mutex_unlock(&l->lock);

    struct hr_batch *batch = NULL;
    struct hr_error error = {0};
    int r = l->part->open ? l->part->open(l, number + plan->first_chunk, &batch, &error)
                          : get_slot(l, plan, may_wait, &batch, &error);
    error.code = r;
    if (!r)
        fill(l, plan, number, push, batch);

    pthread_mutex_lock(&l->lock);
    int later = r == -EAGAIN && !l->stop && l->plan == plan && !l->no_more;
    if (later) {
        open_later_locked(l, push);
        push = NULL;
    }
    int is_open = settle_opening_locked(l, plan, batch, &error);
    hr__free(push);
    if (is_open)
        return 1;
    pthread_mutex_unlock(&l->lock);
    if (batch)
        batch->owner->give_back(batch);
    hr__epoch_unref(&plan);
    pthread_mutex_lock(&l->lock);
    /* Meanwhile another epoch may have begun, or a slot may have come back, and threads that looked
     * then found an opening in progress and went to sleep. Wake those that wait for samples, and
     * the consumer, which may wait for a batch that will not come. */
    if (!later || hr__can_claim_locked(l))
        hr__wake_claimers_locked(l);
    if (!later)
        hr__wake_consumer_locked(l);
    return !later;
}

struct hr__job *hr__take_job_locked(struct hr_loader *l)
{
    struct hr__job *job = l->free_jobs;
    if (job) {
        l->free_jobs = job->next;
        job->next = NULL;
        return job;
    }
    job = hr__alloc(HR__TAG_LOADER, 1, sizeof *job);
    if (!job)
        return NULL;
    /* Cached samples need not be in the page cache too. */
    job->sample.uncached = l->uncached;
    job->sample.max_bytes = hr__recipe_max_source(l->recipe);
    job->all_next = l->all_jobs;
    l->all_jobs = job;
    return job;
}

static void break_locked(struct hr_loader *l)
{
    l->no_more = 1;
    hr__fail(&l->broken, -ENOMEM, "out of memory for a sample's read: lower batches_ahead");
    hr__wake_consumer_locked(l);
}

struct hr__job *hr__claim_unlocking(struct hr_loader *l, int may_wait)
{
    while (hr__can_claim_locked(l) && !l->cursor)
        if (!open_unlocking(l, may_wait))
            return NULL;
    if (!hr__can_claim_locked(l))
        return NULL;
    struct hr__job *job = hr__take_job_locked(l);
    if (!job) {
        break_locked(l);
        return NULL;
    }
    struct hr_batch *batch = l->cursor;
    job->batch = batch;
    job->place = batch->claimed++;
    job->unread = 1;
    job->charged_bytes = 0;
    job->pause_ns = 0;
    job->tier = HR__TIER_STORAGE;
    job->from_source = 0;
    job->is_noted = 0;
    job->seen = 0;
    if (batch->claimed == batch->count)
        l->cursor = batch->next;
    return job;
}

void hr__charge_locked(struct hr_loader *l, struct hr__job *job, uint64_t bytes)
{
    if (job->is_item)
        l->reserved_items += bytes - job->charged_bytes;
    l->reserved_bytes += bytes - job->charged_bytes;
    job->charged_bytes = bytes;
}

void hr__free_job_locked(struct hr_loader *l, struct hr__job *job)
{
    assert(!job->ticket.is_claimed);
    hr__charge_locked(l, job, 0);
    hr__drop_mask(l, job);
    job->batch = NULL;
    job->next = l->free_jobs;
    l->free_jobs = job;
    /* The staging budget is half free: enough for the fetchers to read many at once. */
    if (!l->workers_read && l->idle_fetchers && l->reserved_bytes <= l->options.staging_bytes / 2 &&
        hr__can_claim_locked(l))
        pthread_cond_signal(&l->fetch);
    if (l->part->wake_locked && l->reserved_bytes <= l->options.staging_bytes / 2)
        l->part->wake_locked(l);
}

void hr__account_read(struct hr_loader *l, const struct hr__read *read, enum hr__tier from,
                      uint64_t ns)
{
    struct hr__counters *c = hr__counters_here(l);
    if (read->result)
        return;
    hr__count(from == HR__TIER_DISK ? &c->disk_bytes : &c->bytes_read, read->length);
    hr__count(&c->staged_bytes, read->length);
    hr__histogram_add(&c->fetch, ns);
}

void hr__drop_bytes(struct hr_loader *l, struct hr__read *read)
{
    if (read->bytes)
        hr__uncount(&hr__counters_here(l)->staged_bytes, read->length);
    hr__read_drop(read);
}

void hr__drop_mask(struct hr_loader *l, struct hr__job *job)
{
    if (job->mask_read == HR__MASK_READ)
        hr__drop_bytes(l, &job->mask.read);
    job->mask_read = HR__MASK_UNREAD;
}

int hr__job_join(struct hr_loader *l, struct hr__job *job)
{
    const struct hr__read *mask = &job->mask.read;
    struct hr__read *read = &job->sample.read;
    if (job->mask_read != HR__MASK_READ)
        return 0;
    const struct hr_item_part parts[2] = {{read->bytes, read->length}, {mask->bytes, mask->length}};
    size_t length;
    uint8_t *bytes = hr__pair_join(parts, 1, &parts[1], &length);
    if (!bytes)
        return -ENOMEM;
    hr__drop_bytes(l, read);
    hr__drop_mask(l, job);
    read->bytes = bytes;
    read->length = length;
    hr__count(&hr__counters_here(l)->staged_bytes, length);
    job->mask_read = HR__MASK_WITHIN;
    return 0;
}

void hr__let_workers_read_locked(struct hr_loader *l)
{
    l->workers_read = 1;
    /* On trial: if one of the first reads blocks, fetchers take over again. */
    l->blocked_score = HR__BLOCKED_LIMIT - HR__BLOCKED_STEP;
    wake_workers_locked(l);
}

void hr__stage_locked(struct hr_loader *l, struct hr__job *job)
{
    struct hr_batch *batch = job->batch;
    job->next = NULL;
    if (batch->fetched_last)
        batch->fetched_last->next = job;
    else
        batch->fetched = job;
    batch->fetched_last = job;
    l->fetched++;
    hr__wake_worker_locked(l);
}

void hr__job_wait(struct hr__job *job, uint64_t waiting)
{
    uint64_t pause_ns = job->pause_ns ? 2 * job->pause_ns : ASK_NS_MIN;
    if (pause_ns > ASK_NS_MAX)
        pause_ns = ASK_NS_MAX;
    job->pause_ns = pause_ns;
    if (pause_ns < waiting * ASK_NS_EACH)
        pause_ns = waiting * ASK_NS_EACH;
    job->ask_ns = hr__now_ns() + pause_ns;
}

void hr__delay_locked(struct hr_loader *l, struct hr__job *job)
{
    assert(!job->batch->cancelled && !job->ticket.is_claimed);
    hr__job_wait(job, l->delayed_count);
    job->next = NULL;
    if (l->delayed_last)
        l->delayed_last->next = job;
    else
        l->delayed = job;
    l->delayed_last = job;
    l->delayed_count++;
}

static struct hr__job *pop_delayed_locked(struct hr_loader *l)
{
    struct hr__job *job = l->delayed;
    l->delayed = job->next;
    if (!l->delayed)
        l->delayed_last = NULL;
    l->delayed_count--;
    job->next = NULL;
    return job;
}

struct hr__job *hr__take_delayed_locked(struct hr_loader *l)
{
    if (!l->delayed || hr__now_ns() < l->delayed->ask_ns)
        return NULL;
    return pop_delayed_locked(l);
}

struct hr__job *hr__take_staged_locked(struct hr_loader *l)
{
    if (!l->fetched)
        return NULL;
    struct hr_batch *batch = l->window;
    while (batch && !batch->fetched)
        batch = batch->next;
    if (!batch)
        return NULL;
    struct hr__job *job = batch->fetched;
    batch->fetched = job->next;
    if (!batch->fetched)
        batch->fetched_last = NULL;
    job->next = NULL;
    l->fetched--;
    return job;
}

static void note_outcome_locked(struct hr_loader *l, struct hr_batch *batch, size_t place,
                                struct hr__outcome *outcome)
{
    if (outcome->skipped) {
        hr__bad_insert(&batch->skipped, outcome->skipped);
        batch->bad += !outcome->skipped->taken;
        batch->replaced += !outcome->skipped->taken && !outcome->error.code;
        outcome->skipped = NULL;
    }
    if (!outcome->error.code)
        return;
    l->no_more = 1;
    /* The batch reports the failure with the lowest place. */
    if (!batch->error.code || place < batch->error_place) {
        hr__free(batch->failed);
        batch->failed = outcome->failed;
        batch->error = outcome->error;
        batch->error_place = place;
        outcome->failed = NULL;
    }
}

struct hr_batch *hr__finish_locked(struct hr_loader *l, struct hr__job *job,
                                   struct hr__outcome *outcome)
{
    struct hr_batch *batch = job->batch;
    size_t place = job->place;
    hr__free_job_locked(l, job);
    batch->done++;
    if (batch->cancelled) {
        if (batch->done < batch->claimed)
            return NULL;
        l->stale--;
        pthread_cond_broadcast(&l->room);
        batch->next = NULL;
        return batch;
    }
    note_outcome_locked(l, batch, place, outcome);
    if (batch->done == batch->count) {
        l->complete++;
        if (l->part->ready_locked)
            l->part->ready_locked(l, batch);
        if (batch == l->window)
            hr__wake_consumer_locked(l);
    } else if (l->broken.code) {
        hr__wake_consumer_locked(l);
    }
    return NULL;
}

struct hr_batch *hr__window_pop_locked(struct hr_loader *l)
{
    struct hr_batch *batch = l->window;
    l->window = batch->next;
    if (!l->window)
        l->window_last = NULL;
    l->window_count--;
    l->complete -= batch->done == batch->count;
    if (l->cursor == batch)
        l->cursor = batch->next;
    batch->next = NULL;
    return batch;
}

struct hr_batch *hr__cancel_locked(struct hr_loader *l)
{
    struct hr_batch *slots = NULL;
    while (l->delayed) {
        struct hr__job *job = pop_delayed_locked(l);
        job->batch->done++;
        l->complete += job->batch->done == job->batch->count;
        hr__free_job_locked(l, job);
    }
    if (l->part->cancel_locked)
        l->part->cancel_locked(l);
    while (l->window) {
        struct hr_batch *batch = hr__window_pop_locked(l);
        while (batch->fetched) {
            struct hr__job *job = batch->fetched;
            batch->fetched = job->next;
            l->fetched--;
            hr__drop_bytes(l, &job->sample.read);
            hr__sample_unclaim(l, &job->ticket);
            hr__free_job_locked(l, job);
            batch->done++;
        }
        batch->fetched_last = NULL;
        batch->cancelled = 1;
        /* After stop no thread works on a job any more. */
        if (batch->done < batch->claimed && !l->stop) {
            l->stale++;
        } else {
            batch->next = slots;
            slots = batch;
        }
    }
    assert(!l->fetched && !l->complete);
    l->cursor = NULL;
    while (l->pushed) {
        struct hr__push *push = l->pushed;
        l->pushed = push->next;
        hr__free(push);
    }
    l->pushed_last = NULL;
    return slots;
}
