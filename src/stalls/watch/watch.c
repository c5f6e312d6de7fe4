/*
 * A watched loop: chooses the next batch and records when it was requested. See watch.h.
 *
 * Time is measured between two calls of next, at the ends of a segment's timed part only. The times
 * of single batches are recorded too, but only for charts. A timed part begins when the loop
 * requests the successor of the batch before it, so that it has as many waits as steps.
 */
#include "stalls/watch/inside.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "dataset/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* A segment's desired number of batches and duration, if the limits allow both; the duration that a
 * batch counts as at least, so that a segment has some 4,000 at most. */
#define SEGMENT_BATCHES 20
#define SEGMENT_S       0.3
#define SHORTEST_S      (SEGMENT_S / 4096)

/* Share of the time for measurements after the loop. */
#define AFTER_SHARE 0.2
#define AFTER_MAX_S 20.0

/* How long a replay waits for conversions in the loader's cache to finish. */
#define CONVERSIONS_NS UINT64_C(3000000000)

/* How long a segment waits for the loader to prepare ahead. */
#define FILL_NS UINT64_C(30000000000)

/* ---- opening and closing ---- */

static int check_options(const struct hr_stalls_watch_options *o, struct hr_error *error)
{
    if (!(o->time_s >= 0 && o->time_s <= 1e9))
        return hr__fail(error, -EINVAL, "time_s = %g: must be at least 0 (no limit)", o->time_s);
    if (!(o->precision > 0 && o->precision < 1))
        return hr__fail(error, -EINVAL, "precision = %g: must be above 0 and below 1",
                        o->precision);
    if (o->warm_up > 1000000)
        return hr__fail(error, -EINVAL, "warm_up = %" PRIu64 ": must be at most 1000000",
                        o->warm_up);
    if (o->threads_of_training < 1 || o->threads_of_training > 65536)
        return hr__fail(error, -EINVAL, "threads_of_training = %d: must be from 1 to 65536",
                        o->threads_of_training);
    return 0;
}

static int check_loader(const struct hr_loader *l, struct hr_error *error)
{
    if (hr__in_child(l))
        return hr__fail(error, -ECHILD,
                        "the loader's threads live in another process: make a loader here");
    if (!l->options.external_order)
        return hr__fail(error, -EINVAL,
                        "a watch decides itself which samples come: make the loader with "
                        "external_order");
    if (l->attachment != &hr__attachment_none)
        return hr__fail(error, -ENOTSUP,
                        "a watch measures what this process prepares, and an agent prepares this "
                        "loader's batches: make it without one");
    if (l->options.world_size > 1)
        return hr__fail(error, -ENOTSUP,
                        "a watch measures a lone process, and this loader is of %d ranks: make it "
                        "with world_size 1",
                        l->options.world_size);
    if (hr__dataset_origin(l->dataset)->http)
        return hr__fail(error, -ENOTSUP,
                        "a watch evicts and reads files, and this loader's dataset is at URLs: "
                        "measure a script with headrace stalls, which keeps objects in memory");
    if (l->dataset->masks)
        return hr__fail(error, -ENOTSUP,
                        "a watch evicts and reads the files of images, and this loader's dataset "
                        "has masks: measure a script with headrace stalls, which sees all files");
    return 0;
}

