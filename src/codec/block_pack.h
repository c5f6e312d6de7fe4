/*
 * Packs one block of the form `coefficients` (layout: coefficients.h). The packer does this some
 * thousand times per image.
 */
#ifndef HR_CODEC_BLOCK_PACK_H
#define HR_CODEC_BLOCK_PACK_H

#include <stdint.h>

/* Tables that are the same for all images. */
struct hr__block_tables {
    uint64_t zigzag[8][256]; /* for a row and a bit map of its columns: the map in zigzag order */
    uint64_t need[256];      /* index: value + 128. 1 in byte w - 1 if the value needs w bits, in
                              * byte 7 if it needs more than 7 */
};
void hr__block_tables_fill(struct hr__block_tables *tables);

/* Limits for a component's coefficients, derived from its quantisation. */
struct hr__block_limits {
    int16_t quant[64]; /* the quantiser, capped where every non-zero value is too large */
    int16_t value[64]; /* a magnitude that is too large in any case */
};
void hr__block_limits_fill(struct hr__block_limits *limits, const uint16_t quant[64]);

/* Returns non-zero if no sum of a pair of columns exceeds HR__COLUMN_LIMIT, and the DC coefficient
 * has 12 bits: all versions of the inverse DCT give the same samples then. */
int hr__block_is_held(const struct hr__block_limits *limits, const int16_t block[64]);

/*
 * Writes the block to `out`, in as few bits as possible with one width for each group. Returns the
 * end of the block, or NULL if a coefficient, or the sum of a pair of columns, exceeds what the
 * form can hold. May write up to 8 bytes past the block. Thread safe.
 */
uint8_t *hr__block_pack(const struct hr__block_tables *tables,
                        const struct hr__block_limits *limits, const int16_t block[64],
                        uint8_t *out);

#endif
