/*
 * The gradients of a trace: which backward pass makes each, how large it is, and who waits for it.
 * What-ifs about communication and about the optimizer are built on them.
 *
 * A gradient is an operator torch::autograd::AccumulateGrad; its bytes are in traces that were
 * recorded with shapes. A backward pass ends before the next forward operator or the optimizer.
 */
#ifndef HR_REPLAY_GRADIENTS_H
#define HR_REPLAY_GRADIENTS_H

#include "replay/graph.h"

struct hr__gradient {
    int64_t bytes;    /* HR__TRACE_NONE: not recorded */
    uint32_t task;    /* the last one on the CPU that makes it */
    uint32_t kernel;  /* the device's work that makes it; HR__NO_TASK: none */
    uint32_t forward; /* forward operator of its layer, an event; HR__NO_EVENT: unknown */
};

/* A backward pass of a rank. */
struct hr__backward_pass {
    uint32_t rank;
    uint32_t first, count;    /* its gradients */
    int64_t begin_ns, end_ns; /* from its first gradient to its end */
    uint32_t next;            /* the task that follows it, on the device if that made gradients;
                                 HR__NO_TASK: none */
};

struct hr__gradients {
    struct hr__gradient *all;
    size_t count;
    struct hr__backward_pass *passes; /* by rank, then in order of time */
    size_t pass_count;
    uint32_t **first_task; /* by rank, by event: the first task of it; HR__NO_TASK: none */
    uint32_t **first_work; /* by rank, by event: the first work of a device that it launched */
    uint32_t *update_of;   /* by task: the pass whose gradients it applies, on the device if that
                              made them; HR__NO_TASK: it is no work of an optimizer's step */
    size_t rank_count;
};

/* Finds the gradients of a graph without changes. The caller clears *out, also after an error.
 * Errors: -ENODATA: no backward pass; -ENOMEM. */
HR_NODISCARD int hr__gradients_find(struct hr__gradients *out, const struct hr__graph *graph,
                                    struct hr_error *error);
void hr__gradients_clear(struct hr__gradients *gradients);

#endif
