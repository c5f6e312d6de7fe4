/*
 * The inverse DCT of one block, with dequantisation and clamping to samples.
 *
 * It is the algorithm of C. Loeffler, A. Ligtenberg and G. Moschytz, "Practical fast 1-D DCT
 * algorithms with 11 multiplications" (ICASSP 1989), in the fixed point of libjpeg's accurate
 * integer method: constants with 13 bits, two extra bits between the passes, columns first. All
 * sums are exact, so implementations may reorder them; only the places of rounding are fixed.
 */
#ifndef HR_CODEC_INVERSE_DCT_H
#define HR_CODEC_INVERSE_DCT_H

#include "base/cpu.h"
#include "codec/block_pack.h"

#include <stddef.h>
#include <stdint.h>

#define HR__DCT_CONST_BITS 13
#define HR__DCT_PASS1_BITS 2

/*
 * `coefficient` (quantised, 16-byte aligned) and `quant` are in natural order; `out` takes 8 rows
 * of 8 samples. Any values are allowed; the versions agree on those that the packer accepts
 * (HR__COLUMN_LIMIT).
 */
typedef void hr__inverse_dct_fn(const int16_t coefficient[64], const uint16_t quant[64],
                                uint8_t *out, ptrdiff_t stride);

hr__inverse_dct_fn hr__inverse_dct_plain; /* C version */

/* Fills a block of one colour: the transform of a DC coefficient alone. */
void hr__block_fill(int dc, uint16_t quant, uint8_t *out, ptrdiff_t stride);

/* The best version for every machine of the architecture: the plain one or a faster one. */
#if defined(__SSE2__) || defined(__aarch64__)
#define HR__INVERSE_DCT_VECTOR
hr__inverse_dct_fn hr__inverse_dct_vector;
#define hr__inverse_dct hr__inverse_dct_vector
#else
#define hr__inverse_dct hr__inverse_dct_plain
#endif

/* 2^13 x sums of cosines for the means of adjacent samples. Of two, on the outer (A) and the inner
 * side (B), by frequency: */
#define HR__DCT_4_2  15137
#define HR__DCT_4_6  -6270
#define HR__DCT_4_1A 20995
#define HR__DCT_4_3A 7373
#define HR__DCT_4_5A -4926
#define HR__DCT_4_7A -4176
#define HR__DCT_4_1B 8697
#define HR__DCT_4_3B -17799
#define HR__DCT_4_5B 11893
#define HR__DCT_4_7B -1730
/* Of four: */
#define HR__DCT_2_1 29692
#define HR__DCT_2_3 -10426
#define HR__DCT_2_5 6967
#define HR__DCT_2_7 -5906

/* The inverse DCT to 4 x 4 or 2 x 2 samples, means of squares of the 8 x 8; otherwise as above. */
hr__inverse_dct_fn hr__inverse_dct_4_plain, hr__inverse_dct_2_plain;
#ifdef HR__INVERSE_DCT_VECTOR
hr__inverse_dct_fn hr__inverse_dct_4_vector, hr__inverse_dct_2_vector;
#define hr__inverse_dct_4 hr__inverse_dct_4_vector
#define hr__inverse_dct_2 hr__inverse_dct_2_vector
#else
#define hr__inverse_dct_4 hr__inverse_dct_4_plain
#define hr__inverse_dct_2 hr__inverse_dct_2_plain
#endif

/* A block of a file, to be checked and transformed. */
struct hr__dct_block {
    const int16_t *coefficient;            /* as above */
    const struct hr__block_limits *limits; /* with the quantisation */
    uint8_t *out;
    ptrdiff_t stride;
};

/* Transforms a few blocks at once. */
struct hr__inverse_dct_group {
    /* Transforms `blocks` blocks if all versions give the same samples for them, which
     * hr__block_is_held tells. Returns 0, with any samples, if not. */
    int (*run)(const struct hr__dct_block *block);
    int blocks; /* at most HR__DCT_GROUP_MOST */
};

#define HR__DCT_GROUP_MOST 4

extern const struct hr__inverse_dct_group hr__inverse_dct_group_plain; /* with hr__inverse_dct */
extern const struct hr__inverse_dct_group hr__inverse_dct_group_avx2;
extern const struct hr__inverse_dct_group hr__inverse_dct_group_avx512;

/* Transforms a block to side x side samples, 2 or 4, or does not, as above. */
int hr__inverse_dct_reduced(const struct hr__dct_block *block, int side);

/* Fills side x side samples, 1 to 8, of a block that has only the dequantised DC coefficient
 * `level`, or does not, as above. */
int hr__inverse_dct_flat(int level, int side, uint8_t *out, ptrdiff_t stride);

/* Returns the version for `isa`. */
const struct hr__inverse_dct_group *hr__inverse_dct_group(enum hr__isa isa);

#endif
