/*
 * Which blocks the form `coefficients` can hold, and the packing of a group of them (layout:
 * coefficients.h).
 */
#ifndef HR_CODEC_BLOCK_PACK_H
#define HR_CODEC_BLOCK_PACK_H

#include "codec/profiles.h"

#include <stddef.h>
#include <stdint.h>

/* Limits for a component's coefficients, derived from its quantisation. */
struct hr__block_limits {
    int16_t quant[64]; /* the quantiser, capped where every non-zero value is too large */
    int16_t value[64]; /* a magnitude that is too large in any case */
};
void hr__block_limits_fill(struct hr__block_limits *limits, const uint16_t quant[64]);

/* Returns non-zero if no sum of a pair of columns exceeds HR__COLUMN_LIMIT, and the DC coefficient
 * has 12 bits: all versions of the inverse DCT give the same samples then. */
int hr__block_is_held(const struct hr__block_limits *limits, const int16_t block[64]);

/* A value with more than 8 bits. */
struct hr__large_value {
    size_t block; /* its number in the image */
    int16_t value;
    uint8_t position; /* zigzag */
};

/* Up to four blocks of a row. */
struct hr__block_group {
    unsigned blocks;
    const struct hr__block_values *values;
    const int16_t *dc;
    const uint8_t *chosen; /* profiles */
    size_t first;          /* number of the first block */
    const struct hr__large_value *large;
    unsigned large_count;
};

/* Writes the group to `out`, at most HR__GROUP_BYTES_MOST bytes. Returns its end. May write up to 8
 * bytes past it. Thread safe. */
uint8_t *hr__block_group_pack(const struct hr__block_group *group,
                              const struct hr__profiles *profiles, uint8_t *out);

#endif
