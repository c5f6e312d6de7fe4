/*
 * The inverse DCT of one block with the vectors that every machine of its architecture has: SSE2 on
 * x86-64, NEON on 64-bit ARM.
 */
#include "codec/inverse_dct.h"

#ifdef HR__INVERSE_DCT_VECTOR

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- the operations that depend on the instruction set ---- */

#ifdef __SSE2__
#include <emmintrin.h>
#define V(op)         _mm_##op
#define LOAD(p)       _mm_loadu_si128((const void *)(p))
#define STORE8(p, v)  _mm_storel_epi64((void *)(p), v)
#define STORE16(p, v) _mm_storeu_si128((void *)(p), v)
typedef __m128i ints;
typedef __m128i pairs;

#define pairs_low(a, b)  _mm_unpacklo_epi16(a, b)
#define pairs_high(a, b) _mm_unpackhi_epi16(a, b)
#define PRODUCTS(pair, fa, fb)                                                                     \
    _mm_madd_epi16(                                                                                \
        pair, _mm_set1_epi32((int)((uint32_t)(uint16_t)(fa) | (uint32_t)(uint16_t)(fb) << 16)))
#define ADD_PRODUCTS(sum, pair, fa, fb) _mm_add_epi32(sum, PRODUCTS(pair, fa, fb))
#else
#include "base/neon.h"
#define V(op)                     hr__neon_##op
#define LOAD(p)                   hr__neon_load(p)
#define STORE8(p, v)              vst1_u8(p, vget_low_u8((uint8x16_t)(v)))
#define STORE16(p, v)             hr__neon_store(p, v)
#define hr__neon_srli_epi64(v, n) ((hr__neon_ints)((uint64x2_t)(v) >> (n)))
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

#define PRODUCTS(pair, fa, fb)          vmlal_n_s16(vmull_n_s16((pair).a, fa), (pair).b, fb)
#define ADD_PRODUCTS(sum, pair, fa, fb) vmlal_n_s16(vmlal_n_s16(sum, (pair).a, fa), (pair).b, fb)
#endif

#include "codec/inverse_dct_passes.h"

/* ---- the transform ---- */

INLINE void dequantise(const int16_t coefficient[64], const uint16_t quant[64], ints v[8])
{
    for (int i = 0; i < 8; i++)
        v[i] = V(mullo_epi16)(LOAD(coefficient + 8 * i), LOAD(quant + 8 * i));
}

void hr__inverse_dct_vector(const int16_t coefficient[64], const uint16_t quant[64], uint8_t *out,
                            ptrdiff_t stride)
{
    ints v[8], rows[4];
    dequantise(coefficient, quant, v);
    transform_block(v, rows);
    for (int i = 0; i < 4; i++, out += 2 * stride) {
        STORE8(out, rows[i]);
        STORE8(out + stride, V(unpackhi_epi64)(rows[i], rows[i]));
    }
}

/* ---- the means of adjacent samples: inverse_dct_reduced.c ---- */

/* Transforms four columns to four means of two: input pairs (0,0), (2,6), (1,3), (5,7). */
INLINE void to_four_half(const pairs pair[4], ints round, int bits, ints out[4])
{
    ints z = ADD_PRODUCTS(round, pair[0], 8192, 8192);
    ints even = PRODUCTS(pair[1], HR__DCT_4_2, HR__DCT_4_6);
    ints outer = ADD_PRODUCTS(PRODUCTS(pair[2], HR__DCT_4_1A, HR__DCT_4_3A), pair[3], HR__DCT_4_5A,
                              HR__DCT_4_7A);
    ints inner = ADD_PRODUCTS(PRODUCTS(pair[2], HR__DCT_4_1B, HR__DCT_4_3B), pair[3], HR__DCT_4_5B,
                              HR__DCT_4_7B);
    ints far = V(add_epi32)(z, even), near = V(sub_epi32)(z, even);
    out[0] = V(srai_epi32)(V(add_epi32)(far, outer), bits);
    out[1] = V(srai_epi32)(V(add_epi32)(near, inner), bits);
    out[2] = V(srai_epi32)(V(sub_epi32)(near, inner), bits);
    out[3] = V(srai_epi32)(V(sub_epi32)(far, outer), bits);
}