/* Sets the run's id and its date. */
static void sign(struct hr_stalls_watch *w)
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        uint64_t parts[2] = {hr__now_ns(), (uint64_t)getpid()};
        memcpy(bytes, parts, sizeof bytes);
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(w->run + 2 * i, 3, "%02x", bytes[i]);
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        strftime(w->started, sizeof w->started, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

int hr_stalls_watch_open(struct hr_stalls_watch **out, struct hr_loader *loader,
                         const struct hr_stalls_watch_options *options, struct hr_error *error)
{
    *out = NULL;
    struct hr_stalls_watch_options taken;
    hr_stalls_watch_options_default(&taken);
    int r = options ? hr__versioned_take(&taken, sizeof taken, options, "hr_stalls_watch_options",
                                         error)
                    : 0;
    if (!r)
        r = check_options(&taken, error);
    if (!r)
        r = check_loader(loader, error);
    if (r)
        return r;
    struct hr_stalls_watch *w = hr__alloc(HR__TAG_LOADER, 1, sizeof *w);
    if (!w)
        return hr__fail(error, -ENOMEM, "out of memory for a watch");
    w->loader = loader;
    w->options = taken;
    /* Replay needs so many batches. */
    if (w->options.warm_up < HR__WATCH_KEPT)
        w->options.warm_up = HR__WATCH_KEPT;
    w->opened_ns = hr__now_ns();
    w->first_batch_s = w->memory_bytes_per_s = NAN;
    w->set_number = w->primed_set = -1;
    sign(w);
    r = hr__order_create(&w->order, hr_dataset_count(loader->dataset), 1, loader->options.seed, 0,
                         error);
    if (!r)
        r = hr__watch_set_make(w, w->options.warm_up + (uint64_t)loader->options.batches_ahead, 0,
                               error);
    if (!r)
        r = hr__watch_look_at_storage(w, error);
    if (r) {
        hr_stalls_watch_close(&w);
        return r;
    }
    *out = w;
    return 0;
}

static void forget_segments(struct hr_stalls_watch *w)
{
    for (size_t i = 0; i < w->segment_count; i++)
        hr__free(w->segments[i].wait_s);
    w->segment_count = 0;
}

void hr_stalls_watch_close(struct hr_stalls_watch **watch)
{
    struct hr_stalls_watch *w = *watch;
    if (!w)
        return;
    *watch = NULL;
    /* Discard batches that were pushed but not requested. */
    if (hr__is_started(w->loader) && !hr__in_child(w->loader))
        (void)!hr_loader_start_epoch(w->loader, 0, NULL);
    hr__watch_keep_none(w);
    hr__watch_set_clear(&w->set);
    hr__order_destroy(&w->order);
    hr_stalls_schedule_destroy(&w->schedule);
    forget_segments(w);
    hr__free(w->segments);
    hr__free(w->now.wait_s);
    hr__free(w->best.wait_s);
    for (size_t i = 0; i < w->note_count; i++)
        hr__free(w->notes[i]);
    hr__free(w->notes);
    hr__free(w);
}

/* ---- warm-up ---- */

static void schedule_options(const struct hr_stalls_watch *w,
                             struct hr_stalls_schedule_options *options)
{
    hr_stalls_schedule_options_default(options);
    options->phases = w->phases;
    options->settle = w->settle;
    options->batches = w->batches;
    options->max_batches = w->options.batches;
    options->max_s = w->max_s;
    options->precision = w->options.precision;
}

/* Chooses the length of segments from the time of a batch in the warm-up. */
static int plan_segments(struct hr_stalls_watch *w, double batch_s, struct hr_error *error)
{
    const struct hr_loader *l = w->loader;
    struct hr_stalls_schedule_options options;
    struct hr_stalls_pace pace;
    uint64_t ahead = (uint64_t)l->options.batches_ahead;
    schedule_options(w, &options);
    hr_stalls_pace_default(&pace);
    pace.step_s = pace.load_s = fmax(batch_s, SHORTEST_S);
    pace.segment_s = SEGMENT_S;
    pace.batches = SEGMENT_BATCHES;
    pace.ahead = ahead;
    pace.epoch_batches = hr_dataset_count(l->dataset) / (uint64_t)l->options.batch_size;
    int r = hr_stalls_schedule_fit(&options, &pace, error);
    uint64_t least = options.settle + ahead + 2;
    /* A sample that comes twice in a segment is warm the second time. */
    if (!r && pace.epoch_batches < least) {
        w->phases &= ~(1 << HR_STALLS_COLD);
        hr__watch_give_reason(w, HR_STALLS_COLD,
                              "the dataset has %zu samples: a segment needs at least %" PRIu64
                              " different ones, batches of %d",
                              hr_dataset_count(l->dataset), least * (uint64_t)l->options.batch_size,
                              l->options.batch_size);
        pace.epoch_batches = 0;
        r = hr_stalls_schedule_fit(&options, &pace, error);
    }
    w->settle = options.settle;
    w->batches = options.batches;
    return r;
}

static int make_schedule(struct hr_stalls_watch *w, struct hr_error *error)
{
    struct hr_stalls_schedule_options options;
    schedule_options(w, &options);
    return hr_stalls_schedule_create(&w->schedule, &options, error);
}

static int plan(struct hr_stalls_watch *w, struct hr_error *error)
{
    uint64_t steps = w->options.warm_up - w->warm_up_from;
    double batch_s = (double)(w->asked_ns - w->warm_up_ns) * 1e-9 / (double)steps;
    double gone_s = (double)(hr__now_ns() - w->opened_ns) * 1e-9;
    w->after_s = AFTER_MAX_S;
    if (w->options.time_s > 0) {
        w->after_s = fmin(AFTER_SHARE * w->options.time_s, AFTER_MAX_S);
        w->max_s = fmax(w->options.time_s - gone_s - w->after_s, 0.2 * w->options.time_s);
    }
    int r = plan_segments(w, batch_s, error);
    return r ? r : make_schedule(w, error);
}

static int warm_up(struct hr_stalls_watch *w, struct hr_batch **batch, struct hr_error *error)
{
    int r = 0;
    if (!w->given && !w->is_asking)
        r = hr__watch_set_push(w, error);
    if (r)
        return r;
    if (w->given <= w->options.warm_up / 2 && !w->is_asking) {
        w->warm_up_ns = w->asked_ns;
        w->warm_up_from = w->given;
    }
    if (w->given == w->options.warm_up) {
        r = hr__watch_drain_batches(w, error);
        if (r)
            return r;
        hr__watch_inspect(w);
        w->stage = HR__WATCH_BEGIN;
        return plan(w, error);
    }
    r = hr__watch_take(w, batch, error);
    if (r < 0)
        return r;
    if (!w->given++)
        w->first_batch_s = (double)(hr__watch_now(w) - w->asked_ns) * 1e-9;
    if (w->given == w->options.warm_up)
        w->to_drain = w->set.batches - w->given;
    if (w->options.warm_up - w->given < HR__WATCH_KEPT) {
        r = hr__watch_keep(w, *batch, error);
        if (r)
            hr_batch_release(batch);
    }
    return r ? r : 1;
}

/* ---- segments ---- */

/* Waits while idle workers convert cached samples, so that a replay has the cores alone. */
static void wait_for_conversions(struct hr_stalls_watch *w)
{
    uint64_t start_ns = hr__now_ns(), before = UINT64_MAX;
    struct hr_loader_stats stats = {.size = sizeof stats};
    while (w->loader->cache && hr__now_ns() - start_ns < CONVERSIONS_NS) {
        hr_loader_get_stats(w->loader, &stats);
        if (!stats.cache_waiting || stats.cache_waiting == before)
            return;
        before = stats.cache_waiting;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
}

/* Makes the current segment's set, unless its other segment has left it. */
static int have_set(struct hr_stalls_watch *w, struct hr_error *error)
{
    if (w->set_number == w->chosen.set)
        return 0;
    uint64_t ahead = (uint64_t)w->loader->options.batches_ahead;
    int r =
        hr__watch_set_make(w, w->settle + w->batches + ahead, (uint64_t)w->chosen.set + 1, error);
    if (!r)
        w->set_number = w->chosen.set;
    return r;
}

/* Offers a set's samples to the loader's cache before they are measured, so that its cold and its
 * warm segment have the same cache hits. */
static int prime(struct hr_stalls_watch *w, struct hr_error *error)
{
    if (!w->loader->cache || w->primed_set == w->set_number)
        return 0;
    int r = 0;
    if (!w->to_drain) {
        r = hr__watch_set_push(w, error);
        w->to_drain = r ? 0 : w->set.batches;
    }
    if (!r)
        r = hr__watch_drain_batches(w, error);
    if (!r)
        w->primed_set = w->set_number;
    return r;
}

/* Makes workers read first, as in a run that has long been warm; if reads block, the settling
 * batches show it. */
static void forget_blocking(struct hr_loader *l)
{
    if (l->options.direct_io)
        return;
    pthread_mutex_lock(&l->lock);
    hr__let_workers_read_locked(l);
    l->blocked_score = 0;
    pthread_mutex_unlock(&l->lock);
}

/* Makes the data of a loading segment cold or warm. Returns 1 if that is impossible and the segment
 * was skipped. */
static int make_cold_or_warm(struct hr_stalls_watch *w, struct hr_error *error)
{
    /* A loader with a cache leaves no files in the page cache that it reads cold. Files are held in
     * memory whether they were just read or not. */
    if (w->chosen.phase == HR_STALLS_WARM)
        return w->chosen.preread || w->loader->cache || !w->set.containers
                   ? hr__watch_set_preread(w, error)
                   : 0;
    struct hr_error why = {0};
    int r = hr__watch_set_drop(w, &why);
    if (!r)
        return 0;
    if (r == -EINTR || r == -ENOMEM) {
        if (error)
            *error = why;
        return r;
    }
    hr__watch_give_reason(w, HR_STALLS_COLD, "%.255s", why.message);
    hr_stalls_schedule_drop(w->schedule, HR_STALLS_COLD);
    w->phases &= ~(1 << HR_STALLS_COLD);
    return 1;
}

static int begin_real(struct hr_stalls_watch *w, struct hr_error *error)
{
    int r = have_set(w, error);
    if (!r)
        r = prime(w, error);
    if (!r)
        r = make_cold_or_warm(w, error);
    if (r) {
        w->is_chosen = r < 0;
        return r < 0 ? r : 0;
    }
    w->whole_expected_bytes = hr__watch_set_bytes(w, 0, w->set.batches);
    w->now.expected_bytes = hr__watch_set_bytes(w, w->settle, w->batches);
    w->whole_read_bytes = hr__watch_read_bytes();
    forget_blocking(w->loader);
    return hr__watch_set_push(w, error);
}

/* Chooses the next segment and prepares everything for its first batch. */
static int begin(struct hr_stalls_watch *w, struct hr_error *error)
{
    if (!w->is_chosen) {
        w->chosen = (struct hr_stalls_segment){.size = sizeof w->chosen};
        if (!hr_stalls_schedule_next(w->schedule, &w->chosen)) {
            w->stage = HR__WATCH_AFTER;
            return 0;
        }
        w->is_chosen = true;
        w->chosen_ns = hr__now_ns();
        w->to_drain = 0;
    }
    hr__free(w->now.wait_s);
    w->now = (struct hr__watch_segment){.what = w->chosen, .queue_begin = NAN};
    hr_stalls_evidence_default(&w->now.proof);
    w->now.proof.phase = w->chosen.phase;
    w->now.samples = w->chosen.batches * (uint64_t)w->loader->options.batch_size;
    w->now.wait_s = hr__alloc(HR__TAG_LOADER, w->chosen.batches, 2 * sizeof(double));
    if (!w->now.wait_s)
        return hr__fail(error, -ENOMEM, "out of memory for a segment");
    w->now.batch_s = w->now.wait_s + w->chosen.batches;
    int r = 0;
    if (hr__watch_loads(&w->chosen))
        r = begin_real(w, error);
    else
        wait_for_conversions(w);
    if (r || !w->is_chosen)
        return r;
    w->given = 0;
    w->fill_ns = hr__now_ns();
    w->stage = hr__watch_loads(&w->chosen) && w->chosen.full ? HR__WATCH_FILL : HR__WATCH_RUN;
    return 0;
}

/* Returns the number of batches that the loader has ready. */
static double ready_batches(const struct hr_stalls_watch *w)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(w->loader, &stats);
    return (double)stats.ready_batches;
}

/* Waits until the loader has prepared all that it prepares ahead. */
static int fill(struct hr_stalls_watch *w, struct hr_error *error)
{
    while (ready_batches(w) < w->loader->options.batches_ahead &&
           hr__now_ns() - w->fill_ns < FILL_NS)
        if (nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL))
            return hr__fail(error, -EINTR, "a signal came while the loader prepared batches");
    w->stage = HR__WATCH_RUN;
    return 0;
}

