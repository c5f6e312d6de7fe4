/*
 * Which sample comes next: pure functions of (seed, epoch) and the shape of
 * the job. Nothing here has a clock, I/O or threads.
 *
 * Position: index into the epoch's order, of all ranks together. A cut says how
 * the positions from `start` on are dealt into batches of ranks.
 */
#ifndef HR_ORDER_ORDER_H
#define HR_ORDER_ORDER_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr__order;

/* The order of `epoch` for `samples` samples: a uniformly random permutation
 * (shuffle) or 0, 1, 2, ... Memory: 4 bytes per sample when shuffled (8 beyond
 * 2^32), none otherwise. Errors: -ENOMEM. */
int hr__order_create(struct hr__order **out, uint64_t samples, int shuffle, uint64_t seed,
                     uint64_t epoch, struct hr_error *error);
void hr__order_destroy(struct hr__order **order);

/* Sample at `position` (< samples). */
uint64_t hr__order_at(const struct hr__order *order, uint64_t position);

/* The stand-in for the bad sample at `position`: the position to take it from
 * at try `attempt` (0, 1, ...). A pure function of (seed, epoch, position,
 * attempt), never `position` itself unless samples == 1. */
uint64_t hr__order_replacement(uint64_t samples, uint64_t seed, uint64_t epoch, uint64_t position,
                               uint32_t attempt);

/* How positions become batches of one rank. */
struct hr__cut {
    uint64_t samples;    /* of the epoch's order */
    uint64_t start;      /* first position; > 0 after a restore */
    uint64_t batch_size; /* per rank */
    uint64_t ranks, rank;
    int drop_last;
};

/* Batches of this rank from `start` on; equal on all ranks. */
uint64_t hr__cut_batches(const struct hr__cut *cut);

/*
 * The positions of this rank's batch `number` (from 0 at `start`), into
 * positions[batch_size]. Returns their count; *padding of them, at the end,
 * repeat positions from the start of the order to make the ranks' counts equal.
 */
size_t hr__cut_batch(const struct hr__cut *cut, uint64_t number, uint64_t *positions,
                     size_t *padding);

/* Positions behind us (all ranks) once `number` batches are done; never more
 * than `samples`: what a resume state holds. */
uint64_t hr__cut_position(const struct hr__cut *cut, uint64_t number);

#endif
