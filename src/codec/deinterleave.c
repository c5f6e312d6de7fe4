/*
 * De-interleaves RGB rows.
 *
 * NEON has an instruction for it. Both versions for x86 use one fact. If n pixels are in three
 * vectors of n bytes and n is a power of two, the n bytes of a channel have n different positions
 * modulo n, because 3 and n are coprime. So two blends gather a channel's bytes in one vector, and
 * one byte permutation orders them.
 */
#include "codec/deinterleave.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static void deinterleave_portable(const uint8_t *rgb, uint8_t *const plane[3], size_t pixels)
{
    uint8_t *restrict r = plane[0];
    uint8_t *restrict g = plane[1];
    uint8_t *restrict b = plane[2];
    for (size_t i = 0; i < pixels; i++) {
        r[i] = rgb[3 * i];
        g[i] = rgb[3 * i + 1];
        b[i] = rgb[3 * i + 2];
    }
}

#if defined(__x86_64__)

/* Byte i is set where i % 3 == r. */
#define EVERY_THIRD_16(r)                                                                          \
    _mm256_broadcastsi128_si256(                                                                   \
        _mm_setr_epi8(-(0 % 3 == (r)), -(1 % 3 == (r)), -(2 % 3 == (r)), -(3 % 3 == (r)),          \
                      -(4 % 3 == (r)), -(5 % 3 == (r)), -(6 % 3 == (r)), -(7 % 3 == (r)),          \
                      -(8 % 3 == (r)), -(9 % 3 == (r)), -(10 % 3 == (r)), -(11 % 3 == (r)),        \
                      -(12 % 3 == (r)), -(13 % 3 == (r)), -(14 % 3 == (r)), -(15 % 3 == (r))))

/* Output byte k comes from byte (3k + c) % 16. */
#define PICK_16(c)                                                                                 \
    _mm256_broadcastsi128_si256(                                                                   \
        _mm_setr_epi8((0 + (c)) % 16, (3 + (c)) % 16, (6 + (c)) % 16, (9 + (c)) % 16,              \
                      (12 + (c)) % 16, (15 + (c)) % 16, (18 + (c)) % 16, (21 + (c)) % 16,          \
                      (24 + (c)) % 16, (27 + (c)) % 16, (30 + (c)) % 16, (33 + (c)) % 16,          \
                      (36 + (c)) % 16, (39 + (c)) % 16, (42 + (c)) % 16, (45 + (c)) % 16))

__attribute__((target("avx2"))) static inline __m256i load_halves(const uint8_t *p)
{
    __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return _mm256_inserti128_si256(low, _mm_loadu_si128((const __m128i *)(p + 48)), 1);
}

__attribute__((target("avx2"))) static void
deinterleave_avx2(const uint8_t *rgb, uint8_t *const plane[3], size_t pixels)
{
    const __m256i third1 = EVERY_THIRD_16(1), third2 = EVERY_THIRD_16(2);
    const __m256i third0 = EVERY_THIRD_16(0);
    const __m256i pick0 = PICK_16(0), pick1 = PICK_16(1), pick2 = PICK_16(2);
    for (size_t i = 0; i < pixels; i += 32, rgb += 96) {
        /* Each 128-bit half of the three vectors holds 16 pixels. */
        __m256i a = load_halves(rgb), b = load_halves(rgb + 16), c = load_halves(rgb + 32);
        __m256i red = _mm256_blendv_epi8(_mm256_blendv_epi8(a, b, third2), c, third1);
        __m256i green = _mm256_blendv_epi8(_mm256_blendv_epi8(a, b, third0), c, third2);
        __m256i blue = _mm256_blendv_epi8(_mm256_blendv_epi8(a, b, third1), c, third0);
        _mm256_storeu_si256((__m256i *)(plane[0] + i), _mm256_shuffle_epi8(red, pick0));
        _mm256_storeu_si256((__m256i *)(plane[1] + i), _mm256_shuffle_epi8(green, pick1));
        _mm256_storeu_si256((__m256i *)(plane[2] + i), _mm256_shuffle_epi8(blue, pick2));
    }
}

/* Output byte k comes from byte (3k + c) % 64. */
static const uint8_t pick_64[3][64] __attribute__((aligned(64))) = {
    {0, 3, 6,  9,  12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 48, 51, 54, 57, 60, 63,
     2, 5, 8,  11, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 44, 47, 50, 53, 56, 59, 62, 1,
     4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40, 43, 46, 49, 52, 55, 58, 61},
    {1, 4, 7,  10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40, 43, 46, 49, 52, 55, 58, 61, 0,
     3, 6, 9,  12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 48, 51, 54, 57, 60, 63, 2,
     5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 44, 47, 50, 53, 56, 59, 62},
    {2, 5, 8,  11, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 44, 47, 50, 53, 56, 59, 62, 1,
     4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40, 43, 46, 49, 52, 55, 58, 61, 0,  3,
     6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 48, 51, 54, 57, 60, 63},
};

__attribute__((target("avx512f,avx512bw,avx512vbmi"))) static void
deinterleave_avx512(const uint8_t *rgb, uint8_t *const plane[3], size_t pixels)
{
    /* Bit i is set where i % 3 is 0, 1, 2. */
    const __mmask64 third0 = 0x9249249249249249, third1 = 0x2492492492492492;
    const __mmask64 third2 = 0x4924924924924924;
    const __m512i pick0 = _mm512_load_si512(pick_64[0]);
    const __m512i pick1 = _mm512_load_si512(pick_64[1]);
    const __m512i pick2 = _mm512_load_si512(pick_64[2]);
    for (size_t i = 0; i < pixels; i += 64, rgb += 192) {
        __m512i a = _mm512_loadu_si512(rgb);
        __m512i b = _mm512_loadu_si512(rgb + 64);
        __m512i c = _mm512_loadu_si512(rgb + 128);
        /* Byte j of b is byte 64 + j of the row, and 64 % 3 == 1. */
        __m512i red = _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(a, third2, b), third1, c);
        __m512i green = _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(a, third0, b), third2, c);
        __m512i blue = _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(a, third1, b), third0, c);
        _mm512_storeu_si512(plane[0] + i, _mm512_permutexvar_epi8(pick0, red));
        _mm512_storeu_si512(plane[1] + i, _mm512_permutexvar_epi8(pick1, green));
        _mm512_storeu_si512(plane[2] + i, _mm512_permutexvar_epi8(pick2, blue));
    }
}

#elif defined(__aarch64__)

static void deinterleave_neon(const uint8_t *rgb, uint8_t *const plane[3], size_t pixels)
{
    uint8_t *const to[3] = {plane[0], plane[1], plane[2]};
    for (size_t i = 0; i < pixels; i += 16) {
        uint8x16x3_t v = vld3q_u8(rgb + 3 * i);
        for (int c = 0; c < 3; c++)
            vst1q_u8(to[c] + i, v.val[c]);
    }
}

#endif

hr__deinterleave_fn *hr__deinterleave(enum hr__isa isa)
{
#if defined(__x86_64__)
    if (isa >= HR__ISA_AVX512)
        return deinterleave_avx512;
    if (isa >= HR__ISA_AVX2)
        return deinterleave_avx2;
#elif defined(__aarch64__)
    if (isa >= HR__ISA_NEON)
        return deinterleave_neon;
#endif
    return deinterleave_portable;
}
