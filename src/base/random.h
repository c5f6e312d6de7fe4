/*
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random
 * Numbers: As Easy as 1, 2, 3", SC'11). A draw is a pure function of a key and
 * a counter, so results do not depend on threads, timing or restarts.
 */
#ifndef HR_BASE_RANDOM_H
#define HR_BASE_RANDOM_H

#include <stdint.h>

/* Purposes keep the streams of different users of one seed apart. */
enum hr__purpose {
    HR__PURPOSE_SHUFFLE = 1,
    HR__PURPOSE_OPERATION = 2, /* + the operation's position in the recipe << 8 */
    HR__PURPOSE_REPLACEMENT = 3,
};

/* A stream of numbers: key = seed; the rest is mixed in. */
struct hr__random {
    uint32_t key[2];
    uint32_t base[4]; /* what the block number is mixed into */
    uint32_t word[4]; /* the current block */
    uint64_t block;   /* number of the next block */
    int left;         /* words of the current block not yet used */
};

/* One block of ten rounds; `counter` and `out` may be the same. */
void hr__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A stream for (seed, purpose, a, b); a and b are e.g. epoch and sample index. */
void hr__random_init(struct hr__random *r, uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b);

uint32_t hr__random_u32(struct hr__random *r);
uint64_t hr__random_u64(struct hr__random *r);

/* Uniform in [0, 1), 53 bits. */
double hr__random_unit(struct hr__random *r);

/* Uniform in [low, high). */
double hr__random_range(struct hr__random *r, double low, double high);

/* Uniform in [0, n), n > 0, without bias. */
uint64_t hr__random_below(struct hr__random *r, uint64_t n);

#endif
