/* An epoch: the order of its samples, and which of them are whose. */
#ifndef HR_LOADER_EPOCH_H
#define HR_LOADER_EPOCH_H

#include "order/order.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* A division of an epoch's samples between ranks other than hr__cut's. Any thread. */
struct hr__deal {
    /* The samples of this rank's batch `number`, as hr__cut_batch. */
    size_t (*batch)(struct hr__deal *deal, uint64_t number, uint64_t *positions, size_t *padding);
    void (*destroy)(struct hr__deal *deal);
};

/* What an epoch is: immutable, shared by the loader and its open batches. */
struct hr__epoch {
    atomic_uint refs;
    uint64_t epoch;
    uint64_t seed;
    struct hr__order *order; /* NULL: external */
    struct hr__cut cut;      /* external: only start and samples */
    uint64_t batches;        /* from cut.start on; external: UINT64_MAX */
    uint64_t first_number;   /* number of the first batch, as batches are told */
    uint64_t first_chunk;    /* number of the first batch as part->open gets it */
    uint64_t same_order;     /* digest of what the order of all epochs follows from */
    int shuffle;
    struct hr__deal
        *deal; /* what divides it between ranks, set once, under the lock; NULL: `cut` */
};

struct hr__epoch *hr__epoch_ref(struct hr__epoch *plan);
void hr__epoch_unref(struct hr__epoch **plan);

#endif
