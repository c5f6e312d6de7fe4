/*
 * The schedules of pipelines and their simulation; see pipeline.h.
 *
 * All four schedules have the same shape: a device begins with some forward passes, then runs
 * backward and forward passes by turns, and ends with the remaining backward passes. They differ in
 * the number of the first passes. GPipe, 1F1B and the interleaved schedule (Narayanan and others,
 * SC'21) do so for each batch; 2BW does so once for the whole run.
 */
#include "replay/pipeline.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>

static const char *const names[HR_PLAN_SCHEDULES] = {"gpipe", "1f1b", "interleaved", "2bw"};

const char *hr_plan_schedule_name(enum hr_plan_schedule schedule)
{
    return (unsigned)schedule < HR_PLAN_SCHEDULES ? names[schedule] : NULL;
}

/* ---- the order of a device ---- */

/* Passes of the network's parts on one device, between two flushes. */
struct flow {
    int devices, chunks;
    int passes;  /* forward passes; as many backward passes */
    int warm_up; /* forward passes before the first backward pass */
};

/* Returns the microbatches between two flushes. */
static int flow_microbatches(const struct hr__pipeline_spec *spec)
{
    return spec->schedule == HR_PLAN_2BW ? spec->microbatches * spec->batches : spec->microbatches;
}

int hr__pipeline_warm_up(const struct hr__pipeline_spec *spec, int device)
{
    int passes = flow_microbatches(spec) * spec->chunks, ahead = spec->devices - device;
    int warm_up = spec->schedule == HR_PLAN_GPIPE ? passes
                  : spec->schedule == HR_PLAN_INTERLEAVED
                      ? 2 * (ahead - 1) + (spec->chunks - 1) * spec->devices + 1
                      : ahead;
    return warm_up < passes ? warm_up : passes;
}

static struct flow flow_of(const struct hr__pipeline_spec *spec, int device)
{
    return (struct flow){spec->devices, spec->chunks, flow_microbatches(spec) * spec->chunks,
                         hr__pipeline_warm_up(spec, device)};
}

/* Returns the kind of the flow's pass `i`; *number: which one of its kind. */
static enum hr__pipeline_kind pass_at(const struct flow *flow, int i, int *number)
{
    int turns = i - flow->warm_up, backward = (turns + 1) / 2, forward = flow->warm_up + turns / 2;
    if (turns < 0) {
        *number = i;
        return HR__PIPELINE_FORWARD;
    }
    if (turns % 2 && forward < flow->passes) {
        *number = forward;
        return HR__PIPELINE_FORWARD;
    }
    *number = forward < flow->passes ? backward : i - flow->passes;
    return HR__PIPELINE_BACKWARD;
}

/* Sets the stage and the microbatch (of the flow) of a pass. Groups of as many microbatches as
 * there are devices go through one chunk after another. */
static void place_pass(const struct flow *flow, int device, int number,
                       struct hr__pipeline_task *task)
{
    int group = flow->devices * flow->chunks;
    int chunk = flow->chunks == 1 ? 0 : number / flow->devices % flow->chunks;
    if (task->kind == HR__PIPELINE_BACKWARD)
        chunk = flow->chunks - 1 - chunk;
    task->stage = chunk * flow->devices + device;
    task->microbatch =
        flow->chunks == 1 ? number : number / group * flow->devices + number % flow->devices;
}

int hr__pipeline_version(const struct hr__pipeline_spec *spec, int microbatch)
{
    int batch = microbatch / spec->microbatches;
    return spec->schedule != HR_PLAN_2BW ? batch : batch ? batch - 1 : 0;
}

/* ---- checks ---- */

int hr__pipeline_check(const struct hr__pipeline_spec *spec, struct hr_error *error)
{
    const char *name = hr_plan_schedule_name(spec->schedule);
    if (!name || spec->devices < 1 || spec->chunks < 1 || spec->microbatches < 1 ||
        spec->batches < 1)
        return hr__fail(error, -EINVAL,
                        "a pipeline needs a schedule, and at least one device, microbatch and "
                        "batch");
    if (spec->chunks > 1 && spec->schedule != HR_PLAN_INTERLEAVED)
        return hr__fail(error, -EINVAL,
                        "%s has one part of the network on each GPU, not %d: only "
                        "interleaved has several",
                        name, spec->chunks);
    if (spec->schedule == HR_PLAN_INTERLEAVED && spec->microbatches % spec->devices)
        return hr__fail(error, -EINVAL,
                        "interleaved needs microbatches in a multiple of its %d stages, not %d",
                        spec->devices, spec->microbatches);
    if (spec->schedule == HR_PLAN_2BW && spec->microbatches < spec->devices)
        return hr__fail(error, -EINVAL,
                        "2bw needs as many microbatches as stages, or it would need more than two "
                        "versions of the weights: %d for %d stages",
                        spec->microbatches, spec->devices);
    size_t passes = HR__PIPELINE_MOST_TASKS / 2 / (size_t)spec->devices / (size_t)spec->chunks;
    if ((size_t)spec->microbatches > passes / (size_t)spec->batches)
        return hr__fail(error, -E2BIG,
                        "%d batches of %d microbatches on %d stages are too many to simulate: "
                        "use larger microbatches",
                        spec->batches, spec->microbatches, spec->devices * spec->chunks);
    return 0;
}

