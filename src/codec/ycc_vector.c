/*
 * The kernels of upsampling and colour with vectors. This file is compiled for AVX2 and for
 * AVX-512, with HR__YCC_KERNELS as the name of its table. Everything stays within 128-bit lanes
 * (unpacking spreads the bytes of a lane over two vectors, packing brings them back), so both
 * widths share one source.
 *
 * In 16 bits, with c = chroma - 128: red's rounded 1.402 c is c plus the rounded product of c and
 * 13173 / 2^15, and blue's 1.772 c is 2 c minus the rounded product of c and 7471 / 2^15. The first
 * equals libjpeg's for all 256 values, the second by definition. Green has two products with one
 * rounding, in 32 bits: -22554 cb + 18734 cr, and less cr.
 */
#include "codec/ycc.h"
#include "codec/ycc_rows.h"

#include <immintrin.h>

#ifdef __AVX512BW__
typedef __m512i vec;
#define V(name)     _mm512_##name
#define LOAD(p)     _mm512_loadu_si512(p)
#define STORE(p, v) _mm512_storeu_si512(p, v)
#define WIDEN(p)    _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(p)))
#define ZERO        _mm512_setzero_si512()
/* sum + the two products of each pair of 16-bit numbers */
#define ADD_PRODUCTS(sum, pair, factors) _mm512_dpwssd_epi32(sum, pair, factors)
#else
typedef __m256i vec;
#define V(name)                          _mm256_##name
#define LOAD(p)                          _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v)                      _mm256_storeu_si256((__m256i *)(p), v)
#define WIDEN(p)                         _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(p)))
#define ZERO                             _mm256_setzero_si256()
#define ADD_PRODUCTS(sum, pair, factors) _mm256_add_epi32(sum, _mm256_madd_epi16(pair, factors))
#endif

enum { BYTES = sizeof(vec), SHORTS = BYTES / 2 };

/* A vector of pixels as 16-bit numbers: the low and the high eight bytes of each lane. */
struct halves {
    vec low, high;
};

struct color {
    vec r, g, b;
};

static inline struct halves unpack(vec bytes)
{
    return (struct halves){V(unpacklo_epi8)(bytes, ZERO), V(unpackhi_epi8)(bytes, ZERO)};
}

/* cb and cr have 128 subtracted */
static inline __attribute__((always_inline)) struct color to_color(vec y, vec cb, vec cr)
{
    const vec factors = V(set1_epi32)(18734 * 65536 | (-HR__YCC_CB_GREEN & 65535));
    const vec half = V(set1_epi32)(32768);
    vec low = ADD_PRODUCTS(half, V(unpacklo_epi16)(cb, cr), factors);
    vec high = ADD_PRODUCTS(half, V(unpackhi_epi16)(cb, cr), factors);
    vec green = V(packs_epi32)(V(srai_epi32)(low, 16), V(srai_epi32)(high, 16));
    vec red = V(add_epi16)(cr, V(mulhrs_epi16)(cr, V(set1_epi16)(13173)));
    vec blue = V(add_epi16)(V(add_epi16)(cb, cb), V(mulhrs_epi16)(cb, V(set1_epi16)(-7471)));
    return (struct color){V(add_epi16)(y, red), V(add_epi16)(V(sub_epi16)(y, cr), green),
                          V(add_epi16)(y, blue)};
}

/* Converts and stores one vector of pixels, from pixel i on. */
static inline __attribute__((always_inline)) void store_pixels(const struct hr__ycc_row *row, int i,
                                                               struct halves cb, struct halves cr)
{
    struct halves y = unpack(LOAD(row->luma + i));
    struct color low = to_color(y.low, cb.low, cr.low);
    struct color high = to_color(y.high, cb.high, cr.high);
    STORE(row->rgb[0] + i, V(packus_epi16)(low.r, high.r));
    STORE(row->rgb[1] + i, V(packus_epi16)(low.g, high.g));
    STORE(row->rgb[2] + i, V(packus_epi16)(low.b, high.b));
}

