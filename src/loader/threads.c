/*
 * The workers, which prepare samples, and the starting and stopping of all threads.
 *
 * A thread with nothing to do waits on its condition; it is woken one at a time
 * and wakes the next when there is work for two, so that a batch handed out
 * costs one wake-up and not one per thread.
 *
 * All signals are blocked in them: handlers run in the program's own threads.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "loader/loader.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Samples that fetchers read before workers try again, at first and at most. */
#define FETCHER_SPAN_MIN 1024
#define FETCHER_SPAN_MAX 16384

/* How often a worker believes that a sample is cached which it then does not find. */
#define FIND_ATTEMPTS 3

/* Reads on this thread; what came of it is in the job. Fails only where there is
 * nothing to read from. */
static int read_now(struct hr_loader *l, struct hr__job *job, uint64_t index,
                    struct hr_error *error)
{
    struct hr__read *read = &job->sample.read;
    uint64_t start = hr__now_ns();
    int r = hr__sample_aim(&job->sample, l->dataset, index, 0, error);
    if (r)
        return r;
    read->result = hr__read_file(read, 0);
    hr__account_read(l, read, hr__now_ns() - start);
    return 0;
}

/* Reads, telling whether this thread had to wait. The kernel's count of
 * voluntary switches tells storage from a busy machine, which time does not. */
static int read_and_watch(struct hr_loader *l, struct hr__job *job, uint64_t index, int *blocked,
                          struct hr_error *error)
{
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    int r = read_now(l, job, index, error);
    getrusage(RUSAGE_THREAD, &after);
    *blocked = after.ru_nvcsw != before.ru_nvcsw;
    return r;
}

/* The clock of struct hr__cost. */
static uint64_t cost_clock(const struct hr_loader *l)
{
    return l->caching.cache ? hr__thread_cpu_ns() : 0;
}

/* Runs the recipe on one sample's bytes, into its place in the batch. */
static int run_recipe(struct hr__thread *self, struct hr__job *job, uint64_t index,
                      const struct hr_item *item, struct hr__outcome *outcome,
                      struct hr_error *error)
{
    struct hr_loader *l = self->loader;
    const struct hr__epoch *plan = job->batch->plan;
    uint8_t *out = (uint8_t *)job->batch->images + job->place * l->spec.bytes;
    struct hr_draw_key key = {.seed = plan->seed, .epoch = plan->epoch, .index = index};
    /* Repeats of a sample in an external order must not be the same picture. */
    if (!plan->order)
        key.epoch += job->batch->positions[job->place] << 32;
    error->message[0] = 0;
    uint64_t start = hr__now_ns(), start_cpu = cost_clock(l);
    int r = hr_preparer_run(self->preparer, l->recipe, item->bytes, item->length, &key, out, error);
    uint64_t took_ns = hr__now_ns() - start;
    hr__histogram_add(&l->counters.prepare, took_ns);
    if (l->hosting)
        hr__hosting_prepared(l, index, took_ns);
    outcome->cost.form = item->form;
    outcome->cost.prepare_ns = r ? 0 : cost_clock(l) - start_cpu;
    if (r && !error->message[0])
        hr__fail(error, r, "%s", hr__errno_text(r));
    return r;
}

/* The same on what was read; frees it. What is good is offered to the cache, and a
 * claim has ended. */
static int prepare(struct hr__thread *self, struct hr__job *job, uint64_t index,
                   struct hr__outcome *outcome, struct hr_error *error)
{
    struct hr_loader *l = self->loader;
    struct hr__read *read = &job->sample.read;
    int r = hr__sample_check(&job->sample, error);
    if (!r) {
        struct hr_item item = {read->bytes, read->length, hr_form_of(read->bytes, read->length)};
        outcome->cost.read_bytes = read->length;
        r = run_recipe(self, job, index, &item, outcome, error);
    }
    if (!r && l->caching.cache)
        hr__caching_offer(l, index, read->bytes, &outcome->cost, &job->ticket);
    if (!r && l->hosting && job->tier == HR__TIER_STORAGE)
        hr__hosting_offer(l, job, index);
    hr__caching_unclaim(l, &job->ticket);
    hr__drop_bytes(l, read);
    return r;
}

/* A sample that is cached: 1 and what became of it in *r. It is read in place. 0 as well where
 * its bytes were taken away meanwhile. */
