/*
 * The fused pass for AVX-512 with VBMI and VNNI; the whole file is compiled for them.
 *
 * Horizontally it computes 16 outputs at a time. One byte permutation of a window of up to 64 bytes
 * selects four neighbouring taps of each output. Two dot products of bytes multiply them with the
 * high parts and the low 7 bits of the weights. The next four taps use the same permutation four
 * bytes further on. If 16 outputs are too far apart for that, the AVX2 loops process the row.
 */
#include "recipe/fused_kernels.h"
#include "recipe/tap_weights.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- the operations of fused_vector.h ---- */

#define LANES    16
#define V(op)    _mm512_##op
#define INTS(op) _mm512_##op##_si512

typedef __m512 reals;
typedef __m512i ints;

INLINE void put(void *out, ints v, int stream)
{
    if (stream)
        _mm512_stream_si512(out, v);
    else
        _mm512_storeu_si512(out, v);
}

INLINE void put_half(void *out, ints v)
{
    _mm256_storeu_si256(out, _mm512_castsi512_si256(v));
}

INLINE void put_few(void *out, ints v, size_t bytes)
{
    _mm512_mask_storeu_epi8(out, ~(__mmask64)0 >> (64 - bytes), v);
}

INLINE reals load_few(const float *in, size_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), in);
}

INLINE reals load_bytes(const uint8_t *in)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)in)));
}

/* Packing works within quarters, so the groups of four have to be reordered. */
INLINE ints pack_bytes(ints a, ints b, ints c, ints d)
{
    ints order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    ints all = _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    return _mm512_permutexvar_epi32(order, all);
}

INLINE ints both_halves(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

INLINE ints pack_words(ints a, ints b)
{
    return both_halves(_mm512_cvtepi32_epi16(a), _mm512_cvtepi32_epi16(b));
}

INLINE ints pack_float16(reals a, reals b)
{
    return both_halves(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT),
                       _mm512_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT));
}

INLINE ints select_nan(reals v, ints number, ints nan)
{
    return _mm512_mask_mov_epi32(number, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
}

#include "recipe/fused_vector.h"

/* ---- the horizontal filter ---- */

/* Most quads of taps in the loop's records. */
#define MAX_QUADS 12

/* A record in the table, for 16 outputs. After it, for every quad of taps, follow the high parts,
 * int8 [16][4], and the low ones, uint8 [16][4]. */
struct avx512_group {
    int32_t base[MAX_QUADS]; /* columns where the windows of the quads begin */
    uint8_t pad[16];
    uint8_t index[64];
};

_Static_assert(sizeof(struct avx512_group) == 128, "weights follow the record aligned");

INLINE size_t group_bytes(int quads)
{
    return sizeof(struct avx512_group) + (size_t)quads * 128;
}

INLINE __m512i load_window(const uint8_t *at, int bytes)
{
    if (bytes == 32)
        return _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)at));
    return _mm512_loadu_si512(at);
}

/* Sums 16 outputs of one channel. */
INLINE __m512i sum_group(const uint8_t *row, const struct avx512_group *g, int quads, int window)
{
    const __m512i *weight = (const __m512i *)(const void *)(g + 1);
    __m512i index = _mm512_load_si512(g->index);
    __m512i high = _mm512_setzero_si512(), low = high;
    if (quads <= 2) {
        __m512i v[2];
        for (int k = 0; k < quads; k++) {
            v[k] = _mm512_permutexvar_epi8(index, load_window(row + g->base[k], window));
            high = _mm512_dpbusd_epi32(high, v[k], weight[2 * k]);
        }
        high = _mm512_slli_epi32(high, 7);
        for (int k = 0; k < quads; k++)
            high = _mm512_dpbusd_epi32(high, v[k], weight[2 * k + 1]);
        return high;
    }
    for (int k = 0; k < quads; k++) {
        __m512i v = _mm512_permutexvar_epi8(index, load_window(row + g->base[k], window));
        high = _mm512_dpbusd_epi32(high, v, weight[2 * k]);
        low = _mm512_dpbusd_epi32(low, v, weight[2 * k + 1]);
    }
    return _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
}