/* Returns NaN if either is unknown. */
static double since(double end, double begin)
{
    return end < begin ? 0 : end - begin;
}

/* Adds what the kernel counted during the timed part, which has just ended. */
static void take_load(struct hr__watch_segment *now)
{
    struct hr_stalls_load end = {.size = sizeof end};
    hr_stalls_load_read(&end, getpid());
    now->proof.cores = end.cores;
    now->proof.load_s = since(end.at_s, now->load.at_s);
    now->proof.busy_s = since(end.busy_s, now->load.busy_s);
    now->proof.steal_s = since(end.steal_s, now->load.steal_s);
    now->proof.run_s = since(end.run_s, now->load.run_s);
    now->proof.run_delay_s = since(end.run_delay_s, now->load.run_delay_s);
    now->proof.throttled_s = since(end.throttled_s, now->load.throttled_s);
}

static void synchronize(struct hr_stalls_watch *w)
{
    if (w->options.synchronize)
        w->options.synchronize(w->options.arg);
}

/* Call when the loop requests a batch: the step before it has ended. */
static void note_asking(struct hr_stalls_watch *w)
{
    struct hr__watch_segment *now = &w->now;
    uint64_t settle = w->chosen.settle, batches = w->chosen.batches;
    bool is_first = w->given == settle, is_end = w->given == settle + batches;
    if (is_first || is_end)
        synchronize(w);
    if (is_first) {
        now->load.size = sizeof now->load;
        hr_stalls_load_read(&now->load, getpid());
    }
    uint64_t ns = hr__watch_now(w);
    if (is_end) {
        hr__watch_mark(w, &now->end);
        now->end.ns = ns;
        now->proof.queue_end = ready_batches(w);
        take_load(now);
    } else if (is_first) {
        if (hr__watch_loads(&w->chosen))
            now->queue_begin = ready_batches(w);
        hr__watch_mark(w, &now->begin);
        ns = now->begin.ns;
    }
    if (w->given > settle)
        now->batch_s[w->given - settle - 1] = (double)(ns - w->asked_ns) * 1e-9;
    w->asked_ns = ns;
}

