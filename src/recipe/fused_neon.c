/*
 * The fused pass for NEON. fused_pairs.h has the horizontal filter, fused_vector.h all that is not
 * horizontal. NEON adds the products of the lower or the upper half of a vector, so the first taps
 * of four outputs are in the lower half and the second ones in the upper half. Stores go through
 * the caches: C has no name for others.
 */
#include "base/neon.h"
#include "recipe/fused_kernels.h"
#include "recipe/tap_weights.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- the operations of fused_vector.h ---- */

#define LANES    4
#define V(op)    hr__neon_##op
#define INTS(op) hr__neon_##op##_si

typedef hr__neon_reals reals;
typedef hr__neon_ints ints;

INLINE void put(void *out, ints v, int stream)
{
    (void)stream;
    hr__neon_store(out, v);
}

INLINE void put_half(void *out, ints v)
{
    vst1_u8(out, vget_low_u8((uint8x16_t)v));
}

INLINE void put_few(void *out, ints v, size_t bytes)
{
    memcpy(out, &v, bytes);
}

INLINE reals load_few(const float *in, size_t n)
{
    reals some = vdupq_n_f32(0);
    memcpy(&some, in, n * sizeof *in);
    return some;
}

INLINE reals load_bytes(const uint8_t *in)
{
    uint16x4_t words = vget_low_u16(vmovl_u8(vld1_u8(in))); /* of eight bytes, the first four */
    return vcvtq_f32_u32(vmovl_u16(words));
}

INLINE ints pack_words(ints a, ints b)
{
    return (ints)vuzp1q_u16((uint16x8_t)a, (uint16x8_t)b);
}

INLINE ints pack_bytes(ints a, ints b, ints c, ints d)
{
    return (ints)vuzp1q_u8((uint8x16_t)pack_words(a, b), (uint8x16_t)pack_words(c, d));
}

INLINE ints pack_float16(reals a, reals b)
{
    return (ints)vcvt_high_f16_f32(vcvt_f16_f32(a), b);
}

INLINE ints select_nan(reals v, ints number, ints nan)
{
    return vbslq_s32(vceqq_f32(v, v), number, nan);
}

#include "recipe/fused_vector.h"

/* ---- the operations of fused_pairs.h ---- */

#define Q(op)     hr__neon_##op
#define TAP(o, t) ((o) + 4 * (t))

typedef ints four;

INLINE ints load_windows(const uint8_t *row, const int32_t *base, int offset)
{
    return hr__neon_load(row + base[0] + offset);
}

INLINE ints add_products(ints sum, ints taps, ints weights)
{
    const int16x8_t a = (int16x8_t)taps, b = (int16x8_t)weights;
    return vmlal_high_s16(vmlal_s16(sum, vget_low_s16(a), vget_low_s16(b)), a, b);
}

INLINE ints products(ints taps, ints weights)
{
    const int16x8_t a = (int16x8_t)taps, b = (int16x8_t)weights;
    return vmlal_high_s16(vmull_s16(vget_low_s16(a), vget_low_s16(b)), a, b);
}

INLINE four far_sum(const uint8_t *at, const int16_t *weight, int chunks)
{
    four sum = vdupq_n_s32(0);
    for (int k = 0; k < (chunks ? 16 * chunks : 8); k += 8)
        sum = add_products(sum, (ints)vmovl_u8(vld1_u8(at + k)), hr__neon_load(weight + k));
    return sum;
}

#include "recipe/fused_pairs.h"

/* ---- interleaving ---- */

/* Interleaves whole vectors of elements of `bits` bits, `count` in each. */
#define INTERLEAVE(bits, count)                                                                    \
    for (; i + (count) <= n; i += (count)) {                                                       \
        uint##bits##x##count##x3_t v;                                                              \
        for (int c = 0; c < 3; c++)                                                                \
            v.val[c] = vld1q_u##bits((const uint##bits##_t *)in[c] + i);                           \
        vst3q_u##bits((uint##bits##_t *)out + 3 * i, v);                                           \
    }

static void interleave(const void *const in[3], size_t n, size_t element_bytes, int stream,
                       void *out)
{
    size_t i = 0;
    if (element_bytes == 1) {
        INTERLEAVE(8, 16)
    } else if (element_bytes == 2) {
        INTERLEAVE(16, 8)
    } else {
        INTERLEAVE(32, 4)
    }
    size_t at = i * element_bytes;
    const void *const rest[3] = {(const uint8_t *)in[0] + at, (const uint8_t *)in[1] + at,
                                 (const uint8_t *)in[2] + at};
    hr__fused_portable.interleave(rest, n - i, element_bytes, stream, (uint8_t *)out + 3 * at);
}

const struct hr__fused_kernels hr__fused_neon = {
    .weigh = weigh,
    .prepare = prepare,
    .vertical = vertical,
    .cast = cast,
    .interleave = interleave,
    .copy = copy,
};
