/*
 * Unpacks blocks of the form `coefficients` to samples with AVX2 and BMI2; gives the same samples
 * as coefficients_portable.c. It processes two blocks at once, one in each 128-bit lane;
 * coefficients_vector.h explains the order of coefficients.
 *
 * Between the passes of the transform values are clamped to 16 bits, which changes none that the
 * packer accepts.
 */
#include <immintrin.h>

typedef __m256i ints;
#define V(op) _mm256_##op

#include "codec/coefficients_vector.h"

typedef __m128i eights;
#define Q(op)            _mm_##op
#define LOAD_8(p)        _mm_loadl_epi64((const void *)(p))
#define LOAD_16(p)       _mm_load_si128((const void *)(p))
#define STORE_16(p, v)   _mm_store_si128((void *)(p), v)
#define SHIFT_DOWN(v, n) _mm_srl_epi16(v, _mm_cvtsi32_si128((int)(n)))

#include "codec/coefficients_codes.h"

/* Index of zigzag position p among the 16 positions from `from` on; 0x80 if it is not among them,
 * which makes PSHUFB produce 0. */
#define AMONG(p, from) ((p) >= (from) && (p) < (from) + 16 ? (p) - (from) : 0x80)
#define PICK_(from, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                                \
    {                                                                                              \
        AMONG(a, from), AMONG(b, from), AMONG(c, from), AMONG(d, from), AMONG(e, from),            \
            AMONG(f, from), AMONG(g, from), AMONG(h, from), AMONG(i, from), AMONG(j, from),        \
            AMONG(k, from), AMONG(l, from), AMONG(m, from), AMONG(n, from), AMONG(o, from),        \
            AMONG(p, from)                                                                         \
    }
#define PICK(...) PICK_(__VA_ARGS__)
#define QUARTERS(...)                                                                              \
    {                                                                                              \
        PICK(0, __VA_ARGS__), PICK(16, __VA_ARGS__), PICK(32, __VA_ARGS__), PICK(48, __VA_ARGS__)  \
    }

/* For each quarter of the zigzag, the values for slots 16 k .. 16 k + 15. */
static const uint8_t picks[4][4][16] __attribute__((aligned(64))) = {
    QUARTERS(HR__SLOTS_0),
    QUARTERS(HR__SLOTS_1),
    QUARTERS(HR__SLOTS_2),
    QUARTERS(HR__SLOTS_3),
};

#define SAME16(v)                                                                                  \
    {                                                                                              \
        v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v                                             \
    }

/* By width: the code of the smallest positive value. */
static const uint8_t halves[8][16] __attribute__((aligned(64))) = {
    SAME16(0), SAME16(1), SAME16(2), SAME16(4), SAME16(8), SAME16(16), SAME16(32), SAME16(64)};

HR__INLINE __m256i both(const void *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
}

HR__INLINE __m256i lanes(const void *low, const void *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)),
                                   _mm_loadu_si128(high), 1);
}

/* Returns 0 if a quantiser has more than 8 bits. */
static int prepare(struct constants *c, const uint16_t *quant)
{
    __m128i all = _mm_setzero_si128();
    for (int k = 0; k < 4; k++) {
        __m128i low = _mm_loadu_si128((const void *)(quant + 8 * k));
        __m128i high = _mm_loadu_si128((const void *)(quant + 8 * k + 32));
        __m128i a = _mm_unpacklo_epi16(low, high), b = _mm_unpackhi_epi16(low, high);
        _mm_store_si128((void *)(c->quant + 16 * k), _mm_unpacklo_epi32(a, b));
        _mm_store_si128((void *)(c->quant + 16 * k + 8), _mm_unpackhi_epi32(a, b));
        all = _mm_or_si128(all, _mm_or_si128(low, high));
    }
    return _mm_testz_si128(all, _mm_set1_epi16((short)0xFF00));
}

/* Shifts and narrows 8 vectors of 32 bits to 4 of 16. */
HR__INLINE void narrow(const __m256i in[8], int shift, __m256i out[4])
{
    for (int i = 0; i < 4; i++)
        out[i] = _mm256_packs_epi32(_mm256_srai_epi32(in[2 * i], shift),
                                    _mm256_srai_epi32(in[2 * i + 1], shift));
}

/* Takes every second 32-bit element: the even ones, or the odd ones. */
HR__INLINE __m256i elements(__m256i a, __m256i b, int odd)
{
    __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    return _mm256_castps_si256(odd ? _mm256_shuffle_ps(x, y, 0xDD) : _mm256_shuffle_ps(x, y, 0x88));
}

/* Rearranges the results of four columns, 8 rows, to two input pairs for each row: rows 0..3 and
 * 4..7. */
