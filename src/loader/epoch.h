/* An epoch: the order of its samples, and how ranks divide them. */
#ifndef HR_LOADER_EPOCH_H
#define HR_LOADER_EPOCH_H

#include "order/order.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* A division of an epoch's samples between ranks that replaces hr__cut's. Any thread. */
struct hr__deal {
    /* Returns the positions of this rank's batch `number`, as hr__cut_batch does. */
    size_t (*batch)(struct hr__deal *deal, uint64_t number, uint64_t *positions, size_t *padding);
    void (*destroy)(struct hr__deal *deal);
};

/* The plan of an epoch: immutable, shared by the loader and its open batches. */
struct hr__epoch {
    atomic_uint refs;
    uint64_t epoch;
    uint64_t seed;
    struct hr__order *order; /* NULL: external order */
    struct hr__cut cut;      /* external order: only start and samples are used */
    uint64_t batches;        /* number of batches from cut.start on; external order: UINT64_MAX */
    uint64_t first_number;   /* number that users see for the first batch */
    uint64_t first_chunk;    /* number of the first batch as part->open gets it */
    uint64_t same_order;     /* digest of all that determines the order of every epoch */
    uint64_t stream;         /* the same for all ranks */
    int shuffle;
    /* If not NULL, divides the samples between ranks instead of `cut`. Set once, under the lock. */
    struct hr__deal *deal;
};

struct hr__epoch *hr__epoch_ref(struct hr__epoch *plan);
void hr__epoch_unref(struct hr__epoch **plan);

#endif
