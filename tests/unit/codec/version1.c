/* Items of version 1; see version1.h. The layout is in codec/coefficients_blocks.h. */
#include "version1.h"

#include "codec/coefficients_blocks.h"
#include "codec/zigzag.h"

#include <stdlib.h>
#include <string.h>

/* Tables for all images. */
struct version1_tables {
    uint64_t zigzag[8][256]; /* by row and bit map of its columns: the map in zigzag order */
    uint64_t need[256];      /* index: value + 128. 1 in byte w - 1 if the value needs w bits, in
                              * byte 7 if it needs more than 7 */
};

#define WIDTH_MOST 7
#define EXCEPTION  24 /* bits per exception */
#define COUNT_BITS 8  /* bits of the exception count */

#define EVERY_BYTE UINT64_C(0x0101010101010101)

/* The values that share a width. */
struct version1_group {
    int16_t value[48 + 8]; /* in zigzag order, followed by zeros */
    unsigned count;
    uint64_t needs; /* counters, as in struct version1_tables */
};

/* Returns the bits that a value needs: w bits hold -2^(w-1)..-1 and 1..2^(w-1). */
static unsigned bits_of(int v)
{
    unsigned magnitude = (unsigned)(v < 0 ? -v : v), w = 1;
    while (magnitude > 1u << (w - 1))
        w++;
    return w;
}

static void fill_tables(struct version1_tables *tables)
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

/* Returns the map of the zigzag positions of non-zero AC coefficients. */
static uint64_t map_of(const struct version1_tables *tables, const int16_t block[64])
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
static inline void gather(struct version1_group *g, const struct version1_tables *tables,
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

/* The best width of a group of values, and the bits that it takes, with and without exceptions. */
struct version1_choice {
    unsigned width, bits, exceptions;
    unsigned whole, whole_bits; /* without exceptions; huge if impossible */
};

static inline struct version1_choice choose(const struct version1_group *g)
{
    struct version1_choice c = {.whole = 1};
    unsigned n = g->count, best = ~0u;
    uint64_t sums = g->needs * EVERY_BYTE; /* byte w - 1: number of values that w bits hold */
    if (!n)
        return (struct version1_choice){0};
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
struct version1_bits {
    uint8_t *at;    /* of the next bit */
    uint64_t word;  /* bits of that byte written so far */
    unsigned count; /* how many of them, 0..7 */
};

/* Joins four numbers of w <= 7 bits that are 16 bits apart. */
static inline uint64_t join(uint64_t four, unsigned w)
{
    uint64_t two =
        (four & UINT64_C(0x0000007F0000007F)) | (four & UINT64_C(0x007F0000007F0000)) >> (16 - w);
    return (two & 0x3FFF) | two >> 32 << 2 * w;
}

static inline void put_group(struct version1_bits *b, const struct version1_group *g, unsigned w)
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
static uint8_t *put_exceptions(uint8_t *out, const struct version1_group *g, uint64_t map,
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

/* Writes the block to `out`, in as few bits as possible with one width for each group. Returns its
 * end; may write up to 8 bytes past it. */
static uint8_t *pack_block(const struct version1_tables *tables, const int16_t block[64],
                           uint8_t *out)
{
    struct version1_group low, high;
    uint64_t map = map_of(tables, block);
    gather(&low, tables, block, map & 0xFFFF);
    gather(&high, tables, block, map & ~UINT64_C(0xFFFF));
    struct version1_choice a = choose(&low), b = choose(&high);
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
    struct version1_bits bits = {.at = out + map_bytes};
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

static size_t align8(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

/* The item being written. */
struct version1_item {
    const struct hr__coefficients *of;
    struct version1_tables tables;
    uint8_t *bytes, *end;    /* the item; end of what is written */
    uint32_t *rows, *groups; /* offsets, next to write */
    uint8_t *data;
};

static int write_row(struct version1_item *item, int component, uint32_t y, int16_t (*blocks)[64])
{
    const uint8_t *begin = item->end;
    if (hr__coefficients_row(item->of, component, y, blocks, NULL))
        return -1;
    *item->rows++ = (uint32_t)(begin - item->data);
    for (uint32_t x = 0; x < item->of->blocks_x[component]; x++) {
        if (x % HR__GROUP_BLOCKS == 0)
            *item->groups++ = (uint32_t)(item->end - begin);
        item->end = pack_block(&item->tables, blocks[x], item->end);
    }
    return 0;
}

/* Sizes of the index (entries) and of all blocks (bytes). */
static void count(const struct hr__coefficients *c, size_t *rows, size_t *groups, size_t *blocks)
{
    *rows = *groups = *blocks = 0;
    for (int i = 0; i < c->header.components; i++) {
        *rows += c->blocks_y[i];
        *groups += (size_t)c->blocks_y[i] * ((c->blocks_x[i] + 3) / HR__GROUP_BLOCKS);
        *blocks += (size_t)c->blocks_y[i] * c->blocks_x[i];
    }
}

uint8_t *version1_of(const struct hr__coefficients *c, int wide, size_t *length)
{
    size_t rows, groups, blocks, quant = (size_t)c->header.components * sizeof c->quant[0];
    size_t entry = wide ? 4 : 2;
    count(c, &rows, &groups, &blocks);
    size_t at_rows = sizeof c->header + quant, at_groups = at_rows + align8(rows * 4);
    size_t at_data = at_groups + align8(groups * entry);
    struct version1_item item = {.of = c};
    int16_t(*row)[64] = calloc(c->blocks_x[0], sizeof *row);
    uint32_t *index = calloc(rows + groups, sizeof *index);
    item.bytes = calloc(1, at_data + blocks * HR__BLOCK_BYTES_MOST + 8 + HR__ITEM_PAD);
    item.data = item.end = item.bytes + at_data;
    item.rows = index;
    item.groups = index + rows;
    fill_tables(&item.tables);
    int failed = 0;
    for (int i = 0; i < c->header.components; i++)
        for (uint32_t y = 0; !failed && y < c->blocks_y[i]; y++)
            failed = write_row(&item, i, y, row);
    memset(item.end, 0, HR__ITEM_PAD);
    *length = (size_t)(item.end - item.bytes) + HR__ITEM_PAD;
    struct hr__item_header header = c->header;
    header.version = 1;
    header.profiles = 0;
    header.flags = (uint8_t)((header.flags & ~HR__ITEM_WIDE) | (wide ? HR__ITEM_WIDE : 0));
    header.bytes = *length;
    memcpy(item.bytes, &header, sizeof header);
    memcpy(item.bytes + sizeof header, c->quant, quant);
    memcpy(item.bytes + at_rows, index, rows * 4);
    for (size_t i = 0; i < groups; i++)
        memcpy(item.bytes + at_groups + i * entry, index + rows + i, entry);
    free(row);
    free(index);
    if (failed)
        free(item.bytes);
    return failed ? NULL : item.bytes;
}