INLINE void near_rows(const struct hr__horizontal *h, const uint8_t *row, float *out, int quads,
                      int window, int clamp)
{
    const uint8_t *table = h->table;
    for (int j = 0; j < h->count; j += 16) {
        const struct avx512_group *g = (const struct avx512_group *)(const void *)table;
        put_sums(h, sum_group(row, g, quads, window), out + j, clamp);
        table += group_bytes(quads);
    }
}

/* Defines one loop for each common number of quads and each window, with and without the clamp. */
#define NEAR(name, quads, window, clamp)                                                           \
    static void name(const struct hr__horizontal *h, const uint8_t *row, float *out)               \
    {                                                                                              \
        near_rows(h, row, out, quads, window, clamp);                                              \
    }
NEAR(near_1_half, 1, 32, 0)
NEAR(near_1, 1, 64, 0)
NEAR(near_2_half, 2, 32, 0)
NEAR(near_2, 2, 64, 0)
NEAR(near_3, 3, 64, 0)
NEAR(near_any, (h->taps + 3) / 4, 64, 0)
NEAR(near_1_clamp, 1, 64, 1)
NEAR(near_2_clamp, 2, 64, 1)
NEAR(near_3_clamp, 3, 64, 1)
NEAR(near_any_clamp, (h->taps + 3) / 4, 64, 1)

static hr__horizontal_fn choose(const struct hr__horizontal *h, int quads, int spread)
{
    static const hr__horizontal_fn plain[] = {near_1, near_2, near_3},
                                   clamped[] = {near_1_clamp, near_2_clamp, near_3_clamp};
    int half = spread <= 32 - 4;
    if (h->ceiling)
        return quads <= 3 ? clamped[quads - 1] : near_any_clamp;
    if (half && quads <= 2)
        return quads == 1 ? near_1_half : near_2_half;
    return quads <= 3 ? plain[quads - 1] : near_any;
}

/* Splits the weights of four taps of 16 outputs, from j on, into the two parts. */
static void split_weights(const struct hr__horizontal *h, int j, int quad, uint8_t *out)
{
    int16_t weight[16][4];
    for (int o = 0; o < 16; o++)
        memcpy(weight[o], h->weight + (ptrdiff_t)(j + o) * h->pitch + 4 * quad, sizeof weight[o]);
    __m512i first = _mm512_loadu_si512(weight), last = _mm512_loadu_si512(weight + 8);
    __m512i seven = _mm512_set1_epi16(127);
    __m256i high[2] = {_mm512_cvtepi16_epi8(_mm512_srai_epi16(first, 7)),
                       _mm512_cvtepi16_epi8(_mm512_srai_epi16(last, 7))};
    __m256i low[2] = {_mm512_cvtepi16_epi8(_mm512_and_si512(first, seven)),
                      _mm512_cvtepi16_epi8(_mm512_and_si512(last, seven))};
    memcpy(out, high, 64);
    memcpy(out + 64, low, 64);
}

static void prepare_near(struct hr__horizontal *h, int spread)
{
    int quads = (h->taps + 3) / 4;
    uint8_t *table = h->table;
    for (int j = 0; j < h->count; j += 16) {
        struct avx512_group *g = (struct avx512_group *)(void *)table;
        const int32_t *begin = h->begin + j;
        /* Positions ascend, or descend if flipped. */
        int base = begin[0] < begin[15] ? begin[0] : begin[15];
        __m512i apart = _mm512_sub_epi32(_mm512_loadu_si512(begin), _mm512_set1_epi32(base));
        __m512i index = _mm512_mullo_epi32(apart, _mm512_set1_epi32(0x01010101));
        _mm512_store_si512(g->index, _mm512_add_epi32(index, _mm512_set1_epi32(0x03020100)));
        for (int k = 0; k < quads; k++) {
            /* A window that would begin beyond the last column has only zero weights. */
            g->base[k] = base + 4 * k < h->width ? base + 4 * k : h->width - 1;
            split_weights(h, j, k, table + sizeof *g + (size_t)k * 128);
        }
        table += group_bytes(quads);
    }
    h->run = choose(h, quads, spread);
}

