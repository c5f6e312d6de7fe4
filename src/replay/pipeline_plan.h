/*
 * Plans of pipelines inside the room: the choices, their stages, time and memory.
 *
 * The model is PipeDream-2BW's (Narayanan and others, ICML'21) with the bounds of each stage in
 * place of averages. A pass takes the time of its layers and of sending its result: a forward pass
 * its output, a backward pass the gradient of its input, which has as many bytes. Gradients of
 * replicas are added over a ring; a flush waits for that, 2BW does it beside the next batch.
 * Replicas of a stage are neighbours, so their link is that of a server if they fit into one; the
 * link between stages is so only if all fit into one.
 */
#ifndef HR_REPLAY_PIPELINE_PLAN_H
#define HR_REPLAY_PIPELINE_PLAN_H

#include "replay/pipeline.h"
#include "replay/pipeline_profile.h"

#include <stdbool.h>

/* What a device holds. */
struct hr__device_bytes {
    double weights, gradients, state, activations;
    int microbatches; /* in flight at most */
};

/* One division of the network. */
struct hr__choice {
    enum hr_plan_schedule schedule;
    int devices; /* stages of the pipeline, without its replicas */
    int chunks, replicas;
    int size; /* index of the microbatch's size */
    bool recompute;
    int microbatches; /* of a batch, on each replica */
    int batch;        /* samples, over all replicas */
    int *cuts;        /* first layer of each of devices * chunks stages; then the layer count */
    double pace_s;    /* per microbatch, of the slowest stage: no schedule is faster */
    double step_s;    /* of a batch, in the steady state */
    double fill_s;    /* once a run with 2BW: until the pipeline is full */
    double samples_per_s;
    double bubble;                  /* share of a step in which GPUs wait */
    struct hr__device_bytes *bytes; /* by device; NULL: it was not run */
    double memory_bytes;            /* of the fullest device */
    int fullest;
    bool is_full;     /* `reason` is that it needs more memory */
    char reason[256]; /* why it cannot be; "": it can */
};

/* One stage of a choice. */
struct hr__stage_cost {
    int first, count; /* layers */
    double compute_forward_s, compute_backward_s;
    double send_forward_s, send_backward_s;
    double update_s, reduce_s;
    double weight_bytes; /* one version */
    double held_bytes, working_bytes;
};

struct hr_plan {
    struct hr__profile profile;
    struct hr_plan_options options;
    struct hr__choice *choices; /* the best first */
    int count;
    struct hr__choice *refused; /* faster than the first choice if they could be; the best first */
    int refused_count;
    int considered, fit, full;     /* full: that need more memory than there is */
    double alone_per_s;            /* samples/s of the best without a pipeline; NAN: none fits */
    struct hr__pipeline_run run;   /* of the first choice */
    struct hr__stage_cost *stages; /* of the first choice: devices * chunks */
    char *json;
};

/* Sums over layers before each cut, at one size of a microbatch. */
struct hr__sums {
    int layers;
    double *forward_s, *backward_s, *update_s, *weight_bytes, *held_bytes; /* layers + 1 each */
    double *cut_bytes; /* sent over a cut before layer i; at 0: the input */
};

HR_NODISCARD int hr__sums_make(struct hr__sums *out, const struct hr__profile *profile, int size,
                               struct hr_error *error);
void hr__sums_clear(struct hr__sums *sums);

/* Describes layers first..end - 1 as a stage of a choice. */
struct hr__stage_cost hr__stage_cost(const struct hr_plan_options *options,
                                     const struct hr__sums *sums, const struct hr__choice *choice,
                                     int first, int end);

/* Returns the bytes of a device with these stages (chunks) when it holds at most so many passes. */
struct hr__device_bytes hr__device_bytes(const struct hr_plan_options *options,
                                         const struct hr__choice *choice,
                                         const struct hr__stage_cost *stage, int microbatches);
double hr__device_total(const struct hr__device_bytes *bytes);

/* Returns how many microbatches a device holds at most, without chunks. */
int hr__in_flight(const struct hr__choice *choice, int device);

/* Sets the cuts and the pace of a choice: the slowest stage is as fast as it can be, and each fits
 * into memory. Returns 1 if no division fits: then the cuts ignore the memory. Errors: -ENOMEM. */
HR_NODISCARD int hr__partition(struct hr__choice *choice, const struct hr_plan_options *options,
                               const struct hr__sums *sums, struct hr_error *error);

/* Frees what a choice owns. */
void hr__choice_clear(struct hr__choice *choice);

/* Runs a choice: sets its times and memory, and a reason if it does not fit. *kept: the run, which
 * the caller clears; NULL: nobody wants it. Errors: -E2BIG, -ENOMEM. */
HR_NODISCARD int hr__choice_run(struct hr__choice *choice, const struct hr_plan_options *options,
                                const struct hr__sums *sums, struct hr__pipeline_run *kept,
                                struct hr_error *error);

/* Batches that a choice's run has. */
int hr__choice_batches(const struct hr__choice *choice);

/* Sums the stages of a device that has several. */
struct hr__stage_cost hr__device_cost(const struct hr_plan_options *options,
                                      const struct hr__sums *sums, const struct hr__choice *choice,
                                      int device);

/* Finds the choices of a plan whose profile and options are set. */
HR_NODISCARD int hr__plan_search(struct hr_plan *plan, struct hr_error *error);

#endif
