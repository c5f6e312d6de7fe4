/*
 * Blocks of the form `coefficients` to samples with AVX2 and BMI2: the same
 * samples as coefficients_portable.c, which explains the transform.
 *
 * Unpacking: for each byte of the map one PDEP spreads its bits to bytes, and
 * another deposits the next values of the stream into those bytes. Where PDEP is
 * microcode (AMD before Zen 3) the portable version is faster and is taken.
 *
 * Transform: two blocks side by side, one 128-bit lane each, odd and even parts
 * as sums of products of two (PMADDWD); all sums are exact, so this arrangement
 * rounds as any other. Between the passes values are cut to 16 bits, which
 * changes none that the packer lets through.
 */
#include "codec/coefficients.h"
#include "codec/zigzag.h"

#include <errno.h>
#include <string.h>

#include <immintrin.h>

#define CONST_BITS 13
#define PASS1_BITS 2
#define BLOCKS     2 /* at once */

#define EVERY_BYTE UINT64_C(0x0101010101010101)

/* Two 16-bit factors, for the even and the odd element of each pair. */
#define PAIR(a, b) _mm256_set1_epi32((int)((uint32_t)(uint16_t)(a) | (uint32_t)(uint16_t)(b) << 16))

/* Zigzag position p as an index into 16 positions from `from` on; 0x80, which
 * PSHUFB makes 0, where it is not among them. */
#define AMONG(p, from) ((p) >= (from) && (p) < (from) + 16 ? (p) - (from) : 0x80)
#define PICK(from, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                                 \
    {                                                                                              \
        AMONG(a, from), AMONG(b, from), AMONG(c, from), AMONG(d, from), AMONG(e, from),            \
            AMONG(f, from), AMONG(g, from), AMONG(h, from), AMONG(i, from), AMONG(j, from),        \
            AMONG(k, from), AMONG(l, from), AMONG(m, from), AMONG(n, from), AMONG(o, from),        \
            AMONG(p, from)                                                                         \
    }
#define ROWS_01(from) PICK(from, 0, 1, 5, 6, 14, 15, 27, 28, 2, 4, 7, 13, 16, 26, 29, 42)
#define ROWS_23(from) PICK(from, 3, 8, 12, 17, 25, 30, 41, 43, 9, 11, 18, 24, 31, 40, 44, 53)
#define ROWS_45(from) PICK(from, 10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38, 46, 51, 55, 60)
#define ROWS_67(from) PICK(from, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63)

/* For each pair of rows and each quarter of the zigzag. */
static const uint8_t picks[4][4][16] __attribute__((aligned(16))) = {
    {ROWS_01(0), ROWS_01(16), ROWS_01(32), ROWS_01(48)},
    {ROWS_23(0), ROWS_23(16), ROWS_23(32), ROWS_23(48)},
    {ROWS_45(0), ROWS_45(16), ROWS_45(32), ROWS_45(48)},
    {ROWS_67(0), ROWS_67(16), ROWS_67(32), ROWS_67(48)},
};

/* A block as it lies in an item, see coefficients_portable.c; its codes spread to
 * zigzag positions, with bit 7 where there is one. */
struct block {
    const uint8_t *extra;
    unsigned w1, w2, exceptions;
    int dc;
    uint64_t code[8];
};

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Codes of 8 positions; `bit` is where the stream stands. */
static inline uint64_t spread(uint64_t map, const uint8_t *stream, unsigned bit, unsigned width)
{
    uint64_t bytes = _pdep_u64(map, EVERY_BYTE);
    uint64_t codes = load64(stream + bit / 8) >> bit % 8;
    return _pdep_u64(codes, bytes * ((1u << width) - 1)) | bytes << 7;
}

/* Takes the block at p apart; returns the byte behind it, or NULL where it leaves
 * the item. */
static inline const uint8_t *parse(struct block *b, const uint8_t *p, const uint8_t *end)
{
    uint32_t head;
#ifndef HR__UNCHECKED
    if (p >= end)
        return NULL;
#endif
    memcpy(&head, p, sizeof head);
    unsigned n = head >> 18 & 15;
    b->dc = (int)(head << 20) >> 20;
    b->w1 = head >> 12 & 7;
    b->w2 = head >> 15 & 7;
    b->exceptions = head >> 22 & 1 ? p[3] & 63 : 0;
    p += 3 + (head >> 22 & 1);
    uint64_t map = _bzhi_u64(load64(p), 8 * n) & ~UINT64_C(1);
    unsigned low = (unsigned)_mm_popcnt_u64(map & 0xFFFF) * b->w1;
    unsigned bits = low + (unsigned)_mm_popcnt_u64(map >> 16) * b->w2;
    const uint8_t *stream = p + n;
    b->extra = stream + (bits + 7) / 8;
    const uint8_t *next = b->extra + 3 * b->exceptions;
#ifndef HR__UNCHECKED
    if (next > end || n > 8)
        return NULL;
#endif
    b->code[0] = spread(map & 0xFF, stream, 0, b->w1);
    b->code[1] =
        spread(map >> 8 & 0xFF, stream, (unsigned)_mm_popcnt_u64(map & 0xFF) * b->w1, b->w1);
    unsigned bit = low;
    for (int i = 2; i < 8; i++) {
        uint64_t byte = map >> 8 * i & 0xFF;
        b->code[i] = spread(byte, stream, bit, b->w2);
        bit += (unsigned)_mm_popcnt_u64(byte) * b->w2;
    }
    return next;
}

