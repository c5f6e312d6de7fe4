/*
 * Choosing of profiles: see profiles.h.
 *
 * A sample of the blocks is sorted by total bits and cut into as many parts as there are profiles.
 * Each part gives a profile: at each position, the width that makes the part's values and
 * exceptions smallest. Then each block of the sample moves to the profile that makes it smallest,
 * and so on, twice; more rounds gain less than 0.1 %. At the end all blocks choose, and the
 * profiles are fitted to them once more.
 *
 * The inner loops are written with vectors of 16 bytes, which compilers turn into the base
 * instructions of each machine.
 */
#include "codec/profiles.h"

#include "base/memory.h"

#include <string.h>

#define SAMPLE_MOST      2048
#define ROUNDS           2
#define BLOCKS_A_PROFILE 64 /* fewer do not repay a profile's bytes */
#define NEED_MOST        8
#define BITS_MOST        (63 * NEED_MOST)

/* What an exception counts when blocks choose. More than its bits, because it costs time as well;
 * the sum of four positions has to fit in a byte. */
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
    struct needs sample[SAMPLE_MOST];
    uint8_t chosen[SAMPLE_MOST];
    uint16_t total[SAMPLE_MOST]; /* bits of a block of the sample */
    histogram counts;
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

/* Returns the number of the profile that makes the block smallest. */
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

/* Distributes the sample among the profiles by total bits. */
static void begin(struct hr__profiles_scratch *s, size_t blocks, int profiles)
{
    uint32_t below[BITS_MOST + 2] = {0};
    uint64_t all = 0;
    for (size_t i = 0; i < blocks; i++) {
        const struct needs *n = &s->sample[i];
        s->total[i] = (uint16_t)add_up(n->at[0] + n->at[1] + n->at[2] + n->at[3]);
        below[s->total[i] + 1] += s->total[i] + 1u;
        all += s->total[i] + 1u;
    }
    for (int t = 1; t <= BITS_MOST + 1; t++)
        below[t] += below[t - 1];
    for (size_t i = 0; i < blocks; i++)
        s->chosen[i] = (uint8_t)((uint64_t)below[s->total[i]] * (unsigned)profiles / all);
}

void hr__profiles_choose(struct hr__profiles *out, const struct hr__block_values *blocks,
                         size_t total, uint8_t *chosen, struct hr__profiles_scratch *s)
{
    size_t step = total / SAMPLE_MOST + 1, some = 0;
    size_t wanted = total / BLOCKS_A_PROFILE;
    out->count = wanted < 1 ? 1 : wanted < HR__PROFILES_MOST ? (int)wanted : HR__PROFILES_MOST;
    for (size_t i = 0; i < total; i += step)
        measure(&s->sample[some++], &blocks[i]);
    begin(s, some, out->count);
    for (int round = 0; round <= ROUNDS; round++) {
        memset(s->counts, 0, sizeof s->counts);
        for (size_t i = 0; i < some; i++)
            count(s->counts, s->chosen[i], &s->sample[i]);
        fit(out, s->counts);
        for (size_t i = 0; round < ROUNDS && i < some; i++)
            s->chosen[i] = choose_one(out, &s->sample[i]);
    }
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
