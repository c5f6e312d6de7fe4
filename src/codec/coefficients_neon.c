/*
 * Unpacks blocks of the form `coefficients` to samples with NEON; gives the same samples as
 * coefficients_portable.c.
 *
 * NEON multiplies the elements of a vector by one number, and adds the products of its lower or
 * upper half. So the pairs of coefficients_vector.h are in the halves of a vector instead of side
 * by side: of each eight slots, four of row r come first, then four of row r + 4.
 *
 * Between the passes of the transform values are clamped to 16 bits, which changes none that the
 * packer accepts.
 */
#include "base/neon.h"

typedef hr__neon_ints ints;
#define V(op)         hr__neon_##op
#define LOW(v)        vget_low_s16((int16x8_t)(v))
#define FACTORS(n)    vld1q_s16(hr__block_factors[(n) & ~3])
#define ELEMENT(n, i) (2 * ((n)&3) + (i))
#define DOT(sum, pairs, n)                                                                         \
    vmlal_high_laneq_s16(vmlal_laneq_s16(sum, LOW(pairs), FACTORS(n), ELEMENT(n, 0)),              \
                         (int16x8_t)(pairs), FACTORS(n), ELEMENT(n, 1))
#define PRODUCT(pairs, n)                                                                          \
    vmlal_high_laneq_s16(vmull_laneq_s16(LOW(pairs), FACTORS(n), ELEMENT(n, 0)),                   \
                         (int16x8_t)(pairs), FACTORS(n), ELEMENT(n, 1))
/* Slot 2 i + j of eight becomes 4 j + i. */
#define HALVES(slot)       (((slot)&56) | ((slot)&1) << 2 | ((slot)&6) >> 1)
#define HR__SLOT(position) HALVES(hr__slot_of[position])

#include "codec/coefficients_vector.h"

typedef ints eights;
#define Q(op)            hr__neon_##op
#define LOAD_8(p)        hr__neon_load_low(p)
#define LOAD_16(p)       hr__neon_load(p)
#define STORE_16(p, v)   hr__neon_store(p, v)
#define SHIFT_DOWN(v, n) ((ints)vshlq_u16((uint16x8_t)(v), vdupq_n_s16((int16_t)(0 - (int)(n)))))

#include "codec/coefficients_codes.h"

/* Zigzag positions of 16 slots. */
#define IN_HALVES_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                                 \
    {                                                                                              \
        a, c, e, g, b, d, f, h, i, k, m, o, j, l, n, p                                             \
    }
#define IN_HALVES(...) IN_HALVES_(__VA_ARGS__)
static const uint8_t slot_positions[4][16] = {IN_HALVES(HR__SLOTS_0), IN_HALVES(HR__SLOTS_1),
                                              IN_HALVES(HR__SLOTS_2), IN_HALVES(HR__SLOTS_3)};

/* For two rows of samples, their bytes in eight columns of four. */
static const uint8_t sample_order[2][16] = {
    {0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29},
    {2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31},
};

static void prepare(struct constants *c, const uint16_t *quant)
{
    for (int k = 0; k < 4; k++, quant += 8) {
        uint16x8_t low = vld1q_u16(quant), high = vld1q_u16(quant + 32);
        low = vzip1q_u16(low, vextq_u16(low, low, 4)); /* columns 0 4 1 5 2 6 3 7 */
        high = vzip1q_u16(high, vextq_u16(high, high, 4));
        vst1q_u16(c->quant + 16 * k, vcombine_u16(vget_low_u16(low), vget_low_u16(high)));
        vst1q_u16(c->quant + 16 * k + 8, vcombine_u16(vget_high_u16(low), vget_high_u16(high)));
    }
}

/* Converts 16 codes to quantised coefficients. */
HR__INLINE uint8x16_t decode_codes(const struct hr__staged *s, int j)
{
    uint8x16_t code = vld1q_u8(s->value + 16 * j);
    uint8x16_t half = vdupq_n_u8((uint8_t)(1u << (j ? s->w2 : s->w1) >> 1));
    uint8x16_t less = vsubq_u8(code, vdupq_n_u8(1)); /* 255 at empty positions */
    return vsubq_u8(vqsubq_u8(code, half), vqsubq_u8(half, less));
}

