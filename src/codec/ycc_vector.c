/*
 * The kernels of upsampling and colour with vectors. This file is compiled for AVX2, AVX-512 and
 * NEON, with HR__YCC_KERNELS as the name of its table. Everything stays within 128-bit lanes
 * (unpacking spreads the bytes of a lane over two vectors, packing brings them back), so all widths
 * share one source.
 *
 * In 16 bits, with c = chroma - 128: red's rounded 1.402 c is c plus the rounded product of c and
 * 13173 / 2^15, and blue's 1.772 c is 2 c minus the rounded product of c and 7471 / 2^15. The first
 * equals libjpeg's for all 256 values, the second by definition. Green has two products with one
 * rounding, in 32 bits: -22554 cb + 18734 cr, and less cr.
 */
#include "codec/ycc.h"
#include "codec/ycc_rows.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- the operations that depend on the instruction set ---- */

#ifdef __aarch64__
#include "base/neon.h"
typedef hr__neon_ints vec;
#define V(name)     hr__neon_##name
#define LOAD(p)     hr__neon_load(p)
#define STORE(p, v) hr__neon_store(p, v)
#define WIDEN(p)    ((vec)vmovl_u8(vld1_u8(p)))
#define ZERO        vdupq_n_s32(0)
#elif defined(__AVX512BW__)
#include <immintrin.h>
typedef __m512i vec;
#define V(name)                          _mm512_##name
#define LOAD(p)                          _mm512_loadu_si512(p)
#define STORE(p, v)                      _mm512_storeu_si512(p, v)
#define WIDEN(p)                         _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)(p)))
#define ZERO                             _mm512_setzero_si512()
/* sum + the two products of each pair of 16-bit numbers */
#define ADD_PRODUCTS(sum, pair, factors) _mm512_dpwssd_epi32(sum, pair, factors)
#else
#include <immintrin.h>
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

/* Green's factors; a whole cr is kept out of the second. */
#define GREEN_CB (-HR__YCC_CB_GREEN)
#define GREEN_CR (65536 - HR__YCC_CR_GREEN)

#ifdef __aarch64__
/* Green's sum of products, rounded. */
INLINE vec green_part(vec cb, vec cr)
{
    const int16x8_t u = (int16x8_t)cb, v = (int16x8_t)cr;
    int32x4_t low = vmlal_n_s16(vdupq_n_s32(32768), vget_low_s16(u), GREEN_CB);
    int32x4_t high = vmlal_high_n_s16(vdupq_n_s32(32768), u, GREEN_CB);
    low = vmlal_n_s16(low, vget_low_s16(v), GREEN_CR);
    high = vmlal_high_n_s16(high, v, GREEN_CR);
    return (vec)vuzp2q_s16((int16x8_t)low, (int16x8_t)high);
}

/* 3 near + far */
INLINE struct halves three_to_one(vec near, vec far)
{
    const uint8x16_t n = (uint8x16_t)near, f = (uint8x16_t)far, three = vdupq_n_u8(3);
    return (struct halves){
        (vec)vaddw_u8(vmull_u8(vget_low_u8(n), vget_low_u8(three)), vget_low_u8(f)),
        (vec)vaddw_high_u8(vmull_high_u8(n, three), f)};
}
#else
INLINE vec green_part(vec cb, vec cr)
{
    const vec factors = V(set1_epi32)(GREEN_CR * 65536 | (GREEN_CB & 65535));
    const vec half = V(set1_epi32)(32768);
    vec low = ADD_PRODUCTS(half, V(unpacklo_epi16)(cb, cr), factors);
    vec high = ADD_PRODUCTS(half, V(unpackhi_epi16)(cb, cr), factors);
    return V(packs_epi32)(V(srai_epi32)(low, 16), V(srai_epi32)(high, 16));
}

INLINE struct halves three_to_one(vec near, vec far)
{
    const vec weights = V(set1_epi16)(1 << 8 | 3);
    return (struct halves){V(maddubs_epi16)(V(unpacklo_epi8)(near, far), weights),
                           V(maddubs_epi16)(V(unpackhi_epi8)(near, far), weights)};
}
#endif

/* ---- the kernels ---- */

INLINE struct halves unpack(vec bytes)
{
    return (struct halves){V(unpacklo_epi8)(bytes, ZERO), V(unpackhi_epi8)(bytes, ZERO)};
}

/* cb and cr have 128 subtracted */
INLINE struct color to_color(vec y, vec cb, vec cr)
{
    vec green = green_part(cb, cr);
    vec red = V(add_epi16)(cr, V(mulhrs_epi16)(cr, V(set1_epi16)(13173)));
    vec blue = V(add_epi16)(V(add_epi16)(cb, cb), V(mulhrs_epi16)(cb, V(set1_epi16)(-7471)));
    return (struct color){V(add_epi16)(y, red), V(add_epi16)(V(sub_epi16)(y, cr), green),
                          V(add_epi16)(y, blue)};
}

/* Converts and stores one vector of pixels, from pixel i on. */
INLINE void store_pixels(const struct hr__ycc_row *row, int i, struct halves cb, struct halves cr)
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
    const vec add = V(set1_epi16)((short)rounding);
    for (int i = 0; i < samples; i += BYTES) {
        struct halves sum = three_to_one(LOAD(near + i), LOAD(far + i));
        vec low = V(srli_epi16)(V(add_epi16)(sum.low, add), 2);
        vec high = V(srli_epi16)(V(add_epi16)(sum.high, add), 2);
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
INLINE vec blend(vec a, vec b, vec rounding)
{
    vec twice = V(add_epi16)(a, a);
    return V(srai_epi16)(V(add_epi16)(V(add_epi16)(twice, a), V(add_epi16)(b, rounding)), 4);
}

/* Computes a vector of pixels from half as many samples, the first of them at s. The order is each
 * sample's even pixel before its odd one, or its odd one before the next sample's even one. */
INLINE struct halves spread(const uint16_t *s, int odd, vec even_rounding, vec odd_rounding)
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

INLINE void doubled_from(const struct hr__ycc_row *row, const struct hr__ycc_mixed *mixed, int odd)
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
