/*
 * The workers, which prepare samples, and starting and stopping all threads of a loader.
 *
 * A thread with nothing to do waits on its condition variable. Threads are woken one at a time, and
 * a thread that wakes up wakes the next if there is more work. So handing out a batch costs one
 * wake-up, not one per thread.
 *
 * All threads block signals (base/thread.h): handlers run in the program's own threads.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "loader/inside.h"
#include "loader/mix.h"
#include "loader/process.h"
#include "loader/schedule.h"

#include <errno.h>
#include <stdio.h>

/* Samples that fetchers read before workers try again: the first value, and the largest. */
#define FETCHER_SPAN_MIN 1024
#define FETCHER_SPAN_MAX 16384

static void let_fetchers_read_locked(struct hr_loader *l)
{
    l->workers_read = 0;
    l->fetcher_span *= 2;
    if (l->fetcher_span > FETCHER_SPAN_MAX)
        l->fetcher_span = FETCHER_SPAN_MAX;
    l->fetcher_samples = l->fetcher_span;
    pthread_cond_broadcast(&l->fetch);
}

static void watch_blocking_locked(struct hr_loader *l, int blocked)
{
    if (!l->workers_read || !l->live_fetchers)
        return;
    if (blocked)
        l->blocked_score += HR__BLOCKED_STEP;
    else if (l->blocked_score > 0)
        l->blocked_score--;
    else
        l->fetcher_span = FETCHER_SPAN_MIN / 2;
    if (l->blocked_score >= HR__BLOCKED_LIMIT)
        let_fetchers_read_locked(l);
}

int hr__has_work_locked(const struct hr_loader *l)
{
    return l->fetched || (l->workers_read && hr__can_claim_locked(l));
}

struct hr__job *hr__next_job_unlocking(struct hr_loader *l)
{
    struct hr__job *job = hr__take_delayed_locked(l);
    if (!job)
        job = hr__take_staged_locked(l);
    if (!job && l->workers_read)
        job = hr__claim_unlocking(l, 1);
    int unwatched = l->delayed && !l->delayed_watched;
    if (job && l->idle_workers && (unwatched || hr__has_work_locked(l)))
        hr__wake_worker_locked(l);
    return job;
}

/* Sleeps until there is work, with the lock free. One of the idle workers sets a timeout for jobs
 * that wait for other processes. */
static void wait_for_work_unlocking(struct hr_loader *l)
{
    l->idle_workers++;
    if (l->delayed && !l->delayed_watched) {
        struct timespec until = hr__timespec(l->delayed->ask_ns);
        l->delayed_watched = 1;
        pthread_cond_timedwait(&l->work, &l->lock, &until);
        l->delayed_watched = 0;
    } else {
        pthread_cond_wait(&l->work, &l->lock);
    }
    l->idle_workers--;
}

/* Mixes the batch if the job is its last. */
static void mix_unlocking(struct hr_loader *l, const struct hr__job *job,
                          const struct hr__outcome *outcome)
{
    struct hr_batch *batch = job->batch;
    if (!hr__mix_is_on(&l->options) || batch->cancelled || batch->error.code ||
        outcome->error.code || batch->done + 1 != batch->count)
        return;
    pthread_mutex_unlock(&l->lock);
    hr__mix_batch(l, batch);
    pthread_mutex_lock(&l->lock);
}

void hr__finish_job_unlocking(struct hr_loader *l, struct hr__job *job, struct hr__outcome *outcome)
{
    if (outcome->busy && !job->batch->cancelled) {
        hr__delay_locked(l, job);
        return;
    }
    mix_unlocking(l, job, outcome);
    struct hr_batch *slot = hr__finish_locked(l, job, outcome);
    if (outcome->was_read)
        watch_blocking_locked(l, outcome->blocked);
    if (l->keeper->note_locked)
        l->keeper->note_locked(l, &outcome->cost);
    if (slot || outcome->skipped || outcome->failed) {
        pthread_mutex_unlock(&l->lock);
        hr__return_slots(slot);
        hr__free(outcome->skipped);
        hr__free(outcome->failed);
        pthread_mutex_lock(&l->lock);
    }
}

