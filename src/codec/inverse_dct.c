/*
 * The inverse DCT in plain C, the reference for all other versions. Arithmetic wraps on overflow,
 * because blocks are untrusted.
 */
#include "codec/inverse_dct.h"

#include <string.h>

/* 2^13 x cosines and their sums */
#define F_0_298 2446
#define F_0_390 3196
#define F_0_541 4433
#define F_0_765 6270
#define F_0_899 7373
#define F_1_175 9633
#define F_1_501 12299
#define F_1_847 15137
#define F_1_961 16069
#define F_2_053 16819
#define F_2_562 20995
#define F_3_072 25172

static inline int32_t add(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

static inline int32_t sub(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b);
}

static inline int32_t mul(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a * (uint32_t)b);
}

static inline int32_t descale(int32_t v, int bits)
{
    return add(v, 1 << (bits - 1)) >> bits;
}

/* Transforms eight frequencies to eight samples, scaled by 2^13. */
static inline void transform(const int32_t in[8], int32_t out[8])
{
    int32_t z = mul(add(in[2], in[6]), F_0_541);
    int32_t e2 = sub(z, mul(in[6], F_1_847)), e3 = add(z, mul(in[2], F_0_765));
    int32_t e0 = mul(add(in[0], in[4]), 1 << HR__DCT_CONST_BITS);
    int32_t e1 = mul(sub(in[0], in[4]), 1 << HR__DCT_CONST_BITS);
    int32_t even[4] = {add(e0, e3), add(e1, e2), sub(e1, e2), sub(e0, e3)};

    int32_t z3 = add(in[7], in[3]), z4 = add(in[5], in[1]);
    int32_t z5 = mul(add(z3, z4), F_1_175);
    int32_t z1 = mul(add(in[7], in[1]), -F_0_899), z2 = mul(add(in[5], in[3]), -F_2_562);
    z3 = sub(z5, mul(z3, F_1_961));
    z4 = sub(z5, mul(z4, F_0_390));
    int32_t odd[4] = {
        add(add(mul(in[1], F_1_501), z1), z4),
        add(add(mul(in[3], F_3_072), z2), z3),
        add(add(mul(in[5], F_2_053), z2), z4),
        add(add(mul(in[7], F_0_298), z1), z3),
    };
    for (int i = 0; i < 4; i++) {
        out[i] = add(even[i], odd[i]);
        out[7 - i] = sub(even[i], odd[i]);
    }
}

static inline uint8_t sample(int32_t v)
{
    v += 128;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

void hr__inverse_dct_plain(const int16_t coefficient[64], const uint16_t quant[64], uint8_t *out,
                           ptrdiff_t stride)
{
    int32_t between[64], in[8], column[8];
    for (int x = 0; x < 8; x++) {
        for (int y = 0; y < 8; y++)
            in[y] = (int16_t)((unsigned)coefficient[8 * y + x] * quant[8 * y + x]);
        transform(in, column);
        for (int y = 0; y < 8; y++)
            between[8 * y + x] = descale(column[y], HR__DCT_CONST_BITS - HR__DCT_PASS1_BITS);
    }
    for (int y = 0; y < 8; y++, out += stride) {
        transform(between + 8 * y, column);
        for (int x = 0; x < 8; x++)
            out[x] = sample(descale(column[x], HR__DCT_CONST_BITS + HR__DCT_PASS1_BITS + 3));
    }
}

static int transform_one(const struct hr__dct_block *block)
{
    uint16_t quant[64];
    if (!hr__block_is_held(block->limits, block->coefficient))
        return 0;
    /* the quantisers of a held block's coefficients are not capped */
    memcpy(quant, block->limits->quant, sizeof quant);
    hr__inverse_dct(block->coefficient, quant, block->out, block->stride);
    return 1;
}

const struct hr__inverse_dct_group hr__inverse_dct_group_plain = {transform_one, 1};

const struct hr__inverse_dct_group *hr__inverse_dct_group(enum hr__isa isa)
{
#ifdef __x86_64__
    if (isa >= HR__ISA_AVX512)
        return &hr__inverse_dct_group_avx512;
    if (isa >= HR__ISA_AVX2)
        return &hr__inverse_dct_group_avx2;
#endif
    (void)isa;
    return &hr__inverse_dct_group_plain;
}

void hr__block_fill(int dc, uint16_t quant, uint8_t *out, ptrdiff_t stride)
{
    int level = (int16_t)((unsigned)dc * quant);
    int v = ((level + (1 << 2)) >> 3) + 128;
    for (int y = 0; y < 8; y++, out += stride)
        memset(out, v < 0 ? 0 : v > 255 ? 255 : v, 8);
}
