/*
 * Simulates the run of a pipeline: when each device runs the forward and the backward pass of each
 * microbatch, with which version of the weights, and how much it holds for backward passes.
 *
 * A network is cut into stages. Stage i runs on device i % devices, so a device has `chunks`
 * stages; more than one only with the interleaved schedule. A device runs its tasks in the order of
 * the schedule, each as soon as what it needs is there: the forward pass that of the stage before
 * it, the backward pass that of the stage after it. Durations include the sending of the result.
 * Pure functions of their arguments.
 */
#ifndef HR_REPLAY_PIPELINE_H
#define HR_REPLAY_PIPELINE_H

#include <headrace/plan.h>

#include <stddef.h>

#define HR__PIPELINE_MOST_TASKS ((size_t)4 << 20)

struct hr__pipeline_stage {
    double forward_s, backward_s; /* of one microbatch; backward: with recomputation if any */
    double update_s;              /* of its weights, once a batch */
    double held_bytes;            /* for each microbatch from its forward to its backward pass */
    double working_bytes;         /* beside them while a backward pass runs */
};

struct hr__pipeline_spec {
    enum hr_plan_schedule schedule;
    int devices, chunks;
    int microbatches; /* of a batch */
    int batches;
    const struct hr__pipeline_stage *stages; /* devices * chunks, in the order of the network */
};

enum hr__pipeline_kind { HR__PIPELINE_FORWARD, HR__PIPELINE_BACKWARD, HR__PIPELINE_UPDATE };

struct hr__pipeline_task {
    double begin_s, end_s;
    enum hr__pipeline_kind kind;
    int stage;      /* UPDATE: the first one of its device */
    int microbatch; /* counted over all batches; UPDATE: the batch */
    int version;    /* of the weights: updates before it; UPDATE: the version that it makes */
};

struct hr__pipeline_device {
    double busy_s; /* of passes, without updates */
    double peak_bytes;
    int peak_microbatches; /* most passes whose backward pass was still to come */
};

struct hr__pipeline_run {
    struct hr__pipeline_task *tasks; /* of device 0 in their order, then of device 1... */
    size_t device_tasks;             /* how many each device has */
    struct hr__pipeline_device *devices;
    int device_count;
    double makespan_s;
    double utilisation; /* share of the makespan in which devices run passes: their mean */
};

/*
 * Simulates. On success the caller clears *run. Errors: -EINVAL: counts below 1, durations that are
 * not finite, chunks without the interleaved schedule, microbatches that the schedule does not
 * allow (interleaved: a multiple of the devices; 2BW: not fewer than devices); -E2BIG: more than
 * HR__PIPELINE_MOST_TASKS; -ENOMEM.
 */
HR_NODISCARD int hr__pipeline_simulate(struct hr__pipeline_run *run,
                                       const struct hr__pipeline_spec *spec,
                                       struct hr_error *error);
void hr__pipeline_clear(struct hr__pipeline_run *run);

/* Checks the counts of a spec alone; errors as above. */
HR_NODISCARD int hr__pipeline_check(const struct hr__pipeline_spec *spec, struct hr_error *error);

/* Returns how many forward passes a device runs before its first backward pass. */
int hr__pipeline_warm_up(const struct hr__pipeline_spec *spec, int device);

/* Returns the version of the weights that a microbatch uses in both of its passes. */
int hr__pipeline_version(const struct hr__pipeline_spec *spec, int microbatch);

/* Returns the time from one batch to the next in the steady state. The run has at least 6 batches
 * with 2BW; without it the first batch is what counts. */
double hr__pipeline_period_s(const struct hr__pipeline_run *run,
                             const struct hr__pipeline_spec *spec);

#endif