static int prepare_cached(struct hr__thread *self, struct hr__job *job, uint64_t index,
                          struct hr__outcome *outcome, struct hr_error *error, int *r)
{
    struct hr_loader *l = self->loader;
    struct hr__cache_item hit;
    if (!l->caching.cache || !hr__cache_find(l->caching.cache, index, &hit))
        return 0;
    struct hr_item item = {hit.bytes, hit.length, hit.form};
    outcome->cost.read_bytes = 0;
    *r = run_recipe(self, job, index, &item, outcome, error);
    if (!hr__cache_unpin(l->caching.cache, &hit))
        return 0;
    hr__count(&l->counters.cache_hits, 1);
    return 1;
}

/* Dataset index of the stand-in for the sample at `position`, at `attempt`. */
static uint64_t stand_in(const struct hr__epoch *plan, uint64_t position, uint32_t attempt)
{
    uint64_t samples = plan->cut.samples;
    uint64_t other =
        hr__order_replacement(samples, plan->seed, plan->epoch, position % samples, attempt);
    return plan->order ? hr__order_at(plan->order, other) : other;
}

/* Puts another sample where a bad one was. 0, or the last error. */
static int replace(struct hr__thread *self, struct hr__job *job, struct hr__outcome *outcome,
                   struct hr_error *error)
{
    struct hr_loader *l = self->loader;
    struct hr_batch *batch = job->batch;
    const struct hr__epoch *plan = batch->plan;
    uint64_t others = plan->cut.samples - 1;
    uint32_t attempts = others < HR__MAX_ATTEMPTS ? (uint32_t)others : HR__MAX_ATTEMPTS;
    int r = -EBADMSG;
    for (uint32_t attempt = 0; attempt < attempts && r && hr__is_samples_fault(r); attempt++) {
        uint64_t index = stand_in(plan, batch->positions[job->place], attempt);
        outcome->cost.read_ns = 0;
        if (!prepare_cached(self, job, index, outcome, error, &r)) {
            /* Stand-ins are rare: one that another process reads is just read twice. */
            hr__caching_claim(l, index, &job->ticket);
            r = read_now(l, job, index, error);
            if (!r)
                r = prepare(self, job, index, outcome, error);
            hr__caching_unclaim(l, &job->ticket);
        }
        /* A stand-in is intact: a place has room for the story of one sample. */
        if (!r && hr_preparer_damage(self->preparer))
            r = hr__fail(error, -EBADMSG, "%s", hr_preparer_damage(self->preparer));
        if (!r) {
            batch->indices[job->place] = (int64_t)index;
            batch->labels[job->place] = hr_dataset_label(l->dataset, index);
        }
    }
    return r;
}

/* Turns a failure at `index` into the message that the consumer gets. */
static void fail_job(struct hr_loader *l, struct hr__job *job, uint64_t index,
                     const struct hr_error *cause, struct hr__outcome *outcome)
{
    outcome->failed = hr__bad_make(l, job->batch, job->place, index, cause->message);
    char path[512] = "?";
    if (outcome->failed)
        hr__printable(path, sizeof path, outcome->failed->path);
    hr__fail(&outcome->error, cause->code, "sample %" PRIu64 " (%s): %.480s", index, path,
             cause->message);
    /* What this process lacks does not make a bad sample of it. */
    if (!hr__is_samples_fault(cause->code)) {
        hr__free(outcome->failed);
        outcome->failed = NULL;
    }
}

static void handle_failure(struct hr__thread *self, struct hr__job *job, struct hr_error *cause,
                           struct hr__outcome *outcome)
{
    struct hr_loader *l = self->loader;
    uint64_t index = (uint64_t)job->batch->indices[job->place];
    if (l->options.on_error != HR_ON_ERROR_SKIP || !hr__is_samples_fault(cause->code)) {
        fail_job(l, job, index, cause, outcome);
        return;
    }
    outcome->skipped = hr__bad_make(l, job->batch, job->place, index, cause->message);
    if (!outcome->skipped) {
        hr__fail(&outcome->error, -ENOMEM, "out of memory for the record of a bad sample");
        return;
    }
    struct hr_error last = {.code = cause->code};
    int r = replace(self, job, outcome, &last);
    if (!r)
        return;
    if (hr__is_samples_fault(r))
        snprintf(last.message, sizeof last.message,
                 "%.300s; no stand-in could be read either (up to %d were tried)",
                 outcome->skipped->reason, HR__MAX_ATTEMPTS);
    last.code = r;
    fail_job(l, job, index, &last, outcome);
}

/* Prepares a sample of which nothing has been read: from the cache, or by reading it
 * now, unless another process does: then outcome->busy is set. */
