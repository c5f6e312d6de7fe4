/*
 * Shared by the vector versions of unpacking: parsing a block of version 1, the order in which its
 * coefficients enter the transform, and one pass of the transform.
 *
 * The transform multiplies and adds pairs of 16-bit numbers, so rows r and r + 4 are interleaved
 * from the start. A block's 64 coefficients are ordered by slot: 16 slots for each r of 0..3, with
 * rows r and r + 4 of the columns 0 4 1 5 2 6 3 7 in turn. The results of neighbouring columns are
 * then the pairs of the next pass. Zigzag positions have to be permuted anyway, so this order costs
 * nothing.
 *
 * A batch of blocks is staged before it is transformed: by the time vectors read the data, the
 * narrow stores that wrote it have left the store queue.
 *
 * Before including this, a file defines `ints`, a vector of 32-bit numbers, and V(op), the
 * intrinsic of that name. It may define PRODUCT, DOT and HR__SLOT, which are explained below.
 */
#ifndef HR_CODEC_COEFFICIENTS_VECTOR_H
#define HR_CODEC_COEFFICIENTS_VECTOR_H

#include "codec/coefficients_factors.h"
#include "codec/coefficients_group.h"
#include "codec/inverse_dct.h"

#include <errno.h>
#include <string.h>

#define HR__INLINE static inline __attribute__((always_inline))

/* Blocks staged before they are transformed; a multiple of 4. */
#define HR__BATCH 16

/* Shifts and rounding of the two passes; see inverse_dct.h. Samples are 128 above the result of the
 * second. */
#define HR__SHIFT_1 (HR__DCT_CONST_BITS - HR__DCT_PASS1_BITS)
#define HR__SHIFT_2 (HR__DCT_CONST_BITS + HR__DCT_PASS1_BITS + 3)
#define HR__ROUND_1 (1 << (HR__SHIFT_1 - 1))
#define HR__ROUND_2 ((1 << (HR__SHIFT_2 - 1)) + (128 << HR__SHIFT_2))

/* Zigzag position of each slot. */
#define HR__SLOTS_0 0, 10, 14, 39, 1, 19, 15, 45, 5, 23, 27, 52, 6, 32, 28, 54
#define HR__SLOTS_1 2, 20, 16, 46, 4, 22, 26, 51, 7, 33, 29, 55, 13, 38, 42, 60
#define HR__SLOTS_2 3, 21, 25, 50, 8, 34, 30, 56, 12, 37, 41, 59, 17, 47, 43, 61
#define HR__SLOTS_3 9, 35, 31, 57, 11, 36, 40, 58, 18, 48, 44, 62, 24, 49, 53, 63

/* Slot of each zigzag position. HR__SLOT(position) is the same in the order of the instruction
 * set's own vectors. */
#ifndef HR__SLOT
#define HR__SLOT(position) hr__slot_of[position]
#endif
static const uint8_t hr__slot_of[64] = {
    0,  4, 16, 32, 20, 8,  12, 24, 36, 48, 1,  52, 40, 28, 2,  6,  18, 44, 56, 5,  17, 33,
    21, 9, 60, 34, 22, 10, 14, 26, 38, 50, 13, 25, 37, 49, 53, 41, 29, 3,  54, 42, 30, 46,
    58, 7, 19, 45, 57, 61, 35, 23, 11, 62, 15, 27, 39, 51, 55, 43, 31, 47, 59, 63,
};

/* A parsed block of an item. */
struct hr__packed_block {
    const uint8_t *values, *extra; /* the bit stream; the exceptions */
    uint64_t map;
    int dc;
    unsigned w1, w2; /* bits per value */
    unsigned n1;     /* number of values with w1 bits */
    unsigned exceptions;
};

/* The input of the transform. */
struct hr__staged {
    uint8_t value[64]; /* zigzag order; 0 where dc or extra apply. AVX-512: the quantised
                        * coefficients; AVX2 and NEON: their codes, in version 1 plus one */
    uint8_t mask[64];  /* version 2, AVX2 and NEON: as many low bits as a code has; 0: no value */
    int16_t extra[64]; /* dequantised exceptions, by slot; only if `patched` */
    int dc;            /* dequantised, x 2^13 */
    int patched;
    unsigned w1, w2; /* version 1, AVX2 and NEON: bits per value */
} __attribute__((aligned(64)));

