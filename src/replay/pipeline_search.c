/*
 * Searches for the fastest choices; see pipeline_plan.h.
 *
 * Every choice is divided into stages, which gives a bound: no schedule is faster than its slowest
 * stage. Choices run in the simulator in the order of their bounds, until no bound is above the
 * last one that is asked for, so the result is that of running all.
 */
#include "replay/pipeline_plan.h"

#include "base/error.h"
#include "base/memory.h"
#include "report/format.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CHUNKS      4
#define MOST_OF_SCHEDULE 2 /* refused choices that are told */
#define MOST_REFUSED     (HR_PLAN_SCHEDULES * MOST_OF_SCHEDULE)
#define ROUNDING         1e-9 /* of a bound and of the run that reaches it */

struct found {
    struct hr_plan *plan;
    struct hr__sums *sums; /* by size */
    struct hr__choice *all;
    int count;
    struct hr_error *error;
};

static double bound_per_s(const struct hr__choice *c)
{
    return c->batch / (c->pace_s * c->microbatches);
}

/* ---- choices ---- */

static bool is_free(int given, int value)
{
    return given == HR_PLAN_ANY || given == value;
}

static void say_full(struct hr__choice *c, const struct hr_plan_options *o,
                     const struct hr__sums *sums)
{
    char need[HR__FORMAT_BYTES], have[HR__FORMAT_BYTES];
    double most = 0;
    for (int i = 0; i < c->devices; i++) {
        struct hr__stage_cost cost = hr__stage_cost(o, sums, c, c->cuts[i], c->cuts[i + 1]);
        struct hr__device_bytes bytes = hr__device_bytes(o, c, &cost, hr__in_flight(c, i));
        if (hr__device_total(&bytes) > most) {
            most = hr__device_total(&bytes);
            c->fullest = i;
        }
    }
    c->memory_bytes = most;
    c->is_full = true;
    snprintf(c->reason, sizeof c->reason, "stage %d needs %s of %s", c->fullest + 1,
             hr__format_bytes(need, most), hr__format_bytes(have, (double)o->memory_bytes));
}

/* Adds a choice with its division. */
static int add(struct found *f, struct hr__choice c)
{
    const struct hr_plan_options *o = &f->plan->options;
    const struct hr__sums *sums = &f->sums[c.size];
    struct hr__pipeline_spec spec = {
        c.schedule, c.devices, c.chunks, c.microbatches, hr__choice_batches(&c), NULL};
    struct hr_error refusal = {0};
    if (c.devices * c.chunks > sums->layers)
        return 0;
    if (hr__reserve(HR__TAG_REPLAY, &f->all, (size_t)f->count + 1))
        return hr__fail(f->error, -ENOMEM, "out of memory for %d plans", f->count);
    int r = hr__partition(&c, o, sums, f->error);
    if (r < 0) {
        hr__choice_clear(&c);
        return r;
    }
    if (hr__pipeline_check(&spec, &refusal))
        snprintf(c.reason, sizeof c.reason, "%.250s", refusal.message);
    else if (r)
        say_full(&c, o, sums);
    f->all[f->count++] = c;
    return 0;
}

static int add_schedules(struct found *f, struct hr__choice c)
{
    const struct hr_plan_options *o = &f->plan->options;
    int r = 0;
    for (int s = 0; s < HR_PLAN_SCHEDULES && !r; s++) {
        bool is_interleaved = s == HR_PLAN_INTERLEAVED;
        int most = is_interleaved ? MOST_CHUNKS : 1;
        /* One stage runs the same passes in every schedule; 1F1B holds the least. */
        if (!is_free(o->schedule, s) || (c.devices == 1 && s != HR_PLAN_1F1B && o->schedule != s))
            continue;
        c.schedule = (enum hr_plan_schedule)s;
        if (is_interleaved && o->chunks != HR_PLAN_ANY) {
            c.chunks = o->chunks;
            r = add(f, c);
            continue;
        }
        for (c.chunks = is_interleaved ? 2 : 1; c.chunks <= most && !r; c.chunks *= 2)
            r = add(f, c);
    }
    return r;
}

