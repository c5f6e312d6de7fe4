/*
 * One block of the form `coefficients` (its layout: coefficients.h), packed: what
 * the packer does some thousand times an image.
 */
#ifndef HR_CODEC_BLOCK_PACK_H
#define HR_CODEC_BLOCK_PACK_H

#include <stdint.h>

/* Tables that are the same for every image. */
struct hr__block_tables {
    uint64_t zigzag[8][256]; /* by row and its map of columns: the map in zigzag order */
    uint64_t need[256];      /* by value + 128: 1 in byte w - 1 where the value needs w
                                bits, in byte 7 where 7 are too few */
};
void hr__block_tables_fill(struct hr__block_tables *tables);

/* What a component's coefficients are checked against, from its quantisation. */
struct hr__block_limits {
    int16_t quant[64]; /* no larger than what any value would be too large for */
    int16_t value[64]; /* a magnitude that is too large anyway */
};
void hr__block_limits_fill(struct hr__block_limits *limits, const uint16_t quant[64]);

/*
 * Writes the block at `out`, in as few bits as one width for each group allows, and
 * returns the byte behind it; NULL where a coefficient, or the sum of a pair of
 * columns, is beyond what the form holds. Up to 8 bytes behind the block may be
 * written too. Thread safe.
 */
uint8_t *hr__block_pack(const struct hr__block_tables *tables,
                        const struct hr__block_limits *limits, const int16_t block[64],
                        uint8_t *out);

#endif
