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

/* Converts codes in zigzag order to quantised coefficients, by slot. */
HR__INLINE void decode(const struct hr__staged *s, int8x16_t out[4])
{
    uint8x16x4_t value;
    for (int j = 0; j < 4; j++) {
        uint8x16_t code = vld1q_u8(s->value + 16 * j);
        uint8x16_t half = vdupq_n_u8((uint8_t)(1u << (j ? s->w2 : s->w1) >> 1));
        uint8x16_t less = vsubq_u8(code, vdupq_n_u8(1)); /* 255 at empty positions */
        value.val[j] = vsubq_u8(vqsubq_u8(code, half), vqsubq_u8(half, less));
    }
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

HR__INLINE void inverse_dct(const struct hr__staged *s, const struct constants *c, uint8_t *out,
                            ptrdiff_t stride)
{
    int8x16_t value[4];
    ints pairs[4], results[8], upper[4], lower[4];
    decode(s, value);
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
        inverse_dct(s + j, constants, out + 8 * j, run->stride);
}

static int unpack(const struct hr__block_run *run)
{
    struct constants c;
    prepare(&c, run->quant);
    return hr__block_unpack(run, &c, (struct hr__block_steps){stage, transform_pairs});
}

const struct hr__block_kernels hr__block_kernels_neon = {unpack};