static int add_sizes(struct found *f, struct hr__choice c)
{
    const struct hr_plan *plan = f->plan;
    const struct hr_plan_options *o = &plan->options;
    int r = 0;
    for (c.size = 0; c.size < plan->profile.size_count && !r; c.size++) {
        int samples = (int)plan->profile.sizes[c.size];
        if (!is_free(o->microbatch, samples))
            continue;
        c.microbatches = (int)(o->batch / ((double)c.replicas * samples));
        c.batch = c.microbatches * c.replicas * samples;
        for (int recompute = 0; recompute < 2 && c.microbatches && !r; recompute++) {
            c.recompute = recompute;
            if (is_free(o->recompute, recompute))
                r = add_schedules(f, c);
        }
    }
    return r;
}

/* Tries all numbers of stages, each with as many replicas as there are GPUs for, and with powers of
 * two below, which may be faster where links are slow. */
static int add_all(struct found *f)
{
    const struct hr_plan_options *o = &f->plan->options;
    int r = 0;
    for (int d = 1; d <= o->gpus && d <= f->plan->profile.layer_count && !r; d++) {
        int most = o->gpus / d;
        if (!is_free(o->stages, d))
            continue;
        if (o->replicas != HR_PLAN_ANY) {
            if (o->replicas <= most)
                r = add_sizes(f, (struct hr__choice){.devices = d, .replicas = o->replicas});
            continue;
        }
        for (int w = 1; w < most && !r; w *= 2)
            r = add_sizes(f, (struct hr__choice){.devices = d, .replicas = w});
        if (!r)
            r = add_sizes(f, (struct hr__choice){.devices = d, .replicas = most});
    }
    return r;
}

/* ---- ranking ---- */

static int compare(double a, double b)
{
    return (a > b) - (a < b);
}

/* What fits first; then the higher bound. Ties: the simpler choice. */
static int by_bound(const void *a, const void *b)
{
    const struct hr__choice *x = a, *y = b;
    int r = !!*x->reason - !!*y->reason;
    r = r ? r : -compare(bound_per_s(x), bound_per_s(y));
    r = r ? r : x->devices * x->replicas - y->devices * y->replicas;
    r = r ? r : x->devices - y->devices;
    r = r ? r : (int)x->schedule - (int)y->schedule;
    r = r ? r : x->chunks - y->chunks;
    r = r ? r : x->recompute - y->recompute;
    return r ? r : x->size - y->size;
}

/* What fits first; then the faster; then fewer GPUs, then less memory. */
static int by_speed(const void *a, const void *b)
{
    const struct hr__choice *x = a, *y = b;
    int r = !!*x->reason - !!*y->reason;
    r = r ? r : -compare(x->samples_per_s, y->samples_per_s);
    r = r ? r : x->devices * x->replicas - y->devices * y->replicas;
    r = r ? r : compare(x->memory_bytes, y->memory_bytes);
    return r ? r : by_bound(a, b);
}

/* Runs choices until no bound is above what the `rows`-th best reaches; the others keep samples/s
 * of 0 and come after it. */
static int run_best(struct found *f, int fit)
{
    const struct hr_plan_options *o = &f->plan->options;
    double *best = hr__alloc(HR__TAG_REPLAY, (size_t)o->rows, sizeof *best); /* falling */
    int r = best ? 0 : hr__fail(f->error, -ENOMEM, "out of memory for %d plans", o->rows);
    for (int i = 0; i < fit && !r; i++) {
        struct hr__choice *c = &f->all[i];
        bool is_alone = c->devices == 1;
        if (!is_alone && bound_per_s(c) * (1 + ROUNDING) <= best[o->rows - 1])
            continue;
        r = hr__choice_run(c, o, &f->sums[c->size], NULL, f->error);
        if (r || *c->reason)
            continue;
        double speed = c->samples_per_s;
        if (is_alone && !(speed <= f->plan->alone_per_s))
            f->plan->alone_per_s = speed;
        for (int k = 0; k < o->rows; k++)
            if (speed > best[k]) {
                double lower = best[k];
                best[k] = speed;
                speed = lower;
            }
    }
    hr__free(best);
    return r;
}

