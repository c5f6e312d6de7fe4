/*
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
 * 1, 2, 3", SC'11). A number is a pure function of a key and a counter, so results do not depend on
 * threads, timing or restarts.
 */
#ifndef HR_BASE_RANDOM_H
#define HR_BASE_RANDOM_H

#include <stdint.h>

/* The purpose is part of a stream's identity, so that different users of one seed draw from
 * different streams. */
enum hr__purpose {
    HR__PURPOSE_SHUFFLE = 1,
    HR__PURPOSE_OPERATION = 2, /* + the operation's position in the recipe << 8 */
    HR__PURPOSE_REPLACEMENT = 3,
    HR__PURPOSE_MIX = 4,
    HR__PURPOSE_EVICTION = 5,
};

/* A stream of random numbers. hr__random_init derives the key from the seed and the other
 * arguments. */
struct hr__random {
    uint32_t key[2];
    uint32_t base[4]; /* XORed with the block number to form the counter */
    uint32_t word[4]; /* the current block of output */
    uint64_t block;   /* number of the next block */
    int left;         /* words of the current block not used yet */
};

/* Computes one block (ten rounds). `counter` and `out` may be the same array. */
void hr__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Starts the stream for (seed, purpose, a, b); a and b are, for example, epoch and sample index. */
void hr__random_init(struct hr__random *r, uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b);

uint32_t hr__random_u32(struct hr__random *r);
uint64_t hr__random_u64(struct hr__random *r);

/* Uniform in [0, 1), with 53 random bits. */
double hr__random_unit(struct hr__random *r);

/* Uniform in [low, high). */
double hr__random_range(struct hr__random *r, double low, double high);

/* Uniform in [0, n), n > 0, without bias. */
uint64_t hr__random_below(struct hr__random *r, uint64_t n);

#endif
