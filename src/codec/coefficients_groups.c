/*
 * Unpacks version 2 of the form `coefficients` on any machine: the reference for all other versions
 * of the code. Also expands and checks the width profiles, which all of them use.
 */
#include "codec/coefficients_group.h"
#include "codec/inverse_dct.h"
#include "codec/zigzag.h"

#include <errno.h>

/* Groups unpacked before the first is transformed; else the transform's wide loads would wait for
 * the narrow stores. */
#define BATCH 2

#define EVERY_BYTE UINT64_C(0x0101010101010101)

/* Expands eight widths to as many masks of that many low bits. */
static uint64_t masks_of(uint64_t width)
{
    uint64_t mask = EVERY_BYTE;
    for (int i = 0; i < 3; i++) { /* shifts each byte by a bit of its width at a time */
        uint64_t chosen = (width >> i & EVERY_BYTE) * 255;
        mask = (mask & ~chosen) | (mask << (1 << i) & chosen);
    }
    return (mask - EVERY_BYTE) | (width >> 3 & EVERY_BYTE) * 255;
}

void hr__block_profiles_expand(struct hr__block_profiles *out, const uint8_t *packed, int count)
{
    for (int i = 0; i < HR__PROFILES_MOST; i++)
        for (int k = 0; k < 4; k++) {
            uint64_t both = i < count ? hr__group_load(packed + HR__PROFILE_BYTES * i + 8 * k) : 0;
            uint64_t low = both & 15 * EVERY_BYTE, high = both >> 4 & 15 * EVERY_BYTE;
            uint64_t masks[2] = {masks_of(low), masks_of(high)};
            memcpy(out->width[i] + 8 * k, &low, 8);
            memcpy(out->width[i] + 8 * k + 32, &high, 8);
            memcpy(out->mask[i] + 8 * k, &masks[0], 8);
            memcpy(out->mask[i] + 8 * k + 32, &masks[1], 8);
        }
}

int hr__block_profiles_are_sane(const uint8_t *packed, int count)
{
    const uint64_t eights = 0x88 * EVERY_BYTE;
    uint64_t bad = 0;
    for (int i = 0; i < count; i++, packed += HR__PROFILE_BYTES) {
        uint64_t first = hr__group_load(packed); /* positions 0..7 and 32..39 */
        uint64_t eight = first >> 3 & EVERY_BYTE;
        bad |= (first & 0x0F) | (first & 0x80 * EVERY_BYTE) | (eight * 7 & first);
        for (int k = 1; k < 4; k++)
            bad |= hr__group_load(packed + 8 * k) & eights;
    }
    return !bad;
}

/* Returns the bits of a block's values. */
static unsigned count_bits(uint64_t map, const uint8_t *width)
{
    unsigned bits = 0;
    for (; map; map &= map - 1)
        bits += width[__builtin_ctzll(map)];
    return bits;
}

/* Returns where the group's stream ends. */
static const uint8_t *find_extra(const struct hr__packed_group *g,
                                 const struct hr__block_profiles *profiles)
{
    unsigned bits = g->bit;
    for (int i = 0; i < HR__GROUP_BLOCKS; i++)
        bits += count_bits(g->map[i], profiles->width[g->profile[i]]);
    return g->stream + (bits + 7) / 8;
}

int hr__group_fits(const uint8_t *p, const uint8_t *end, const struct hr__block_profiles *profiles)
{
    struct hr__packed_group g;
    if (p >= end)
        return 0;
    hr__group_parse(&g, p);
    return end - find_extra(&g, profiles) >= (ptrdiff_t)(3 * g.exceptions);
}

/* Reads a block's values from `bit` of the stream on. Returns where they end. `coefficient` must be
 * zero. */
