/*
 * Unpacks blocks of the form `coefficients` to samples with AVX-512 (VBMI, VBMI2, VNNI); gives the
 * same samples as coefficients_portable.c. A vector holds two blocks, and two such pairs alternate
 * step by step, because each has to wait for its results. coefficients_vector.h explains the order
 * of coefficients.
 *
 * Staging of version 1: values of one width are w bits apart, so each group of eight begins w bytes
 * after the previous one. One byte permutation and one multishift extract 64 of them. Values of the
 * second width are extracted as if all values before them had that width too. So both kinds end up
 * at their index and can be blended. An expansion by the map moves them to their zigzag positions.
 *
 * Version 2: see cut_group_values.
 *
 * Between the passes of the transform values are truncated to 16 bits, which changes none that the
 * packer accepts.
 */
#include <immintrin.h>

typedef __m512i ints;
#define V(op) _mm512_##op
/* One instruction multiplies and adds. */
#define DOT(sum, pairs, n) _mm512_dpwssd_epi32(sum, pairs, _mm512_set1_epi32(hr__block_factor(n)))
#define DOT_IS_PRODUCT

#include "codec/coefficients_vector.h"

#define EIGHT(f, w, i)                                                                             \
    f(w, i), f(w, i + 1), f(w, i + 2), f(w, i + 3), f(w, i + 4), f(w, i + 5), f(w, i + 6),         \
        f(w, i + 7)
#define ROW64(f, w)                                                                                \
    {                                                                                              \
        EIGHT(f, w, 0), EIGHT(f, w, 8), EIGHT(f, w, 16), EIGHT(f, w, 24), EIGHT(f, w, 32),         \
            EIGHT(f, w, 40), EIGHT(f, w, 48), EIGHT(f, w, 56)                                      \
    }
#define GATHER(w, i) ((i) / 8 * (w) + (i) % 8)
#define SHIFT(w, i)  ((i) % 8 * (w))
#define MASK(w, i)   ((1 << (w)) - 1)
#define HALF(w, i)   (1 << (w) >> 1)
#define WIDTH(w)                                                                                   \
    {                                                                                              \
        ROW64(GATHER, w), ROW64(SHIFT, w), ROW64(MASK, w), ROW64(HALF, w)                          \
    }

/* How to extract values of each width. */
static const struct {
    uint8_t gather[64]; /* for each byte: the stream's byte to load */
    uint8_t shift[64];  /* bit of the quadword at which each value begins */
    uint8_t mask[64];
    uint8_t half[64]; /* code of the smallest positive value */
} widths[8] __attribute__((aligned(64))) = {
    WIDTH(0), WIDTH(1), WIDTH(2), WIDTH(3), WIDTH(4), WIDTH(5), WIDTH(6), WIDTH(7),
};

static const uint8_t slot_positions[64]
    __attribute__((aligned(64))) = {HR__SLOTS_0, HR__SLOTS_1, HR__SLOTS_2, HR__SLOTS_3};

/* For each sample of 4 rows of both blocks: its byte in two vectors; see store(). */
#define COLUMN(x)    (((x)&4) << 4 | ((x)&3) << 2)
#define SAMPLE(y, i) (COLUMN(i) | (y) | ((i)&8) << 1)
#define ROW16(y)     EIGHT(SAMPLE, y, 0), EIGHT(SAMPLE, y, 8)
static const uint8_t sample_order[64]
    __attribute__((aligned(64))) = {ROW16(0), ROW16(1), ROW16(2), ROW16(3)};

/* Constants for a run of blocks. */
struct avx512_constants {
    __m512i order[4]; /* byte positions of both blocks' values, for rows r and r + 4 */
    __m512i quant[4]; /* for both blocks */
    uint16_t quant_slot[64];
};