static void mix(const uint8_t *near, const uint8_t *far, uint16_t *out, int samples)
{
    for (int i = 0; i < samples; i += SHORTS) {
        vec n = WIDEN(near + i), f = WIDEN(far + i);
        STORE(out + i, V(add_epi16)(V(add_epi16)(n, f), V(add_epi16)(n, n)));
    }
}

static void between(const uint8_t *near, const uint8_t *far, uint8_t *out, int samples,
                    int rounding)
{
    const vec weights = V(set1_epi16)(1 << 8 | 3), add = V(set1_epi16)((short)rounding);
    for (int i = 0; i < samples; i += BYTES) {
        vec n = LOAD(near + i), f = LOAD(far + i);
        vec low = V(maddubs_epi16)(V(unpacklo_epi8)(n, f), weights);
        vec high = V(maddubs_epi16)(V(unpackhi_epi8)(n, f), weights);
        low = V(srli_epi16)(V(add_epi16)(low, add), 2);
        high = V(srli_epi16)(V(add_epi16)(high, add), 2);
        STORE(out + i, V(packus_epi16)(low, high));
    }
}

static void same(const struct hr__ycc_row *row, const uint8_t *const chroma[2])
{
    const vec middle = V(set1_epi16)(128);
    for (int i = 0; i < row->pixels; i += BYTES) {
        struct halves c[2];
        for (int k = 0; k < 2; k++) {
            c[k] = unpack(LOAD(chroma[k] + i));
            c[k].low = V(sub_epi16)(c[k].low, middle);
            c[k].high = V(sub_epi16)(c[k].high, middle);
        }
        store_pixels(row, i, c[0], c[1]);
    }
}

/* (3 a + b + rounding) / 16 - 128; the rounding includes the 128 */
static inline vec blend(vec a, vec b, vec rounding)
{
    vec twice = V(add_epi16)(a, a);
    return V(srai_epi16)(V(add_epi16)(V(add_epi16)(twice, a), V(add_epi16)(b, rounding)), 4);
}

/* Computes a vector of pixels from half as many samples, the first of them at s. The order is each
 * sample's even pixel before its odd one, or its odd one before the next sample's even one. */
static inline __attribute__((always_inline)) struct halves
spread(const uint16_t *s, int odd, vec even_rounding, vec odd_rounding)
{
    vec here = LOAD(s), next = LOAD(s + 1), first, second;
    if (odd) {
        first = blend(here, next, odd_rounding);
        second = blend(next, here, even_rounding);
    } else {
        first = blend(here, LOAD(s - 1), even_rounding);
        second = blend(here, next, odd_rounding);
    }
    return (struct halves){V(unpacklo_epi16)(first, second), V(unpackhi_epi16)(first, second)};
}

static inline __attribute__((always_inline)) void
doubled_from(const struct hr__ycc_row *row, const struct hr__ycc_mixed *mixed, int odd)
{
    const vec even_rounding = V(set1_epi16)((short)(mixed->rounding[0] - 16 * 128));
    const vec odd_rounding = V(set1_epi16)((short)(mixed->rounding[1] - 16 * 128));
    for (int i = 0; i < row->pixels; i += BYTES) {
        struct halves cb = spread(mixed->chroma[0] + i / 2, odd, even_rounding, odd_rounding);
        struct halves cr = spread(mixed->chroma[1] + i / 2, odd, even_rounding, odd_rounding);
        store_pixels(row, i, cb, cr);
    }
}

static void doubled(const struct hr__ycc_row *row, const struct hr__ycc_mixed *mixed)
{
    if (mixed->odd)
        doubled_from(row, mixed, 1);
    else
        doubled_from(row, mixed, 0);
}

const struct hr__ycc_kernels HR__YCC_KERNELS = {
    .mix = mix,
    .between = between,
    .same = same,
    .doubled = doubled,
};
