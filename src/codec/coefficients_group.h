/*
 * Version 2 of the form `coefficients`: a group of four blocks, as every unpacker reads it. The
 * layout is in coefficients.h.
 */
#ifndef HR_CODEC_COEFFICIENTS_GROUP_H
#define HR_CODEC_COEFFICIENTS_GROUP_H

#include "codec/coefficients.h"

#include <string.h>

/* A parsed group. */
struct hr__packed_group {
    const uint8_t *stream;             /* the bit stream */
    uint64_t map[HR__GROUP_BLOCKS];    /* zigzag positions with values */
    int dc[HR__GROUP_BLOCKS];          /* quantised */
    uint8_t profile[HR__GROUP_BLOCKS]; /* number of each block's profile */
    unsigned bit;                      /* of the stream: where the first block's values begin */
    unsigned exceptions;
};

static inline uint64_t hr__group_load(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Parses the group at p, up to its first value. Reads less than HR__ITEM_PAD bytes from p on. */
static inline __attribute__((always_inline)) void hr__group_parse(struct hr__packed_group *g,
                                                                  const uint8_t *p)
{
    uint64_t head = hr__group_load(p);
    unsigned more = head >> 15 & 1, width = 0xC8765432u >> (head >> 12 & 7) * 4 & 15;
    int base = (int)((head & 0xFFF) ^ 0x800) - 0x800;
    g->exceptions = (unsigned)(head >> 48) & 0xFF & (0 - more);
    p += 6 + more;
    for (int i = 0; i < HR__GROUP_BLOCKS; i++) {
        unsigned kind = head >> (16 + 8 * i) & 0xFF, n = kind >> 4;
        uint64_t map = hr__group_load(p);
        g->profile[i] = kind & 15;
        g->map[i] = n < 8 ? map & ((UINT64_C(1) << 8 * n) - 1) : map;
        p += n;
    }
    uint64_t offsets = hr__group_load(p);
    for (int i = 0; i < HR__GROUP_BLOCKS; i++, offsets >>= width)
        g->dc[i] = base + (int)(offsets & ((1u << width) - 1));
    g->stream = p;
    g->bit = HR__GROUP_BLOCKS * width;
}

/* An exception of a group: a value to add to a coefficient that has none in the stream. */
struct hr__group_exception {
    unsigned block, position; /* 0..3; zigzag, 0..63 */
    int value;
};

/* Reads exception `i`. `extra`: where the group's stream ends. */
static inline struct hr__group_exception hr__group_exception(const uint8_t *extra, unsigned i)
{
    const uint8_t *e = extra + 3 * i;
    return (struct hr__group_exception){e[0] & 3, e[0] >> 2, (int16_t)(e[1] | e[2] << 8)};
}

/* Returns non-zero if the group at `p`, which is at most `end`, ends before or at `end`. Its maps
 * have been checked. */
int hr__group_fits(const uint8_t *p, const uint8_t *end, const struct hr__block_profiles *profiles);

/* Expands `count` profiles, and checks them: returns 0 if a width is larger than its position may
 * have. */
void hr__block_profiles_expand(struct hr__block_profiles *out, const uint8_t *packed, int count);
int hr__block_profiles_are_sane(const uint8_t *packed, int count);

/* The portable versions for a run, and for a row's quantised coefficients from its first group (of
 * version 1: block) on. Errors: -EBADMSG. */
int hr__groups_unpack(const struct hr__block_run *run);
int hr__groups_row(const struct hr__coefficients *item, const uint8_t *first, uint32_t count,
                   int16_t (*blocks)[64]);
int hr__blocks_row(const struct hr__coefficients *item, const uint8_t *first, uint32_t count,
                   int16_t (*blocks)[64]);

/* The check of each group, before it is parsed: no map has more than 8 bytes, and the group is
 * inside the item. Only the last groups can exceed it. */
static inline int hr__group_is_inside(const uint8_t *p, const uint8_t *end,
                                      const struct hr__block_profiles *profiles)
{
#ifdef HR__UNCHECKED /* see bench/meson.build */
    (void)p, (void)end, (void)profiles;
    return 1;
#else
    uint32_t kinds;
    memcpy(&kinds, p + 2, sizeof kinds);
    uint32_t eight = kinds & 0x80808080u;
    if (kinds & (eight >> 1 | eight >> 2 | eight >> 3))
        return 0;
    return end - p >= HR__GROUP_BYTES_MOST || hr__group_fits(p, end, profiles);
#endif
}

#endif