/* A quarter of the zigzag of two blocks. */
static inline __m256i quarter(const struct block b[BLOCKS], int i)
{
    return _mm256_set_epi64x((long long)b[1].code[2 * i + 1], (long long)b[1].code[2 * i],
                             (long long)b[0].code[2 * i + 1], (long long)b[0].code[2 * i]);
}

/* Codes of w bits to values: c - 2^(w-1), and one more from 0 on; 0 where bit 7 says
 * that there is none. */
static inline __m256i values(__m256i code, __m256i bias)
{
    const __m256i minus_one = _mm256_set1_epi8(-1);
    __m256i v = _mm256_sub_epi8(_mm256_and_si256(code, _mm256_set1_epi8(0x7F)), bias);
    v = _mm256_sub_epi8(v, _mm256_cmpgt_epi8(v, minus_one));
    return _mm256_blendv_epi8(_mm256_setzero_si256(), v, code);
}

static inline __m256i two_lanes(unsigned first, unsigned second)
{
    return _mm256_set_m128i(_mm_set1_epi8((char)second), _mm_set1_epi8((char)first));
}

/* The few coefficients that exceptions replace. */
static __attribute__((noinline)) void patch(const struct block b[BLOCKS], __m256i row[8])
{
    int16_t coefficient[8][BLOCKS][8] __attribute__((aligned(32)));
    for (int i = 0; i < 8; i++)
        _mm256_store_si256((__m256i *)coefficient[i], row[i]);
    for (int k = 0; k < BLOCKS; k++)
        for (unsigned i = 0; i < b[k].exceptions; i++) {
            const uint8_t *e = b[k].extra + 3 * i;
            unsigned at = hr__zigzag[e[0] & 63];
            coefficient[at / 8][k][at % 8] = (int16_t)(e[1] | e[2] << 8);
        }
    for (int i = 0; i < 8; i++)
        row[i] = _mm256_load_si256((const __m256i *)coefficient[i]);
}

/* Rows of quantised coefficients of two blocks. */
static inline void read_rows(const struct block b[BLOCKS], __m256i row[8])
{
    const __m256i low = two_lanes(1u << b[0].w1 >> 1, 1u << b[1].w1 >> 1);
    const __m256i high = two_lanes(1u << b[0].w2 >> 1, 1u << b[1].w2 >> 1);
    __m256i part[4];
    for (int i = 0; i < 4; i++)
        part[i] = values(quarter(b, i), i ? high : low);
    for (int r = 0; r < 4; r++) {
        __m256i two = _mm256_setzero_si256();
        for (int i = 0; i < 4; i++) {
            if ((r == 0 && i == 3) || (r == 3 && i == 0))
                continue; /* none of these rows' positions */
            __m128i pick = _mm_load_si128((const __m128i *)picks[r][i]);
            two = _mm256_or_si256(two,
                                  _mm256_shuffle_epi8(part[i], _mm256_broadcastsi128_si256(pick)));
        }
        row[2 * r] = _mm256_srai_epi16(_mm256_unpacklo_epi8(two, two), 8);
        row[2 * r + 1] = _mm256_srai_epi16(_mm256_unpackhi_epi8(two, two), 8);
    }
    __m256i dc = _mm256_set_m128i(_mm_cvtsi32_si128(b[1].dc), _mm_cvtsi32_si128(b[0].dc));
    row[0] = _mm256_blend_epi16(row[0], dc, 1);
    if (b[0].exceptions | b[1].exceptions)
        patch(b, row);
}

static inline __m256i dot(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

/* Four columns of each lane: pairs of inputs (0,4), (2,6), (1,3), (5,7). */
static inline void transform_half(const __m256i pair[4], __m256i round, int bits, __m256i out[8])
{
    __m256i e0 = dot(round, pair[0], PAIR(8192, 8192));
    __m256i e1 = dot(round, pair[0], PAIR(8192, -8192));
    __m256i e2 = _mm256_madd_epi16(pair[1], PAIR(4433, -10704));
    __m256i e3 = _mm256_madd_epi16(pair[1], PAIR(10703, 4433));
    __m256i even[4] = {_mm256_add_epi32(e0, e3), _mm256_add_epi32(e1, e2), _mm256_sub_epi32(e1, e2),
                       _mm256_sub_epi32(e0, e3)};
    __m256i odd[4] = {
        dot(_mm256_madd_epi16(pair[2], PAIR(11363, 9633)), pair[3], PAIR(6437, 2260)),
        dot(_mm256_madd_epi16(pair[2], PAIR(9633, -2259)), pair[3], PAIR(-11362, -6436)),
        dot(_mm256_madd_epi16(pair[2], PAIR(6437, -11362)), pair[3], PAIR(2261, 9633)),
        dot(_mm256_madd_epi16(pair[2], PAIR(2260, -6436)), pair[3], PAIR(9633, -11363)),
    };
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_srai_epi32(_mm256_add_epi32(even[i], odd[i]), bits);
        out[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(even[i], odd[i]), bits);
    }
}