/* Takes the refused choices that would be faster than the first: of each schedule the fastest. */
static int take_refused(struct found *f, int from)
{
    struct hr_plan *plan = f->plan;
    double least = plan->count ? plan->choices->samples_per_s : 0;
    int taken[HR_PLAN_SCHEDULES] = {0};
    plan->refused = hr__alloc(HR__TAG_REPLAY, MOST_REFUSED, sizeof *plan->refused);
    if (!plan->refused)
        return hr__fail(f->error, -ENOMEM, "out of memory for a plan");
    for (int i = from; i < f->count && plan->refused_count < MOST_REFUSED; i++) {
        struct hr__choice *c = &f->all[i];
        if (!*c->reason || bound_per_s(c) <= least || ++taken[c->schedule] > MOST_OF_SCHEDULE)
            continue;
        plan->refused[plan->refused_count++] = *c;
        c->cuts = NULL;
        c->bytes = NULL;
    }
    return 0;
}

static int take(struct found *f)
{
    struct hr_plan *plan = f->plan;
    int fit = 0;
    while (fit < f->count && !*f->all[fit].reason)
        fit++;
    plan->considered = f->count;
    int r = run_best(f, fit);
    if (r)
        return r;
    qsort(f->all, (size_t)fit, sizeof *f->all, by_speed);
    while (plan->fit < fit && !*f->all[plan->fit].reason)
        plan->fit++;
    plan->count = plan->fit < plan->options.rows ? plan->fit : plan->options.rows;
    while (plan->count && !(f->all[plan->count - 1].samples_per_s > 0))
        plan->count--;
    plan->choices = hr__alloc(HR__TAG_REPLAY, (size_t)plan->count + 1, sizeof *plan->choices);
    if (!plan->choices)
        return hr__fail(f->error, -ENOMEM, "out of memory for a plan");
    for (int i = 0; i < plan->count; i++) {
        plan->choices[i] = f->all[i];
        f->all[i].cuts = NULL;
        f->all[i].bytes = NULL;
    }
    for (int i = plan->fit; i < f->count; i++)
        plan->full += f->all[i].is_full;
    qsort(f->all + plan->fit, (size_t)(f->count - plan->fit), sizeof *f->all, by_bound);
    return take_refused(f, plan->fit);
}

/* Runs the first choice once more and keeps what it shows. */
static int show_first(struct hr_plan *plan, const struct hr__sums *sums, struct hr_error *error)
{
    struct hr__choice *c = plan->choices;
    int count = c->devices * c->chunks;
    int r = hr__choice_run(c, &plan->options, sums, &plan->run, error);
    if (r)
        return r;
    plan->stages = hr__alloc(HR__TAG_REPLAY, (size_t)count, sizeof *plan->stages);
    if (!plan->stages)
        return hr__fail(error, -ENOMEM, "out of memory for %d stages", count);
    for (int i = 0; i < count; i++)
        plan->stages[i] = hr__stage_cost(&plan->options, sums, c, c->cuts[i], c->cuts[i + 1]);
    return 0;
}

int hr__plan_search(struct hr_plan *plan, struct hr_error *error)
{
    struct found f = {.plan = plan, .error = error};
    int sizes = plan->profile.size_count, r = 0;
    plan->alone_per_s = NAN;
    f.sums = hr__alloc(HR__TAG_REPLAY, (size_t)sizes, sizeof *f.sums);
    if (!f.sums)
        r = hr__fail(error, -ENOMEM, "out of memory for %d sizes", sizes);
    for (int i = 0; i < sizes && !r; i++)
        r = hr__sums_make(&f.sums[i], &plan->profile, i, error);
    if (!r)
        r = add_all(&f);
    if (!r && f.count) {
        qsort(f.all, (size_t)f.count, sizeof *f.all, by_bound);
        r = take(&f);
    }
    if (!r && plan->count)
        r = show_first(plan, &f.sums[plan->choices->size], error);
    for (int i = 0; i < f.count; i++)
        hr__choice_clear(&f.all[i]);
    hr__free(f.all);
    for (int i = 0; i < sizes && f.sums; i++)
        hr__sums_clear(&f.sums[i]);
    hr__free(f.sums);
    return r;
}
