/*
 * Which rank takes which samples of a global batch.
 *
 * Exact: the framework's own order, as hr__cut_batch. Local: each sample goes to a rank of
 * the host that owns its item, as far as the batch sizes, which stay exactly equal, allow;
 * samples that nobody owns fill the slots that are left; what is still left moves. Within
 * that freedom the largest predicted batch-ready time over hosts is made small: missing
 * samples go where storage is fast, a cached item moves only where fetching it from its
 * owner is faster than reading what it makes room for, and samples of great cost are spread.
 *
 * Either way the samples of each global batch are those of positions [gB, (g+1)B) of the
 * order, each once (and the padding of the last one), so that the mean gradient of
 * synchronous training is the same but for the order of summation.
 *
 * Pure: a function of (order, owners, costs, ranks, rates), integers only; every rank
 * computes the same. Source: CoorDL (VLDB'21, section 4.2, partitioned caching), Lobster
 * (ICPP'22, balancing predicted times).
 */
#ifndef HR_CLUSTER_PLAN_H
#define HR_CLUSTER_PLAN_H

#include "order/order.h"

enum hr__assignment {
    HR__ASSIGNMENT_EXACT = 0,
    HR__ASSIGNMENT_LOCAL = 1,
};

/* What a host can do; the same numbers on all ranks. 0: not known, and then it is taken to be
 * as the mean of the hosts that know it. For each host: nanoseconds per KiB, all its ranks
 * together. */
struct hr__plan_rates {
    uint32_t own_ns;     /* items of its own server */
    uint32_t peer_ns;    /* items of other hosts' */
    uint32_t storage_ns; /* files */
    uint32_t prepare_ns; /* CPU, whatever the tier */
};

struct hr__plan_wish {
    enum hr__assignment assignment;
    struct hr__cut cut;            /* `rank` is this rank; start as in a restored epoch */
    const struct hr__order *order; /* borrowed for the plan's life */
    const uint16_t *owners;        /* read here; per sample, HR__NOBODY: none */
    const uint32_t *bytes;         /* read here; per sample, of its item, 0: not known;
                                      NULL: all alike */
    int host_count;
    const int *host_of_rank; /* copied; cut.ranks; -1: a rank on a host that owns nothing */
    const struct hr__plan_rates *rates; /* copied; host_count; NULL: not known */
};

struct hr__plan;

/* Takes time in proportion to samples, and 4 bytes of memory for each; up to 60,000 ranks. On
 * success *out is the caller's. Errors: -EINVAL, -ENOMEM. */
int hr__plan_create(struct hr__plan **out, const struct hr__plan_wish *wish,
                    struct hr_error *error);
void hr__plan_destroy(struct hr__plan **plan);

/*
 * The positions of this rank's batch `number`, as hr__cut_batch does: into
 * positions[batch_size], ascending but for the padding, which stands at the end. One thread
 * at a time: the plan's own scratch memory is used.
 */
size_t hr__plan_batch(struct hr__plan *plan, uint64_t number, uint64_t *positions, size_t *padding);

/* The rank of each of the global batch's places (batch_size x ranks of them, or fewer at the
 * end with padding counted), into ranks[]; returns how many. For simulation and tests. */
size_t hr__plan_ranks(struct hr__plan *plan, uint64_t number, uint16_t *ranks);

#endif