/* Returns the lower n bytes of v. */
HR__INLINE uint64_t hr__low_bytes(uint64_t v, unsigned n)
{
#ifdef __BMI2__
    return _bzhi_u64(v, 8 * n);
#else
    return n < 8 ? v & ((UINT64_C(1) << 8 * n) - 1) : v;
#endif
}

/* Parses the block at p. Returns its end, or NULL if it exceeds the item. Reads up to 12 bytes from
 * p on; p is at most `end`. */
HR__INLINE const uint8_t *hr__block_parse(struct hr__packed_block *b, const uint8_t *p,
                                          const uint8_t *end)
{
    uint32_t head;
    memcpy(&head, p, sizeof head);
    unsigned n = head >> 18 & 15, more = head >> 22 & 1;
    b->dc = (int)((head & 0xFFF) ^ 0x800) - 0x800;
    b->w1 = head >> 12 & 7;
    b->w2 = head >> 15 & 7;
    b->exceptions = head >> 24 & 63 & (0 - more);
    uint64_t near, far; /* load both, because the start of the next block depends on the result */
    memcpy(&near, p + 3, sizeof near);
    memcpy(&far, p + 4, sizeof far);
    b->map = hr__low_bytes(more ? far : near, n) & ~UINT64_C(1);
    p += 3 + more;
    b->n1 = (unsigned)__builtin_popcountll(b->map & 0xFFFF);
    unsigned bits = b->n1 * b->w1 + (unsigned)__builtin_popcountll(b->map >> 16) * b->w2;
    b->values = p + n;
    b->extra = b->values + (bits + 7) / 8;
    p = b->extra + 3 * b->exceptions;
#ifndef HR__UNCHECKED
    if (p > end || n > 8)
        return NULL;
#endif
    (void)end;
    return p;
}

/* Stores the exceptions of a block. Returns the map of their positions, where the stream's values
 * do not apply. `quant`: by slot. */
HR__INLINE uint64_t hr__block_patch(struct hr__staged *s, struct hr__packed_block *b,
                                    const uint16_t *quant)
{
    uint64_t map = 0;
    memset(s->extra, 0, sizeof s->extra);
    for (unsigned i = 0; i < b->exceptions; i++) {
        const uint8_t *e = b->extra + 3 * i;
        unsigned position = e[0] & 63, slot = HR__SLOT(position);
        int value = (int16_t)(e[1] | e[2] << 8);
        map |= UINT64_C(1) << position;
        if (position)
            s->extra[slot] = (int16_t)((unsigned)value * quant[slot]);
        else
            b->dc = value;
    }
    return map;
}

HR__INLINE int hr__block_level(int dc, unsigned quant)
{
    return (int16_t)((unsigned)dc * quant) * (1 << HR__DCT_CONST_BITS);
}

HR__INLINE int32_t hr__block_factor(enum hr__factor number)
{
    int32_t pair;
    memcpy(&pair, hr__block_factors[number], sizeof pair);
    return pair;
}

/* PRODUCT(pairs, n): the sum of each pair's products with the factors n. DOT(sum, pairs, n): the
 * same, added to `sum`; with DOT_IS_PRODUCT it costs no more. */
#ifndef PRODUCT
#define PRODUCT(pairs, n) V(madd_epi16)(pairs, V(set1_epi32)(hr__block_factor(n)))
#endif
#ifndef DOT
#define DOT(sum, pairs, n) V(add_epi32)(sum, PRODUCT(pairs, n))
#endif

/* One pass: input pairs (0,4), (1,5), (2,6), (3,7) to 8 outputs, not shifted yet. Odd and even
 * parts are sums of two products each. All sums are exact, so this order rounds like any other. */
HR__INLINE void hr__block_transform(const ints in[4], ints round, ints out[8])
{
    ints e0 = DOT(round, in[0], HR__F04_0), e1 = DOT(round, in[0], HR__F04_1);
#ifdef DOT_IS_PRODUCT
    ints even[4] = {DOT(e0, in[2], HR__F26_0), DOT(e1, in[2], HR__F26_1), DOT(e1, in[2], HR__F26_2),
                    DOT(e0, in[2], HR__F26_3)};
#else
    ints e2 = PRODUCT(in[2], HR__F26_0), e3 = PRODUCT(in[2], HR__F26_1);
    ints even[4] = {V(add_epi32)(e0, e2), V(add_epi32)(e1, e3), V(sub_epi32)(e1, e3),
                    V(sub_epi32)(e0, e2)};
#endif
    ints odd[4] = {DOT(PRODUCT(in[1], HR__F15_0), in[3], HR__F37_0),
                   DOT(PRODUCT(in[1], HR__F15_1), in[3], HR__F37_1),
                   DOT(PRODUCT(in[1], HR__F15_2), in[3], HR__F37_2),
                   DOT(PRODUCT(in[1], HR__F15_3), in[3], HR__F37_3)};
    for (int i = 0; i < 4; i++) {
        out[i] = V(add_epi32)(even[i], odd[i]);
        out[7 - i] = V(sub_epi32)(even[i], odd[i]);
    }
}