static int prepare_unread(struct hr__thread *self, struct hr__job *job, uint64_t index,
                          struct hr__outcome *outcome, struct hr_error *error)
{
    struct hr_loader *l = self->loader;
    int r = 0;
    /* What is found and yet not there goes away just now, or is damaged. */
    for (int attempt = 0; attempt < FIND_ATTEMPTS; attempt++) {
        if (prepare_cached(self, job, index, outcome, error, &r))
            return r;
        enum hr__claim claim = hr__caching_claim(l, index, &job->ticket);
        outcome->busy = claim == HR__CLAIM_BUSY;
        if (claim != HR__CLAIM_FOUND)
            break;
    }
    if (outcome->busy)
        return 0;
    outcome->was_read = 1;
    uint64_t start_ns = hr__now_ns(), start_cpu = cost_clock(l);
    r = read_and_watch(l, job, index, &outcome->blocked, error);
    outcome->fetch_ns = hr__now_ns() - start_ns;
    outcome->cost.read_ns = outcome->blocked ? outcome->fetch_ns : cost_clock(l) - start_cpu;
    return r ? r : prepare(self, job, index, outcome, error);
}

/* What a host gave could not be prepared: its file may. */
static int prepare_anew(struct hr__thread *self, struct hr__job *job, uint64_t index,
                        struct hr__outcome *outcome, struct hr_error *error)
{
    job->tier = HR__TIER_STORAGE;
    hr__hosting_forget(self->loader, job, index);
    int r = read_now(self->loader, job, index, error);
    return r ? r : prepare(self, job, index, outcome, error);
}

/* Notes the damage of a sample that was taken. Without memory it is a failure of this process. */
static void note_damage(struct hr__thread *self, const struct hr__job *job, uint64_t index,
                        struct hr__outcome *outcome)
{
    const char *damage = hr_preparer_damage(self->preparer);
    if (!damage)
        return;
    outcome->skipped = hr__bad_make(self->loader, job->batch, job->place, index, damage);
    if (outcome->skipped)
        outcome->skipped->taken = 1;
    else
        hr__fail(&outcome->error, -ENOMEM, "out of memory for the record of a damaged sample");
}

void hr__process(struct hr__thread *self, struct hr__job *job, struct hr__outcome *outcome)
{
    struct hr_loader *l = self->loader;
    uint64_t index = (uint64_t)job->batch->indices[job->place];
    struct hr_error error;
    memset(outcome, 0, offsetof(struct hr__outcome, error));
    outcome->error.code = 0;
    outcome->was_read = outcome->blocked = outcome->busy = 0;
    outcome->fetch_ns = 0;
    outcome->cost = (struct hr__cost){.form = HR_FORM_ENCODED};
    uint64_t start_cpu = cost_clock(l);
    hr__caching_note_place(l, job);
    int r = job->unread ? prepare_unread(self, job, index, outcome, &error)
                        : prepare(self, job, index, outcome, &error);
    if (r && job->tier != HR__TIER_STORAGE && hr__is_samples_fault(r))
        r = prepare_anew(self, job, index, outcome, &error);
    outcome->cost.working_ns = cost_clock(l) - start_cpu;
    if (outcome->busy)
        return;
    /* Where it could not be aimed at, prepare did not end the claim. */
    hr__caching_unclaim(l, &job->ticket);
    if (r) {
        error.code = r;
        handle_failure(self, job, &error, outcome);
        outcome->cost.working_ns = cost_clock(l) - start_cpu;
    } else {
        note_damage(self, job, index, outcome);
    }
    if (!outcome->error.code)
        hr__count(&l->counters.samples, 1);
}

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

struct hr__job *hr__next_job_locked(struct hr_loader *l)
{
    struct hr__job *job = hr__take_delayed_locked(l);
    if (!job)
        job = hr__take_staged_locked(l);
    if (!job && l->workers_read)
        job = hr__claim_locked(l, 1);
    int unwatched = l->delayed && !l->delayed_watched && !l->lane;
    if (job && (l->lane || l->idle_workers) && (unwatched || hr__has_work_locked(l)))
        hr__wake_worker_locked(l);
    return job;
}

/* Sleeps until there is work. Of the idle workers one looks after the jobs that wait
 * for other processes. */
static void wait_for_work_locked(struct hr_loader *l)
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

