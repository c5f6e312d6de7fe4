/*
 * Ends a segment: completes the evidence, and asks whether the segment counts, runs again because
 * others disturbed it, or runs again because it did not begin as an epoch goes on. Of several
 * tries, the least disturbed one is kept.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "stalls/watch/inside.h"

#include <errno.h>
#include <math.h>

/* Completes the evidence with times, and leaves pauses out of them. */
static int take_times(struct hr_stalls_watch *w, struct hr_error *error)
{
    struct hr__watch_segment *now = &w->now;
    struct hr_stalls_evidence *e = &now->proof;
    size_t count = (size_t)now->what.batches;
    double *pause_s = hr__alloc(HR__TAG_LOADER, count, sizeof *pause_s);
    if (!pause_s)
        return hr__fail(error, -ENOMEM, "out of memory for the times of a segment");
    e->elapsed_s = (double)(now->end.ns - now->begin.ns) * 1e-9;
    double step_s = e->elapsed_s / (double)count;
    if (w->options.synchronize && !hr__watch_loads(&now->what))
        w->step_s = w->step_s > 0 ? fmin(w->step_s, step_s) : step_s;
    e->pauses = (int)hr_stalls_pauses(now->wait_s, now->batch_s, count, w->step_s, pause_s);
    e->waited_s = 0;
    for (size_t i = 0; i < count; i++) {
        now->batch_s[i] -= pause_s[i];
        e->paused_s += pause_s[i];
        e->waited_s += now->wait_s[i];
    }
    e->elapsed_s -= e->paused_s;
    e->all_s = (double)(hr__now_ns() - w->chosen_ns) * 1e-9;
    e->queue_ahead = hr__watch_loads(&now->what) ? w->loader->options.batches_ahead : 0;
    hr__free(pause_s);
    return 0;
}

static void forget_best(struct hr_stalls_watch *w)
{
    hr__free(w->best.wait_s);
    w->best.wait_s = NULL;
    w->tries = 0;
}

/* Keeps the current try if it is the least disturbed one. */
static void keep_best(struct hr_stalls_watch *w)
{
    double others = isnan(w->now.proof.others) ? 0 : w->now.proof.others;
    double least = isnan(w->best.proof.others) ? 0 : w->best.proof.others;
    if (!w->tries || others < least) {
        struct hr__watch_segment now = w->now;
        w->now = w->best;
        w->best = now;
    }
    w->best.proof.tries = ++w->tries;
}

static int record_best(struct hr_stalls_watch *w, struct hr_error *error)
{
    if (hr__reserve(HR__TAG_LOADER, &w->segments, w->segment_count + 1))
        return hr__fail(error, -ENOMEM, "out of memory for %zu segments", w->segment_count + 1);
    const struct hr_stalls_evidence *e = &w->best.proof;
    if (!e->verified)
        hr__watch_give_reason(w, e->phase, "not verified: %s", e->reason);
    hr_stalls_schedule_report(w->schedule, e->elapsed_s, e->all_s);
    w->segments[w->segment_count++] = w->best;
    w->best.wait_s = w->best.batch_s = NULL;
    w->tries = 0;
    return 0;
}

/* What the segments of a phase took from the loader's queue was prepared before them. */
static void unsettle(struct hr_stalls_watch *w, enum hr_stalls_phase phase)
{
    for (size_t i = 0; i < w->segment_count; i++) {
        struct hr_stalls_evidence *e = &w->segments[i].proof;
        e->unsettled = e->phase == phase;
        if (e->unsettled)
            (void)!hr_stalls_judge(e, NULL);
    }
}

int hr__watch_end(struct hr_stalls_watch *w, struct hr_error *error)
{
    int r = hr__watch_drain_batches(w, error);
    if (!r)
        r = take_times(w, error);
    if (r)
        return r;
    hr__watch_prove(w);
    if (!hr__watch_loads(&w->chosen))
        hr__watch_inspect(w);
    w->is_chosen = false;
    w->stage = HR__WATCH_BEGIN;
    switch (hr_stalls_schedule_again(w->schedule, &w->now.proof)) {
    case HR_STALLS_NONE_SETTLED:
        unsettle(w, w->chosen.phase);
        forget_best(w);
        break;
    case HR_STALLS_UNSETTLED:
        forget_best(w);
        break;
    case HR_STALLS_DISTURBED:
        keep_best(w);
        break;
    case HR_STALLS_COUNTS:
        keep_best(w);
        return record_best(w, error);
    }
    return 0;
}