/* Returns 0 if a quantiser has more than 8 bits. */
static int prepare(struct avx512_constants *c, const uint16_t *quant)
{
    __m512i large = _mm512_or_si512(_mm512_loadu_si512(quant), _mm512_loadu_si512(quant + 32));
    if (_mm512_cmpgt_epu16_mask(large, _mm512_set1_epi16(255)))
        return 0;
    for (int k = 0; k < 4; k++) {
        __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(quant + 8 * k));
        __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(quant + 8 * k + 32));
        __m128i a = _mm_unpacklo_epi16(low, high), b = _mm_unpackhi_epi16(low, high);
        __m256i q = _mm256_set_m128i(_mm_unpackhi_epi32(a, b), _mm_unpacklo_epi32(a, b));
        _mm256_storeu_si256((__m256i *)(void *)(c->quant_slot + 16 * k), q);
        c->quant[k] = _mm512_broadcast_i64x4(q);
        /* each position twice: the multiplication ignores the odd bytes */
        __m256i at = _mm256_cvtepu8_epi16(
            _mm_load_si128((const __m128i *)(const void *)(slot_positions + 16 * k)));
        c->order[k] = _mm512_inserti64x4(_mm512_castsi256_si512(at),
                                         _mm256_or_si256(at, _mm256_set1_epi16(64)), 1);
    }
    return 1;
}

/* Extracts all values of a block, in the order of the stream. */
HR__INLINE __m512i cut_values(const struct hr__packed_block *b)
{
    __mmask64 first = _bzhi_u64(~UINT64_C(0), b->n1);
    int skip = (int)b->n1 * ((int)b->w1 - (int)b->w2); /* in bits */
    __m512i stream = _mm512_loadu_si512(b->values);
    __m512i gather = _mm512_add_epi8(_mm512_load_si512(widths[b->w2].gather),
                                     _mm512_set1_epi8((char)(skip >> 3)));
    __m512i shift =
        _mm512_add_epi8(_mm512_load_si512(widths[b->w2].shift), _mm512_set1_epi8((char)(skip & 7)));
    __m512i code = _mm512_multishift_epi64_epi8(shift, _mm512_permutexvar_epi8(gather, stream));
    code = _mm512_mask_multishift_epi64_epi8(
        code, first, _mm512_load_si512(widths[b->w1].shift),
        _mm512_permutexvar_epi8(_mm512_load_si512(widths[b->w1].gather), stream));
    __m512i mask =
        _mm512_mask_loadu_epi8(_mm512_load_si512(widths[b->w2].mask), first, widths[b->w1].mask);
    __m512i half =
        _mm512_mask_loadu_epi8(_mm512_load_si512(widths[b->w2].half), first, widths[b->w1].half);
    code = _mm512_and_si512(code, mask);
    __m512i value = _mm512_sub_epi8(code, half);
    return _mm512_mask_sub_epi8(value, _mm512_test_epi8_mask(code, half), value,
                                _mm512_set1_epi8(-1));
}

HR__INLINE void stage(struct hr__staged *s, struct hr__packed_block *b, const void *constants)
{
    const struct avx512_constants *c = constants;
    __m512i value = _mm512_maskz_expand_epi8(b->map, cut_values(b));
    s->patched = b->exceptions > 0;
    if (b->exceptions)
        value = _mm512_maskz_mov_epi8(~hr__block_patch(s, b, c->quant_slot), value);
    _mm512_store_si512(s->value, value);
    s->dc = hr__block_level(b->dc, c->quant_slot[0]);
}

/* Each byte: number of its quadword's lowest byte in the 128-bit lane; number in the quadword. */
#define QUADWORD(v, i) ((i)&8)
#define WITHIN(v, i)   ((i)&7)
/* For the 8 bytes of quadword k: the lowest bytes of all quadwords. */
#define LOWEST(v, i) (8 * ((i)&7))
static const uint8_t quadword[64] __attribute__((aligned(64))) = ROW64(QUADWORD, 0);
static const uint8_t within[64] __attribute__((aligned(64))) = ROW64(WITHIN, 0);
static const uint8_t lowest[64] __attribute__((aligned(64))) = ROW64(LOWEST, 0);

/*
 * Extracts all values of a block of version 2, from `bit` of the stream on, in zigzag order; adds
 * their bits to *bit. Each quadword of 8 positions has at most 56 bits. So once its bytes are
 * loaded from where they begin, one multishift extracts its values, at the sums of the widths
 * before them; a multiplication makes these sums.
 */
