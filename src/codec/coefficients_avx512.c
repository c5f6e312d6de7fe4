/*
 * Blocks of the form `coefficients` to samples with AVX-512 (VBMI, VBMI2, VNNI):
 * the same samples as coefficients_portable.c, which explains the transform.
 *
 * Unpacking: the values of one width lie w bits apart, so the eight of a quadword
 * begin at byte w of the one before; one byte permutation and one multishift
 * cut out 64 of them. Expansion by the map puts them at their zigzag positions,
 * a second permutation into rows.
 *
 * Transform: four blocks side by side, one 128-bit lane each. The odd and even
 * parts are written as sums of products of two, which VPDPWSSD adds up; all sums
 * are exact, so this arrangement rounds as any other. Between the passes values
 * are cut to 16 bits, which changes none that the packer lets through.
 */
#include "codec/coefficients.h"
#include "codec/zigzag.h"

#include <errno.h>
#include <string.h>

#include <immintrin.h>

#define CONST_BITS 13
#define PASS1_BITS 2

/* Two 16-bit factors, for the even and the odd element of each pair. */
#define PAIR(a, b) _mm512_set1_epi32((int)((uint32_t)(uint16_t)(a) | (uint32_t)(uint16_t)(b) << 16))

/* Constants of the unpacking. */
struct tables {
    uint8_t gather[8][64]; /* by width: byte of the stream for each byte */
    uint8_t shift[8][64];  /* by width: bit of the quadword where each value begins */
    uint8_t order[64];     /* zigzag position of each natural one */
};

#define ROWS64(f, w)                                                                               \
    {                                                                                              \
        f(w, 0), f(w, 1), f(w, 2), f(w, 3), f(w, 4), f(w, 5), f(w, 6), f(w, 7), f(w, 8), f(w, 9),  \
            f(w, 10), f(w, 11), f(w, 12), f(w, 13), f(w, 14), f(w, 15), f(w, 16), f(w, 17),        \
            f(w, 18), f(w, 19), f(w, 20), f(w, 21), f(w, 22), f(w, 23), f(w, 24), f(w, 25),        \
            f(w, 26), f(w, 27), f(w, 28), f(w, 29), f(w, 30), f(w, 31), f(w, 32), f(w, 33),        \
            f(w, 34), f(w, 35), f(w, 36), f(w, 37), f(w, 38), f(w, 39), f(w, 40), f(w, 41),        \
            f(w, 42), f(w, 43), f(w, 44), f(w, 45), f(w, 46), f(w, 47), f(w, 48), f(w, 49),        \
            f(w, 50), f(w, 51), f(w, 52), f(w, 53), f(w, 54), f(w, 55), f(w, 56), f(w, 57),        \
            f(w, 58), f(w, 59), f(w, 60), f(w, 61), f(w, 62), f(w, 63)                             \
    }
#define GATHER(w, i) ((i) / 8 * (w) + (i) % 8)
#define SHIFT(w, i)  ((i) % 8 * (w))

static const struct tables tables __attribute__((aligned(64))) = {
    {ROWS64(GATHER, 0), ROWS64(GATHER, 1), ROWS64(GATHER, 2), ROWS64(GATHER, 3), ROWS64(GATHER, 4),
     ROWS64(GATHER, 5), ROWS64(GATHER, 6), ROWS64(GATHER, 7)},
    {ROWS64(SHIFT, 0), ROWS64(SHIFT, 1), ROWS64(SHIFT, 2), ROWS64(SHIFT, 3), ROWS64(SHIFT, 4),
     ROWS64(SHIFT, 5), ROWS64(SHIFT, 6), ROWS64(SHIFT, 7)},
    {0,  1,  5,  6,  14, 15, 27, 28, 2,  4,  7,  13, 16, 26, 29, 42, 3,  8,  12, 17, 25, 30,
     41, 43, 9,  11, 18, 24, 31, 40, 44, 53, 10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38,
     46, 51, 55, 60, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63},
};