static void prepare(struct hr__horizontal *h)
{
    int spread = 0;
    for (int j = 0; j < h->count; j += 16) {
        int apart = h->begin[j + 15] - h->begin[j];
        apart = apart < 0 ? -apart : apart;
        spread = apart > spread ? apart : spread;
    }
    if (spread <= 64 - 4 && h->taps <= 4 * MAX_QUADS)
        prepare_near(h, spread);
    else
        hr__fused_avx2.prepare(h);
}

/* ---- interleaving ---- */

/* The source of byte `at` of 192 interleaved bytes, for elements of `e` bytes: 0..63 in the first
 * channel, from 64 on in the second, from 128 on in the third. */
#define FROM(e, at)   ((at) % (3 * (e)) / (e)*64 + (at) / (3 * (e)) * (e) + (at) % (e))
#define FROM4(e, at)  FROM(e, at), FROM(e, (at) + 1), FROM(e, (at) + 2), FROM(e, (at) + 3)
#define FROM16(e, at) FROM4(e, at), FROM4(e, (at) + 4), FROM4(e, (at) + 8), FROM4(e, (at) + 12)
#define FROM64(e, at)                                                                              \
    {                                                                                              \
        FROM16(e, at), FROM16(e, (at) + 16), FROM16(e, (at) + 32), FROM16(e, (at) + 48)            \
    }
#define FROM192(e)                                                                                 \
    {                                                                                              \
        FROM64(e, 0), FROM64(e, 64), FROM64(e, 128)                                                \
    }

static const _Alignas(64) uint8_t interleave_1[3][64] = FROM192(1);
static const _Alignas(64) uint8_t interleave_2[3][64] = FROM192(2);
static const _Alignas(64) uint8_t interleave_4[3][64] = FROM192(4);

static void interleave(const void *const in[3], size_t n, size_t element_bytes, int stream,
                       void *out)
{
    const uint8_t(*from)[64] = element_bytes == 1   ? interleave_1
                               : element_bytes == 2 ? interleave_2
                                                    : interleave_4;
    size_t bytes = n * element_bytes;
    uint8_t *to = out;
    for (size_t at = 0; at < bytes; at += 64, to += 192) {
        size_t left = bytes - at < 64 ? bytes - at : 64;
        __mmask64 mask = left < 64 ? ((__mmask64)1 << left) - 1 : ~(__mmask64)0;
        __m512i a = _mm512_maskz_loadu_epi8(mask, (const uint8_t *)in[0] + at);
        __m512i b = _mm512_maskz_loadu_epi8(mask, (const uint8_t *)in[1] + at);
        __m512i c = _mm512_maskz_loadu_epi8(mask, (const uint8_t *)in[2] + at);
        for (size_t k = 0; k < 3; k++) {
            __m512i index = _mm512_load_si512(from[k]);
            __m512i mixed = _mm512_permutex2var_epi8(a, index, b);
            mixed = _mm512_mask_permutexvar_epi8(mixed, _mm512_movepi8_mask(index), index, c);
            size_t done = 64 * k, whole = 3 * left;
            if (done + 64 <= whole) {
                put(to + done, mixed, stream);
            } else if (done < whole) {
                _mm512_mask_storeu_epi8(to + done, ((__mmask64)1 << (whole - done)) - 1, mixed);
            }
        }
    }
}

const struct hr__fused_kernels hr__fused_avx512 = {
    .weigh = weigh,
    .prepare = prepare,
    .vertical = vertical,
    .cast = cast,
    .interleave = interleave,
    .copy = copy,
};