/* The steps that depend on the instruction set; inlined into hr__block_unpack. */
struct hr__block_steps {
    /* version 1: stages a block */
    void (*stage)(struct hr__staged *s, struct hr__packed_block *b, const void *constants);
    /* version 2: stages the values of a group's blocks; returns where they end in the stream */
    unsigned (*stage_group)(struct hr__staged s[HR__GROUP_BLOCKS], const struct hr__packed_group *g,
                            const struct hr__block_profiles *profiles);
    /* transforms 1 or 2 `pairs` of adjacent blocks */
    void (*transform)(const struct hr__staged *s, int pairs, const void *constants,
                      const struct hr__block_run *run, uint8_t *out);
};

/* Stages and transforms blocks in batches. If the last block has no partner, a copy of it is
 * written to the room after it. */
HR__INLINE int hr__block_unpack(const struct hr__block_run *run, const void *constants,
                                const struct hr__block_steps steps)
{
    struct hr__staged staged[HR__BATCH];
    struct hr__packed_block block;
    const uint8_t *p = run->data;
    uint8_t *out = run->out;
    for (uint32_t left = run->blocks, count; left; left -= count) {
        count = left < HR__BATCH ? left : HR__BATCH;
        for (uint32_t k = 0; k < count; k++) {
            p = hr__block_parse(&block, p, run->end);
            if (!p)
                return -EBADMSG;
            steps.stage(&staged[k], &block, constants);
        }
        if (count % 2)
            staged[count] = staged[count - 1];
        for (uint32_t k = 0; k < count; k += 4, out += 32)
            steps.transform(staged + k, count - k > 2 ? 2 : 1, constants, run, out);
    }
    return 0;
}

/* Adds the exceptions of a group to its blocks. `quant`: by slot. */
static __attribute__((noinline)) void hr__group_patch(struct hr__staged s[HR__GROUP_BLOCKS],
                                                      const struct hr__packed_group *g,
                                                      const uint8_t *extra, const uint16_t *quant)
{
    for (unsigned i = 0; i < g->exceptions; i++) {
        struct hr__group_exception e = hr__group_exception(extra, i);
        struct hr__staged *to = &s[e.block];
        int16_t *at = &to->extra[HR__SLOT(e.position)];
        if (!to->patched)
            memset(to->extra, 0, sizeof to->extra);
        to->patched = 1;
        *at = (int16_t)((unsigned)*at + (unsigned)e.value * quant[HR__SLOT(e.position)]);
    }
}

/* The same for groups; whole ones are staged. `quant`: by slot. */
HR__INLINE int hr__groups_unpack_with(const struct hr__block_run *run, const void *constants,
                                      const uint16_t *quant, const struct hr__block_steps steps)
{
    struct hr__staged staged[HR__BATCH];
    struct hr__packed_group g;
    const uint8_t *p = run->data;
    uint8_t *out = run->out;
    for (uint32_t left = run->blocks, count; left; left -= count) {
        count = left < HR__BATCH ? left : HR__BATCH;
        for (uint32_t k = 0; k < count; k += HR__GROUP_BLOCKS) {
            if (!hr__group_is_inside(p, run->end, run->profiles))
                return -EBADMSG;
            hr__group_parse(&g, p);
            p = g.stream + (steps.stage_group(staged + k, &g, run->profiles) + 7) / 8;
            for (int i = 0; i < HR__GROUP_BLOCKS; i++) {
                staged[k + (uint32_t)i].dc = hr__block_level(g.dc[i], quant[0]);
                staged[k + (uint32_t)i].patched = 0;
            }
            if (__builtin_expect(g.exceptions > 0, 0)) {
                hr__group_patch(staged + k, &g, p, quant);
                p += 3 * g.exceptions;
            }
        }
        for (uint32_t k = 0; k < count; k += 4, out += 32)
            steps.transform(staged + k, count - k > 2 ? 2 : 1, constants, run, out);
    }
    return 0;
}

#endif