HR__INLINE void transpose(const __m256i row[8], __m256i upper[2], __m256i lower[2])
{
    __m256i two[4];
    narrow(row, HR__SHIFT_1, two);
    for (int i = 0; i < 2; i++) {
        upper[i] = elements(two[0], two[1], i);
        lower[i] = elements(two[2], two[3], i);
    }
}

/* Stores the results of four rows, 8 columns, as samples of both blocks. */
HR__INLINE void store(const __m256i column[8], uint8_t *out, ptrdiff_t stride)
{
    const __m256i turn = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m256i two[4], four[2];
    narrow(column, HR__SHIFT_2, two);
    for (int i = 0; i < 2; i++) /* each: four columns of one row, then of the next */
        four[i] = _mm256_shuffle_epi8(_mm256_packus_epi16(two[2 * i], two[2 * i + 1]), turn);
    for (int i = 0; i < 2; i++, out += 2 * stride) {
        __m256i rows =
            i ? _mm256_unpackhi_epi32(four[0], four[1]) : _mm256_unpacklo_epi32(four[0], four[1]);
        rows = _mm256_permute4x64_epi64(rows, 0xD8);
        _mm_storeu_si128((void *)out, _mm256_castsi256_si128(rows));
        _mm_storeu_si128((void *)(out + stride), _mm256_extracti128_si256(rows, 1));
    }
}

/* Converts codes in zigzag order to quantised coefficients of both blocks, by slot. */
HR__INLINE void decode(const struct hr__staged s[2], __m256i out[4])
{
    __m256i value[4];
    for (int j = 0; j < 4; j++) {
        __m256i code = lanes(s[0].value + 16 * j, s[1].value + 16 * j);
        __m256i half =
            j ? lanes(halves[s[0].w2], halves[s[1].w2]) : lanes(halves[s[0].w1], halves[s[1].w1]);
        __m256i less = _mm256_add_epi8(code, _mm256_set1_epi8(-1)); /* 255 at empty positions */
        value[j] = _mm256_sub_epi8(_mm256_subs_epu8(code, half), _mm256_subs_epu8(half, less));
    }
    for (int k = 0; k < 4; k++) {
        out[k] = _mm256_shuffle_epi8(value[0], both(picks[k][0]));
        for (int j = 1; j < 4; j++)
            out[k] = _mm256_or_si256(out[k], _mm256_shuffle_epi8(value[j], both(picks[k][j])));
    }
}

HR__INLINE void inverse_dct(const struct hr__staged s[2], const void *constants, uint8_t *out,
                            ptrdiff_t stride)
{
    const struct constants *c = constants;
    static const int16_t none[64] __attribute__((aligned(32)));
    __m256i value[4], pairs[4], results[8], upper[4], lower[4];
    __m256i round =
        _mm256_add_epi32(_mm256_set1_epi32(HR__ROUND_1),
                         _mm256_set_m128i(_mm_cvtsi32_si128(s[1].dc), _mm_cvtsi32_si128(s[0].dc)));
    int patched = s[0].patched | s[1].patched;
    const int16_t *extra[2] = {s[0].patched ? s[0].extra : none, s[1].patched ? s[1].extra : none};
    decode(s, value);
    for (int h = 0; h < 2; h++) {
        for (int k = 0; k < 4; k++) {
            int at = 16 * k + 8 * h;
            pairs[k] = h ? _mm256_unpackhi_epi8(value[k], value[k])
                         : _mm256_unpacklo_epi8(value[k], value[k]);
            pairs[k] = _mm256_maddubs_epi16(both(c->quant + at), pairs[k]);
            if (patched)
                pairs[k] = _mm256_add_epi16(pairs[k], lanes(extra[0] + at, extra[1] + at));
        }
        hr__block_transform(pairs, h ? _mm256_set1_epi32(HR__ROUND_1) : round, results);
        transpose(results, upper + 2 * h, lower + 2 * h);
    }
    hr__block_transform(upper, _mm256_set1_epi32(HR__ROUND_2), results);
    store(results, out, stride);
    hr__block_transform(lower, _mm256_set1_epi32(HR__ROUND_2), results);
    store(results, out + 4 * stride, stride);
}

HR__INLINE void transform_pairs(const struct hr__staged *s, int pairs, const void *constants,
                                const struct hr__block_run *run, uint8_t *out)
{
    for (int j = 0; j < pairs; j++)
        inverse_dct(s + 2 * j, constants, out + 16 * j, run->stride);
}

static int unpack(const struct hr__block_run *run)
{
    struct constants c;
    if (!prepare(&c, run->quant))
        return hr__block_kernels_portable.unpack(run);
    return hr__block_unpack(run, &c, (struct hr__block_steps){stage, transform_pairs});
}

const struct hr__block_kernels hr__block_kernels_avx2 = {unpack};