static int run(struct hr_stalls_watch *w, struct hr_batch **batch, struct hr_error *error)
{
    uint64_t settle = w->chosen.settle, last = settle + w->chosen.batches;
    if (!w->is_asking)
        note_asking(w);
    if (w->given == last) {
        w->stage = HR__WATCH_END;
        w->to_drain = hr__watch_loads(&w->chosen) ? (uint64_t)w->loader->options.batches_ahead : 0;
        return 0;
    }
    int r = 1;
    if (hr__watch_loads(&w->chosen))
        r = hr__watch_take(w, batch, error);
    else
        *batch = hr__watch_replay(w);
    if (r < 0)
        return r;
    if (w->given >= settle)
        w->now.wait_s[w->given - settle] = (double)(hr__watch_now(w) - w->asked_ns) * 1e-9;
    w->given++;
    return 1;
}

/* ---- longer segments ---- */

/* Returns whether segments of twice the batches can be had, once, and the figures contradict each
 * other. */
static bool must_be_longer(struct hr_stalls_watch *w)
{
    const struct hr_loader *l = w->loader;
    struct hr_stalls_summary summary = {.size = sizeof summary};
    struct hr_stalls *result;
    uint64_t batches = w->settle + 2 * w->batches + (uint64_t)l->options.batches_ahead;
    if (w->is_longer || w->options.batches ||
        batches * (uint64_t)l->options.batch_size > hr_dataset_count(l->dataset) ||
        hr_stalls_watch_result(w, &result, NULL))
        return false;
    bool contradicts = !hr_stalls_get_summary(result, &summary, NULL) && summary.contradicts;
    hr_stalls_destroy(&result);
    return contradicts;
}

