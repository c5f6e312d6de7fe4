/*
 * The fused pass for AVX2 and F16C; the whole file is compiled for them. fused_pairs.h has the
 * horizontal filter, fused_vector.h all that is not horizontal.
 */
#include "recipe/fused_kernels.h"
#include "recipe/tap_weights.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- the operations of fused_vector.h ---- */

#define LANES    8
#define V(op)    _mm256_##op
#define INTS(op) _mm256_##op##_si256

typedef __m256 reals;
typedef __m256i ints;

INLINE void put(void *out, ints v, int stream)
{
    if (stream)
        _mm256_stream_si256(out, v);
    else
        _mm256_storeu_si256(out, v);
}

INLINE void put_half(void *out, ints v)
{
    _mm_storeu_si128(out, _mm256_castsi256_si128(v));
}

INLINE void put_few(void *out, ints v, size_t bytes)
{
    uint8_t all[32];
    _mm256_storeu_si256((ints *)(void *)all, v);
    memcpy(out, all, bytes);
}

INLINE reals load_few(const float *in, size_t n)
{
    float some[8] = {0};
    memcpy(some, in, n * sizeof *in);
    return _mm256_loadu_ps(some);
}

INLINE reals load_bytes(const uint8_t *in)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)in)));
}

/* Packing works within halves, so the groups have to be reordered. */
INLINE ints pack_bytes(ints a, ints b, ints c, ints d)
{
    ints order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    ints both = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    return _mm256_permutevar8x32_epi32(both, order);
}

INLINE ints pack_words(ints a, ints b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

INLINE ints pack_float16(reals a, reals b)
{
    return _mm256_set_m128i(_mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

INLINE ints select_nan(reals v, ints number, ints nan)
{
    return _mm256_blendv_epi8(number, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}

#include "recipe/fused_vector.h"

/* ---- the operations of fused_pairs.h ---- */

#define Q(op)     _mm_##op
#define TAP(o, t) (2 * (o) + (t))

typedef __m128i four;

INLINE ints load_windows(const uint8_t *row, const int32_t *base, int offset)
{
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(row + base[0] + offset));
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(row + base[1] + offset));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

INLINE ints products(ints taps, ints weights)
{
    return _mm256_madd_epi16(taps, weights);
}

INLINE ints add_products(ints sum, ints taps, ints weights)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(taps, weights));
}

INLINE four far_sum(const uint8_t *at, const int16_t *weight, int chunks)
{
    if (!chunks) { /* at most 8 taps */
        __m128i v = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)at));
        return _mm_madd_epi16(v, _mm_load_si128((const __m128i *)(const void *)weight));
    }
    __m256i sum = _mm256_setzero_si256();
    for (int k = 0; k < chunks; k++) {
        __m256i v = _mm256_cvtepu8_epi16(
            _mm_loadu_si128((const __m128i *)(const void *)(at + (ptrdiff_t)16 * k)));
        __m256i w = _mm256_load_si256((const __m256i *)(const void *)(weight + (ptrdiff_t)16 * k));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(v, w));
    }
    return _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
}

#include "recipe/fused_pairs.h"

/* ---- interleaving ---- */

/* The source of byte `at` of 48 interleaved bytes in 16 bytes of one channel, for elements of `e`
 * bytes. 0x80: it comes from another channel. */
#define FROM(e, channel, at)                                                                       \
    ((at) % (3 * (e)) / (e) == (channel) ? (at) / (3 * (e)) * (e) + (at) % (e) : 0x80)
#define FROM4(e, channel, at)                                                                      \
    FROM(e, channel, at), FROM(e, channel, (at) + 1), FROM(e, channel, (at) + 2),                  \
        FROM(e, channel, (at) + 3)
#define FROM16(e, channel, at)                                                                     \
    {                                                                                              \
        FROM4(e, channel, at), FROM4(e, channel, (at) + 4), FROM4(e, channel, (at) + 8),           \
            FROM4(e, channel, (at) + 12)                                                           \
    }
#define FROM48(e, channel)                                                                         \
    {                                                                                              \
        FROM16(e, channel, 0), FROM16(e, channel, 16), FROM16(e, channel, 32)                      \
    }
#define FROM144(e)                                                                                 \
    {                                                                                              \
        FROM48(e, 0), FROM48(e, 1), FROM48(e, 2)                                                   \
    }

static const _Alignas(16) uint8_t interleave_1[3][3][16] = FROM144(1);
static const _Alignas(16) uint8_t interleave_2[3][3][16] = FROM144(2);
static const _Alignas(16) uint8_t interleave_4[3][3][16] = FROM144(4);

static void interleave(const void *const in[3], size_t n, size_t element_bytes, int stream,
                       void *out)
{
    const uint8_t(*from)[3][16] = element_bytes == 1   ? interleave_1
                                  : element_bytes == 2 ? interleave_2
                                                       : interleave_4;
    size_t bytes = n * element_bytes, at = 0;
    uint8_t *to = out;
    __m128i shuffle[3][3];
    for (int c = 0; c < 3; c++)
        for (int k = 0; k < 3; k++)
            shuffle[c][k] = _mm_load_si128((const __m128i *)(const void *)from[c][k]);
    for (; at + 16 <= bytes; at += 16, to += 48) {
        __m128i v[3];
        for (int c = 0; c < 3; c++)
            v[c] = _mm_loadu_si128((const __m128i *)(const void *)((const uint8_t *)in[c] + at));
        for (int k = 0; k < 3; k++) {
            __m128i mixed = _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(v[0], shuffle[0][k]),
                                                      _mm_shuffle_epi8(v[1], shuffle[1][k])),
                                         _mm_shuffle_epi8(v[2], shuffle[2][k]));
            __m128i *place = (__m128i *)(void *)(to + 16 * k);
            if (stream)
                _mm_stream_si128(place, mixed);
            else
                _mm_storeu_si128(place, mixed);
        }
    }
    const void *const rest[3] = {(const uint8_t *)in[0] + at, (const uint8_t *)in[1] + at,
                                 (const uint8_t *)in[2] + at};
    hr__fused_portable.interleave(rest, n - at / element_bytes, element_bytes, 0, to);
}

const struct hr__fused_kernels hr__fused_avx2 = {
    .weigh = weigh,
    .prepare = prepare,
    .vertical = vertical,
    .cast = cast,
    .interleave = interleave,
    .copy = copy,
};
