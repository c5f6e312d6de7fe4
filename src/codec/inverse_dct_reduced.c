/*
 * The inverse DCT to a part of a block's 8 x 8 samples, in plain C: each sample is the mean of a
 * square of 2 x 2 or 4 x 4 of them.
 *
 * A mean of neighbours is linear too, so each pass is one sum of products: the mean of adjacent
 * outputs of the eight-point transform. Frequencies whose means are zero drop out: the fourth, and
 * for 4 x 4 all even ones but the first. Fixed point and places of rounding are those of libjpeg's
 * reduced methods, so the samples are libjpeg-turbo's. Arithmetic wraps on overflow, because blocks
 * are untrusted.
 */
#include "codec/inverse_dct.h"

#include "codec/coefficients.h"

#include <string.h>

static inline int32_t product(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a * (uint32_t)b);
}

static inline int32_t sum(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

static inline int32_t descale(int32_t v, int bits)
{
    return sum(v, 1 << (bits - 1)) >> bits;
}

static inline uint8_t sample(int32_t v)
{
    v += 128;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Transforms frequencies, `step` apart, to four means of two, scaled by 2^14. */
static inline void to_four(const int32_t *in, int step, int32_t out[4])
{
    int32_t z = product(in[0], 1 << 14);
    int32_t even = sum(product(in[2 * step], HR__DCT_4_2), product(in[6 * step], HR__DCT_4_6));
    int32_t inner =
        sum(sum(product(in[step], HR__DCT_4_1B), product(in[3 * step], HR__DCT_4_3B)),
            sum(product(in[5 * step], HR__DCT_4_5B), product(in[7 * step], HR__DCT_4_7B)));
    int32_t outer =
        sum(sum(product(in[step], HR__DCT_4_1A), product(in[3 * step], HR__DCT_4_3A)),
            sum(product(in[5 * step], HR__DCT_4_5A), product(in[7 * step], HR__DCT_4_7A)));
    int32_t far = sum(z, even), near = sum(z, product(even, -1));
    out[0] = sum(far, outer);
    out[1] = sum(near, inner);
    out[2] = sum(near, product(inner, -1));
    out[3] = sum(far, product(outer, -1));
}

/* Transforms frequencies, `step` apart, to two means of four, scaled by 2^15. */
static inline void to_two(const int32_t *in, int step, int32_t out[2])
{
    int32_t z = product(in[0], 1 << 15);
    int32_t odd = sum(sum(product(in[step], HR__DCT_2_1), product(in[3 * step], HR__DCT_2_3)),
                      sum(product(in[5 * step], HR__DCT_2_5), product(in[7 * step], HR__DCT_2_7)));
    out[0] = sum(z, odd);
    out[1] = sum(z, product(odd, -1));
}

static void dequantise(const int16_t coefficient[64], const uint16_t quant[64], int32_t out[64])
{
    for (int i = 0; i < 64; i++)
        out[i] = (int16_t)((unsigned)coefficient[i] * quant[i]);
}

void hr__inverse_dct_4_plain(const int16_t coefficient[64], const uint16_t quant[64], uint8_t *out,
                             ptrdiff_t stride)
{
    int32_t in[64], between[4][8], four[4];
    dequantise(coefficient, quant, in);
    for (int x = 0; x < 8; x++) {
        to_four(in + x, 8, four);
        for (int y = 0; y < 4; y++)
            between[y][x] = descale(four[y], HR__DCT_CONST_BITS - HR__DCT_PASS1_BITS + 1);
    }
    for (int y = 0; y < 4; y++, out += stride) {
        to_four(between[y], 1, four);
        for (int x = 0; x < 4; x++)
            out[x] = sample(descale(four[x], HR__DCT_CONST_BITS + HR__DCT_PASS1_BITS + 3 + 1));
    }
}

void hr__inverse_dct_2_plain(const int16_t coefficient[64], const uint16_t quant[64], uint8_t *out,
                             ptrdiff_t stride)
{
    int32_t in[64], between[2][8], two[2];
    dequantise(coefficient, quant, in);
    for (int x = 0; x < 8; x++) {
        to_two(in + x, 8, two);
        for (int y = 0; y < 2; y++)
            between[y][x] = descale(two[y], HR__DCT_CONST_BITS - HR__DCT_PASS1_BITS + 2);
    }
    for (int y = 0; y < 2; y++, out += stride) {
        to_two(between[y], 1, two);
        for (int x = 0; x < 2; x++)
            out[x] = sample(descale(two[x], HR__DCT_CONST_BITS + HR__DCT_PASS1_BITS + 3 + 2));
    }
}

int hr__inverse_dct_reduced(const struct hr__dct_block *block, int side)
{
    uint16_t quant[64];
    if (!hr__block_is_held(block->limits, block->coefficient))
        return 0;
    /* the quantisers of a held block's coefficients are not capped */
    memcpy(quant, block->limits->quant, sizeof quant);
    (side == 4 ? hr__inverse_dct_4 : hr__inverse_dct_2)(block->coefficient, quant, block->out,
                                                        block->stride);
    return 1;
}

int hr__inverse_dct_flat(int level, int side, uint8_t *out, ptrdiff_t stride)
{
    /* libjpeg's own version for one sample, which is not a vector one, wraps at 4096 */
    const int most = side == 1 ? 4095 - (1 << 2) : HR__COLUMN_LIMIT;
    if (level > most || level < -most)
        return 0;
    uint64_t row = sample(descale(level, 3)) * UINT64_C(0x0101010101010101);
    for (int y = 0; y < side; y++, out += stride) {
        if (side == 8)
            memcpy(out, &row, 8);
        else if (side == 4)
            memcpy(out, &row, 4);
        else
            memcpy(out, &row, side == 2 ? 2 : 1);
    }
    return 1;
}
