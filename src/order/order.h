/*
 * Which sample comes next: pure functions of (seed, epoch) and the job's batch size and ranks.
 * Nothing here uses a clock, I/O or threads.
 *
 * A position is an index into the epoch's order, which all ranks share. A cut describes how the
 * positions from `start` on are split into batches, one series for each rank.
 */
#ifndef HR_ORDER_ORDER_H
#define HR_ORDER_ORDER_H

#include <headrace/order.h>

#include <stddef.h>
#include <stdint.h>

struct hr__order;

/* Creates the order of `samples` samples in `epoch`: a uniformly random permutation if `shuffle`,
 * else 0, 1, 2, ... Memory: 4 bytes per sample if shuffled (8 beyond 2^32 samples), none otherwise.
 * Errors: -ENOMEM. */
int hr__order_create(struct hr__order **out, uint64_t samples, int shuffle, uint64_t seed,
                     uint64_t epoch, struct hr_error *error);
void hr__order_destroy(struct hr__order **order);

/* Returns the sample at `position` (< samples). */
uint64_t hr__order_at(const struct hr__order *order, uint64_t position);

/* How positions are split into the batches of one rank. */
struct hr__cut {
    uint64_t samples;    /* in the epoch's order */
    uint64_t start;      /* first position; > 0 after a restore */
    uint64_t batch_size; /* per rank */
    uint64_t ranks, rank;
    int drop_last;
};

/* Returns the number of batches of this rank from `start` on; equal on all ranks. */
uint64_t hr__cut_batches(const struct hr__cut *cut);

/*
 * Stores the positions of this rank's batch `number` (from 0 at `start`) in positions[batch_size].
 * Returns their count. The last *padding of them repeat positions from the start of the order, to
 * make the ranks' counts equal.
 */
size_t hr__cut_batch(const struct hr__cut *cut, uint64_t number, uint64_t *positions,
                     size_t *padding);

/* Returns the position reached, over all ranks, after `number` batches; at most `samples`. A resume
 * state stores it. */
uint64_t hr__cut_position(const struct hr__cut *cut, uint64_t number);

#endif