static int check_stages(const struct hr__pipeline_spec *spec, struct hr_error *error)
{
    for (int i = 0; i < spec->devices * spec->chunks; i++) {
        const struct hr__pipeline_stage *s = &spec->stages[i];
        const double values[] = {s->forward_s, s->backward_s, s->update_s, s->held_bytes,
                                 s->working_bytes};
        for (size_t k = 0; k < sizeof values / sizeof *values; k++)
            if (!(isfinite(values[k]) && values[k] >= 0))
                return hr__fail(error, -EINVAL,
                                "stage %d of the pipeline has a negative time or size, or one "
                                "that is no number",
                                i);
    }
    return 0;
}

/* ---- the simulation ---- */

/* A device while it runs. */
struct pipeline_cursor {
    struct flow flow;
    int pass;    /* the next one of the flow */
    int flows;   /* flows that ended */
    int updates; /* so far */
    int back;    /* backward passes since the last update */
    size_t done; /* tasks */
    double clock_s, bytes;
    int held;
};

struct pipeline_simulation {
    const struct hr__pipeline_spec *spec;
    struct hr__pipeline_run *run;
    struct pipeline_cursor *cursors;
    double *ends[2]; /* by kind: of microbatch k on stage i at [k * stages + i]; NAN: not yet */
    int stages;
};

static struct hr__pipeline_task next_task(const struct pipeline_simulation *s, int device)
{
    const struct hr__pipeline_spec *spec = s->spec;
    const struct pipeline_cursor *c = &s->cursors[device];
    struct hr__pipeline_task task = {.kind = HR__PIPELINE_UPDATE,
                                     .stage = device,
                                     .microbatch = c->updates,
                                     .version = c->updates + 1};
    int number;
    if (c->back == spec->microbatches * spec->chunks)
        return task;
    task.kind = pass_at(&c->flow, c->pass, &number);
    place_pass(&c->flow, device, number, &task);
    task.microbatch += c->flows * flow_microbatches(spec);
    task.version = hr__pipeline_version(spec, task.microbatch);
    return task;
}

/* Returns when what a pass needs is there; NAN: not yet. */
static double ready_s(const struct pipeline_simulation *s, const struct hr__pipeline_task *task)
{
    const double *forward =
        s->ends[HR__PIPELINE_FORWARD] + (size_t)task->microbatch * (size_t)s->stages;
    const double *backward =
        s->ends[HR__PIPELINE_BACKWARD] + (size_t)task->microbatch * (size_t)s->stages;
    if (task->kind == HR__PIPELINE_UPDATE)
        return 0;
    if (task->kind == HR__PIPELINE_FORWARD)
        return task->stage ? forward[task->stage - 1] : 0;
    return task->stage < s->stages - 1 ? backward[task->stage + 1] : forward[task->stage];
}

static double duration_s(const struct pipeline_simulation *s, const struct hr__pipeline_task *task)
{
    const struct hr__pipeline_stage *stage = &s->spec->stages[task->stage];
    double update = 0;
    if (task->kind == HR__PIPELINE_FORWARD)
        return stage->forward_s;
    if (task->kind == HR__PIPELINE_BACKWARD)
        return stage->backward_s;
    for (int i = task->stage; i < s->stages; i += s->spec->devices)
        update += s->spec->stages[i].update_s;
    return update;
}

/* Books what a pass holds and frees on its device. */
static void book(struct pipeline_simulation *s, int device, const struct hr__pipeline_task *task)
{
    struct pipeline_cursor *c = &s->cursors[device];
    struct hr__pipeline_device *d = &s->run->devices[device];
    const struct hr__pipeline_stage *stage = &s->spec->stages[task->stage];
    double most = c->bytes;
    if (task->kind == HR__PIPELINE_UPDATE) {
        c->updates++;
        c->back = 0;
        return;
    }
    d->busy_s += task->end_s - task->begin_s;
    s->ends[task->kind][(size_t)task->microbatch * (size_t)s->stages + (size_t)task->stage] =
        task->end_s;
    if (task->kind == HR__PIPELINE_FORWARD) {
        c->held++;
        most = c->bytes += stage->held_bytes;
    } else {
        most += stage->working_bytes;
        c->held--;
        c->bytes -= stage->held_bytes;
        c->back++;
    }
    d->peak_bytes = most > d->peak_bytes ? most : d->peak_bytes;
    d->peak_microbatches = c->held > d->peak_microbatches ? c->held : d->peak_microbatches;
    if (++c->pass == 2 * c->flow.passes) {
        c->pass = 0;
        c->flows++;
    }
}

