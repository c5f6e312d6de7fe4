/*
 * Blocks of the form `coefficients` to samples, in plain C: the reference for all
 * other versions.
 *
 * The inverse DCT is that of C. Loeffler, A. Ligtenberg and G. Moschytz,
 * "Practical fast 1-D DCT algorithms with 11 multiplications" (ICASSP 1989), in
 * the fixed point of libjpeg's accurate integer method: constants of 13 bits, two
 * more bits kept between the passes, columns first. All sums are exact, so it may
 * be arranged freely; only where it rounds is fixed. Numbers wrap rather than
 * overflow, because blocks may come from anywhere.
 */
#include "base/error.h"
#include "codec/coefficients.h"
#include "codec/zigzag.h"

#include <errno.h>
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

#define CONST_BITS 13
#define PASS1_BITS 2

/* A block as it lies in an item. */
struct block {
    uint64_t map; /* zigzag positions that are not zero */
    int dc;
    unsigned w1, w2; /* bits of a value */
    unsigned n1, n2; /* values of each width */
    unsigned exceptions;
    const uint8_t *values, *extra; /* the stream of bits; the exceptions */
    const uint8_t *next;           /* the block behind it */
};

/* Numbers of bits set in the lower two bytes and in the upper six. */
static inline void count_bits(uint64_t map, unsigned *low, unsigned *high)
{
    uint64_t n = map - (map >> 1 & UINT64_C(0x5555555555555555));
    n = (n & UINT64_C(0x3333333333333333)) + (n >> 2 & UINT64_C(0x3333333333333333));
    n = (n + (n >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    unsigned all = (unsigned)(n * UINT64_C(0x0101010101010101) >> 56);
    *low = (unsigned)((n + (n >> 8)) & 0x1F);
    *high = all - *low;
}

/* Finds the parts of the block at p < end; returns 0 where it ends behind `end`.
 * Reads at most 12 bytes from p on. */
static inline int parse(struct block *b, const uint8_t *p, const uint8_t *end)
{
    uint32_t head;
    memcpy(&head, p, sizeof head);
    unsigned n = head >> 18 & 15;
    b->dc = (int)((head & 0xFFF) ^ 0x800) - 0x800;
    b->w1 = head >> 12 & 7;
    b->w2 = head >> 15 & 7;
    b->exceptions = 0;
    p += 3;
    if (head >> 22 & 1)
        b->exceptions = *p++ & 63;
    if (n > 8)
        return 0;
    memcpy(&b->map, p, sizeof b->map);
    b->map &= (n ? ~UINT64_C(0) >> (64 - 8 * n) : 0) & ~UINT64_C(1);
    count_bits(b->map, &b->n1, &b->n2);
    b->values = p + n;
    b->extra = b->values + (b->n1 * b->w1 + b->n2 * b->w2 + 7) / 8;
    b->next = b->extra + 3 * b->exceptions;
    return b->next <= end;
}

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* One value of w bits, 1..7. */
static inline int value_of(unsigned code, unsigned w)
{
    int v = (int)code - (1 << (w - 1));
    return v + (v >= 0);
}

/* Reads the values of the positions in `map`, w bits each, into natural order. */
static inline unsigned read_values(const struct block *b, uint64_t map, unsigned w, unsigned bit,
                                   int16_t *coefficient)
{
    unsigned mask = (1u << w) - 1;
    if (!w) /* only what exceptions replace */
        return bit;
    for (; map; map &= map - 1, bit += w) {
        unsigned code = (unsigned)(load64(b->values + bit / 8) >> bit % 8) & mask;
        coefficient[hr__zigzag[__builtin_ctzll(map)]] = (int16_t)value_of(code, w);
    }
    return bit;
}

/* The block's coefficients, quantised. `coefficient` is zero before. */
static inline void read_block(const struct block *b, int16_t *coefficient)
{
    coefficient[0] = (int16_t)b->dc;
    unsigned bit = read_values(b, b->map & 0xFFFF, b->w1, 0, coefficient);
    read_values(b, b->map & ~UINT64_C(0xFFFF), b->w2, bit, coefficient);
    for (unsigned i = 0; i < b->exceptions; i++) {
        const uint8_t *e = b->extra + 3 * i;
        coefficient[hr__zigzag[e[0] & 63]] = (int16_t)(e[1] | e[2] << 8);
    }
}

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

/* Eight frequencies to eight samples, scaled by 2^CONST_BITS. */
static inline void transform(const int32_t in[8], int32_t out[8])
{
    int32_t z = mul(add(in[2], in[6]), F_0_541);
    int32_t e2 = sub(z, mul(in[6], F_1_847)), e3 = add(z, mul(in[2], F_0_765));
    int32_t e0 = mul(add(in[0], in[4]), 1 << CONST_BITS);
    int32_t e1 = mul(sub(in[0], in[4]), 1 << CONST_BITS);
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

static void inverse_dct(const int16_t *coefficient, const uint16_t *quant, uint8_t *out,
                        ptrdiff_t stride)
{
    int32_t between[64], in[8], column[8];
    for (int x = 0; x < 8; x++) {
        for (int y = 0; y < 8; y++)
            in[y] = (int16_t)((unsigned)coefficient[8 * y + x] * quant[8 * y + x]);
        transform(in, column);
        for (int y = 0; y < 8; y++)
            between[8 * y + x] = descale(column[y], CONST_BITS - PASS1_BITS);
    }
    for (int y = 0; y < 8; y++, out += stride) {
        transform(between + 8 * y, column);
        for (int x = 0; x < 8; x++)
            out[x] = sample(descale(column[x], CONST_BITS + PASS1_BITS + 3));
    }
}

/* A block of one colour: what the transform makes of a DC coefficient alone. */
static void fill(int dc, uint16_t quant, uint8_t *out, ptrdiff_t stride)
{
    int32_t level = (int16_t)((unsigned)dc * quant);
    uint8_t v = sample(descale(mul(level, 1 << PASS1_BITS), PASS1_BITS + 3));
    for (int y = 0; y < 8; y++, out += stride)
        memset(out, v, 8);
}

static int unpack(const struct hr__block_run *run)
{
    const uint8_t *p = run->data;
    uint8_t *out = run->out;
    struct block b;
    for (uint32_t i = 0; i < run->blocks; i++, out += 8, p = b.next) {
        if (p >= run->end || !parse(&b, p, run->end))
            return -EBADMSG;
        if (!b.map && !b.exceptions) {
            fill(b.dc, run->quant[0], out, run->stride);
            continue;
        }
        int16_t coefficient[64] = {0};
        read_block(&b, coefficient);
        inverse_dct(coefficient, run->quant, out, run->stride);
    }
    return 0;
}

const struct hr__block_kernels hr__block_kernels_portable = {unpack};

int hr__coefficients_row(const struct hr__coefficients *item, int component, uint32_t block_row,
                         int16_t (*blocks)[64], struct hr_error *error)
{
    const uint8_t *p = hr__coefficients_find(item, component, block_row, 0);
    const uint8_t *end = item->data + item->data_bytes;
    struct block b;
    memset(blocks, 0, item->blocks_x[component] * sizeof *blocks);
    for (uint32_t i = 0; i < item->blocks_x[component]; i++, p = b.next) {
        if (!p || p >= end || !parse(&b, p, end))
            return hr__fail(error, -EBADMSG,
                            "damaged item: row %u of component %d leads out of it; make it anew",
                            block_row, component);
        read_block(&b, blocks[i]);
    }
    return 0;
}