/* The same for version 2. */
HR__INLINE uint8x16_t decode_group_codes(const struct hr__staged *s, int j)
{
    uint8x16_t code = vld1q_u8(s->value + 16 * j), mask = vld1q_u8(s->mask + 16 * j);
    uint8x16_t half = vrhaddq_u8(mask, vdupq_n_u8(0)); /* 2^(w-1) */
    uint8x16_t less = vqsubq_u8(half, vdupq_n_u8(1));
    return vsubq_u8(vqsubq_u8(code, less), vqsubq_u8(half, code));
}

/* Converts codes in zigzag order to quantised coefficients, by slot. */
HR__INLINE void decode(const struct hr__staged *s, int groups, int8x16_t out[4])
{
    uint8x16x4_t value;
    for (int j = 0; j < 4; j++)
        value.val[j] = groups ? decode_group_codes(s, j) : decode_codes(s, j);
    for (int k = 0; k < 4; k++)
        out[k] = vreinterpretq_s8_u8(vqtbl4q_u8(value, vld1q_u8(slot_positions[k])));
}

/* Rearranges the results of four columns, rows 0..3 or 4..7, to two input pairs for each row. */
HR__INLINE void transpose(const ints row[4], ints pairs[2])
{
    int16x8_t two[2];
    for (int i = 0; i < 2; i++)
        two[i] =
            vqshrn_high_n_s32(vqshrn_n_s32(row[2 * i], HR__SHIFT_1), row[2 * i + 1], HR__SHIFT_1);
    int16x8_t low = vuzp1q_s16(two[0], two[1]), high = vuzp2q_s16(two[0], two[1]);
    pairs[0] = (ints)vuzp1q_s16(low, high);
    pairs[1] = (ints)vuzp2q_s16(low, high);
}

/* Stores the results of four rows, 8 columns, as samples. */
HR__INLINE void store(const ints column[8], uint8_t *out, ptrdiff_t stride)
{
    int16x8_t two[4];
    uint8x16x2_t four;
    for (int i = 0; i < 4; i++) /* shifted by 16 */
        two[i] = vuzp2q_s16((int16x8_t)column[2 * i], (int16x8_t)column[2 * i + 1]);
    for (int i = 0; i < 2; i++)
        four.val[i] = vqshrun_high_n_s16(vqshrun_n_s16(two[2 * i], HR__SHIFT_2 - 16),
                                         two[2 * i + 1], HR__SHIFT_2 - 16);
    for (int i = 0; i < 2; i++, out += 2 * stride) {
        uint8x16_t rows = vqtbl2q_u8(four, vld1q_u8(sample_order[i]));
        vst1_u8(out, vget_low_u8(rows));
        vst1_u8(out + stride, vget_high_u8(rows));
    }
}

HR__INLINE void inverse_dct(const struct hr__staged *s, const struct constants *c, int groups,
                            uint8_t *out, ptrdiff_t stride)
{
    int8x16_t value[4];
    ints pairs[4], results[8], upper[4], lower[4];
    decode(s, groups, value);
    for (int h = 0; h < 2; h++) {
        ints round = vdupq_n_s32(HR__ROUND_1);
        if (!h)
            round = vsetq_lane_s32(HR__ROUND_1 + s->dc, round, 0);
        for (int k = 0; k < 4; k++) {
            int at = 16 * k + 8 * h;
            int16x8_t wide = h ? vmovl_high_s8(value[k]) : vmovl_s8(vget_low_s8(value[k]));
            wide = vmulq_s16(wide, (int16x8_t)vld1q_u16(c->quant + at));
            if (s->patched)
                wide = vaddq_s16(wide, vld1q_s16(s->extra + at));
            pairs[k] = (ints)wide;
        }
        hr__block_transform(pairs, round, results);
        transpose(results, upper + 2 * h);
        transpose(results + 4, lower + 2 * h);
    }
    hr__block_transform(upper, vdupq_n_s32(HR__ROUND_2), results);
    store(results, out, stride);
    hr__block_transform(lower, vdupq_n_s32(HR__ROUND_2), results);
    store(results, out + 4 * stride, stride);
}

