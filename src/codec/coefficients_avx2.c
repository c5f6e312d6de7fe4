/*
 * Unpacks blocks of the form `coefficients` to samples with AVX2 and BMI2; gives the same samples
 * as coefficients_portable.c. It processes two blocks at once, one in each 128-bit lane;
 * coefficients_vector.h explains the order of coefficients.
 *
 * The values of a group's blocks have widths of their own. PDEP distributes those of 8 positions
 * over 8 bytes. Where it is slow (base/cpu.h), sums of the widths tell where each code begins, and
 * a shuffle and a multiplication extract it.
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

/* Converts 16 codes of both blocks to quantised coefficients. */
HR__INLINE __m256i decode_codes(const struct hr__staged s[2], int j)
{
    __m256i code = lanes(s[0].value + 16 * j, s[1].value + 16 * j);
    __m256i half =
        j ? lanes(halves[s[0].w2], halves[s[1].w2]) : lanes(halves[s[0].w1], halves[s[1].w1]);
    __m256i less = _mm256_add_epi8(code, _mm256_set1_epi8(-1)); /* 255 at empty positions */
    return _mm256_sub_epi8(_mm256_subs_epu8(code, half), _mm256_subs_epu8(half, less));
}

/* The same for version 2. */
HR__INLINE __m256i decode_group_codes(const struct hr__staged s[2], int j)
{
    __m256i code = lanes(s[0].value + 16 * j, s[1].value + 16 * j);
    __m256i mask = lanes(s[0].mask + 16 * j, s[1].mask + 16 * j);
    __m256i half = _mm256_avg_epu8(mask, _mm256_setzero_si256()); /* 2^(w-1) */
    __m256i less = _mm256_subs_epu8(half, _mm256_set1_epi8(1));
    return _mm256_sub_epi8(_mm256_subs_epu8(code, less), _mm256_subs_epu8(half, code));
}

/* Converts codes in zigzag order to quantised coefficients of both blocks, by slot. */
HR__INLINE void decode(const struct hr__staged s[2], int groups, __m256i out[4])
{
    __m256i value[4];
    for (int j = 0; j < 4; j++)
        value[j] = groups ? decode_group_codes(s, j) : decode_codes(s, j);
    for (int k = 0; k < 4; k++) {
        out[k] = _mm256_shuffle_epi8(value[0], both(picks[k][0]));
        for (int j = 1; j < 4; j++)
            out[k] = _mm256_or_si256(out[k], _mm256_shuffle_epi8(value[j], both(picks[k][j])));
    }
}

HR__INLINE void inverse_dct(const struct hr__staged s[2], const void *constants, int groups,
                            uint8_t *out, ptrdiff_t stride)
{
    const struct constants *c = constants;
    static const int16_t none[64] __attribute__((aligned(32)));
    __m256i value[4], pairs[4], results[8], upper[4], lower[4];
    __m256i round =
        _mm256_add_epi32(_mm256_set1_epi32(HR__ROUND_1),
                         _mm256_set_m128i(_mm_cvtsi32_si128(s[1].dc), _mm_cvtsi32_si128(s[0].dc)));
    int patched = s[0].patched | s[1].patched;
    const int16_t *extra[2] = {s[0].patched ? s[0].extra : none, s[1].patched ? s[1].extra : none};
    decode(s, groups, value);
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
        inverse_dct(s + 2 * j, constants, run->profiles != NULL, out + 16 * j, run->stride);
}

/* The map's byte for each byte of half a block's mask. */
#define EIGHT_OF(v) v, v, v, v, v, v, v, v
static const uint8_t map_bytes[32]
    __attribute__((aligned(32))) = {EIGHT_OF(0), EIGHT_OF(1), EIGHT_OF(2), EIGHT_OF(3)};

/* By bits 0..7: a lane of that number; by shift 0..7: half the factor that moves the byte at that
 * bit of a word to its upper byte. */
static const uint8_t numbers[8][16] __attribute__((aligned(64))) = {
    SAME16(0), SAME16(1), SAME16(2), SAME16(3), SAME16(4), SAME16(5), SAME16(6), SAME16(7)};
static const uint8_t half_factors[16]
    __attribute__((aligned(16))) = {128, 64, 32, 16, 8, 4, 2, 1, 128, 64, 32, 16, 8, 4, 2, 1};

/* Extracts two times eight codes, to 16 bits each with others above them. Codes of the first eight
 * begin `from` (the lower half of its lane) bits after bits[0] of the stream, those of the second
 * after bits[1]. Reads 16 bytes. */
HR__INLINE __m256i cut_group_codes(const uint8_t *stream, const unsigned bits[2], __m256i from)
{
    const __m256i pair = _mm256_set1_epi16(0x0100);
    __m256i bytes = lanes(stream + bits[0] / 8, stream + bits[1] / 8);
    from = _mm256_add_epi8(from, lanes(numbers[bits[0] % 8], numbers[bits[1] % 8]));
    __m256i at = _mm256_and_si256(_mm256_srli_epi16(from, 3), _mm256_set1_epi8(31));
    __m256i words = _mm256_shuffle_epi8(bytes, _mm256_add_epi8(_mm256_unpacklo_epi8(at, at), pair));
    __m256i factor =
        _mm256_shuffle_epi8(both(half_factors), _mm256_and_si256(from, _mm256_set1_epi8(7)));
    factor = _mm256_unpacklo_epi8(factor, _mm256_setzero_si256());
    return _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_add_epi16(words, words), factor), 8);
}

