/*
 * The fused pass for AVX2 and F16C; the whole file is compiled for them.
 *
 * Horizontally it computes 8 outputs at a time. The near loop loads 16 bytes for the first four
 * outputs and 16 for the others. One byte shuffle selects two neighbouring taps of each output and
 * widens them for a multiply-add of pairs. The next two taps use the same shuffle two bytes further
 * on. If four outputs are too far apart for that, the far loop loads the taps of one output after
 * the other and sums across.
 */
#include "recipe/fused_kernels.h"

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

/* ---- the horizontal filter ---- */

/* A record in the near loop's table, for 8 outputs. After it, for every pair of taps, follow the
 * weights, int16 [8][2]. */
struct avx2_group {
    int32_t base[2]; /* columns where the windows of outputs 0..3 and 4..7 begin */
    uint8_t pad[24];
    uint8_t shuffle[32];
};

_Static_assert(sizeof(struct avx2_group) == 64, "weights follow the record aligned");

INLINE size_t group_bytes(int pairs)
{
    return sizeof(struct avx2_group) + (size_t)pairs * 32;
}

/* Four outputs and two taps of each fit into a window if the outputs begin at most this far
 * apart. */
#define NEAR_SPREAD 14

INLINE __m256i load_windows(const uint8_t *low, const uint8_t *high)
{
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)low);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)high);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

INLINE void near_rows(const struct hr__horizontal *h, const uint8_t *row, float *out, int pairs,
                      int clamp)
{
    const uint8_t *table = h->table;
    for (int j = 0; j < h->count; j += 8) {
        const struct avx2_group *g = (const struct avx2_group *)(const void *)table;
        const __m256i *weight = (const __m256i *)(const void *)(table + sizeof *g);
        __m256i shuffle = _mm256_load_si256((const __m256i *)(const void *)g->shuffle);
        const uint8_t *low = row + g->base[0], *high = row + g->base[1];
        __m256i sum = _mm256_shuffle_epi8(load_windows(low, high), shuffle);
        sum = _mm256_madd_epi16(sum, weight[0]);
        for (int k = 1; k < pairs; k++) {
            __m256i v = load_windows(low + 2 * k, high + 2 * k);
            v = _mm256_madd_epi16(_mm256_shuffle_epi8(v, shuffle), weight[k]);
            sum = _mm256_add_epi32(sum, v);
        }
        put_sums(h, sum, out + j, clamp);
        table += group_bytes(pairs);
    }
}

/* Defines one loop for each common number of pairs, with and without the clamp. */
#define NEAR(name, pairs, clamp)                                                                   \
    static void name(const struct hr__horizontal *h, const uint8_t *row, float *out)               \
    {                                                                                              \
        near_rows(h, row, out, pairs, clamp);                                                      \
    }
NEAR(near_1, 1, 0)
NEAR(near_2, 2, 0)
NEAR(near_3, 3, 0)
NEAR(near_4, 4, 0)
NEAR(near_any, (h->taps + 1) / 2, 0)
NEAR(near_2_clamp, 2, 1)
NEAR(near_3_clamp, 3, 1)
NEAR(near_4_clamp, 4, 1)
NEAR(near_any_clamp, (h->taps + 1) / 2, 1)

