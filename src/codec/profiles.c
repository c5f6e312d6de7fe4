/*
 * Choosing of profiles: see profiles.h.
 *
 * A sample of the blocks is cut by their total bits into as many parts as there are profiles. Each
 * part gives a profile: at each position, the width that makes the part's values and exceptions
 * smallest. Then all blocks choose the profile that makes them smallest, and the profiles are
 * fitted to them once more. Further rounds, as in k-means, gain 0.1 %.
 *
 * The inner loops are written with vectors of 16 bytes, which compilers turn into the base
 * instructions of each machine.
 */
#include "codec/profiles.h"

#include "base/memory.h"

#include <string.h>

#define SAMPLE_MOST      4096
#define BLOCKS_A_PROFILE 64 /* fewer do not repay a profile's bytes */
#define NEED_MOST        8
#define BITS_MOST        (63 * NEED_MOST)

/* What an exception counts when blocks choose: more than its bits, because it costs time as well.
 * The sum of four positions fits in a byte. */
#define PENALTY 48

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef int8_t signed16 __attribute__((vector_size(16)));

/* Bits that each value of a block needs; 0 for none. */
struct needs {
    bytes16 at[4];
    int vectors; /* those after them are 0 */
};

/* For each profile and position: how many values need how many bits. */
typedef uint32_t histogram[HR__PROFILES_MOST][64][NEED_MOST + 1];

struct hr__profiles_scratch {
    histogram counts;
    uint16_t bits[SAMPLE_MOST]; /* of a block of the sample */
};

struct hr__profiles_scratch *hr__profiles_scratch_create(void)
{
    return hr__alloc_aligned(HR__TAG_CODEC, sizeof(struct hr__profiles_scratch), 0);
}

size_t hr__profiles_scratch_bytes(void)
{
    return sizeof(struct hr__profiles_scratch);
}

/* w bits hold magnitudes up to 2^(w-1). */
static inline void measure(struct needs *out, const struct hr__block_values *block)
{
    static const uint8_t least[NEED_MOST] = {1, 2, 3, 5, 9, 17, 33, 65};
    out->vectors = 0;
    for (int i = 0; i < 4; i++) {
        signed16 v, need = {0};
        uint64_t any[2];
        memcpy(&v, block->at + 16 * i, sizeof v);
        memcpy(any, &v, sizeof any);
        if (any[0] | any[1]) {
            signed16 magnitude = (v ^ (v >> 7)) - (v >> 7);
            for (int k = 0; k < NEED_MOST; k++)
                need -= (signed16)(magnitude >= (int8_t)least[k]);
            out->vectors = i + 1;
        }
        out->at[i] = (bytes16)need;
    }
}

static inline unsigned add_up(bytes16 v)
{
    const uint64_t even = UINT64_C(0x00FF00FF00FF00FF);
    uint64_t half[2];
    memcpy(half, &v, sizeof half);
    uint64_t sum =
        (half[0] & even) + (half[0] >> 8 & even) + (half[1] & even) + (half[1] >> 8 & even);
    return (unsigned)(sum * UINT64_C(0x0001000100010001) >> 48);
}

/* Returns the number of the profile that makes the block smallest. The sum of four positions fits
 * in a byte. */
static inline uint8_t choose_one(const struct hr__profiles *profiles, const struct needs *block)
{
    unsigned least = ~0u;
    uint8_t best = 0;
    for (int p = 0; p < profiles->count; p++) {
        bytes16 sum = {0};
        for (int i = 0; i < block->vectors; i++) {
            bytes16 width, need = block->at[i];
            memcpy(&width, profiles->width[p] + 16 * i, sizeof width);
            sum += (width & (bytes16)(need != 0)) + ((bytes16)(need > width) & PENALTY);
        }
        unsigned cost = add_up(sum);
        best = cost < least ? (uint8_t)p : best;
        least = cost < least ? cost : least;
    }
    return best;
}

static inline void count(histogram counts, int profile, const struct needs *block)
{
    uint8_t need[64];
    memcpy(need, block->at, sizeof need);
    for (int k = 1; k < 16 * block->vectors; k++)
        counts[profile][k][need[k]]++;
}

/* Sets each width to the one that takes the fewest bits. */
static void fit(struct hr__profiles *profiles, histogram counts)
{
    memset(profiles->width, 0, sizeof profiles->width);
    for (int p = 0; p < profiles->count; p++)
        for (int k = 1; k < 64; k++) {
            const uint32_t *n = counts[p][k];
            uint64_t wider = 0, least = ~UINT64_C(0), values = 0;
            for (int w = 1; w <= NEED_MOST; w++)
                values += n[w];
            wider = values;
            for (unsigned w = 0; w <= HR__WIDTH_MOST(k); w++) {
                wider -= w ? n[w] : 0;
                uint64_t cost = values * w + wider * HR__EXCEPTION_BITS;
                if (cost < least) {
                    least = cost;
                    profiles->width[p][k] = (uint8_t)w;
                }
            }
        }
}

/* Fits the profiles to parts of a sample: every block of number `step` x n. */
static void begin(struct hr__profiles *out, const struct hr__block_values *blocks, size_t total,
                  struct hr__profiles_scratch *s)
{
    size_t step = total / SAMPLE_MOST + 1;
    uint64_t below[BITS_MOST + 2] = {0}; /* bits of all blocks with fewer bits than that */
    struct needs block;
    for (size_t i = 0; i < total; i += step) {
        measure(&block, &blocks[i]);
        unsigned bits = add_up(block.at[0] + block.at[1] + block.at[2] + block.at[3]);
        s->bits[i / step] = (uint16_t)bits;
        below[bits + 1] += bits + 1; /* so that blocks without values count */
    }
    for (int n = 1; n <= BITS_MOST + 1; n++)
        below[n] += below[n - 1];
    memset(s->counts, 0, sizeof s->counts);
    for (size_t i = 0; i < total; i += step) {
        uint64_t part = below[s->bits[i / step]] * (unsigned)out->count / below[BITS_MOST + 1];
        measure(&block, &blocks[i]);
        count(s->counts, (int)part, &block);
    }
    fit(out, s->counts);
}

void hr__profiles_choose(struct hr__profiles *out, const struct hr__block_values *blocks,
                         size_t total, uint8_t *chosen, struct hr__profiles_scratch *s)
{
    size_t wanted = total / BLOCKS_A_PROFILE;
    out->count = wanted < 1 ? 1 : wanted < HR__PROFILES_MOST ? (int)wanted : HR__PROFILES_MOST;
    begin(out, blocks, total, s);
    memset(s->counts, 0, sizeof s->counts);
    for (size_t i = 0; i < total; i++) {
        struct needs block;
        measure(&block, &blocks[i]);
        chosen[i] = choose_one(out, &block);
        count(s->counts, chosen[i], &block);
    }
    fit(out, s->counts);
    for (int p = 0; p < HR__PROFILES_MOST; p++)
        for (int k = 0; k < 64; k++)
            out->most[p][k] = (uint8_t)(1u << out->width[p][k] >> 1);
}
