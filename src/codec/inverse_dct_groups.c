/*
 * The inverse DCT of a few blocks at once, one in each 128-bit lane: two with AVX2, four with
 * AVX-512; the same samples as inverse_dct.c for all blocks that it accepts. This file is compiled
 * for both, with HR__INVERSE_DCT_GROUP as the name of its version.
 */
#include "codec/inverse_dct.h"

#include "codec/coefficients.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- the operations that depend on the instruction set ---- */

#ifdef __AVX512BW__
typedef __m512i ints;
#define V(op)                           _mm512_##op
#define WHOLE(op)                       _mm512_##op##_si512
#define ADD_PRODUCTS(sum, pair, fa, fb) _mm512_dpwssd_epi32(sum, pair, FACTORS(fa, fb))
#define IS_ZERO(v)                      (!_mm512_test_epi16_mask(v, v))
#define SWAP_HALVES(v)                  _mm512_shuffle_epi32(v, _MM_PERM_BADC) /* of each lane */

/* Transposes four vectors of four lanes. */
INLINE void transpose_lanes(const ints in[4], ints out[4])
{
    ints a = V(shuffle_i32x4)(in[0], in[1], 0x44), b = V(shuffle_i32x4)(in[0], in[1], 0xEE);
    ints c = V(shuffle_i32x4)(in[2], in[3], 0x44), d = V(shuffle_i32x4)(in[2], in[3], 0xEE);
    out[0] = V(shuffle_i32x4)(a, c, 0x88);
    out[1] = V(shuffle_i32x4)(a, c, 0xDD);
    out[2] = V(shuffle_i32x4)(b, d, 0x88);
    out[3] = V(shuffle_i32x4)(b, d, 0xDD);
}

/* Dequantises the blocks to their rows. Returns 0 in all of `over` where products have 16 bits. */
INLINE void dequantise(const struct hr__dct_block *block, ints row[8], ints *over)
{
    for (int half = 0; half < 2; half++) {
        ints rows[4];
        for (int i = 0; i < 4; i++) {
            ints c = V(loadu_si512)(block[i].coefficient + 32 * half);
            ints q = V(loadu_si512)(block[i].limits->quant + 32 * half);
            rows[i] = V(mullo_epi16)(c, q);
            /* the upper half is that of a 16-bit number */
            *over = WHOLE(or)(*over, WHOLE(xor)(V(mulhi_epi16)(c, q), V(srai_epi16)(rows[i], 15)));
        }
        transpose_lanes(rows, row + 4 * half);
    }
}

INLINE __m128i lane_of(ints v, int i)
{
    return i == 0   ? _mm512_castsi512_si128(v)
           : i == 1 ? _mm512_extracti32x4_epi32(v, 1)
           : i == 2 ? _mm512_extracti32x4_epi32(v, 2)
                    : _mm512_extracti32x4_epi32(v, 3);
}
#else
typedef __m256i ints;
#define V(op)                           _mm256_##op
#define WHOLE(op)                       _mm256_##op##_si256
#define ADD_PRODUCTS(sum, pair, fa, fb) _mm256_add_epi32(sum, PRODUCTS(pair, fa, fb))
#define IS_ZERO(v)                      _mm256_testz_si256(v, v)
#define SWAP_HALVES(v)                  _mm256_shuffle_epi32(v, 0x4E) /* of each lane */

INLINE ints lanes(const int16_t *low, const int16_t *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low)),
                                   _mm_loadu_si128((const __m128i *)high), 1);
}

/* Dequantises the blocks to their rows. Returns 0 in all of `over` where products have 16 bits. */
INLINE void dequantise(const struct hr__dct_block *block, ints row[8], ints *over)
{
    for (int i = 0; i < 8; i++) {
        ints c = lanes(block[0].coefficient + 8 * i, block[1].coefficient + 8 * i);
        ints q = lanes(block[0].limits->quant + 8 * i, block[1].limits->quant + 8 * i);
        row[i] = V(mullo_epi16)(c, q);
        /* the upper half is that of a 16-bit number */
        *over = WHOLE(or)(*over, WHOLE(xor)(V(mulhi_epi16)(c, q), V(srai_epi16)(row[i], 15)));
    }
}

INLINE __m128i lane_of(ints v, int i)
{
    return i ? _mm256_extracti128_si256(v, 1) : _mm256_castsi256_si128(v);
}
#endif

enum { BLOCKS = sizeof(ints) / 16 };

/* Two 16-bit numbers as one of 32 bits, for the even and the odd element of each pair. */
#define TWO(a, b)              (int)((uint32_t)(uint16_t)(a) | (uint32_t)(uint16_t)(b) << 16)
#define FACTORS(a, b)          V(set1_epi32)(TWO(a, b))
#define PRODUCTS(pair, fa, fb) V(madd_epi16)(pair, FACTORS(fa, fb))
#define pairs_low(a, b)        V(unpacklo_epi16)(a, b)
#define pairs_high(a, b)       V(unpackhi_epi16)(a, b)
typedef ints pairs;

#include "codec/inverse_dct_passes.h"

/* ---- the transform ---- */

/* Returns non-zero if the dequantised blocks are held. */
INLINE int are_held(const ints row[8], ints over)
{
    ints sum = WHOLE(setzero)();
    for (int i = 0; i < 8; i++)
        sum = V(adds_epu16)(sum, V(abs_epi16)(row[i]));
    sum = V(adds_epu16)(sum, SWAP_HALVES(sum)); /* columns x and x + 4 */
    over = WHOLE(or)(over, V(subs_epu16)(sum, V(set1_epi16)(HR__COLUMN_LIMIT)));
    return IS_ZERO(over);
}

static int transform_group(const struct hr__dct_block *block)
{
    ints v[8], rows[4], over = WHOLE(setzero)();
    dequantise(block, v, &over);
    if (!are_held(v, over))
        return 0;
    transform_block(v, rows);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < BLOCKS; k++) {
            uint8_t *out = block[k].out + 2 * i * block[k].stride;
            __m128i two = lane_of(rows[i], k);
            _mm_storel_epi64((__m128i *)out, two);
            _mm_storeh_pd((double *)(out + block[k].stride), _mm_castsi128_pd(two));
        }
    return 1;
}

const struct hr__inverse_dct_group HR__INVERSE_DCT_GROUP = {transform_group, BLOCKS};