/* A block's coefficients, quantised: rows 0..3 and 4..7. */
struct rows {
    __m512i top, bottom;
};

/* A block as it lies in an item, see coefficients_portable.c. */
struct block {
    const uint8_t *values, *extra, *next;
    uint64_t map;
    unsigned w1, w2, n1, exceptions;
    int dc;
};

static inline int parse(struct block *b, const uint8_t *p, const uint8_t *end)
{
    uint32_t head;
    memcpy(&head, p, sizeof head);
    unsigned n = head >> 18 & 15;
    b->dc = (int)(head << 20) >> 20;
    b->w1 = head >> 12 & 7;
    b->w2 = head >> 15 & 7;
    b->exceptions = head >> 22 & 1 ? p[3] & 63 : 0;
    p += 3 + (head >> 22 & 1);
    memcpy(&b->map, p, sizeof b->map);
    b->map = _bzhi_u64(b->map, 8 * n) & ~UINT64_C(1);
    b->n1 = (unsigned)_mm_popcnt_u64(b->map & 0xFFFF);
    unsigned bits = b->n1 * b->w1 + (unsigned)_mm_popcnt_u64(b->map >> 16) * b->w2;
    b->values = p + n;
    b->extra = b->values + (bits + 7) / 8;
    b->next = b->extra + 3 * b->exceptions;
#ifdef HR__UNCHECKED
    (void)end;
    return 1;
#else
    return b->next <= end && n <= 8;
#endif
}

/* Codes of `width` bits from bit `skip` of the stream on, one a byte. */
static inline __m512i cut(const uint8_t *stream, unsigned skip, unsigned width)
{
    __m512i bytes = _mm512_loadu_si512(stream + skip / 8);
    __m512i gathered = _mm512_permutexvar_epi8(_mm512_load_si512(tables.gather[width]), bytes);
    __m512i shift =
        _mm512_add_epi8(_mm512_load_si512(tables.shift[width]), _mm512_set1_epi8((char)(skip % 8)));
    return _mm512_and_si512(_mm512_multishift_epi64_epi8(shift, gathered),
                            _mm512_set1_epi8((char)((1 << width) - 1)));
}

/* The coefficients that exceptions replace, and there are a few of them only. */
static __attribute__((noinline)) struct rows patch(const struct block *b, struct rows rows)
{
    int16_t coefficient[64] __attribute__((aligned(64)));
    _mm512_store_si512(coefficient, rows.top);
    _mm512_store_si512(coefficient + 32, rows.bottom);
    for (unsigned i = 0; i < b->exceptions; i++) {
        const uint8_t *e = b->extra + 3 * i;
        coefficient[hr__zigzag[e[0] & 63]] = (int16_t)(e[1] | e[2] << 8);
    }
    rows.top = _mm512_load_si512(coefficient);
    rows.bottom = _mm512_load_si512(coefficient + 32);
    return rows;
}

static inline struct rows read_block(const struct block *b)
{
    const __m512i one = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
    __mmask64 low = b->map & 0xFFFF, high = b->map & ~UINT64_C(0xFFFF);
    __m512i code = _mm512_maskz_expand_epi8(low, cut(b->values, 0, b->w1));
    code = _mm512_mask_expand_epi8(code, high, cut(b->values, b->n1 * b->w1, b->w2));
    __m512i bias = _mm512_mask_blend_epi8(0xFFFF, _mm512_set1_epi8((char)(1 << b->w2 >> 1)),
                                          _mm512_set1_epi8((char)(1 << b->w1 >> 1)));
    __m512i value = _mm512_maskz_sub_epi8(b->map, code, bias);
    value =
        _mm512_mask_add_epi8(value, _mm512_mask_cmpge_epi8_mask(b->map, value, zero), value, one);
    value = _mm512_permutexvar_epi8(_mm512_load_si512(tables.order), value);
    struct rows rows = {
        _mm512_cvtepi8_epi16(_mm512_castsi512_si256(value)),
        _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(value, 1)),
    };
    rows.top = _mm512_mask_set1_epi16(rows.top, 1, (short)b->dc);
    return b->exceptions ? patch(b, rows) : rows;
}

