/*
 * Packs a block in two passes.
 *
 * The first finds the non-zero coefficients as a map in zigzag order, takes their values out of the
 * block and counts how many need how many bits. The counts are eight counters in one word; one
 * multiplication gives their running sums. From these follow the two widths that make the block
 * smallest. The second pass converts values to codes, in loops that compilers vectorise, and packs
 * four at a time.
 */
#include "codec/block_pack.h"

#include "codec/coefficients.h"
#include "codec/zigzag.h"

#include <string.h>

#define WIDTH_MOST 7
#define EXCEPTION  24 /* bits per exception */
#define COUNT_BITS 8  /* bits of the exception count */

#define EVERY_BYTE UINT64_C(0x0101010101010101)

/* The values that share a width. */
struct block_pack_group {
    int16_t value[48 + 8]; /* in zigzag order, followed by zeros */
    unsigned count;
    uint64_t needs; /* counters, as in struct hr__block_tables */
};

/* Returns the bits that a value needs: w bits hold -2^(w-1)..-1 and 1..2^(w-1). */
static unsigned bits_of(int v)
{
    unsigned magnitude = (unsigned)(v < 0 ? -v : v), w = 1;
    while (magnitude > 1u << (w - 1))
        w++;
    return w;
}

void hr__block_tables_fill(struct hr__block_tables *tables)
{
    memset(tables, 0, sizeof *tables);
    for (unsigned k = 0; k < 64; k++)
        for (unsigned map = 0; map < 256; map++)
            if (map >> hr__zigzag[k] % 8 & 1)
                tables->zigzag[hr__zigzag[k] / 8][map] |= UINT64_C(1) << k;
    for (int v = -128; v < 128; v++) {
        unsigned w = bits_of(v);
        tables->need[v + 128] = UINT64_C(1) << 8 * (w > WIDTH_MOST ? WIDTH_MOST : w - 1);
    }
}

void hr__block_limits_fill(struct hr__block_limits *limits, const uint16_t quant[64])
{
    const int most = HR__COLUMN_LIMIT + 1;
    for (int i = 0; i < 64; i++) {
        int q = quant[i] < most ? quant[i] : most;
        limits->quant[i] = (int16_t)q;
        limits->value[i] = (int16_t)(q ? most / q + 1 : 0);
    }
}

/* All intermediate values stay below 2^15: a product of clamped values is at most 2 x most, and so
 * is a sum before it is clamped. */
int hr__block_is_held(const struct hr__block_limits *limits, const int16_t block[64])
{
    const int16_t most = HR__COLUMN_LIMIT + 1;
    int16_t sum[8] = {0};
    int pairs = 0;
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++) {
            int16_t v = block[8 * y + x], limit = limits->value[8 * y + x];
            v = v < limit ? v : limit;
            v = v > (int16_t)-limit ? v : (int16_t)-limit;
            v = v > (int16_t)-v ? v : (int16_t)-v;
            v = (int16_t)(sum[x] + (int16_t)(v * limits->quant[8 * y + x]));
            sum[x] = v < most ? v : most;
        }
    for (int x = 0; x < 4; x++)
        pairs |= sum[x] + sum[x + 4] > HR__COLUMN_LIMIT;
    return !pairs && block[0] >= -2048 && block[0] <= 2047;
}

/* Returns the map of the zigzag positions of non-zero AC coefficients. */
static uint64_t map_of(const struct hr__block_tables *tables, const int16_t block[64])
{
    uint8_t set[64];
    uint64_t map = 0;
    for (int i = 0; i < 64; i++)
        set[i] = block[i] != 0;
    for (int y = 0; y < 8; y++) {
        uint64_t row;
        memcpy(&row, set + 8 * y, sizeof row);
        map |= tables->zigzag[y][row * UINT64_C(0x0102040810204080) >> 56];
    }
    return map & ~UINT64_C(1);
}

/* Collects the values at the positions in `map`. */
static inline void gather(struct block_pack_group *g, const struct hr__block_tables *tables,
                          const int16_t block[64], uint64_t map)
{
    unsigned n = 0;
    uint64_t needs = 0;
    for (; map; map &= map - 1) {
        int value = block[hr__zigzag[__builtin_ctzll(map)]];
        unsigned at = (unsigned)(value + 128);
        g->value[n++] = (int16_t)value;
        needs += tables->need[at < 256 ? at : 0];
    }
    memset(g->value + n, 0, 8 * sizeof *g->value);
    g->count = n;
    g->needs = needs;
}

/* The best width of a group and its cost in bits, with exceptions and without. */
struct choice {
    unsigned width, bits, exceptions;
    unsigned whole, whole_bits; /* without exceptions; huge if impossible */
};