HR__INLINE __m512i cut_group_values(const uint8_t *stream, unsigned *bit, uint64_t map,
                                    const uint8_t *width, const uint8_t *mask)
{
    const __mmask64 before = 0x7F3F1F0F070301FF; /* quadwords before each; for the first: all */
    const __m512i one = _mm512_load_si512(quadword), zero = _mm512_setzero_si512();
    __m512i each = _mm512_maskz_loadu_epi8(map, width);
    __m512i low = _mm512_maskz_loadu_epi8(map, mask);
    __m512i total = _mm512_sad_epu8(each, zero);
    __m512i sums = _mm512_sad_epu8(
        _mm512_maskz_permutexvar_epi8(before, _mm512_load_si512(lowest), total), zero);
    __m512i start = _mm512_set1_epi64(*bit & 7);
    __m512i bytes = _mm512_loadu_si512(stream + *bit / 8);
    start = _mm512_mask_add_epi64(start, 0xFE, start, sums);
    *bit += (unsigned)_mm_cvtsi128_si32(_mm512_castsi512_si128(sums));
    __m512i from = _mm512_add_epi8(_mm512_shuffle_epi8(_mm512_srli_epi64(start, 3), one),
                                   _mm512_load_si512(within));
    __m512i shift = _mm512_and_si512(_mm512_shuffle_epi8(start, one), _mm512_set1_epi8(7));
    shift = _mm512_add_epi8(shift, _mm512_mullo_epi64(each, _mm512_set1_epi64(0x0101010101010100)));
    __m512i code = _mm512_and_si512(
        _mm512_multishift_epi64_epi8(shift, _mm512_permutexvar_epi8(from, bytes)), low);
    __m512i half = _mm512_avg_epu8(low, zero);
    return _mm512_sub_epi8(_mm512_subs_epu8(code, _mm512_subs_epu8(half, _mm512_set1_epi8(1))),
                           _mm512_subs_epu8(half, code));
}

HR__INLINE unsigned stage_group(struct hr__staged s[HR__GROUP_BLOCKS],
                                const struct hr__packed_group *g,
                                const struct hr__block_profiles *profiles)
{
    unsigned bit = g->bit;
    for (int i = 0; i < HR__GROUP_BLOCKS; i++)
        _mm512_store_si512(s[i].value, cut_group_values(g->stream, &bit, g->map[i],
                                                        profiles->width[g->profile[i]],
                                                        profiles->mask[g->profile[i]]));
    return bit;
}

/*
 * Rearranges the results of the columns, 8 rows, to the input pairs of the rows. Each lane then has
 * rows of half a block: the upper halves of the first and the second block, then the lower halves.
 */
HR__INLINE void transpose(const __m512i row[8], __m512i pairs[4])
{
    /* Extracts bits 11..26 of both elements of a quadword, into each half of it. */
    const __m512i cut = _mm512_set1_epi64(0x332B130B332B130B);
    __m512i two[4];
    for (int i = 0; i < 4; i++)
        two[i] = _mm512_mask_multishift_epi64_epi8(_mm512_multishift_epi64_epi8(cut, row[2 * i]),
                                                   0xF0F0F0F0F0F0F0F0, cut, row[2 * i + 1]);
    __m512i a = _mm512_unpacklo_epi64(two[0], two[1]), b = _mm512_unpacklo_epi64(two[2], two[3]);
    __m512i c = _mm512_unpackhi_epi64(two[0], two[1]), d = _mm512_unpackhi_epi64(two[2], two[3]);
    pairs[0] = _mm512_shuffle_i64x2(a, b, 0x88);
    pairs[1] = _mm512_shuffle_i64x2(c, d, 0x88);
    pairs[2] = _mm512_shuffle_i64x2(a, b, 0xDD);
    pairs[3] = _mm512_shuffle_i64x2(c, d, 0xDD);
}

