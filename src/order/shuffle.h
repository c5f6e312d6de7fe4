/*
 * Shuffles an epoch, with 32-bit or 64-bit indices; both give the same permutation. Private to the
 * order room. Separate functions let tests run the wide one, needed beyond 2^32 samples, on few.
 */
#ifndef HR_ORDER_SHUFFLE_H
#define HR_ORDER_SHUFFLE_H

#include <stdint.h>

/* Fills at[0..n) with a uniformly random permutation of 0..n-1, a pure function of (n, seed,
 * epoch). hr__shuffle_narrow requires n <= 2^32. */
void hr__shuffle_narrow(uint32_t *at, uint64_t n, uint64_t seed, uint64_t epoch);
void hr__shuffle_wide(uint64_t *at, uint64_t n, uint64_t seed, uint64_t epoch);

#endif
