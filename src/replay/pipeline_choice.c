/* Runs one choice of a plan in the simulator, for its times, its bubble and what each device
 * holds; see pipeline_plan.h. */
#include "replay/pipeline_plan.h"

#include "base/error.h"
#include "base/memory.h"
#include "report/format.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

int hr__choice_batches(const struct hr__choice *c)
{
    return c->schedule == HR_PLAN_2BW ? 6 : 1; /* see hr__pipeline_period_s */
}

static struct hr__stage_cost cost_of(const struct hr_plan_options *options,
                                     const struct hr__sums *sums, const struct hr__choice *c,
                                     int stage)
{
    return hr__stage_cost(options, sums, c, c->cuts[stage], c->cuts[stage + 1]);
}

struct hr__stage_cost hr__device_cost(const struct hr_plan_options *options,
                                      const struct hr__sums *sums, const struct hr__choice *c,
                                      int device)
{
    struct hr__stage_cost all = {.first = 0};
    for (int i = device; i < c->devices * c->chunks; i += c->devices) {
        struct hr__stage_cost s = cost_of(options, sums, c, i);
        all.weight_bytes += s.weight_bytes;
        all.reduce_s += s.reduce_s;
        all.held_bytes += s.held_bytes;
        all.working_bytes = fmax(all.working_bytes, s.working_bytes);
        all.update_s += s.update_s;
        all.count += s.count;
    }
    return all;
}

void hr__choice_clear(struct hr__choice *c)
{
    hr__free(c->cuts);
    hr__free(c->bytes);
    c->cuts = NULL;
    c->bytes = NULL;
}

static int judge_memory(struct hr__choice *c, const struct hr_plan_options *options,
                        const struct hr__sums *sums, const struct hr__pipeline_run *run)
{
    c->memory_bytes = 0;
    if (!c->bytes)
        c->bytes = hr__alloc(HR__TAG_REPLAY, (size_t)c->devices, sizeof *c->bytes);
    if (!c->bytes)
        return -ENOMEM;
    for (int i = 0; i < c->devices; i++) {
        struct hr__stage_cost cost = hr__device_cost(options, sums, c, i);
        struct hr__device_bytes *bytes = &c->bytes[i];
        *bytes = hr__device_bytes(options, c, &cost, 0);
        bytes->microbatches = run->devices[i].peak_microbatches;
        bytes->activations = run->devices[i].peak_bytes;
        if (hr__device_total(bytes) > c->memory_bytes) {
            c->memory_bytes = hr__device_total(bytes);
            c->fullest = i;
        }
    }
    c->is_full = options->memory_bytes && c->memory_bytes > (double)options->memory_bytes;
    if (c->is_full) {
        char need[HR__FORMAT_BYTES], have[HR__FORMAT_BYTES];
        snprintf(c->reason, sizeof c->reason, "stage %d needs %s of %s", c->fullest + 1,
                 hr__format_bytes(need, c->memory_bytes),
                 hr__format_bytes(have, (double)options->memory_bytes));
    }
    return 0;
}

static void judge_time(struct hr__choice *c, const struct hr__sums *sums,
                       const struct hr_plan_options *options, const struct hr__pipeline_run *run,
                       const struct hr__pipeline_spec *spec)
{
    double period = hr__pipeline_period_s(run, spec), busy = 0, reduce = 0;
    for (int i = 0; i < c->devices; i++) {
        struct hr__stage_cost cost = hr__device_cost(options, sums, c, i);
        reduce = fmax(reduce, cost.reduce_s);
        busy += run->devices[i].busy_s / spec->batches;
    }
    /* A flush's update contains the reduction; 2BW has a whole batch of time for it. */
    c->step_s = c->schedule == HR_PLAN_2BW ? fmax(period, reduce) : period;
    c->fill_s = c->schedule == HR_PLAN_2BW ? run->makespan_s - spec->batches * period : 0;
    c->fill_s = fmax(c->fill_s, 0);
    c->samples_per_s = c->batch / c->step_s;
    c->bubble = fmax(0, 1 - busy / (c->step_s * c->devices));
}

int hr__choice_run(struct hr__choice *c, const struct hr_plan_options *options,
                   const struct hr__sums *sums, struct hr__pipeline_run *kept,
                   struct hr_error *error)
{
    struct hr__pipeline_run run;
    int count = c->devices * c->chunks;
    struct hr__pipeline_stage *stages = hr__alloc(HR__TAG_REPLAY, (size_t)count, sizeof *stages);
    struct hr__pipeline_spec spec = {.schedule = c->schedule,
                                     .devices = c->devices,
                                     .chunks = c->chunks,
                                     .microbatches = c->microbatches,
                                     .batches = hr__choice_batches(c),
                                     .stages = stages};
    if (!stages)
        return hr__fail(error, -ENOMEM, "out of memory for %d stages", count);
    for (int i = 0; i < count; i++) {
        struct hr__stage_cost s = cost_of(options, sums, c, i);
        bool flushes = c->schedule != HR_PLAN_2BW;
        stages[i] = (struct hr__pipeline_stage){
            .forward_s = s.compute_forward_s + s.send_forward_s,
            .backward_s = s.compute_backward_s + s.send_backward_s,
            .update_s = s.update_s + (flushes ? s.reduce_s : 0),
            .held_bytes = s.held_bytes,
            .working_bytes = s.working_bytes,
        };
    }
    int r = hr__pipeline_simulate(&run, &spec, error);
    if (!r) {
        if (judge_memory(c, options, sums, &run))
            r = hr__fail(error, -ENOMEM, "out of memory for %d stages", count);
        judge_time(c, sums, options, &run, &spec);
        if (kept && !r)
            *kept = run;
        else
            hr__pipeline_clear(&run);
    }
    hr__free(stages);
    return r;
}
