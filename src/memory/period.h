/*
 * The iterative pattern: training repeats the same behaviours on blocks of the same sizes in
 * every iteration ("Pinpointing the Memory Behaviors of DNN Training", ISPASS'21). How long is
 * an iteration, how stable is it, and where does one differ?
 *
 * A behaviour is (kind, bytes, operator) of an allocation, a free, a read or a write. The
 * period is the smallest p for which a stretch of at least 2 p of the sequence repeats after p
 * (Knuth, Morris and Pratt's prefix function), the one whose stretch is the longest, 64 behaviours
 * at least. From there iterations are followed in both directions; what lies between two that are
 * as they should be is one that differs.
 */
#ifndef HR_MEMORY_PERIOD_H
#define HR_MEMORY_PERIOD_H

#include "memory/blocks.h"

/* The sequence. Zeroed: empty. */
struct hr__behaviours {
    uint32_t *tokens; /* digests */
    uint64_t *times_ns;
    size_t count, room;
    int code; /* -ENOMEM, sticky: the sequence ends there */
};

/* An hr__block_fn; arg: the struct. */
void hr__behaviours_add(void *arg, const struct hr__blocks_found *found,
                        const struct hr__block_event *event);
void hr__behaviours_clear(struct hr__behaviours *behaviours);

struct hr__iteration {
    size_t begin, end; /* of the sequence */
    uint64_t begin_ns, end_ns;
    int is_same;
    size_t differs_at; /* of one that differs: the first behaviour that does */
};

struct hr__period {
    size_t behaviours; /* of an iteration; 0: nothing repeats */
    struct hr__iteration *iterations;
    size_t count, same;
};

/* On success *out is to be cleared. Errors: -ENOMEM. */
int hr__period_find(struct hr__period *out, const struct hr__behaviours *behaviours,
                    struct hr_error *error);
void hr__period_clear(struct hr__period *period);

#endif