/* One pass over vectors of 8 x 2 values: frequencies to samples across them. */
static inline void transform(__m256i v[8], __m256i round, int bits)
{
    static const unsigned char first[4] = {0, 2, 1, 5}, second[4] = {4, 6, 3, 7};
    __m256i low[4], high[4], a[8], b[8];
    for (int i = 0; i < 4; i++) {
        low[i] = _mm256_unpacklo_epi16(v[first[i]], v[second[i]]);
        high[i] = _mm256_unpackhi_epi16(v[first[i]], v[second[i]]);
    }
    transform_half(low, round, bits, a);
    transform_half(high, round, bits, b);
    for (int i = 0; i < 8; i++)
        v[i] = _mm256_packs_epi32(a[i], b[i]);
}

/* One of three equal steps that transpose the 8x8 of each lane. */
static inline void interleave(const __m256i in[8], __m256i out[8])
{
    for (int i = 0; i < 4; i++) {
        out[2 * i] = _mm256_unpacklo_epi16(in[i], in[i + 4]);
        out[2 * i + 1] = _mm256_unpackhi_epi16(in[i], in[i + 4]);
    }
}

/* Columns of 16-bit samples to rows of bytes, two blocks side by side. */
static inline void store(const __m256i v[8], uint8_t *out, ptrdiff_t stride)
{
    __m256i a[4], b[4];
    for (int i = 0; i < 4; i++) /* columns i and i + 4, rows 0..7 each */
        a[i] = _mm256_packus_epi16(v[i], v[i + 4]);
    for (int i = 0; i < 2; i++) { /* columns 0,2; 4,6; 1,3; 5,7 */
        b[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 2]);
        b[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 2]);
    }
    a[0] = _mm256_unpacklo_epi8(b[0], b[2]); /* columns 0..3 of rows 0..3 */
    a[1] = _mm256_unpackhi_epi8(b[0], b[2]); /* of rows 4..7 */
    a[2] = _mm256_unpacklo_epi8(b[1], b[3]); /* columns 4..7 */
    a[3] = _mm256_unpackhi_epi8(b[1], b[3]);
    b[0] = _mm256_unpacklo_epi32(a[0], a[2]); /* rows 0, 1 */
    b[1] = _mm256_unpackhi_epi32(a[0], a[2]); /* rows 2, 3 */
    b[2] = _mm256_unpacklo_epi32(a[1], a[3]);
    b[3] = _mm256_unpackhi_epi32(a[1], a[3]);
    for (int i = 0; i < 4; i++, out += 2 * stride) {
        __m256i two = _mm256_permute4x64_epi64(b[i], 0xD8);
        _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(two));
        _mm_storeu_si128((__m128i *)(out + stride), _mm256_extracti128_si256(two, 1));
    }
}

static inline void inverse_dct(__m256i row[8], uint8_t *out, ptrdiff_t stride)
{
    __m256i other[8];
    transform(row, _mm256_set1_epi32(1 << (CONST_BITS - PASS1_BITS - 1)), CONST_BITS - PASS1_BITS);
    interleave(row, other);
    interleave(other, row);
    interleave(row, other);
    /* 128 is what samples are above zero */
    transform(other,
              _mm256_set1_epi32((1 << (CONST_BITS + PASS1_BITS + 2)) +
                                (128 << (CONST_BITS + PASS1_BITS + 3))),
              CONST_BITS + PASS1_BITS + 3);
    store(other, out, stride);
}

static int unpack(const struct hr__block_run *run)
{
    const uint8_t *p = run->data;
    uint8_t *out = run->out;
    struct block b[BLOCKS];
    __m256i row[8];
    for (uint32_t i = 0; i < run->blocks; i += BLOCKS, out += 8 * BLOCKS) {
        p = parse(&b[0], p, run->end);
        if (!p)
            return -EBADMSG;
        if (i + 1 < run->blocks) {
            p = parse(&b[1], p, run->end);
            if (!p)
                return -EBADMSG;
        } else {
            b[1] = b[0]; /* written into the room behind the last block */
        }
        read_rows(b, row);
        for (int r = 0; r < 8; r++) {
            __m128i quant = _mm_loadu_si128((const __m128i *)(run->quant + 8 * r));
            row[r] = _mm256_mullo_epi16(row[r], _mm256_broadcastsi128_si256(quant));
        }
        inverse_dct(row, out, run->stride);
    }
    return 0;
}

const struct hr__block_kernels hr__block_kernels_avx2 = {unpack};
