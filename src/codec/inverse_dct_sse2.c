/*
 * The inverse DCT with SSE2, which every x86-64 has. Odd and even parts are sums of two products
 * (PMADDWD). Between the passes values are clamped to 16 bits, which changes none that the packer
 * accepts.
 */
#include "codec/inverse_dct.h"

#ifdef __SSE2__

#include <emmintrin.h>

/* Two 16-bit factors, for the even and the odd element of each pair. */
#define PAIR(a, b) _mm_set1_epi32((int)((uint32_t)(uint16_t)(a) | (uint32_t)(uint16_t)(b) << 16))

static inline __m128i sum2(__m128i a, __m128i fa, __m128i b, __m128i fb)
{
    return _mm_add_epi32(_mm_madd_epi16(a, fa), _mm_madd_epi16(b, fb));
}

/* Transforms four columns: input pairs (0,4), (2,6), (1,3), (5,7). */
static inline void transform_half(const __m128i pair[4], __m128i round, int bits, __m128i out[8])
{
    __m128i e0 = _mm_add_epi32(_mm_madd_epi16(pair[0], PAIR(8192, 8192)), round);
    __m128i e1 = _mm_add_epi32(_mm_madd_epi16(pair[0], PAIR(8192, -8192)), round);
    __m128i e2 = _mm_madd_epi16(pair[1], PAIR(4433, -10704));
    __m128i e3 = _mm_madd_epi16(pair[1], PAIR(10703, 4433));
    __m128i even[4] = {_mm_add_epi32(e0, e3), _mm_add_epi32(e1, e2), _mm_sub_epi32(e1, e2),
                       _mm_sub_epi32(e0, e3)};
    __m128i odd[4] = {
        sum2(pair[2], PAIR(11363, 9633), pair[3], PAIR(6437, 2260)),
        sum2(pair[2], PAIR(9633, -2259), pair[3], PAIR(-11362, -6436)),
        sum2(pair[2], PAIR(6437, -11362), pair[3], PAIR(2261, 9633)),
        sum2(pair[2], PAIR(2260, -6436), pair[3], PAIR(9633, -11363)),
    };
    for (int i = 0; i < 4; i++) {
        out[i] = _mm_srai_epi32(_mm_add_epi32(even[i], odd[i]), bits);
        out[7 - i] = _mm_srai_epi32(_mm_sub_epi32(even[i], odd[i]), bits);
    }
}

/* One pass over eight vectors: transforms frequencies to samples across them. */
static inline void transform(__m128i v[8], __m128i round, int bits)
{
    __m128i low[4] = {_mm_unpacklo_epi16(v[0], v[4]), _mm_unpacklo_epi16(v[2], v[6]),
                      _mm_unpacklo_epi16(v[1], v[3]), _mm_unpacklo_epi16(v[5], v[7])};
    __m128i high[4] = {_mm_unpackhi_epi16(v[0], v[4]), _mm_unpackhi_epi16(v[2], v[6]),
                       _mm_unpackhi_epi16(v[1], v[3]), _mm_unpackhi_epi16(v[5], v[7])};
    __m128i a[8], b[8];
    transform_half(low, round, bits, a);
    transform_half(high, round, bits, b);
    for (int i = 0; i < 8; i++)
        v[i] = _mm_packs_epi32(a[i], b[i]);
}

static inline void interleave(const __m128i in[8], __m128i out[8])
{
    for (int i = 0; i < 4; i++) {
        out[2 * i] = _mm_unpacklo_epi16(in[i], in[i + 4]);
        out[2 * i + 1] = _mm_unpackhi_epi16(in[i], in[i + 4]);
    }
}

/* Stores columns of 16-bit samples as rows of bytes. */
static inline void store(const __m128i v[8], uint8_t *out, ptrdiff_t stride)
{
    __m128i a[4], b[4];
    for (int i = 0; i < 4; i++) /* columns i and i + 4 */
        a[i] = _mm_packus_epi16(v[i], v[i + 4]);
    /* After each step a vector holds twice the columns of half the rows. */
    for (int i = 0; i < 2; i++) {
        b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 2]);
        b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 2]);
    }
    a[0] = _mm_unpacklo_epi8(b[0], b[2]);
    a[1] = _mm_unpackhi_epi8(b[0], b[2]);
    a[2] = _mm_unpacklo_epi8(b[1], b[3]);
    a[3] = _mm_unpackhi_epi8(b[1], b[3]);
    b[0] = _mm_unpacklo_epi32(a[0], a[2]);
    b[1] = _mm_unpackhi_epi32(a[0], a[2]);
    b[2] = _mm_unpacklo_epi32(a[1], a[3]);
    b[3] = _mm_unpackhi_epi32(a[1], a[3]);
    for (int i = 0; i < 4; i++, out += 2 * stride) {
        _mm_storel_epi64((__m128i *)out, b[i]);
        _mm_storel_epi64((__m128i *)(out + stride), _mm_unpackhi_epi64(b[i], b[i]));
    }
}

void hr__inverse_dct_sse2(const int16_t coefficient[64], const uint16_t quant[64], uint8_t *out,
                          ptrdiff_t stride)
{
    const int first = HR__DCT_CONST_BITS - HR__DCT_PASS1_BITS;
    const int second = HR__DCT_CONST_BITS + HR__DCT_PASS1_BITS + 3;
    __m128i v[8], t[8];
    for (int i = 0; i < 8; i++)
        v[i] = _mm_mullo_epi16(_mm_load_si128((const __m128i *)coefficient + i),
                               _mm_loadu_si128((const __m128i *)quant + i));
    transform(v, _mm_set1_epi32(1 << (first - 1)), first);
    interleave(v, t); /* three times makes a transposition */
    interleave(t, v);
    interleave(v, t);
    /* samples are 128 above the transform's result */
    transform(t, _mm_set1_epi32((1 << (second - 1)) + (128 << second)), second);
    store(t, out, stride);
}

#endif