void hr__finish_job_locked(struct hr_loader *l, struct hr__job *job, struct hr__outcome *outcome)
{
    if (outcome->busy && !job->batch->cancelled) {
        hr__delay_locked(l, job);
        return;
    }
    struct hr_batch *slot = hr__finish_locked(l, job, outcome);
    if (outcome->was_read)
        watch_blocking_locked(l, outcome->blocked);
    if (l->caching.cache)
        hr__caching_note_locked(l, &outcome->cost);
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
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        hr__balancing_pass_locked(l);
        if (hr__balancing_worker_stands_by_locked(l, self->number))
            continue;
        if (hr__caching_should_convert_locked(self)) {
            hr__caching_convert_locked(self);
            continue;
        }
        struct hr__job *job = hr__next_job_locked(l);
        if (!job) {
            /* Looking may have released the lock: look again before sleeping. */
            if (l->stop || hr__has_work_locked(l))
                continue;
            if (hr__caching_may_convert_locked(l, 1))
                hr__caching_convert_locked(self);
            else
                wait_for_work_locked(l);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        uint64_t start_ns = l->balancing ? hr__now_ns() : 0;
        hr__process(self, job, &outcome);
        uint64_t end_ns = l->balancing ? hr__now_ns() : 0;
        pthread_mutex_lock(&l->lock);
        if (l->balancing && !outcome.busy)
            hr__balancing_worked_locked(l, end_ns - start_ns);
        hr__finish_job_locked(l, job, &outcome);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

int hr__thread_start(struct hr__thread *thread, void *(*run)(void *), const char *name,
                     struct hr_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of a file that was cut: base/truncation.h */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&thread->id, NULL, run, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r)
        return hr__fail(error, -EAGAIN,
                        "cannot make thread %d (%s): lower `threads`, or raise the "
                        "limit of processes",
                        thread->number + 1, hr__errno_text(r));
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

/* The first fetcher finds out what the kernel offers; more are only of use with
 * pread. */
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
    if (!r)
        r = hr__thread_start(thread, work, "hr-work", error);
    if (r)
        hr_preparer_destroy(&thread->preparer);
    else
        l->worker_count++;
    return r;
}

/* Workers that may be given to this loader later; where they cannot be made, fewer do. */
static void start_spare(struct hr_loader *l, int most)
{
    struct hr_error error;
    while (l->worker_count < most && !start_worker(l, &error))
        ;
    pthread_mutex_lock(&l->lock);
    hr__balancing_started_locked(l, l->worker_count);
    pthread_mutex_unlock(&l->lock);
}

int hr__threads_start(struct hr_loader *l, struct hr_error *error)
{
    /* There are no threads yet, but figures may be asked for. */
    pthread_mutex_lock(&l->lock);
    l->stop = 0;
    l->reader_state = 0;
    l->live_fetchers = 0;
    l->workers_read = !l->options.direct_io && !l->hosting;
    l->blocked_score = 0;
    l->fetcher_span = FETCHER_SPAN_MIN / 2;
    l->fetcher_samples = 0;
    pthread_mutex_unlock(&l->lock);
    int r = hr__caching_enter(l, error);
    if (r)
        return r;
    if (l->lane) {
        r = start_fetchers(l, error);
        if (!r)
            r = hr__crew_join(l->lane->crew, l, error);
        if (r)
            hr__threads_stop(l);
        return r;
    }
    hr__balancing_start(l);
    int most = hr__balancing_most(l);
    l->workers = hr__alloc(HR__TAG_LOADER, (size_t)most, sizeof *l->workers);
    if (!l->workers)
        r = hr__fail(error, -ENOMEM, "out of memory for %d workers", most);
    if (!r)
        r = start_fetchers(l, error);
    while (!r && l->worker_count < l->workers_wanted)
        r = start_worker(l, error);
    if (!r)
        start_spare(l, most);
    if (!r && l->hosting)
        r = hr__hosting_start(l, error);
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
    hr__balancing_stop_locked(l);
    if (l->hosting)
        hr__hosting_stop_locked(l);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->fetcher_count; i++)
        pthread_join(l->fetchers[i].id, NULL);
    if (l->hosting)
        hr__hosting_join(l);
    if (l->lane)
        hr__crew_leave(l->lane->crew, l);
    for (int i = 0; i < l->worker_count; i++) {
        pthread_join(l->workers[i].id, NULL);
        hr_preparer_destroy(&l->workers[i].preparer);
        hr_converter_destroy(&l->workers[i].converter);
    }
    hr__free(l->workers);
    l->workers = NULL;
    l->worker_count = l->fetcher_count = 0;
}