HR__INLINE void transform_pairs(const struct hr__staged *s, int pairs, const void *constants,
                                const struct hr__block_run *run, uint8_t *out)
{
    for (int j = 0; j < 2 * pairs; j++)
        inverse_dct(s + j, constants, run->profiles != NULL, out + 8 * j, run->stride);
}

/* The sums of the widths before each position among eight; the last byte of *all: of all eight. */
HR__INLINE uint8x16_t sum_widths(uint8x16_t widths, uint8x16_t *all)
{
    uint64x2_t sum = vreinterpretq_u64_u8(widths);
    sum = vaddq_u64(sum, vshlq_n_u64(sum, 8)); /* at most 56 each: no carries */
    sum = vaddq_u64(sum, vshlq_n_u64(sum, 16));
    sum = vaddq_u64(sum, vshlq_n_u64(sum, 32));
    *all = vreinterpretq_u8_u64(sum);
    return vsubq_u8(*all, widths);
}

/* Extracts eight codes that begin `from` bits after `bit` of the stream. Reads 16 bytes. */
HR__INLINE uint8x8_t cut_group_codes(const uint8_t *stream, unsigned bit, uint8x8_t from)
{
    from = vadd_u8(from, vdup_n_u8(bit & 7));
    uint8x8_t byte = vshr_n_u8(from, 3), next = vadd_u8(byte, vdup_n_u8(1));
    uint8x16_t two = vcombine_u8(vzip1_u8(byte, next), vzip2_u8(byte, next));
    uint16x8_t codes = vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(stream + bit / 8), two));
    int8x8_t down = vneg_s8(vreinterpret_s8_u8(vand_u8(from, vdup_n_u8(7))));
    return vmovn_u16(vshlq_u16(codes, vmovl_s8(down)));
}

/* Stages 16 positions, of which `map` has those with values. Returns where their codes end. */
HR__INLINE unsigned stage_codes(struct hr__staged *s, int k, const uint8_t *stream, unsigned bit,
                                unsigned map, const uint8_t *mask)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t of = vcombine_u8(vdup_n_u8(map & 255), vdup_n_u8(map >> 8 & 255));
    uint8x16_t low = vandq_u8(vtstq_u8(of, vld1q_u8(bits)), vld1q_u8(mask + k)), all;
    uint8x16_t from = sum_widths(vcntq_u8(low), &all);
    uint8x8_t first = cut_group_codes(stream, bit, vget_low_u8(from));
    bit += vgetq_lane_u8(all, 7);
    uint8x8_t second = cut_group_codes(stream, bit, vget_high_u8(from));
    vst1q_u8(s->mask + k, low);
    vst1q_u8(s->value + k, vandq_u8(vcombine_u8(first, second), low));
    return bit + vgetq_lane_u8(all, 15);
}

HR__INLINE unsigned stage_group(struct hr__staged s[HR__GROUP_BLOCKS],
                                const struct hr__packed_group *g,
                                const struct hr__block_profiles *profiles)
{
    unsigned bit = g->bit;
    for (int i = 0; i < HR__GROUP_BLOCKS; i++)
        for (int k = 0; k < 64; k += 16)
            bit = stage_codes(&s[i], k, g->stream, bit, g->map[i] >> k & 0xFFFF,
                              profiles->mask[g->profile[i]]);
    return bit;
}

static int unpack(const struct hr__block_run *run)
{
    struct constants c;
    prepare(&c, run->quant);
    const struct hr__block_steps steps = {stage, stage_group, transform_pairs};
    return run->profiles ? hr__groups_unpack_with(run, &c, c.quant, steps)
                         : hr__block_unpack(run, &c, steps);
}

const struct hr__block_kernels hr__block_kernels_neon = {unpack};