static inline struct choice choose(const struct block_pack_group *g)
{
    struct choice c = {.whole = 1};
    unsigned n = g->count, best = ~0u;
    uint64_t sums = g->needs * EVERY_BYTE; /* byte w - 1: number of values that w bits hold */
    if (!n)
        return (struct choice){0};
    for (unsigned w = 1; w <= WIDTH_MOST; w++, sums >>= 8) {
        unsigned wider = n - (unsigned)(sums & 0xFF);
        unsigned cost = (n * w + wider * EXCEPTION) << 12 | w << 8 | wider;
        best = cost < best ? cost : best;
        c.whole += wider > 0;
    }
    c.width = best >> 8 & 15;
    c.bits = best >> 12;
    c.exceptions = best & 0xFF;
    c.whole_bits = c.whole <= WIDTH_MOST ? n * c.whole : ~0u / 4;
    return c;
}

/* A bit stream, from the lowest bit on. */
struct bits {
    uint8_t *at;    /* the byte of the next bit */
    uint64_t word;  /* bits of that byte written so far */
    unsigned count; /* their number, 0..7 */
};

/* Joins four numbers of w <= 7 bits that are 16 bits apart. */
static inline uint64_t join(uint64_t four, unsigned w)
{
    uint64_t two =
        (four & UINT64_C(0x0000007F0000007F)) | (four & UINT64_C(0x007F0000007F0000)) >> (16 - w);
    return (two & 0x3FFF) | two >> 32 << 2 * w;
}

static inline void put_group(struct bits *b, const struct block_pack_group *g, unsigned w)
{
    uint16_t code[48 + 8];
    const int16_t half = (int16_t)(1 << w >> 1);
    for (unsigned i = 0; i < g->count; i += 8)
        for (unsigned k = i; k < i + 8; k++) {
            int16_t v = g->value[k];
            int16_t fits = (int16_t) - (v <= half && v >= -half);
            code[k] = (uint16_t)((int16_t)(v + half - (v > 0)) & fits);
        }
    memset(code + g->count, 0, 4 * sizeof *code);
    for (unsigned i = 0; i < g->count; i += 4) {
        uint64_t four;
        unsigned left = g->count - i;
        memcpy(&four, code + i, sizeof four);
        b->word |= join(four, w) << b->count;
        memcpy(b->at, &b->word, sizeof b->word);
        b->count += (left < 4 ? left : 4) * w;
        b->at += b->count / 8;
        b->word >>= b->count & ~7u;
        b->count &= 7;
    }
}

/* Writes the values of a group that its width cannot hold. The map's lowest position is the group's
 * first. */
static uint8_t *put_exceptions(uint8_t *out, const struct block_pack_group *g, uint64_t map,
                               unsigned w)
{
    const int half = 1 << w >> 1;
    for (unsigned i = 0; i < g->count; i++, map &= map - 1) {
        int value = g->value[i];
        if (value <= half && value >= -half)
            continue;
        *out++ = (uint8_t)__builtin_ctzll(map);
        *out++ = (uint8_t)value;
        *out++ = (uint8_t)((unsigned)value >> 8);
    }
    return out;
}

uint8_t *hr__block_pack(const struct hr__block_tables *tables,
                        const struct hr__block_limits *limits, const int16_t block[64],
                        uint8_t *out)
{
    struct block_pack_group low, high;
    if (!hr__block_is_held(limits, block))
        return NULL;
    uint64_t map = map_of(tables, block);
    gather(&low, tables, block, map & 0xFFFF);
    gather(&high, tables, block, map & ~UINT64_C(0xFFFF));
    struct choice a = choose(&low), b = choose(&high);
    unsigned exceptions = a.exceptions + b.exceptions;
    if (exceptions && a.whole_bits + b.whole_bits <= a.bits + b.bits + COUNT_BITS) {
        a.width = a.whole;
        b.width = b.whole;
        exceptions = 0;
    }
    unsigned map_bytes = map ? (71 - (unsigned)__builtin_clzll(map)) / 8 : 0;
    uint32_t head = ((uint32_t)block[0] & 0xFFF) | a.width << 12 | b.width << 15 | map_bytes << 18 |
                    (uint32_t)(exceptions > 0) << 22;
    memcpy(out, &head, sizeof head);
    out += 3;
    if (exceptions)
        *out++ = (uint8_t)exceptions;
    memcpy(out, &map, sizeof map);
    struct bits bits = {.at = out + map_bytes};
    put_group(&bits, &low, a.width);
    put_group(&bits, &high, b.width);
    memcpy(bits.at, &bits.word, sizeof bits.word);
    out = bits.at + (bits.count > 0);
    if (exceptions) {
        out = put_exceptions(out, &low, map & 0xFFFF, a.width);
        out = put_exceptions(out, &high, map & ~UINT64_C(0xFFFF), b.width);
    }
    return out;
}