static void *work(void *arg)
{
    struct hr__thread *self = arg;
    struct hr_loader *l = self->loader;
    struct hr__outcome outcome;
    hr__numa_enter("", &l->home, self->number);
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (l->keeper->should_convert_locked && l->keeper->should_convert_locked(self)) {
            l->keeper->convert_unlocking(self);
            continue;
        }
        struct hr__job *job = hr__next_job_unlocking(l);
        if (!job) {
            /* Looking may have released the lock: look again before sleeping. */
            if (l->stop || hr__has_work_locked(l) || hr__bands_help_unlocking(self))
                continue;
            if (l->keeper->may_convert_locked && l->keeper->may_convert_locked(l, 1))
                l->keeper->convert_unlocking(self);
            else
                wait_for_work_unlocking(l);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        hr__process(self, job, &outcome);
        pthread_mutex_lock(&l->lock);
        hr__finish_job_unlocking(l, job, &outcome);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

int hr__thread_start(struct hr__thread *thread, void *(*run)(void *), const char *name,
                     struct hr_error *error)
{
    int r = hr__thread_create(&thread->id, run, thread);
    if (r)
        return hr__fail(error, -EAGAIN,
                        "cannot make thread %d (%s): lower `threads`, or raise the "
                        "limit of processes",
                        thread->number + 1, hr__errno_text(-r));
    char text[16];
    snprintf(text, sizeof text, "%s-%d", name, thread->number);
    pthread_setname_np(thread->id, text);
    return 0;
}

static int start_fetcher(struct hr_loader *l, struct hr_error *error)
{
    struct hr__thread *thread = &l->fetchers[l->fetcher_count];
    *thread = (struct hr__thread){.loader = l, .number = l->fetcher_count};
    int r = hr__thread_start(thread, hr__fetch_main, "hr-fetch", error);
    l->fetcher_count += !r;
    return r;
}

/* The first fetcher finds out whether io_uring works; more fetchers are useful only with pread. */
static int start_fetchers(struct hr_loader *l, struct hr_error *error)
{
    int r = start_fetcher(l, error);
    if (r)
        return r;
    pthread_mutex_lock(&l->lock);
    while (!l->reader_state)
        pthread_cond_wait(&l->room, &l->lock);
    int state = l->reader_state;
    pthread_mutex_unlock(&l->lock);
    if (state < 0)
        return hr__fail(error, state, "cannot make a reader: %s", hr__errno_text(state));
    while (!r && state == 2 && l->fetcher_count < HR__PREAD_FETCHERS)
        r = start_fetcher(l, error);
    return r;
}

static int start_worker(struct hr_loader *l, struct hr_error *error)
{
    struct hr__thread *thread = &l->workers[l->worker_count];
    *thread = (struct hr__thread){.loader = l, .number = l->worker_count};
    int r = hr_preparer_create(&thread->preparer, error);
    if (!r) {
        hr__bands_begin(thread);
        r = hr__thread_start(thread, work, "hr-work", error);
    }
    if (r)
        hr_preparer_destroy(&thread->preparer);
    else
        l->worker_count++;
    return r;
}

int hr__threads_start(struct hr_loader *l, struct hr_error *error)
{
    /* There are no threads yet, but another thread may call get_stats. */
    pthread_mutex_lock(&l->lock);
    l->stop = 0;
    l->reader_state = 0;
    l->live_fetchers = 0;
    l->workers_read = !l->options.direct_io && !l->always_fetched;
    l->blocked_score = 0;
    l->fetcher_span = FETCHER_SPAN_MIN / 2;
    l->fetcher_samples = 0;
    pthread_mutex_unlock(&l->lock);
    int r = l->keeper->enter ? l->keeper->enter(l, error) : 0;
    if (r)
        return r;
    int wanted = l->borrows_workers ? 0 : l->workers_wanted;
    l->workers = hr__alloc(HR__TAG_LOADER, (size_t)wanted + 1, sizeof *l->workers);
    if (!l->workers)
        r = hr__fail(error, -ENOMEM, "out of memory for %d workers", wanted);
    if (!r)
        r = start_fetchers(l, error);
    while (!r && l->worker_count < wanted)
        r = start_worker(l, error);
    if (!r && l->part->start)
        r = l->part->start(l, error);
    if (r)
        hr__threads_stop(l);
    return r;
}

void hr__threads_stop(struct hr_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = 1;
    pthread_cond_broadcast(&l->work);
    pthread_cond_broadcast(&l->fetch);
    pthread_cond_broadcast(&l->room);
    if (l->part->stop_locked)
        l->part->stop_locked(l);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->fetcher_count; i++)
        pthread_join(l->fetchers[i].id, NULL);
    if (l->part->join)
        l->part->join(l);
    for (int i = 0; i < l->worker_count; i++) {
        pthread_join(l->workers[i].id, NULL);
        hr_preparer_destroy(&l->workers[i].preparer);
        hr_converter_destroy(&l->workers[i].converter);
    }
    hr__free(l->workers);
    l->workers = NULL;
    l->worker_count = l->fetcher_count = 0;
}
