/*
 * 128-bit operations for 64-bit ARM (Advanced SIMD, "NEON") under the names of Intel's intrinsics:
 * hr__neon_add_epi16 does what _mm_add_epi16 does. Kernels that are written once for all
 * instruction sets call V(add_epi16), and V selects _mm256_, _mm512_ or hr__neon_. Only what those
 * kernels use is here. What NEON does in another way, such as products of pairs, is an operation of
 * the kernel instead.
 *
 * Vectors of integers have one type, whatever the size of their elements, as Intel's have.
 */
#ifndef HR_BASE_NEON_H
#define HR_BASE_NEON_H

#include <arm_neon.h>

typedef int32x4_t hr__neon_ints;
typedef float32x4_t hr__neon_reals;

/* The vectors a and b as vectors of `type` in f(a, b); the result as integers. */
#define HR__NEON_1(f, type, a)    ((hr__neon_ints)f((type)(a)))
#define HR__NEON_2(f, type, a, b) ((hr__neon_ints)f((type)(a), (type)(b)))
/* Wraps around. */
#define HR__NEON_OP(op, type, a, b) ((hr__neon_ints)((type)(a)op(type)(b)))

#define hr__neon_load(p)       ((hr__neon_ints)vld1q_u8((const void *)(p)))
#define hr__neon_loadu_si(p)   hr__neon_load(p)
#define hr__neon_store(p, v)   vst1q_u8((void *)(p), (uint8x16_t)(v))
#define hr__neon_set1_epi8(n)  ((hr__neon_ints)vdupq_n_s8((int8_t)(n)))
#define hr__neon_set1_epi16(n) ((hr__neon_ints)vdupq_n_s16((int16_t)(n)))
#define hr__neon_set1_epi32(n) vdupq_n_s32((int32_t)(n))
#define hr__neon_setzero_si()  vdupq_n_s32(0)
#define hr__neon_castps_si(v)  ((hr__neon_ints)(v))

#define hr__neon_add_epi8(a, b)    HR__NEON_OP(+, uint8x16_t, a, b)
#define hr__neon_sub_epi8(a, b)    HR__NEON_OP(-, uint8x16_t, a, b)
#define hr__neon_add_epi16(a, b)   HR__NEON_OP(+, uint16x8_t, a, b)
#define hr__neon_sub_epi16(a, b)   HR__NEON_OP(-, uint16x8_t, a, b)
#define hr__neon_mullo_epi16(a, b) HR__NEON_OP(*, uint16x8_t, a, b)
#define hr__neon_add_epi32(a, b)   HR__NEON_OP(+, uint32x4_t, a, b)
#define hr__neon_sub_epi32(a, b)   HR__NEON_OP(-, uint32x4_t, a, b)
#define hr__neon_and_si(a, b)      HR__NEON_OP(&, uint32x4_t, a, b)
#define hr__neon_or_si(a, b)       HR__NEON_OP(|, uint32x4_t, a, b)
#define hr__neon_srai_epi16(v, n)  ((hr__neon_ints)((int16x8_t)(v) >> (n)))
#define hr__neon_srli_epi16(v, n)  ((hr__neon_ints)((uint16x8_t)(v) >> (n)))
#define hr__neon_srai_epi32(v, n)  ((hr__neon_ints)((int32x4_t)(v) >> (n)))
#define hr__neon_srli_epi32(v, n)  ((hr__neon_ints)((uint32x4_t)(v) >> (n)))
#define hr__neon_max_epi32(a, b)   HR__NEON_2(vmaxq_s32, int32x4_t, a, b)
#define hr__neon_min_epi32(a, b)   HR__NEON_2(vminq_s32, int32x4_t, a, b)
#define hr__neon_subs_epu8(a, b)   HR__NEON_2(vqsubq_u8, uint8x16_t, a, b)
/* Like Intel's except for -32768 x -32768. */
#define hr__neon_mulhrs_epi16(a, b) HR__NEON_2(vqrdmulhq_s16, int16x8_t, a, b)
#define hr__neon_hadd_epi32(a, b)   HR__NEON_2(vpaddq_s32, int32x4_t, a, b)

#define hr__neon_unpacklo_epi8(a, b)  HR__NEON_2(vzip1q_u8, uint8x16_t, a, b)
#define hr__neon_unpackhi_epi8(a, b)  HR__NEON_2(vzip2q_u8, uint8x16_t, a, b)
#define hr__neon_unpacklo_epi16(a, b) HR__NEON_2(vzip1q_u16, uint16x8_t, a, b)
#define hr__neon_unpackhi_epi16(a, b) HR__NEON_2(vzip2q_u16, uint16x8_t, a, b)
#define hr__neon_unpacklo_epi32(a, b) HR__NEON_2(vzip1q_u32, uint32x4_t, a, b)
#define hr__neon_unpackhi_epi32(a, b) HR__NEON_2(vzip2q_u32, uint32x4_t, a, b)
#define hr__neon_unpacklo_epi64(a, b) HR__NEON_2(vzip1q_u64, uint64x2_t, a, b)
#define hr__neon_unpackhi_epi64(a, b) HR__NEON_2(vzip2q_u64, uint64x2_t, a, b)
/* For indices 0..15, and from 128 on, which give 0. */
#define hr__neon_shuffle_epi8(v, index) HR__NEON_2(vqtbl1q_u8, uint8x16_t, v, index)

/* Saturate. */
#define hr__neon_packs_epi32(a, b)                                                                 \
    ((hr__neon_ints)vqmovn_high_s32(vqmovn_s32((int32x4_t)(a)), (int32x4_t)(b)))
#define hr__neon_packus_epi16(a, b)                                                                \
    ((hr__neon_ints)vqmovun_high_s16(vqmovun_s16((int16x8_t)(a)), (int16x8_t)(b)))

#define hr__neon_set1_ps(x)      vdupq_n_f32(x)
#define hr__neon_setzero_ps()    vdupq_n_f32(0)
#define hr__neon_loadu_ps(p)     vld1q_f32(p)
#define hr__neon_store_ps(p, v)  vst1q_f32(p, v)
#define hr__neon_add_ps(a, b)    vaddq_f32(a, b)
#define hr__neon_mul_ps(a, b)    vmulq_f32(a, b)
#define hr__neon_cvtepi32_ps(v)  vcvtq_f32_s32(v)
#define hr__neon_cvttps_epi32(v) vcvtq_s32_f32(v)

/* Loads 8 bytes and fills up with zeros. */
static inline hr__neon_ints hr__neon_load_low(const void *p)
{
    return (hr__neon_ints)vcombine_u8(vld1_u8(p), vdup_n_u8(0));
}

/* Like Intel's: b where either is a NaN. */
static inline hr__neon_reals hr__neon_max_ps(hr__neon_reals a, hr__neon_reals b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline hr__neon_reals hr__neon_min_ps(hr__neon_reals a, hr__neon_reals b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

#endif