/* Stores the results of the rows, 8 columns, as 8 rows of both blocks' samples. */
HR__INLINE void store(const __m512i column[8], uint8_t *out, ptrdiff_t stride)
{
    const __m512i order = _mm512_load_si512(sample_order);
    __m512i v[8], four[2];
    for (int i = 0; i < 8; i++)
        v[i] = _mm512_srai_epi32(column[i], HR__SHIFT_2);
    /* each lane: 4 columns of 4 rows */
    for (int i = 0; i < 2; i++)
        four[i] = _mm512_packus_epi16(_mm512_packs_epi32(v[4 * i], v[4 * i + 1]),
                                      _mm512_packs_epi32(v[4 * i + 2], v[4 * i + 3]));
    __m512i upper = _mm512_permutex2var_epi8(four[0], order, four[1]);
    __m512i lower =
        _mm512_permutex2var_epi8(four[0], _mm512_or_si512(order, _mm512_set1_epi8(32)), four[1]);
    for (int i = 0; i < 2; i++, out += 4 * stride) {
        __m512i rows = i ? lower : upper;
        _mm_storeu_si128((__m128i *)(void *)out, _mm512_castsi512_si128(rows));
        _mm_storeu_si128((__m128i *)(void *)(out + stride), _mm512_extracti32x4_epi32(rows, 1));
        _mm_storeu_si128((__m128i *)(void *)(out + 2 * stride), _mm512_extracti32x4_epi32(rows, 2));
        _mm_storeu_si128((__m128i *)(void *)(out + 3 * stride), _mm512_extracti32x4_epi32(rows, 3));
    }
}

HR__INLINE void load_pairs(const struct hr__staged s[2], const struct avx512_constants *c,
                           __m512i pairs[4], __m512i *rounding)
{
    __m512i first = _mm512_load_si512(s[0].value), second = _mm512_load_si512(s[1].value);
    for (int k = 0; k < 4; k++)
        pairs[k] =
            _mm512_maddubs_epi16(c->quant[k], _mm512_permutex2var_epi8(first, c->order[k], second));
    for (int i = 0; i < 2; i++)
        for (int k = 0; s[i].patched && k < 4; k++) {
            __m512i extra = _mm512_castsi256_si512(
                _mm256_load_si256((const __m256i *)(const void *)(s[i].extra + 16 * k)));
            pairs[k] = _mm512_add_epi16(
                pairs[k],
                i ? _mm512_inserti64x4(_mm512_setzero_si512(), _mm512_castsi512_si256(extra), 1)
                  : _mm512_inserti64x4(extra, _mm256_setzero_si256(), 1));
        }
    __m512i round = _mm512_set1_epi32(HR__ROUND_1);
    round = _mm512_mask_add_epi32(round, 0x0001, round, _mm512_set1_epi32(s[0].dc));
    round = _mm512_mask_add_epi32(round, 0x0100, round, _mm512_set1_epi32(s[1].dc));
    *rounding = round;
}

HR__INLINE void inverse_dct(const struct hr__staged *s, int count, const void *constants,
                            const struct hr__block_run *run, uint8_t *out)
{
    __m512i pairs[2][4], results[2][8], round[2];
    /* Alternate between the pairs: one waits for results while the other proceeds. */
    for (int j = 0; j < count; j++)
        load_pairs(s + 2 * j, constants, pairs[j], &round[j]);
    for (int j = 0; j < count; j++)
        hr__block_transform(pairs[j], round[j], results[j]);
    for (int j = 0; j < count; j++)
        transpose(results[j], pairs[j]);
    for (int j = 0; j < count; j++)
        hr__block_transform(pairs[j], _mm512_set1_epi32(HR__ROUND_2), results[j]);
    for (int j = 0; j < count; j++)
        store(results[j], out + 16 * j, run->stride);
}

HR__INLINE void transform_pairs(const struct hr__staged *s, int pairs, const void *constants,
                                const struct hr__block_run *run, uint8_t *out)
{
    if (pairs == 2)
        inverse_dct(s, 2, constants, run, out);
    else
        inverse_dct(s, 1, constants, run, out);
}

static int unpack(const struct hr__block_run *run)
{
    struct avx512_constants c;
    if (!prepare(&c, run->quant))
        return hr__block_kernels_portable.unpack(run);
    const struct hr__block_steps steps = {stage, stage_group, transform_pairs};
    return run->profiles ? hr__groups_unpack_with(run, &c, c.quant_slot, steps)
                         : hr__block_unpack(run, &c, steps);
}

const struct hr__block_kernels hr__block_kernels_avx512 = {unpack};
