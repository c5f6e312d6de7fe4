/*
 * Calibrates the training step of a model from the phases without loading, and how a loader running
 * beside it affects it.
 *
 * A computing step slows down while another core works, through shared caches and memory. For
 * training on a CPU, the step's own CPU time with and without the loader shows by how much. The
 * cost of receiving a batch is measured separately (next_cpu_s).
 */
#include "stalls/model/calibrate_inside.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>

#define MOST_DISTURBANCE 0.5
#define LEAST_BESIDE     0.2 /* busy cores beside the step from which their effect shows */

/* Fills the variation of steps: on a CPU, rank 0's steps. With a device, the loop runs ahead of it,
 * and only the mean of a whole segment gives the length of a step. */
static int step_values(struct hr__model *model, enum hr_stalls_phase phase, size_t *count)
{
    const struct hr__rank_record *rank = &model->stalls->ranks[0];
    size_t most = 1, n = 0;
    for (size_t i = 0; i < rank->segment_count; i++)
        if (rank->segments[i].phase == phase)
            most += model->stalls->on_cpu ? rank->segments[i].batches : 1;
    model->step_s = hr__alloc(HR__TAG_STALLS, most, sizeof *model->step_s);
    if (!model->step_s)
        return -ENOMEM;
    for (size_t i = 0; i < rank->segment_count; i++) {
        const struct hr__segment_record *segment = &rank->segments[i];
        if (segment->phase != phase || !segment->batches)
            continue;
        if (!model->stalls->on_cpu || !segment->batch_s)
            model->step_s[n++] = segment->elapsed_s / (double)segment->batches;
        else
            for (uint64_t k = 0; k < segment->batches; k++)
                model->step_s[n++] = segment->batch_s[k];
    }
    for (size_t i = 0; i < n; i++)
        if (!(model->step_s[i] >= 0 && model->step_s[i] < INFINITY))
            model->step_s[i] = 0;
    *count = n ? n : 1;
    return 0;
}

/* Returns the CPU seconds of a training batch, from the result or else the segments. */
static double training_cpu(const struct hr_stalls *stalls, enum hr_stalls_phase phase)
{
    const struct hr__rank_record *rank = &stalls->ranks[0];
    double cpu_s = 0, batches = 0;
    if (stalls->training_cpu_s >= 0)
        return stalls->training_cpu_s;
    for (size_t i = 0; i < rank->segment_count; i++)
        if (rank->segments[i].phase == phase && rank->segments[i].process_cpu_s >= 0) {
            cpu_s += rank->segments[i].process_cpu_s;
            batches += (double)rank->segments[i].batches;
        }
    return batches > 0 ? cpu_s / batches : 0;
}

int hr__step_fit(struct hr__model *model, struct hr_error *error)
{
    const struct hr_stalls *stalls = model->stalls;
    struct hr__system *s = &model->system;
    enum hr_stalls_phase phase =
        hr__known(hr__phase_s(stalls, HR_STALLS_HOST)) ? HR_STALLS_HOST : HR_STALLS_DEVICE;
    double step_s = hr__phase_s(stalls, phase), device_s = hr__phase_s(stalls, HR_STALLS_DEVICE);
    if (!hr__known(step_s))
        return hr__fail(error, -ENODATA,
                        "training without its loader was not measured, and nothing can be "
                        "predicted without it: measure again, for longer (--time)");
    double cpu_s = training_cpu(stalls, phase);
    /* Threads that the CPU time does not fill are waiting. */
    int threads = (int)ceil(cpu_s / step_s - 0.05);
    int most = stalls->on_cpu && stalls->training_threads > 0 ? stalls->training_threads : threads;
    s->step_threads = threads < 1 ? 1 : threads > most ? most : threads;
    /* Threads that run at the same time without loading already slow down the work. */
    double runnable = (double)s->step_threads * s->ranks, busy = fmin(runnable, s->cores);
    double slowed = 1 + s->contention * (busy - 1);
    double stretch = fmax(1, runnable / s->cores) * slowed;
    double work_s = fmin(cpu_s / s->step_threads / slowed, step_s / stretch);
    double alone_s = step_s - work_s * (stretch - 1);
    size_t count;
    int r = step_values(model, phase, &count);
    if (r)
        return r;
    hr__values_scale(model->step_s, count, alone_s);
    s->step_s = (struct hr__values){model->step_s, count};
    s->step_cpu_s = work_s * s->step_threads;
    s->copy_s = phase == HR_STALLS_HOST && hr__known(device_s) ? fmax(0, step_s - device_s) : 0;
    model->step_spread = hr__spread(&stalls->step_s[phase]);
    double samples = (double)s->batch_size * model->ranks;
    double measured = stalls->summary.device_rate.value;
    model->device_times = hr__known(measured) ? measured * (step_s - s->copy_s) / samples : 1;
    return 0;
}

/* ---- beside the loader ---- */

/* CPU seconds of rank 0's process per batch of a phase, averaged over rounds: in the step, in
 * next(); and the number of cores that the loader's workers kept busy. */
struct spent {
    double step_s, next_s, beside;
};

/* Returns false if the segments lack the figures. */
static bool find_spent(const struct hr__rank_record *rank, enum hr_stalls_phase phase,
                       struct spent *spent)
{
    double batches = 0, worker_s = 0, elapsed_s = 0;
    *spent = (struct spent){.beside = 0};
    for (size_t i = 0; i < rank->segment_count; i++) {
        const struct hr__segment_record *g = &rank->segments[i];
        if (g->phase != phase || !g->batches || !(g->process_cpu_s >= g->next_cpu_s) ||
            !(g->next_cpu_s >= 0))
            continue;
        batches += (double)g->batches;
        spent->step_s += g->process_cpu_s - g->next_cpu_s;
        spent->next_s += g->next_cpu_s;
        worker_s += g->worker_cpu_s >= 0 ? g->worker_cpu_s : 0;
        elapsed_s += g->elapsed_s;
    }
    if (!(batches > 0) || !(elapsed_s > 0))
        return false;
    spent->step_s /= batches;
    spent->next_s /= batches;
    spent->beside = worker_s / elapsed_s;
    return true;
}

void hr__beside_fit(struct hr__model *model)
{
    struct hr__system *s = &model->system;
    const struct hr__rank_record *rank = &model->stalls->ranks[0];
    struct spent alone, beside;
    /* Several threads of a step spin while they wait for each other, which counts as CPU
     * time too. */
    if (!model->stalls->on_cpu || s->loader != HR__LOADER_TORCH || s->workers < 1 ||
        s->step_threads > 1 || s->ranks > 1 || s->cores < 2)
        return;
    if (!find_spent(rank, HR_STALLS_HOST, &alone) && !find_spent(rank, HR_STALLS_DEVICE, &alone))
        return;
    if (!find_spent(rank, HR_STALLS_WARM, &beside) || !(alone.step_s > 0))
        return;
    s->batch_cpu_s = fmax(0, beside.next_s - alone.next_s);
    double cores = fmin(beside.beside, s->cores - 1);
    if (cores < LEAST_BESIDE)
        return;
    /* Less than one core's worth means one core, busy for that part of the time. */
    double kept = fmin(1, alone.step_s / beside.step_s * (1 + s->contention * cores));
    double busy = fmax(1, cores), part = fmin(1, cores);
    double slowed = (1 - kept) / part;
    s->disturbance =
        slowed < 1 ? fmin(slowed / (1 - slowed) / busy, MOST_DISTURBANCE) : MOST_DISTURBANCE;
}
