/*
 * Decides which rank takes which samples of a global batch.
 *
 * Exact: the framework's own order, as hr__cut_batch. Local: each sample goes to a rank of the host
 * that owns its item, as far as the batch sizes allow, which stay exactly equal. Samples that
 * nobody owns fill the free slots; the remaining samples move to other hosts. Within these rules
 * the plan minimizes the largest predicted batch-ready time over hosts: samples that nobody owns go
 * where storage is fast; a cached item moves only if fetching it from its owner is faster than
 * reading the sample that it displaces; and costly samples are spread. No other host can read a
 * disk, so what is kept on one moves only if its host has too many of those alone.
 *
 * Either way each global batch consists of the samples at positions [gB, (g+1)B) of the order, each
 * once (and the padding of the last one). So the mean gradient of synchronous training is the same
 * except for the order of summation.
 *
 * Pure: a function of (order, owners, costs, ranks, rates), integers only; every rank computes the
 * same. Source: CoorDL (VLDB'21, section 4.2, partitioned caching), Lobster (ICPP'22, balancing
 * predicted times).
 */
#ifndef HR_CLUSTER_PLAN_H
#define HR_CLUSTER_PLAN_H

#include "order/order.h"

enum hr__assignment {
    HR__ASSIGNMENT_EXACT = 0,
    HR__ASSIGNMENT_LOCAL = 1,
};

/* Speed of a host, in nanoseconds per KiB, for all its ranks together. All ranks must use the same
 * numbers. 0: not known; then the mean of the hosts with known speed is used. */
struct hr__plan_rates {
    uint32_t own_ns;     /* items on its own server */
    uint32_t peer_ns;    /* items on other hosts' servers */
    uint32_t storage_ns; /* files on storage */
    uint32_t prepare_ns; /* CPU time of preparing, for any tier */
};

struct hr__plan_wish {
    enum hr__assignment assignment;
    struct hr__cut cut;            /* `rank` is this rank; start as in a restored epoch */
    const struct hr__order *order; /* borrowed for the plan's life */
    const uint16_t *owners;        /* used by create only; per sample, HR__NOBODY: none */
    const uint16_t *disks;         /* used by create only; per sample that nobody owns, the host on
                                      whose disk it is kept, or HR__NOBODY; NULL: no disks */
    const uint32_t *bytes;         /* used by create only; per sample, size of its item, 0: not
                                      known; NULL: all alike */
    int host_count;
    const int *host_of_rank;            /* copied; cut.ranks; -1: the rank's host owns nothing */
    const struct hr__plan_rates *rates; /* copied; host_count; NULL: not known */
};

struct hr__plan;

/* Takes time in proportion to samples, and 4 bytes of memory for each; up to 60,000 ranks. On
 * success *out is the caller's. Errors: -EINVAL, -ENOMEM. */
int hr__plan_create(struct hr__plan **out, const struct hr__plan_wish *wish,
                    struct hr_error *error);
void hr__plan_destroy(struct hr__plan **plan);

/*
 * Writes the positions of this rank's batch `number` into positions[batch_size], as hr__cut_batch
 * does: ascending, with the padding at the end. One thread at a time, because it uses the plan's
 * scratch memory.
 */
size_t hr__plan_batch(struct hr__plan *plan, uint64_t number, uint64_t *positions, size_t *padding);

/* Writes the rank of each place of the global batch into ranks[] and returns how many there are:
 * batch_size x ranks, or fewer at the epoch's end, padding included. For simulation and tests. */
size_t hr__plan_ranks(struct hr__plan *plan, uint64_t number, uint16_t *ranks);

#endif