/* Begins the measurement anew. */
static int make_longer(struct hr_stalls_watch *w, struct hr_error *error)
{
    w->is_longer = true;
    w->batches *= 2;
    forget_segments(w);
    w->drain_count = w->rate_count = w->form_count = w->after_step = 0;
    w->cached_samples = w->set_samples = 0;
    w->memory_bytes_per_s = NAN;
    w->after_has_set = false;
    w->set_number = w->primed_set = -1;
    for (int phase = 0; phase < HR_STALLS_PHASES; phase++)
        if (w->phases >> phase & 1)
            w->phase_reason[phase][0] = 0;
    w->stage = HR__WATCH_BEGIN;
    hr_stalls_schedule_destroy(&w->schedule);
    return make_schedule(w, error);
}

/* ---- next ---- */

/* Takes one step. Returns 1 with a batch, 0 to continue, or an error. */
static int step(struct hr_stalls_watch *w, struct hr_batch **batch, struct hr_error *error)
{
    int r = 0;
    switch (w->stage) {
    case HR__WATCH_WARM_UP:
        return warm_up(w, batch, error);
    case HR__WATCH_BEGIN:
        return begin(w, error);
    case HR__WATCH_FILL:
        return fill(w, error);
    case HR__WATCH_RUN:
        return run(w, batch, error);
    case HR__WATCH_END:
        return hr__watch_end(w, error);
    case HR__WATCH_AFTER:
        r = hr__watch_after(w, error);
        if (r)
            return r;
        if (must_be_longer(w))
            return make_longer(w, error);
        w->stage = HR__WATCH_OVER;
        return 0;
    case HR__WATCH_OVER:
        break;
    }
    return 0;
}

