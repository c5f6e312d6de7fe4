/*
 * The inverse DCT of two blocks at once with AVX2, one in each 128-bit lane; the same samples as
 * inverse_dct.c for all blocks that it accepts. Odd and even parts are sums of two products
 * (PMADDWD).
 */
#include "codec/inverse_dct.h"

#include "codec/coefficients.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* Two 16-bit factors, for the even and the odd element of each pair. */
#define PAIR(a, b) _mm256_set1_epi32((int)((uint32_t)(uint16_t)(a) | (uint32_t)(uint16_t)(b) << 16))

INLINE __m256i product(__m256i pair, __m256i factors)
{
    return _mm256_madd_epi16(pair, factors);
}

INLINE __m256i sum2(__m256i a, __m256i fa, __m256i b, __m256i fb)
{
    return _mm256_add_epi32(product(a, fa), product(b, fb));
}

/* Transforms four columns of each block: input pairs (0,4), (2,6), (1,3), (5,7). */
INLINE void transform_half(const __m256i pair[4], __m256i round, int bits, __m256i out[8])
{
    __m256i e0 = _mm256_add_epi32(product(pair[0], PAIR(8192, 8192)), round);
    __m256i e1 = _mm256_add_epi32(product(pair[0], PAIR(8192, -8192)), round);
    __m256i e2 = product(pair[1], PAIR(4433, -10704));
    __m256i e3 = product(pair[1], PAIR(10703, 4433));
    __m256i even[4] = {_mm256_add_epi32(e0, e3), _mm256_add_epi32(e1, e2), _mm256_sub_epi32(e1, e2),
                       _mm256_sub_epi32(e0, e3)};
    __m256i odd[4] = {
        sum2(pair[2], PAIR(11363, 9633), pair[3], PAIR(6437, 2260)),
        sum2(pair[2], PAIR(9633, -2259), pair[3], PAIR(-11362, -6436)),
        sum2(pair[2], PAIR(6437, -11362), pair[3], PAIR(2261, 9633)),
        sum2(pair[2], PAIR(2260, -6436), pair[3], PAIR(9633, -11363)),
    };
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_srai_epi32(_mm256_add_epi32(even[i], odd[i]), bits);
        out[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(even[i], odd[i]), bits);
    }
}

/* One pass over eight vectors: transforms frequencies to samples across them. */
INLINE void transform(__m256i v[8], __m256i round, int bits)
{
    __m256i low[4] = {_mm256_unpacklo_epi16(v[0], v[4]), _mm256_unpacklo_epi16(v[2], v[6]),
                      _mm256_unpacklo_epi16(v[1], v[3]), _mm256_unpacklo_epi16(v[5], v[7])};
    __m256i high[4] = {_mm256_unpackhi_epi16(v[0], v[4]), _mm256_unpackhi_epi16(v[2], v[6]),
                       _mm256_unpackhi_epi16(v[1], v[3]), _mm256_unpackhi_epi16(v[5], v[7])};
    __m256i a[8], b[8];
    transform_half(low, round, bits, a);
    transform_half(high, round, bits, b);
    for (int i = 0; i < 8; i++)
        v[i] = _mm256_packs_epi32(a[i], b[i]);
}

INLINE void interleave(const __m256i in[8], __m256i out[8])
{
    for (int i = 0; i < 4; i++) {
        out[2 * i] = _mm256_unpacklo_epi16(in[i], in[i + 4]);
        out[2 * i + 1] = _mm256_unpackhi_epi16(in[i], in[i + 4]);
    }
}

INLINE void store_half(uint8_t *out, ptrdiff_t stride, __m128i two)
{
    _mm_storel_epi64((__m128i *)out, two);
    _mm_storeh_pd((double *)(out + stride), _mm_castsi128_pd(two));
}

/* Stores columns of 16-bit samples as rows of bytes. */
INLINE void store(const __m256i v[8], const struct hr__dct_block two[2])
{
    __m256i a[4], b[4];
    for (int i = 0; i < 4; i++) /* columns i and i + 4 */
        a[i] = _mm256_packus_epi16(v[i], v[i + 4]);
    /* After each step a vector holds twice the columns of half the rows. */
    for (int i = 0; i < 2; i++) {
        b[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 2]);
        b[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 2]);
    }
    a[0] = _mm256_unpacklo_epi8(b[0], b[2]);
    a[1] = _mm256_unpackhi_epi8(b[0], b[2]);
    a[2] = _mm256_unpacklo_epi8(b[1], b[3]);
    a[3] = _mm256_unpackhi_epi8(b[1], b[3]);
    b[0] = _mm256_unpacklo_epi32(a[0], a[2]);
    b[1] = _mm256_unpackhi_epi32(a[0], a[2]);
    b[2] = _mm256_unpacklo_epi32(a[1], a[3]);
    b[3] = _mm256_unpackhi_epi32(a[1], a[3]);
    for (int i = 0; i < 4; i++) {
        store_half(two[0].out + 2 * i * two[0].stride, two[0].stride, _mm256_castsi256_si128(b[i]));
        store_half(two[1].out + 2 * i * two[1].stride, two[1].stride,
                   _mm256_extracti128_si256(b[i], 1));
    }
}

INLINE __m256i lanes(const int16_t *low, const int16_t *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low)),
                                   _mm_loadu_si128((const __m128i *)high), 1);
}

/* Dequantises both blocks. Returns non-zero if they are held. */
INLINE int dequantise(const struct hr__dct_block two[2], __m256i v[8])
{
    __m256i sum = _mm256_setzero_si256(), over = sum;
    for (int i = 0; i < 8; i++) {
        __m256i c = lanes(two[0].coefficient + 8 * i, two[1].coefficient + 8 * i);
        __m256i q = lanes(two[0].limits->quant + 8 * i, two[1].limits->quant + 8 * i);
        v[i] = _mm256_mullo_epi16(c, q);
        /* the upper half is that of a 16-bit number */
        over = _mm256_or_si256(
            over, _mm256_xor_si256(_mm256_mulhi_epi16(c, q), _mm256_srai_epi16(v[i], 15)));
        sum = _mm256_adds_epu16(sum, _mm256_abs_epi16(v[i]));
    }
    sum = _mm256_adds_epu16(sum, _mm256_shuffle_epi32(sum, 0x4E)); /* columns x and x + 4 */
    over = _mm256_or_si256(over, _mm256_subs_epu16(sum, _mm256_set1_epi16(HR__COLUMN_LIMIT)));
    return _mm256_testz_si256(over, over);
}

int hr__inverse_dct_pair_avx2(const struct hr__dct_block two[2])
{
    const int first = HR__DCT_CONST_BITS - HR__DCT_PASS1_BITS;
    const int second = HR__DCT_CONST_BITS + HR__DCT_PASS1_BITS + 3;
    __m256i v[8], t[8];
    if (!dequantise(two, v))
        return 0;
    transform(v, _mm256_set1_epi32(1 << (first - 1)), first);
    interleave(v, t); /* three times makes a transposition */
    interleave(t, v);
    interleave(v, t);
    /* samples are 128 above the transform's result */
    transform(t, _mm256_set1_epi32((1 << (second - 1)) + (128 << second)), second);
    store(t, two);
    return 1;
}