static inline unsigned read_values(const uint8_t *stream, unsigned bit, uint64_t map,
                                   const uint8_t *width, const uint8_t *mask, int16_t *coefficient)
{
    uint64_t word = hr__group_load(stream + bit / 8) >> bit % 8;
    unsigned used = 0;
    for (map &= ~UINT64_C(1); map; map &= map - 1) {
        unsigned k = (unsigned)__builtin_ctzll(map);
        int code = (int)(word & mask[k]), most = (mask[k] + 1) >> 1;
        /* of width 0, which nobody writes, the value is 0 */
        coefficient[hr__zigzag[k]] = (int8_t)(code - most + (code > mask[k] >> 1));
        word >>= width[k];
        used += width[k];
        if (used > 48) { /* of 57 at least */
            bit += used;
            word = hr__group_load(stream + bit / 8) >> bit % 8;
            used = 0;
        }
    }
    return bit + used;
}

/* Reads a group's quantised coefficients, which must be zero. Sets in *flat which blocks have none
 * but DC. Returns where the next group begins. */
static const uint8_t *read_group(const uint8_t *p, const struct hr__block_profiles *profiles,
                                 int16_t (*coefficient)[64], uint8_t *flat)
{
    struct hr__packed_group g;
    hr__group_parse(&g, p);
    unsigned bit = g.bit;
    for (int i = 0; i < HR__GROUP_BLOCKS; i++) {
        bit = read_values(g.stream, bit, g.map[i], profiles->width[g.profile[i]],
                          profiles->mask[g.profile[i]], coefficient[i]);
        coefficient[i][0] = (int16_t)g.dc[i];
        flat[i] = !g.map[i] && !g.exceptions;
    }
    const uint8_t *extra = g.stream + (bit + 7) / 8;
    for (unsigned i = 0; i < g.exceptions; i++) {
        struct hr__group_exception e = hr__group_exception(extra, i);
        int16_t *c = &coefficient[e.block][hr__zigzag[e.position]];
        *c = (int16_t)(*c + e.value);
    }
    return extra + 3 * g.exceptions;
}

int hr__groups_unpack(const struct hr__block_run *run)
{
    int16_t coefficient[BATCH * HR__GROUP_BLOCKS][64] __attribute__((aligned(16)));
    uint8_t flat[BATCH * HR__GROUP_BLOCKS], *out = run->out;
    const uint8_t *p = run->data;
    for (uint32_t left = run->blocks, count; left; left -= count) {
        count = left < BATCH * HR__GROUP_BLOCKS ? left : BATCH * HR__GROUP_BLOCKS;
        memset(coefficient, 0, sizeof coefficient);
        for (uint32_t i = 0; i < count; i += HR__GROUP_BLOCKS) {
            if (!hr__group_is_inside(p, run->end, run->profiles))
                return -EBADMSG;
            p = read_group(p, run->profiles, coefficient + i, flat + i);
        }
        for (uint32_t i = 0; i < count; i++, out += 8)
            if (flat[i])
                hr__block_fill(coefficient[i][0], run->quant[0], out, run->stride);
            else
                hr__inverse_dct(coefficient[i], run->quant, out, run->stride);
    }
    return 0;
}

int hr__groups_row(const struct hr__coefficients *item, const uint8_t *p, uint32_t count,
                   int16_t (*blocks)[64])
{
    struct hr__block_profiles profiles;
    hr__block_profiles_expand(&profiles, item->profiles, item->header.profiles);
    for (uint32_t i = 0; i < count; i += HR__GROUP_BLOCKS) {
        int16_t group[HR__GROUP_BLOCKS][64] = {{0}};
        uint8_t flat[HR__GROUP_BLOCKS];
        uint32_t some = count - i < HR__GROUP_BLOCKS ? count - i : HR__GROUP_BLOCKS;
        if (!p || !hr__group_is_inside(p, item->data + item->data_bytes, &profiles))
            return -EBADMSG;
        p = read_group(p, &profiles, group, flat);
        memcpy(blocks[i], group, some * sizeof group[0]);
    }
    return 0;
}