int hr_stalls_watch_next(struct hr_stalls_watch *watch, struct hr_batch **batch,
                         struct hr_error *error)
{
    struct hr_stalls_watch *w = watch;
    *batch = NULL;
    if (hr__in_child(w->loader))
        return hr__fail(error, -ECHILD,
                        "this watch measures a loop of another process, from which this one was "
                        "forked");
    if (w->stage == HR__WATCH_WARM_UP && !w->is_asking)
        w->asked_ns = hr__watch_now(w);
    struct hr_error why = {0};
    int r = 0;
    while (!r && w->stage != HR__WATCH_OVER) {
        r = step(w, batch, &why);
        w->is_asking = r == -EINTR;
    }
    w->interrupted = r == -EINTR;
    if (r >= 0)
        return r;
    if (error)
        *error = why;
    if (r != -EINTR) {
        hr__watch_note(w, "the measurement ended with an error: %.300s", why.message);
        w->failed = true;
        w->stage = HR__WATCH_OVER;
    }
    return r;
}

int hr_stalls_watch_result(struct hr_stalls_watch *watch, struct hr_stalls **out,
                           struct hr_error *error)
{
    *out = NULL;
    char *text = hr__watch_record(watch);
    if (!text)
        return hr__fail(error, -ENOMEM, "out of memory for the record of what was measured");
    size_t length = strlen(text);
    int r = hr_stalls_analyse(out, (const char *const *)&text, &length, 1, error);
    free(text);
    return r;
}
