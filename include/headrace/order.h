/*
 * The order of samples: what a loader's epoch is made of, for programs that load samples by
 * other means and want the same order.
 *
 * All functions are pure and may be called by any thread.
 */
#ifndef HEADRACE_ORDER_H
#define HEADRACE_ORDER_H

#include <headrace/base.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Fills out[samples] with the order of an epoch: the order of a loader with this seed, a uniformly
 * random permutation of 0 .. samples - 1 if `shuffle`, else 0, 1, 2, ... Errors: -ENOMEM.
 */
HR_API HR_NODISCARD int hr_order_fill(uint64_t *out, uint64_t samples, int shuffle, uint64_t seed,
                                      uint64_t epoch, struct hr_error *error);

/*
 * Returns the position whose sample replaces the bad sample at `position` (< samples) on try
 * `attempt` (0, 1, ...), as a loader that skips bad samples does. samples - 1 attempts visit each
 * other position once. It is `position` itself only if there is no other, or `position` is out of
 * range.
 */
HR_API uint64_t hr_order_replacement(uint64_t samples, uint64_t seed, uint64_t epoch,
                                     uint64_t position, uint32_t attempt);

#ifdef __cplusplus
}
#endif

#endif
