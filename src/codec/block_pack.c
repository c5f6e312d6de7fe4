/*
 * Limits of blocks, and the packing of a group; the layout is in coefficients.h.
 *
 * A block's values are in zigzag order already. Vectors of 16 bytes tell which of them fit in their
 * widths, and turn them into codes; then the codes are put into the stream one by one.
 */
#include "codec/block_pack.h"

#include "codec/coefficients.h"

#include <string.h>

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef int8_t signed16 __attribute__((vector_size(16)));

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

/* Bits of the DC offsets that the header can name. */
static const uint8_t dc_widths[8] = {2, 3, 4, 5, 6, 7, 8, 12};

/* A block's values as codes. */
struct codes {
    uint8_t code[64];
    uint64_t map, exceptions; /* zigzag positions */
};

/* Returns the lowest bit of each of 8 bytes, which are 0 or 255. */
static inline uint64_t gather_bits(uint64_t bytes)
{
    return (bytes & UINT64_C(0x0101010101010101)) * UINT64_C(0x0102040810204080) >> 56;
}

static inline uint64_t map_of(bytes16 truth)
{
    uint64_t half[2];
    memcpy(half, &truth, sizeof half);
    return gather_bits(half[0]) | gather_bits(half[1]) << 8;
}

/* Codes that the widths cannot hold are exceptions. */
static inline void find_codes(struct codes *out, const struct hr__block_values *block,
                              const uint8_t most[64])
{
    out->map = out->exceptions = 0;
    for (int i = 0; i < 4; i++) {
        signed16 v;
        bytes16 half;
        memcpy(&v, block->at + 16 * i, sizeof v);
        memcpy(&half, most + 16 * i, sizeof half);
        bytes16 positive = (bytes16)(v > 0);
        bytes16 magnitude = (bytes16)((v ^ (v >> 7)) - (v >> 7));
        bytes16 code = half + (bytes16)v + positive;
        uint64_t map = map_of((bytes16)(v != 0)), wide = map_of((bytes16)(magnitude > half));
        memcpy(out->code + 16 * i, &code, sizeof code);
        out->exceptions |= wide << 16 * i;
        out->map |= (map & ~wide) << 16 * i;
    }
}

/* A bit stream, from the lowest bit on. */
struct bits {
    uint8_t *at;    /* the byte of the next bit */
    uint64_t word;  /* bits of that byte written so far */
    unsigned count; /* their number, 0..7 */
};

/* Appends up to 56 bits. */
static inline void put_bits(struct bits *b, uint64_t code, unsigned width)
{
    b->word |= code << b->count;
    memcpy(b->at, &b->word, sizeof b->word);
    b->count += width;
    b->at += b->count / 8;
    b->word >>= b->count & ~7u;
    b->count &= 7;
}

static inline void put_values(struct bits *b, const struct codes *codes, const uint8_t width[64])
{
    uint64_t word = 0;
    unsigned count = 0;
    for (uint64_t map = codes->map; map; map &= map - 1) {
        unsigned k = (unsigned)__builtin_ctzll(map);
        word |= (uint64_t)codes->code[k] << count;
        count += width[k];
        if (count > 48) {
            put_bits(b, word, count);
            word = count = 0;
        }
    }
    put_bits(b, word, count);
}

static uint8_t *put_exception(uint8_t *out, unsigned block, unsigned position, int value)
{
    out[0] = (uint8_t)(block | position << 2);
    out[1] = (uint8_t)value;
    out[2] = (uint8_t)((unsigned)value >> 8);
    return out + 3;
}

/* Writes the header's number, and the offsets to the stream. */
static unsigned put_dc(const struct hr__block_group *g, struct bits *bits)
{
    int low = g->dc[0], high = g->dc[0];
    unsigned code = 0;
    uint64_t offsets = 0;
    for (unsigned i = 1; i < g->blocks; i++) {
        low = g->dc[i] < low ? g->dc[i] : low;
        high = g->dc[i] > high ? g->dc[i] : high;
    }
    while ((high - low) >> dc_widths[code])
        code++;
    for (unsigned i = 0; i < g->blocks; i++)
        offsets |= (uint64_t)(g->dc[i] - low) << i * dc_widths[code];
    put_bits(bits, offsets, HR__GROUP_BLOCKS * dc_widths[code]);
    return ((unsigned)low & 0xFFF) | code << 12;
}

uint8_t *hr__block_group_pack(const struct hr__block_group *g, const struct hr__profiles *profiles,
                              uint8_t *out)
{
    struct codes codes[HR__GROUP_BLOCKS];
    unsigned exceptions = g->large_count;
    uint8_t *head = out;
    memset(head, 0, 7);
    for (unsigned i = 0; i < g->blocks; i++) {
        find_codes(&codes[i], &g->values[i], profiles->most[g->chosen[i]]);
        exceptions += (unsigned)__builtin_popcountll(codes[i].exceptions);
    }
    out += 6;
    if (exceptions)
        *out++ = (uint8_t)exceptions;
    for (unsigned i = 0; i < g->blocks; i++) {
        uint64_t map = codes[i].map;
        unsigned n = map ? (71 - (unsigned)__builtin_clzll(map)) / 8 : 0;
        head[2 + i] = (uint8_t)(g->chosen[i] | n << 4);
        memcpy(out, &map, sizeof map);
        out += n;
    }
    struct bits bits = {.at = out};
    unsigned dc = put_dc(g, &bits) | (unsigned)(exceptions > 0) << 15;
    head[0] = (uint8_t)dc;
    head[1] = (uint8_t)(dc >> 8);
    for (unsigned i = 0; i < g->blocks; i++)
        put_values(&bits, &codes[i], profiles->width[g->chosen[i]]);
    *bits.at = (uint8_t)bits.word;
    out = bits.at + (bits.count > 0);
    for (unsigned i = 0; i < g->blocks; i++)
        for (uint64_t map = codes[i].exceptions; map; map &= map - 1) {
            unsigned k = (unsigned)__builtin_ctzll(map);
            out = put_exception(out, i, k, g->values[i].at[k]);
        }
    for (unsigned i = 0; i < g->large_count; i++)
        out = put_exception(out, (unsigned)(g->large[i].block - g->first), g->large[i].position,
                            g->large[i].value);
    return out;
}
