/*
 * Unpacks version 1 of the form `coefficients` to samples on any machine; the reference for all
 * other versions of the code. coefficients_groups.c does so for version 2.
 *
 * It takes values from the stream four at a time, converts them to numbers in the four lanes of a
 * word, and stores them where the map's next bits say. Several blocks are unpacked before the first
 * is transformed; otherwise the transform's wide loads would wait for the narrow stores.
 */
#include "codec/coefficients_group.h"
#include "codec/inverse_dct.h"
#include "codec/zigzag.h"

#include <errno.h>
#include <string.h>

#define BATCH 8

/* A parsed block of an item. */
struct portable_block {
    uint64_t map; /* zigzag positions with non-zero values */
    int dc;
    unsigned w1, w2; /* bits per value */
    unsigned n1, n2; /* number of values of each width */
    unsigned exceptions;
    const uint8_t *values, *extra; /* the bit stream; the exceptions */
    const uint8_t *next;           /* the next block */
};

/* Counts the bits set in the lower two bytes and in the upper six. */
static inline void count_bits(uint64_t map, unsigned *low, unsigned *high)
{
    uint64_t n = map - (map >> 1 & UINT64_C(0x5555555555555555));
    n = (n & UINT64_C(0x3333333333333333)) + (n >> 2 & UINT64_C(0x3333333333333333));
    n = (n + (n >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    unsigned all = (unsigned)(n * UINT64_C(0x0101010101010101) >> 56);
    *low = (unsigned)((n + (n >> 8)) & 0x1F);
    *high = all - *low;
}

/* Parses the block at p. Returns 0 if it does not end before `end`. Reads at most 12 bytes from p
 * on. */
static inline int parse(struct portable_block *b, const uint8_t *p, const uint8_t *end)
{
    uint32_t head;
#ifndef HR__UNCHECKED
    if (p >= end)
        return 0;
#endif
    memcpy(&head, p, sizeof head);
    unsigned n = head >> 18 & 15;
    b->dc = (int)((head & 0xFFF) ^ 0x800) - 0x800;
    b->w1 = head >> 12 & 7;
    b->w2 = head >> 15 & 7;
    b->exceptions = 0;
    p += 3;
    if (head >> 22 & 1)
        b->exceptions = *p++ & 63;
    memcpy(&b->map, p, sizeof b->map);
    b->map &= (n ? ~UINT64_C(0) >> ((64 - 8 * n) & 63) : 0) & ~UINT64_C(1);
    count_bits(b->map, &b->n1, &b->n2);
    b->values = p + n;
    b->extra = b->values + (b->n1 * b->w1 + b->n2 * b->w2 + 7) / 8;
    b->next = b->extra + 3 * b->exceptions;
#ifdef HR__UNCHECKED
    (void)end;
    return 1;
#else
    return b->next <= end && n <= 8;
#endif
}

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* The positions that share a width. */
struct span {
    uint8_t shift;     /* the first position in the map */
    uint8_t place[64]; /* natural position for each bit of the map from there on. The last ones
                        * stand for no value: what is stored there is overwritten by the DC
                        * coefficient. */
};
#define NO_VALUES (UINT64_C(15) << 60)

static const struct span low_span = {1, {1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5}};
static const struct span high_span = {16, {12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,
                                           7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36,
                                           29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45,
                                           38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63}};

/* Four 16-bit lanes, each with the value 1. */
#define LANES UINT64_C(0x0001000100010001)

/* Reads the n values of `map`, w bits each, from `bit` of the stream on. Four at a time, because
 * that many 16-bit numbers fit in a word, and fewer iterations mean fewer mispredicted branches. */
static inline void read_values(const struct portable_block *b, const struct span *span,
                               uint64_t map, unsigned bit, unsigned n, unsigned w,
                               int16_t *coefficient)
{
    const uint64_t one = (1u << w) - 1, two = (1u << 2 * w) - 1;
    const uint64_t pairs = two | two << 32, lanes = one * LANES;
    const uint64_t bias = (0x8000u - (1u << w >> 1)) * LANES;
    map = map >> span->shift | NO_VALUES;
    for (unsigned i = 0; i < n; i += 4, bit += 4 * w) {
        uint64_t v = (uint32_t)(load64(b->values + bit / 8) >> bit % 8);
        v = (v | v << (32 - 2 * w)) & pairs;
        v = (v | v << (16 - w)) & lanes;
        /* Codes in the upper half, for values from 1 on, have the highest bit set. The bias
         * prevents borrows between lanes. */
        v = (v + (2 * v >> w & LANES) + bias) ^ 0x8000 * LANES;
        for (int k = 0; k < 4; k++, v >>= 16, map &= map - 1)
            coefficient[span->place[__builtin_ctzll(map)]] = (int16_t)v;
    }
}

/* Reads the block's quantised coefficients. `coefficient` must be zero. */
static inline void read_block(const struct portable_block *b, int16_t *coefficient)
{
    read_values(b, &low_span, b->map & 0xFFFF, 0, b->n1, b->w1, coefficient);
    read_values(b, &high_span, b->map, b->n1 * b->w1, b->n2, b->w2, coefficient);
    coefficient[0] = (int16_t)b->dc;
    for (unsigned i = 0; i < b->exceptions; i++) {
        const uint8_t *e = b->extra + 3 * i;
        coefficient[hr__zigzag[e[0] & 63]] = (int16_t)(e[1] | e[2] << 8);
    }
}

static int unpack_blocks(const struct hr__block_run *run)
{
    int16_t coefficient[BATCH][64] __attribute__((aligned(16)));
    const uint8_t *p = run->data;
    uint8_t *out = run->out;
    for (uint32_t left = run->blocks, count; left; left -= count) {
        struct portable_block b[BATCH];
        count = left < BATCH ? left : BATCH;
        memset(coefficient, 0, sizeof coefficient);
        for (uint32_t i = 0; i < count; i++, p = b[i - 1].next) {
            if (!parse(&b[i], p, run->end))
                return -EBADMSG;
            read_block(&b[i], coefficient[i]);
        }
        for (uint32_t i = 0; i < count; i++, out += 8)
            if (!b[i].map && !b[i].exceptions)
                hr__block_fill(b[i].dc, run->quant[0], out, run->stride);
            else
                hr__inverse_dct(coefficient[i], run->quant, out, run->stride);
    }
    return 0;
}

static int unpack(const struct hr__block_run *run)
{
    return run->profiles ? hr__groups_unpack(run) : unpack_blocks(run);
}

const struct hr__block_kernels hr__block_kernels_portable = {unpack};

int hr__blocks_row(const struct hr__coefficients *item, const uint8_t *p, uint32_t count,
                   int16_t (*blocks)[64])
{
    struct portable_block b;
    for (uint32_t i = 0; i < count; i++, p = b.next) {
        if (!parse(&b, p, item->data + item->data_bytes))
            return -EBADMSG;
        read_block(&b, blocks[i]);
    }
    return 0;
}