void hr__inverse_dct_4_vector(const int16_t coefficient[64], const uint16_t quant[64], uint8_t *out,
                              ptrdiff_t stride)
{
    const int first = HR__DCT_CONST_BITS - HR__DCT_PASS1_BITS + 1;
    const int second = HR__DCT_CONST_BITS + HR__DCT_PASS1_BITS + 3 + 1;
    ints v[8], a[4], b[4], t[4], round = V(set1_epi32)(1 << (first - 1));
    dequantise(coefficient, quant, v);
    const pairs low[4] = {pairs_low(v[0], v[0]), pairs_low(v[2], v[6]), pairs_low(v[1], v[3]),
                          pairs_low(v[5], v[7])};
    const pairs high[4] = {pairs_high(v[0], v[0]), pairs_high(v[2], v[6]), pairs_high(v[1], v[3]),
                           pairs_high(v[5], v[7])};
    to_four_half(low, round, first, a);
    to_four_half(high, round, first, b);
    for (int i = 0; i < 4; i++)
        v[i] = V(packs_epi32)(a[i], b[i]);
    /* transpose: t[i] has columns 2i and 2i + 1, four rows each */
    a[0] = V(unpacklo_epi16)(v[0], v[1]);
    a[1] = V(unpackhi_epi16)(v[0], v[1]);
    a[2] = V(unpacklo_epi16)(v[2], v[3]);
    a[3] = V(unpackhi_epi16)(v[2], v[3]);
    for (int i = 0; i < 2; i++) {
        t[2 * i] = V(unpacklo_epi32)(a[i], a[i + 2]);
        t[2 * i + 1] = V(unpackhi_epi32)(a[i], a[i + 2]);
    }
    const pairs columns[4] = {pairs_low(t[0], t[0]), pairs_low(t[1], t[3]), pairs_high(t[0], t[1]),
                              pairs_high(t[2], t[3])};
    to_four_half(columns, V(set1_epi32)((1 << (second - 1)) + (128 << second)), second, a);
    /* columns of four samples to rows */
    ints all = V(packus_epi16)(V(packs_epi32)(a[0], a[1]), V(packs_epi32)(a[2], a[3]));
    ints two = V(unpacklo_epi8)(all, V(unpackhi_epi64)(all, all));
    uint8_t rows[16];
    STORE16(rows, V(unpacklo_epi8)(two, V(unpackhi_epi64)(two, two)));
    for (int i = 0; i < 4; i++, out += stride)
        memcpy(out, rows + 4 * i, 4);
}

/* Transforms four columns to two means of four: input pairs (0,0), (1,3), (5,7). */
INLINE void to_two_half(const pairs pair[3], ints round, int bits, ints out[2])
{
    ints z = ADD_PRODUCTS(round, pair[0], 16384, 16384);
    ints odd = ADD_PRODUCTS(PRODUCTS(pair[1], HR__DCT_2_1, HR__DCT_2_3), pair[2], HR__DCT_2_5,
                            HR__DCT_2_7);
    out[0] = V(srai_epi32)(V(add_epi32)(z, odd), bits);
    out[1] = V(srai_epi32)(V(sub_epi32)(z, odd), bits);
}

void hr__inverse_dct_2_vector(const int16_t coefficient[64], const uint16_t quant[64], uint8_t *out,
                              ptrdiff_t stride)
{
    const int first = HR__DCT_CONST_BITS - HR__DCT_PASS1_BITS + 2;
    const int second = HR__DCT_CONST_BITS + HR__DCT_PASS1_BITS + 3 + 2;
    ints v[8], a[2], b[2], round = V(set1_epi32)(1 << (first - 1));
    dequantise(coefficient, quant, v);
    const pairs low[3] = {pairs_low(v[0], v[0]), pairs_low(v[1], v[3]), pairs_low(v[5], v[7])};
    const pairs high[3] = {pairs_high(v[0], v[0]), pairs_high(v[1], v[3]), pairs_high(v[5], v[7])};
    to_two_half(low, round, first, a);
    to_two_half(high, round, first, b);
    ints top = V(packs_epi32)(a[0], b[0]), bottom = V(packs_epi32)(a[1], b[1]);
    /* the two rows of columns 1, 3, 5 and 7 */
    ints rows = V(unpacklo_epi16)(top, bottom), more = V(unpackhi_epi16)(top, bottom);
    ints c1 = V(srli_epi64)(rows, 32), c3 = V(unpackhi_epi64)(c1, c1);
    ints c5 = V(srli_epi64)(more, 32), c7 = V(unpackhi_epi64)(c5, c5);
    const pairs columns[3] = {pairs_low(rows, rows), pairs_low(c1, c3), pairs_low(c5, c7)};
    to_two_half(columns, V(set1_epi32)((1 << (second - 1)) + (128 << second)), second, a);
    uint8_t samples[16];
    STORE16(samples, V(packus_epi16)(V(packs_epi32)(V(unpacklo_epi32)(a[0], a[1]), round), round));
    memcpy(out, samples, 2);
    memcpy(out + stride, samples + 2, 2);
}

#endif