/* Lanes of four blocks' rows to rows of four blocks. */
static inline void gather_lanes(const __m512i block[4], __m512i row[4])
{
    __m512i a = _mm512_shuffle_i32x4(block[0], block[1], 0x44);
    __m512i b = _mm512_shuffle_i32x4(block[0], block[1], 0xEE);
    __m512i c = _mm512_shuffle_i32x4(block[2], block[3], 0x44);
    __m512i d = _mm512_shuffle_i32x4(block[2], block[3], 0xEE);
    row[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    row[1] = _mm512_shuffle_i32x4(a, c, 0xDD);
    row[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    row[3] = _mm512_shuffle_i32x4(b, d, 0xDD);
}

/* Four columns of each lane: pairs of inputs (0,4), (2,6), (1,3), (5,7). */
static inline void transform_half(const __m512i pair[4], __m512i round, int bits, __m512i out[8])
{
    __m512i e0 = _mm512_dpwssd_epi32(round, pair[0], PAIR(8192, 8192));
    __m512i e1 = _mm512_dpwssd_epi32(round, pair[0], PAIR(8192, -8192));
    __m512i even[4] = {
        _mm512_dpwssd_epi32(e0, pair[1], PAIR(10703, 4433)),
        _mm512_dpwssd_epi32(e1, pair[1], PAIR(4433, -10704)),
        _mm512_dpwssd_epi32(e1, pair[1], PAIR(-4433, 10704)),
        _mm512_dpwssd_epi32(e0, pair[1], PAIR(-10703, -4433)),
    };
    __m512i odd[4] = {
        _mm512_dpwssd_epi32(_mm512_madd_epi16(pair[2], PAIR(11363, 9633)), pair[3],
                            PAIR(6437, 2260)),
        _mm512_dpwssd_epi32(_mm512_madd_epi16(pair[2], PAIR(9633, -2259)), pair[3],
                            PAIR(-11362, -6436)),
        _mm512_dpwssd_epi32(_mm512_madd_epi16(pair[2], PAIR(6437, -11362)), pair[3],
                            PAIR(2261, 9633)),
        _mm512_dpwssd_epi32(_mm512_madd_epi16(pair[2], PAIR(2260, -6436)), pair[3],
                            PAIR(9633, -11363)),
    };
    for (int i = 0; i < 4; i++) {
        out[i] = _mm512_srai_epi32(_mm512_add_epi32(even[i], odd[i]), (unsigned)bits);
        out[7 - i] = _mm512_srai_epi32(_mm512_sub_epi32(even[i], odd[i]), (unsigned)bits);
    }
}

/* One pass over vectors of 8 x 4 values: frequencies to samples across them. */
static inline void transform(__m512i v[8], __m512i round, int bits)
{
    static const unsigned char first[4] = {0, 2, 1, 5}, second[4] = {4, 6, 3, 7};
    __m512i low[4], high[4], a[8], b[8];
    for (int i = 0; i < 4; i++) {
        low[i] = _mm512_unpacklo_epi16(v[first[i]], v[second[i]]);
        high[i] = _mm512_unpackhi_epi16(v[first[i]], v[second[i]]);
    }
    transform_half(low, round, bits, a);
    transform_half(high, round, bits, b);
    for (int i = 0; i < 8; i++)
        v[i] = _mm512_packs_epi32(a[i], b[i]);
}

/* Transposes the 8x8 of each lane. */
static inline void transpose(__m512i v[8])
{
    __m512i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm512_unpacklo_epi16(v[i], v[i + 4]);
        a[2 * i + 1] = _mm512_unpackhi_epi16(v[i], v[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        b[2 * i] = _mm512_unpacklo_epi16(a[i], a[i + 4]);
        b[2 * i + 1] = _mm512_unpackhi_epi16(a[i], a[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        v[2 * i] = _mm512_unpacklo_epi16(b[i], b[i + 4]);
        v[2 * i + 1] = _mm512_unpackhi_epi16(b[i], b[i + 4]);
    }
}

/* Columns of 16-bit samples to rows of bytes, four blocks side by side. */
static inline void store(const __m512i v[8], uint8_t *out, ptrdiff_t stride)
{
    const __m512i lanes = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i a[4], b[4];
    for (int i = 0; i < 4; i++) /* columns i and i + 4 */
        a[i] = _mm512_packus_epi16(v[i], v[i + 4]);
    /* bytes 0..7 of a lane: column i, 8..15: column i + 4, rows 0..7 each */
    for (int i = 0; i < 2; i++) {
        b[2 * i] = _mm512_unpacklo_epi8(a[i], a[i + 2]);
        b[2 * i + 1] = _mm512_unpackhi_epi8(a[i], a[i + 2]);
    }
    /* b0: columns 0,2 by row; b1: 4,6; b2: 1,3; b3: 5,7 */
    a[0] = _mm512_unpacklo_epi8(b[0], b[2]); /* columns 0,1,2,3 of rows 0..3 */
    a[1] = _mm512_unpackhi_epi8(b[0], b[2]); /* of rows 4..7 */
    a[2] = _mm512_unpacklo_epi8(b[1], b[3]); /* columns 4..7 */
    a[3] = _mm512_unpackhi_epi8(b[1], b[3]);
    b[0] = _mm512_unpacklo_epi32(a[0], a[2]); /* rows 0, 1 */
    b[1] = _mm512_unpackhi_epi32(a[0], a[2]); /* rows 2, 3 */
    b[2] = _mm512_unpacklo_epi32(a[1], a[3]);
    b[3] = _mm512_unpackhi_epi32(a[1], a[3]);
    for (int i = 0; i < 4; i++, out += 2 * stride) {
        __m512i two = _mm512_permutexvar_epi64(lanes, b[i]);
        _mm256_storeu_si256((__m256i *)out, _mm512_castsi512_si256(two));
        _mm256_storeu_si256((__m256i *)(out + stride), _mm512_extracti64x4_epi64(two, 1));
    }
}

static inline void inverse_dct(const __m512i top[4], const __m512i bottom[4], uint8_t *out,
                               ptrdiff_t stride)
{
    __m512i v[8];
    gather_lanes(top, v);
    gather_lanes(bottom, v + 4);
    transform(v, _mm512_set1_epi32(1 << (CONST_BITS - PASS1_BITS - 1)), CONST_BITS - PASS1_BITS);
    transpose(v);
    /* 128 is what samples are above zero */
    transform(v,
              _mm512_set1_epi32((1 << (CONST_BITS + PASS1_BITS + 2)) +
                                (128 << (CONST_BITS + PASS1_BITS + 3))),
              CONST_BITS + PASS1_BITS + 3);
    store(v, out, stride);
}

static int unpack(const struct hr__block_run *run)
{
    const __m512i quant_top = _mm512_loadu_si512(run->quant);
    const __m512i quant_bottom = _mm512_loadu_si512(run->quant + 32);
    const uint8_t *p = run->data;
    uint8_t *out = run->out;
    for (uint32_t left = run->blocks; left; out += 32) {
        __m512i top[4], bottom[4];
        uint32_t count = left < 4 ? left : 4;
        left -= count;
        for (uint32_t i = 0; i < 4; i++) {
            struct block b;
            if (i >= count) {
                top[i] = bottom[i] = _mm512_setzero_si512();
                continue;
            }
#ifndef HR__UNCHECKED
            if (p >= run->end)
                return -EBADMSG;
#endif
            if (!parse(&b, p, run->end))
                return -EBADMSG;
            struct rows rows = read_block(&b);
            top[i] = _mm512_mullo_epi16(rows.top, quant_top);
            bottom[i] = _mm512_mullo_epi16(rows.bottom, quant_bottom);
            p = b.next;
        }
        inverse_dct(top, bottom, out, run->stride);
    }
    return 0;
}

const struct hr__block_kernels hr__block_kernels_avx512 = {unpack};
