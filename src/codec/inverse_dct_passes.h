/*
 * The two passes of the inverse DCT for vectors of any width: each 128-bit lane has a block. Odd
 * and even parts are sums of two products. Between the passes values are clamped to 16 bits, which
 * changes none that the packer accepts.
 *
 * Before including this, a file defines the operations of its instruction set:
 *
 * - ints: vectors; V(op): the intrinsic of that name, for integers.
 * - pairs: pairs of 16-bit numbers; pairs_low(a, b), pairs_high(a, b): those of the elements of two
 *   vectors, of the lower or the upper four of each lane.
 * - PRODUCTS(pair, fa, fb): the sum of both products of each pair; ADD_PRODUCTS(sum, pair, fa, fb):
 *   the same added to a sum.
 */
#ifndef HR_CODEC_INVERSE_DCT_PASSES_H
#define HR_CODEC_INVERSE_DCT_PASSES_H

/* Transforms four columns of each block: input pairs (0,4), (2,6), (1,3), (5,7). */
INLINE void transform_half(const pairs pair[4], ints round, int bits, ints out[8])
{
    ints e0 = ADD_PRODUCTS(round, pair[0], 8192, 8192);
    ints e1 = ADD_PRODUCTS(round, pair[0], 8192, -8192);
    ints e2 = PRODUCTS(pair[1], 4433, -10704);
    ints e3 = PRODUCTS(pair[1], 10703, 4433);
    ints even[4] = {V(add_epi32)(e0, e3), V(add_epi32)(e1, e2), V(sub_epi32)(e1, e2),
                    V(sub_epi32)(e0, e3)};
    ints odd[4] = {
        ADD_PRODUCTS(PRODUCTS(pair[2], 11363, 9633), pair[3], 6437, 2260),
        ADD_PRODUCTS(PRODUCTS(pair[2], 9633, -2259), pair[3], -11362, -6436),
        ADD_PRODUCTS(PRODUCTS(pair[2], 6437, -11362), pair[3], 2261, 9633),
        ADD_PRODUCTS(PRODUCTS(pair[2], 2260, -6436), pair[3], 9633, -11363),
    };
    for (int i = 0; i < 4; i++) {
        out[i] = V(srai_epi32)(V(add_epi32)(even[i], odd[i]), bits);
        out[7 - i] = V(srai_epi32)(V(sub_epi32)(even[i], odd[i]), bits);
    }
}

/* One pass over eight vectors: transforms frequencies to samples across them. */
INLINE void transform_pass(ints v[8], ints round, int bits)
{
    pairs low[4] = {pairs_low(v[0], v[4]), pairs_low(v[2], v[6]), pairs_low(v[1], v[3]),
                    pairs_low(v[5], v[7])};
    pairs high[4] = {pairs_high(v[0], v[4]), pairs_high(v[2], v[6]), pairs_high(v[1], v[3]),
                     pairs_high(v[5], v[7])};
    ints a[8], b[8];
    transform_half(low, round, bits, a);
    transform_half(high, round, bits, b);
    for (int i = 0; i < 8; i++)
        v[i] = V(packs_epi32)(a[i], b[i]);
}

INLINE void interleave(const ints in[8], ints out[8])
{
    for (int i = 0; i < 4; i++) {
        out[2 * i] = V(unpacklo_epi16)(in[i], in[i + 4]);
        out[2 * i + 1] = V(unpackhi_epi16)(in[i], in[i + 4]);
    }
}

/* Packs columns of 16-bit samples to rows of bytes, two rows a vector. */
INLINE void pack_rows(const ints v[8], ints rows[4])
{
    ints a[4], b[4];
    for (int i = 0; i < 4; i++) /* columns i and i + 4 */
        a[i] = V(packus_epi16)(v[i], v[i + 4]);
    /* After each step a vector holds twice the columns of half the rows. */
    for (int i = 0; i < 2; i++) {
        b[2 * i] = V(unpacklo_epi8)(a[i], a[i + 2]);
        b[2 * i + 1] = V(unpackhi_epi8)(a[i], a[i + 2]);
    }
    a[0] = V(unpacklo_epi8)(b[0], b[2]);
    a[1] = V(unpackhi_epi8)(b[0], b[2]);
    a[2] = V(unpacklo_epi8)(b[1], b[3]);
    a[3] = V(unpackhi_epi8)(b[1], b[3]);
    rows[0] = V(unpacklo_epi32)(a[0], a[2]);
    rows[1] = V(unpackhi_epi32)(a[0], a[2]);
    rows[2] = V(unpacklo_epi32)(a[1], a[3]);
    rows[3] = V(unpackhi_epi32)(a[1], a[3]);
}

/* Transforms dequantised rows of coefficients to rows of samples, two rows a vector. */
INLINE void transform_block(ints v[8], ints rows[4])
{
    const int first = HR__DCT_CONST_BITS - HR__DCT_PASS1_BITS;
    const int second = HR__DCT_CONST_BITS + HR__DCT_PASS1_BITS + 3;
    ints t[8];
    transform_pass(v, V(set1_epi32)(1 << (first - 1)), first);
    interleave(v, t); /* three times makes a transposition */
    interleave(t, v);
    interleave(v, t);
    /* samples are 128 above the transform's result */
    transform_pass(t, V(set1_epi32)((1 << (second - 1)) + (128 << second)), second);
    pack_rows(t, rows);
}

#endif