/* Returns the bytes of half a block's positions with values, each 255. */
HR__INLINE __m256i spread_map(uint32_t map)
{
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i chosen = _mm256_shuffle_epi8(_mm256_set1_epi32((int)map),
                                         _mm256_load_si256((const void *)map_bytes));
    return _mm256_cmpeq_epi8(_mm256_and_si256(chosen, bits), bits);
}

HR__INLINE unsigned stage_group(struct hr__staged s[HR__GROUP_BLOCKS],
                                const struct hr__packed_group *g,
                                const struct hr__block_profiles *profiles)
{
    unsigned bit = g->bit;
    for (int i = 0; i < HR__GROUP_BLOCKS; i++) {
        const __m256i *mask = (const void *)profiles->mask[g->profile[i]];
        for (int k = 0; k < 2; k++)
            _mm256_store_si256((void *)(s[i].mask + 32 * k),
                               _mm256_and_si256(spread_map((uint32_t)(g->map[i] >> 32 * k)),
                                                _mm256_load_si256(mask + k)));
        for (int k = 0; k < 64; k += 8) {
            uint64_t eight = hr__group_load(s[i].mask + k);
            uint64_t code = hr__group_load(g->stream + bit / 8) >> bit % 8;
            code = _pdep_u64(code, eight);
            memcpy(s[i].value + k, &code, sizeof code);
            bit += (unsigned)__builtin_popcountll(eight);
        }
    }
    return bit;
}

/* The same for machines with a slow PDEP: half a block, 32 positions, from `bit` of the stream on.
 * Returns where their codes end. */
HR__INLINE unsigned stage_half(struct hr__staged *s, int k, const uint8_t *stream, unsigned bit,
                               uint32_t map, const struct hr__block_profiles *profiles, int profile)
{
    __m256i chosen = spread_map(map);
    __m256i mask =
        _mm256_and_si256(chosen, _mm256_load_si256((const void *)(profiles->mask[profile] + k)));
    __m256i width =
        _mm256_and_si256(chosen, _mm256_load_si256((const void *)(profiles->width[profile] + k)));
    _mm256_store_si256((void *)(s->mask + k), mask);
    unsigned bits[5] = {bit};
    __m256i total = _mm256_sad_epu8(width, _mm256_setzero_si256());
    bits[1] = bits[0] + (unsigned)_mm256_extract_epi32(total, 0);
    bits[2] = bits[1] + (unsigned)_mm256_extract_epi32(total, 2);
    bits[3] = bits[2] + (unsigned)_mm256_extract_epi32(total, 4);
    bits[4] = bits[3] + (unsigned)_mm256_extract_epi32(total, 6);
    /* the sums of the widths before each position among eight: at most 56, so nothing carries */
    __m256i from = _mm256_slli_epi64(width, 8);
    from = _mm256_add_epi64(from, _mm256_slli_epi64(from, 8));
    from = _mm256_add_epi64(from, _mm256_slli_epi64(from, 16));
    from = _mm256_add_epi64(from, _mm256_slli_epi64(from, 32));
    __m256i low = cut_group_codes(stream, bits, _mm256_permute4x64_epi64(from, 0x50));
    __m256i high = cut_group_codes(stream, bits + 2, _mm256_permute4x64_epi64(from, 0xFA));
    __m256i code = _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xD8);
    _mm256_store_si256((void *)(s->value + k), _mm256_and_si256(code, mask));
    return bits[4];
}

HR__INLINE unsigned stage_group_slow_pdep(struct hr__staged s[HR__GROUP_BLOCKS],
                                          const struct hr__packed_group *g,
                                          const struct hr__block_profiles *profiles)
{
    unsigned bit = g->bit;
    for (int i = 0; i < HR__GROUP_BLOCKS; i++)
        for (int k = 0; k < 64; k += 32)
            bit = stage_half(&s[i], k, g->stream, bit, (uint32_t)(g->map[i] >> k), profiles,
                             g->profile[i]);
    return bit;
}

HR__INLINE int unpack_with(const struct hr__block_run *run, const struct hr__block_steps steps)
{
    struct constants c;
    if (!prepare(&c, run->quant))
        return hr__block_kernels_portable.unpack(run);
    return run->profiles ? hr__groups_unpack_with(run, &c, c.quant, steps)
                         : hr__block_unpack(run, &c, steps);
}

static int unpack(const struct hr__block_run *run)
{
    return unpack_with(run, (struct hr__block_steps){stage, stage_group, transform_pairs});
}

static int unpack_slow_pdep(const struct hr__block_run *run)
{
    return unpack_with(run,
                       (struct hr__block_steps){stage, stage_group_slow_pdep, transform_pairs});
}

const struct hr__block_kernels hr__block_kernels_avx2 = {unpack};
const struct hr__block_kernels hr__block_kernels_avx2_slow_pdep = {unpack_slow_pdep};
