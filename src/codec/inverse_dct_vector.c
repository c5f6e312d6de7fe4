/*
 * The inverse DCT with the vectors that every machine of its architecture has: SSE2 on x86-64, NEON
 * on 64-bit ARM. Odd and even parts are sums of two products. Between the passes values are clamped
 * to 16 bits, which changes none that the packer accepts.
 */
#include "codec/inverse_dct.h"

#ifdef HR__INVERSE_DCT_VECTOR

#define INLINE static inline __attribute__((always_inline))

/* ---- the operations that depend on the instruction set ---- */

/* pairs_low, pairs_high: pairs of the elements of two vectors, of the lower or the upper four.
 * PRODUCTS: the sum of both products of each pair. */
#ifdef __SSE2__
#include <emmintrin.h>
#define V(op)        _mm_##op
#define LOAD(p)      _mm_loadu_si128((const void *)(p))
#define STORE8(p, v) _mm_storel_epi64((void *)(p), v)
typedef __m128i ints;
typedef __m128i pairs;

#define pairs_low(a, b)  _mm_unpacklo_epi16(a, b)
#define pairs_high(a, b) _mm_unpackhi_epi16(a, b)
#define PRODUCTS(pair, fa, fb)                                                                     \
    _mm_madd_epi16(                                                                                \
        pair, _mm_set1_epi32((int)((uint32_t)(uint16_t)(fa) | (uint32_t)(uint16_t)(fb) << 16)))
#else
#include "base/neon.h"
#define V(op)        hr__neon_##op
#define LOAD(p)      hr__neon_load(p)
#define STORE8(p, v) vst1_u8(p, vget_low_u8((uint8x16_t)(v)))
typedef hr__neon_ints ints;
typedef struct {
    int16x4_t a, b;
} pairs;

INLINE pairs pairs_low(ints a, ints b)
{
    return (pairs){vget_low_s16((int16x8_t)a), vget_low_s16((int16x8_t)b)};
}

INLINE pairs pairs_high(ints a, ints b)
{
    return (pairs){vget_high_s16((int16x8_t)a), vget_high_s16((int16x8_t)b)};
}

#define PRODUCTS(pair, fa, fb) vmlal_n_s16(vmull_n_s16((pair).a, fa), (pair).b, fb)
#endif

/* ---- the transform ---- */

/* Transforms four columns: input pairs (0,4), (2,6), (1,3), (5,7). */
INLINE void transform_half(const pairs pair[4], ints round, int bits, ints out[8])
{
    ints e0 = V(add_epi32)(PRODUCTS(pair[0], 8192, 8192), round);
    ints e1 = V(add_epi32)(PRODUCTS(pair[0], 8192, -8192), round);
    ints e2 = PRODUCTS(pair[1], 4433, -10704);
    ints e3 = PRODUCTS(pair[1], 10703, 4433);
    ints even[4] = {V(add_epi32)(e0, e3), V(add_epi32)(e1, e2), V(sub_epi32)(e1, e2),
                    V(sub_epi32)(e0, e3)};
    ints odd[4] = {
        V(add_epi32)(PRODUCTS(pair[2], 11363, 9633), PRODUCTS(pair[3], 6437, 2260)),
        V(add_epi32)(PRODUCTS(pair[2], 9633, -2259), PRODUCTS(pair[3], -11362, -6436)),
        V(add_epi32)(PRODUCTS(pair[2], 6437, -11362), PRODUCTS(pair[3], 2261, 9633)),
        V(add_epi32)(PRODUCTS(pair[2], 2260, -6436), PRODUCTS(pair[3], 9633, -11363)),
    };
    for (int i = 0; i < 4; i++) {
        out[i] = V(srai_epi32)(V(add_epi32)(even[i], odd[i]), bits);
        out[7 - i] = V(srai_epi32)(V(sub_epi32)(even[i], odd[i]), bits);
    }
}

/* One pass over eight vectors: transforms frequencies to samples across them. */
INLINE void transform(ints v[8], ints round, int bits)
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

/* Stores columns of 16-bit samples as rows of bytes. */
INLINE void store(const ints v[8], uint8_t *out, ptrdiff_t stride)
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
    b[0] = V(unpacklo_epi32)(a[0], a[2]);
    b[1] = V(unpackhi_epi32)(a[0], a[2]);
    b[2] = V(unpacklo_epi32)(a[1], a[3]);
    b[3] = V(unpackhi_epi32)(a[1], a[3]);
    for (int i = 0; i < 4; i++, out += 2 * stride) {
        STORE8(out, b[i]);
        STORE8(out + stride, V(unpackhi_epi64)(b[i], b[i]));
    }
}

void hr__inverse_dct_vector(const int16_t coefficient[64], const uint16_t quant[64], uint8_t *out,
                            ptrdiff_t stride)
{
    const int first = HR__DCT_CONST_BITS - HR__DCT_PASS1_BITS;
    const int second = HR__DCT_CONST_BITS + HR__DCT_PASS1_BITS + 3;
    ints v[8], t[8];
    for (int i = 0; i < 8; i++)
        v[i] = V(mullo_epi16)(LOAD(coefficient + 8 * i), LOAD(quant + 8 * i));
    transform(v, V(set1_epi32)(1 << (first - 1)), first);
    interleave(v, t); /* three times makes a transposition */
    interleave(t, v);
    interleave(v, t);
    /* samples are 128 above the transform's result */
    transform(t, V(set1_epi32)((1 << (second - 1)) + (128 << second)), second);
    store(t, out, stride);
}

#endif