static void prepare_near(struct hr__horizontal *h)
{
    static const hr__horizontal_fn plain[] = {near_1, near_2, near_3, near_4};
    static const hr__horizontal_fn clamped[] = {near_any_clamp, near_2_clamp, near_3_clamp,
                                                near_4_clamp};
    int pairs = (h->taps + 1) / 2;
    uint8_t *table = h->table;
    for (int j = 0; j < h->count; j += 8) {
        struct avx2_group *g = (struct avx2_group *)(void *)table;
        const int32_t *begin = h->begin + j;
        /* Positions ascend, or descend if flipped. */
        g->base[0] = begin[0] < begin[3] ? begin[0] : begin[3];
        g->base[1] = begin[4] < begin[7] ? begin[4] : begin[7];
        __m256i base = _mm256_set_m128i(_mm_set1_epi32(g->base[1]), _mm_set1_epi32(g->base[0]));
        __m256i apart =
            _mm256_sub_epi32(_mm256_loadu_si256((const __m256i *)(const void *)begin), base);
        /* Bytes for an output: its first tap, zero, its second tap, zero. */
        __m256i shuffle = _mm256_add_epi32(_mm256_mullo_epi32(apart, _mm256_set1_epi32(0x10001)),
                                           _mm256_set1_epi32((int)0x80018000));
        _mm256_store_si256((__m256i *)(void *)g->shuffle, shuffle);
        for (int k = 0; k < pairs; k++) {
            int32_t *weight = (int32_t *)(void *)(table + sizeof *g + (size_t)k * 32);
            for (int o = 0; o < 8; o++)
                memcpy(weight + o, h->weight + (ptrdiff_t)(j + o) * h->pitch + 2 * k, 4);
        }
        table += group_bytes(pairs);
    }
    if (h->ceiling)
        h->run = pairs <= 4 ? clamped[pairs - 1] : near_any_clamp;
    else
        h->run = pairs <= 4 ? plain[pairs - 1] : near_any;
}

/* Sums over the taps of one output, in four partial sums. */
INLINE __m128i far_sum(const uint8_t *at, const int16_t *weight, int chunks)
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

INLINE void far_rows(const struct hr__horizontal *h, const uint8_t *row, float *out, int chunks)
{
    const int16_t *table = (const int16_t *)(const void *)h->table;
    ptrdiff_t pitch = chunks ? 16 * (ptrdiff_t)chunks : 8;
    for (int j = 0; j < h->count; j += 4) {
        __m128i s[4];
        for (int o = 0; o < 4; o++)
            s[o] = far_sum(row + h->begin[j + o], table + (j + o) * pitch, chunks);
        __m128i sum = _mm_hadd_epi32(_mm_hadd_epi32(s[0], s[1]), _mm_hadd_epi32(s[2], s[3]));
        if (h->ceiling) {
            sum = _mm_max_epi32(sum, _mm_setzero_si128());
            sum = _mm_min_epi32(sum, _mm_set1_epi32(h->ceiling));
        }
        _mm_store_ps(out + j, _mm_cvtepi32_ps(sum));
    }
}

static void far_8(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    far_rows(h, row, out, 0);
}

static void far_16(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    far_rows(h, row, out, 1);
}

static void far_32(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    far_rows(h, row, out, 2);
}

static void far_any(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    far_rows(h, row, out, (h->taps + 15) / 16);
}

static void prepare_far(struct hr__horizontal *h)
{
    int16_t *table = (int16_t *)(void *)h->table;
    size_t pitch = h->taps <= 8 ? 8 : (size_t)(h->taps + 15) / 16 * 16;
    memset(table, 0, (size_t)h->padded * pitch * sizeof *table);
    for (int j = 0; j < h->count; j++)
        memcpy(table + (size_t)j * pitch, h->weight + (size_t)j * (size_t)h->pitch,
               (size_t)h->pitch * sizeof *table);
    if (h->taps <= 16)
        h->run = h->taps <= 8 ? far_8 : far_16;
    else
        h->run = h->taps <= 32 ? far_32 : far_any;
}

static void prepare(struct hr__horizontal *h)
{
    int spread = 0;
    for (int j = 0; j < h->count; j += 4) {
        int apart = h->begin[j + 3] - h->begin[j];
        apart = apart < 0 ? -apart : apart;
        spread = apart > spread ? apart : spread;
    }
    if (spread <= NEAR_SPREAD)
        prepare_near(h);
    else
        prepare_far(h);
}

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
    .prepare = prepare,
    .vertical = vertical,
    .cast = cast,
    .interleave = interleave,
    .copy = copy,
};