/* Runs the device's tasks until one cannot begin yet. Returns how many it ran. */
static size_t advance(struct pipeline_simulation *s, int device)
{
    struct pipeline_cursor *c = &s->cursors[device];
    struct hr__pipeline_run *run = s->run;
    size_t before = c->done;
    while (c->done < run->device_tasks) {
        struct hr__pipeline_task task = next_task(s, device);
        double ready = ready_s(s, &task);
        if (isnan(ready))
            break;
        task.begin_s = ready > c->clock_s ? ready : c->clock_s;
        task.end_s = c->clock_s = task.begin_s + duration_s(s, &task);
        book(s, device, &task);
        run->tasks[(size_t)device * run->device_tasks + c->done++] = task;
    }
    return c->done - before;
}

static void run_all(struct pipeline_simulation *s)
{
    struct hr__pipeline_run *run = s->run;
    double busy = 0;
    size_t advanced;
    do {
        advanced = 0;
        for (int i = 0; i < s->spec->devices; i++)
            advanced += advance(s, i);
    } while (advanced);
    for (int i = 0; i < s->spec->devices; i++) {
        double end = s->cursors[i].clock_s;
        run->makespan_s = end > run->makespan_s ? end : run->makespan_s;
        busy += run->devices[i].busy_s;
    }
    run->utilisation = run->makespan_s > 0 ? busy / run->makespan_s / s->spec->devices : 0;
}

void hr__pipeline_clear(struct hr__pipeline_run *run)
{
    hr__free(run->tasks);
    hr__free(run->devices);
    *run = (struct hr__pipeline_run){.tasks = NULL};
}

int hr__pipeline_simulate(struct hr__pipeline_run *run, const struct hr__pipeline_spec *spec,
                          struct hr_error *error)
{
    struct pipeline_simulation s = {
        .spec = spec, .run = run, .stages = spec->devices * spec->chunks};
    *run = (struct hr__pipeline_run){.tasks = NULL};
    int r = hr__pipeline_check(spec, error);
    if (!r)
        r = check_stages(spec, error);
    if (r)
        return r;
    size_t devices = (size_t)spec->devices,
           total = (size_t)spec->microbatches * (size_t)spec->batches;
    size_t ends = total * (size_t)s.stages;
    run->device_count = spec->devices;
    run->device_tasks = 2 * total * (size_t)spec->chunks + (size_t)spec->batches;
    run->tasks = hr__alloc(HR__TAG_REPLAY, devices * run->device_tasks, sizeof *run->tasks);
    run->devices = hr__alloc(HR__TAG_REPLAY, devices, sizeof *run->devices);
    s.cursors = hr__alloc(HR__TAG_REPLAY, devices, sizeof *s.cursors);
    s.ends[0] = hr__alloc(HR__TAG_REPLAY, 2 * ends, sizeof **s.ends);
    if (run->tasks && run->devices && s.cursors && s.ends[0]) {
        s.ends[1] = s.ends[0] + ends;
        for (size_t i = 0; i < 2 * ends; i++)
            s.ends[0][i] = NAN;
        for (int i = 0; i < spec->devices; i++)
            s.cursors[i].flow = flow_of(spec, i);
        run_all(&s);
    } else {
        hr__pipeline_clear(run);
        r = hr__fail(error, -ENOMEM, "out of memory for the simulation of a pipeline");
    }
    hr__free(s.cursors);
    hr__free(s.ends[0]);
    return r;
}

/* Returns when device 0 has updated the weights after a batch. */
static double updated_s(const struct hr__pipeline_run *run, int batch)
{
    for (size_t i = 0; i < run->device_tasks; i++)
        if (run->tasks[i].kind == HR__PIPELINE_UPDATE && run->tasks[i].microbatch == batch)
            return run->tasks[i].end_s;
    return NAN;
}

double hr__pipeline_period_s(const struct hr__pipeline_run *run,
                             const struct hr__pipeline_spec *spec)
{
    double first = updated_s(run, 0);
    if (spec->schedule == HR_PLAN_2BW && spec->batches >= 6)
        return (updated_s(run, spec->batches - 2) - updated_s(run, 2)) / (spec->batches - 4);
    /* The next batch begins on device 0, and every other device waits for it. */
    for (int i = 1; i < run->device_count; i++) {
        const struct hr__pipeline_task *tasks = run->tasks + (size_t)i * run->device_tasks;
        for (size_t k = 0; k < run->device_tasks; k++)
            if (tasks[k].kind == HR__PIPELINE_UPDATE && tasks[k].microbatch == 0) {
                double end = tasks[k].end_s;
                first = end > first ? end : first;
            }
    }
    return first;
}
