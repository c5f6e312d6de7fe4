/*
 * Compares every version of block unpacking with an independent one: the test writes blocks and
 * groups value by value, as coefficients_blocks.h and coefficients.h describe them, and computes
 * their samples with 64-bit numbers directly from the definition of the fixed-point transform.
 * Covers all widths, exceptions, maps and DC values, and runs of any length; hostile bytes cause no
 * access outside the item and the output.
 */
#include "../test.h"

#include "codec/coefficients_blocks.h"
#include "codec/coefficients_group.h"
#include "codec/zigzag.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

/* Returns a random number below `below`, which is not 0. */
static unsigned draw(unsigned below)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)((seed >> 33) % below);
}

/* A stream of bits, one at a time. */
struct block_kernels_stream {
    uint8_t *bytes;
    size_t bits;
};

static void put(struct block_kernels_stream *s, unsigned code, unsigned width)
{
    for (unsigned i = 0; i < width; i++, s->bits++) {
        if (s->bits % 8 == 0)
            s->bytes[s->bits / 8] = 0;
        s->bytes[s->bits / 8] |= (uint8_t)((code >> i & 1) << s->bits % 8);
    }
}

static unsigned code_of(int value, unsigned width)
{
    int half = width ? 1 << (width - 1) : 0;
    return (unsigned)(value < 0 ? value + half : value + half - 1);
}

/* The properties of a block. */
struct block_kernels_kind {
    unsigned w1, w2; /* 0..7 */
    unsigned share;  /* share of non-zero coefficients, per cent */
    unsigned exceptions;
    unsigned n; /* largest number of map bytes */
};

/* Writes a block into `out`, and its coefficients in natural order into `natural`. Returns the size
 * of the block. */
static size_t write_block(uint8_t *out, int16_t natural[64], const struct block_kernels_kind *kind,
                          int dc)
{
    uint64_t map = 0, excepted = 0;
    int16_t zigzag[64] = {0};
    for (unsigned k = 1; k < 8 * kind->n; k++)
        map |= (uint64_t)(draw(100) < kind->share) << k;
    for (unsigned i = 0, k; map && i < kind->exceptions; i++) {
        for (k = 1 + draw(63); !(map >> k & 1); k = k % 63 + 1)
            ;
        excepted |= UINT64_C(1) << k;
    }
    unsigned n = 0, count = (unsigned)__builtin_popcountll(excepted);
    while (n < 8 && map >> 8 * n)
        n++;
    uint32_t head = ((unsigned)dc & 0xFFF) | kind->w1 << 12 | kind->w2 << 15 | n << 18 |
                    (uint32_t)(count > 0) << 22;
    memcpy(out, &head, 3);
    size_t at = 3;
    if (count)
        out[at++] = (uint8_t)count;
    memcpy(out + at, &map, n);
    struct block_kernels_stream s = {out + at + n, 0};
    for (unsigned k = 1; k < 64; k++) {
        unsigned width = k < 16 ? kind->w1 : kind->w2;
        int value = width ? (int)draw(1u << width) - (1 << (width - 1)) : 0;
        if (!(map >> k & 1))
            continue;
        value += width && value >= 0;
        zigzag[k] = (int16_t)value;
        put(&s, excepted >> k & 1 ? 0 : code_of(value, width), width);
    }
    at += n + (s.bits + 7) / 8;
    for (unsigned k = 1; k < 64; k++)
        if (excepted >> k & 1) {
            zigzag[k] = (int16_t)((int)draw(600) - 300);
            out[at++] = (uint8_t)k;
            memcpy(out + at, &zigzag[k], 2);
            at += 2;
        }
    zigzag[0] = (int16_t)dc;
    for (unsigned k = 0; k < 64; k++)
        natural[hr__zigzag[k]] = zigzag[k];
    return at;
}

/* Returns one of the transform's 8 outputs: cosines of 13 bits, as sums of its constants. */
static int64_t one_output(const int64_t in[8], int i)
{
    static const int even[4][4] = {
        {8192, 10703, 8192, 4433},
        {8192, 4433, -8192, -10704},
        {8192, -4433, -8192, 10704},
        {8192, -10703, 8192, -4433},
    };
    static const int odd[4][4] = {
        {11363, 9633, 6437, 2260},
        {9633, -2259, -11362, -6436},
        {6437, -11362, 2261, 9633},
        {2260, -6436, 9633, -11363},
    };
    int row = i < 4 ? i : 7 - i, sign = i < 4 ? 1 : -1;
    int64_t sum = 0;
    for (int k = 0; k < 4; k++)
        sum += even[row][k] * in[2 * k] + sign * odd[row][k] * in[2 * k + 1];
    return sum;
}

static int64_t shift(int64_t v, int bits)
{
    return (v + (INT64_C(1) << (bits - 1))) >> bits;
}

/* Returns 0 if the packer would refuse the block. */
static int expected_samples(const int16_t natural[64], const uint16_t quant[64], uint8_t out[64])
{
    int64_t between[64], in[8], limit[4] = {0};
    for (int x = 0; x < 8; x++) {
        for (int y = 0; y < 8; y++) {
            in[y] = (int64_t)natural[8 * y + x] * quant[8 * y + x];
            limit[x & 3] += in[y] < 0 ? -in[y] : in[y];
        }
        for (int y = 0; y < 8; y++)
            between[8 * y + x] = shift(one_output(in, y), 11);
    }
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++) {
            int64_t v = shift(one_output(between + 8 * y, x), 18) + 128;
            out[8 * y + x] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
    for (int i = 0; i < 4; i++)
        if (limit[i] > HR__COLUMN_LIMIT)
            return 0;
    return 1;
}

enum { MOST = 37, STRIDE = 8 * (MOST + 3) };

/* A run of blocks and its samples. */
struct block_kernels_run {
    uint8_t *bytes; /* exactly the item's data and padding, in an allocation of its own */
    size_t length;  /* of the data */
    uint32_t blocks;
    uint16_t quant[64];
    uint8_t want[MOST][64];
    const struct hr__block_profiles *profiles; /* NULL: version 1 */
};

static void make_run(struct block_kernels_run *r, const struct block_kernels_kind *kind,
                     unsigned quant)
{
    static uint8_t scratch[MOST * (HR__BLOCK_BYTES_MOST + 8)];
    r->blocks = 1 + draw(MOST);
    r->length = 0;
    for (int i = 0; i < 64; i++)
        r->quant[i] = (uint16_t)(1 + draw(quant));
    for (uint32_t i = 0; i < r->blocks;) {
        int16_t natural[64];
        int room = 2047 < 5000 / r->quant[0] ? 2047 : 5000 / r->quant[0];
        int dc = draw(4) ? (int)draw((unsigned)room + 1) - room / 2 : draw(2) ? room : -room;
        struct block_kernels_kind k = *kind;
        if (draw(6) == 0)
            k.n = draw(9);
        if (draw(9) == 0)
            k.share = draw(2) * 100;
        size_t bytes = write_block(scratch + r->length, natural, &k, dc);
        if (!expected_samples(natural, r->quant, r->want[i]))
            continue;
        r->length += bytes;
        i++;
    }
    r->bytes = calloc(1, r->length + HR__ITEM_PAD);
    memcpy(r->bytes, scratch, r->length);
    r->profiles = NULL;
}

static struct hr__block_run as_run(const struct block_kernels_run *r, uint8_t *out)
{
    return (struct hr__block_run){r->bytes, r->bytes + r->length, r->quant, r->blocks, out,
                                  STRIDE,   r->profiles};
}

static void expect_samples(const struct block_kernels_run *r,
                           const struct hr__block_kernels *kernels, int number,
                           const struct block_kernels_kind *kind)
{
    uint8_t *out = malloc(8 * STRIDE);
    struct hr__block_run run = as_run(r, out);
    memset(out, 0xA5, 8 * STRIDE);
    assert_int_equal(kernels->unpack(&run), 0);
    for (uint32_t i = 0; i < r->blocks; i++)
        for (uint32_t y = 0; y < 8; y++)
            if (memcmp(out + y * STRIDE + 8 * i, r->want[i] + 8 * y, 8))
                fail_msg("kernels %d: row %u of block %u of %u, widths %u and %u", number, y, i,
                         r->blocks, kind->w1, kind->w2);
    for (int y = 0; y < 8; y++)
        for (size_t x = 8 * (r->blocks + 3); x < STRIDE; x++)
            assert_int_equal(out[y * STRIDE + (int)x], 0xA5);
    run.end--; /* the last block ends outside the item */
    assert_int_equal(kernels->unpack(&run), -EBADMSG);
    free(out);
}

/* Lists every version of the code that this machine can run, the portable one first. */
static int list_kernels(const struct hr__block_kernels *kernels[4])
{
    int count = 0;
    for (; count <= (int)hr__isa(); count++)
        kernels[count] = hr__block_kernels((enum hr__isa)count);
#ifdef __x86_64__
    if (hr__isa() >= HR__ISA_AVX2)
        kernels[count++] = &hr__block_kernels_avx2_slow_pdep;
#endif
    return count;
}

/* Checks a run with every version of the code that this machine can execute. */
static void expect_run(const struct block_kernels_run *r, const struct block_kernels_kind *kind)
{
    const struct hr__block_kernels *kernels[4];
    int count = list_kernels(kernels);
    for (int i = 0; i < count; i++)
        expect_samples(r, kernels[i], i, kind);
}

/* Returns a quantiser so small that most blocks are within HR__COLUMN_LIMIT; others are refused. */
static unsigned largest_quant(const struct block_kernels_kind *kind)
{
    unsigned width = kind->w1 > kind->w2 ? kind->w1 : kind->w2;
    unsigned sum = 16 * kind->share * (1u << width) / 200 + kind->exceptions * 150;
    return sum ? 4000 / sum + 1 : 255;
}

static void every_kind_of_block(void **state)
{
    static const unsigned shares[] = {3, 15, 35, 100};
    (void)state;
    for (unsigned w = 0; w < 64; w++)
        for (unsigned i = 0; i < 12; i++) {
            struct block_kernels_kind kind = {w % 8, w / 8, shares[i % 4],
                                              i / 4 ? draw(i < 8 ? 2 : 6) : 0, 8};
            struct block_kernels_run r;
            unsigned quant = largest_quant(&kind);
            if (kind.share == 100 && kind.w1 + kind.w2 > 10)
                kind.share = 60;
            make_run(&r, &kind, quant < 255 ? quant : 255);
            expect_run(&r, &kind);
            free(r.bytes);
        }
}

/* Quantisers of 16 bits, which are rare. */
static void large_quantisers(void **state)
{
    static const struct block_kernels_kind kind = {1, 1, 2, 0, 8};
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct block_kernels_run r;
        make_run(&r, &kind, 2000);
        expect_run(&r, &kind);
        free(r.bytes);
    }
}

/* Exceptions without a coefficient, twice in one place, or at DC: no packer writes them, but all
 * versions read them alike. */
static void odd_exceptions_are_read_alike(void **state)
{
    static const uint8_t odd[] = {0x20, 0x20, 0x44, 5,    0x02, 7,  9, 40, 0,  9, 30,
                                  0,    0,    0xF0, 0xFF, 1,    50, 0, 33, 20, 0};
    uint16_t quant[64];
    uint8_t *bytes = calloc(1, sizeof odd + HR__ITEM_PAD), out[3][8 * 32];
    (void)state;
    memcpy(bytes, odd, sizeof odd);
    for (int i = 0; i < 64; i++)
        quant[i] = (uint16_t)(i + 1);
    for (int isa = 0; isa <= (int)hr__isa(); isa++) {
        struct hr__block_run run = {bytes, bytes + sizeof odd, quant, 1, out[isa], 32, NULL};
        assert_int_equal(hr__block_kernels((enum hr__isa)isa)->unpack(&run), 0);
        for (int y = 0; y < 8; y++)
            assert_memory_equal(out[isa] + 32 * y, out[0] + 32 * y, 8);
    }
    free(bytes);
}

/* Random bytes: all versions return the same result, and none reads or writes outside. A sanitizer
 * detects that, because input and output are allocations of their own. */
static void try_hostile(int n, const struct hr__block_profiles *profiles)
{
    struct block_kernels_run r = {
        .length = 1 + draw(n % 2 ? 60 : 1500), .blocks = 1 + draw(MOST), .profiles = profiles};
    int result = 0;
    r.bytes = malloc(r.length + HR__ITEM_PAD);
    for (size_t i = 0; i < r.length + HR__ITEM_PAD; i++)
        r.bytes[i] = (uint8_t)(n % 3 ? draw(256) : draw(256) & draw(256) & draw(256));
    for (int i = 0; i < 64; i++)
        r.quant[i] = (uint16_t)draw(n % 5 ? 256 : 65536);
    const struct hr__block_kernels *kernels[4];
    int count = list_kernels(kernels);
    for (int i = 0; i < count; i++) {
        uint8_t *out = malloc(8 * STRIDE);
        struct hr__block_run run = as_run(&r, out);
        int verdict = kernels[i]->unpack(&run);
        assert_true(!i || verdict == result);
        result = verdict;
        free(out);
    }
    free(r.bytes);
}

static void hostile_bytes(void **state)
{
    (void)state;
    for (int n = 0; n < 4000; n++)
        try_hostile(n, NULL);
}

/* Version 2: groups, with profiles of their own. */
struct group_kernels_profiles {
    uint8_t width[16][64];
    struct hr__block_profiles expanded;
};

static void draw_profiles(struct group_kernels_profiles *p, unsigned most)
{
    uint8_t packed[16][HR__PROFILE_BYTES] = {{0}};
    for (int i = 0; i < 16; i++)
        for (unsigned k = 1; k < 64; k++) {
            unsigned limit = k < 8 ? 8 : 7;
            p->width[i][k] = (uint8_t)draw((most < limit ? most : limit) + 1);
            packed[i][k % 32] |= (uint8_t)(p->width[i][k] << k / 32 * 4);
        }
    assert_true(hr__block_profiles_are_sane(packed[0], 16));
    hr__block_profiles_expand(&p->expanded, packed[0], 16);
    for (int i = 0; i < 16; i++)
        for (unsigned k = 0; k < 64; k++) {
            assert_int_equal(p->expanded.width[i][k], k ? p->width[i][k] : 0);
            assert_int_equal(p->expanded.mask[i][k], (1 << (k ? p->width[i][k] : 0)) - 1);
        }
}

/* Writes a block's values. Returns its map, which has n bytes. */
static uint64_t write_values(struct block_kernels_stream *s, int16_t zigzag[64],
                             const uint8_t width[64], unsigned share, unsigned n)
{
    uint64_t map = 0;
    for (unsigned k = 1; k < 8 * n; k++) {
        if (draw(100) >= share || !width[k])
            continue;
        int half = 1 << (width[k] - 1), value = (int)draw(2 * (unsigned)half) - half;
        value += value >= 0;
        if (value == 128)
            continue;
        zigzag[k] = (int16_t)value;
        put(s, code_of(value, width[k]), width[k]);
        map |= UINT64_C(1) << k;
    }
    return map;
}

/* Writes a group. Returns its size. */
static size_t write_group(uint8_t *out, int16_t natural[4][64],
                          const struct group_kernels_profiles *p,
                          const struct block_kernels_kind *kind, int room)
{
    static const unsigned offset_bits[8] = {2, 3, 4, 5, 6, 7, 8, 12};
    uint8_t stream[256] = {0}, extra[4 * 64 * 3];
    int16_t zigzag[4][64] = {{0}};
    unsigned code = draw(8), exceptions = 0, bits = offset_bits[code];
    unsigned span = (1u << bits) < (unsigned)room ? 1u << bits : (unsigned)room;
    int base = (int)draw((unsigned)room + 1) - room;
    struct block_kernels_stream s = {stream, 0};
    uint64_t map[4];
    for (int i = 0; i < 4; i++) {
        unsigned offset = draw(span);
        zigzag[i][0] = (int16_t)(base + (int)offset);
        put(&s, offset, bits);
    }
    for (int i = 0; i < 4; i++) {
        unsigned number = draw(16), n = draw(6) ? kind->n : draw(9);
        map[i] = write_values(&s, zigzag[i], p->width[number], kind->share, n);
        out[2 + i] = (uint8_t)(number | n << 4);
    }
    for (unsigned i = 0; i < kind->exceptions; i++) {
        unsigned block = draw(4), k = 1 + draw(63);
        if (zigzag[block][k])
            continue;
        int value = (int)draw(600) - 300;
        zigzag[block][k] = (int16_t)value;
        uint8_t *e = extra + 3 * exceptions++;
        e[0] = (uint8_t)(block | k << 2);
        memcpy(e + 1, &zigzag[block][k], 2);
    }
    unsigned head = ((unsigned)base & 0xFFF) | code << 12 | (exceptions > 0) << 15;
    memcpy(out, &head, 2);
    size_t at = 6;
    if (exceptions)
        out[at++] = (uint8_t)exceptions;
    for (int i = 0; i < 4; at += out[2 + i++] >> 4)
        memcpy(out + at, &map[i], out[2 + i] >> 4);
    memcpy(out + at, stream, (s.bits + 7) / 8);
    at += (s.bits + 7) / 8;
    memcpy(out + at, extra, 3 * exceptions);
    for (int i = 0; i < 4; i++)
        for (unsigned k = 0; k < 64; k++)
            natural[i][hr__zigzag[k]] = zigzag[i][k];
    return at + 3 * exceptions;
}

static void make_groups(struct block_kernels_run *r, const struct group_kernels_profiles *p,
                        const struct block_kernels_kind *kind, unsigned quant)
{
    static uint8_t scratch[(MOST + 3) * HR__GROUP_BYTES_MOST];
    static int16_t natural[4][64];
    r->blocks = 1 + draw(MOST);
    r->length = 0;
    for (int i = 0; i < 64; i++)
        r->quant[i] = (uint16_t)(1 + draw(quant));
    int room = 2047 < 3000 / r->quant[0] ? 2047 : 3000 / r->quant[0];
    for (uint32_t i = 0; i < r->blocks;) {
        size_t bytes = write_group(scratch + r->length, natural, p, kind, room + 1);
        int held = 1;
        for (uint32_t j = 0; j < 4 && i + j < r->blocks; j++)
            held &= expected_samples(natural[j], r->quant, r->want[i + j]);
        if (!held)
            continue;
        r->length += bytes;
        i += 4;
    }
    r->bytes = calloc(1, r->length + HR__ITEM_PAD);
    memcpy(r->bytes, scratch, r->length);
    r->profiles = &p->expanded;
}

static void every_kind_of_group(void **state)
{
    static const unsigned shares[] = {3, 15, 35, 100};
    static struct group_kernels_profiles profiles;
    (void)state;
    for (unsigned most = 0; most <= 8; most++)
        for (unsigned i = 0; i < 40; i++) {
            struct block_kernels_kind kind = {most, most, shares[i % 4], i / 8 ? draw(9) : 0, 8};
            struct block_kernels_run r;
            unsigned quant = largest_quant(&kind);
            if (kind.share == 100 && most > 5)
                kind.share = 60;
            draw_profiles(&profiles, most);
            make_groups(&r, &profiles, &kind, quant < 255 ? quant : 255);
            expect_run(&r, &kind);
            free(r.bytes);
        }
}

static void large_quantisers_of_groups(void **state)
{
    static const struct block_kernels_kind kind = {1, 1, 2, 0, 8};
    static struct group_kernels_profiles profiles;
    (void)state;
    draw_profiles(&profiles, 1);
    for (int i = 0; i < 20; i++) {
        struct block_kernels_run r;
        make_groups(&r, &profiles, &kind, 2000);
        expect_run(&r, &kind);
        free(r.bytes);
    }
}

static void hostile_groups(void **state)
{
    static struct group_kernels_profiles profiles;
    (void)state;
    for (int n = 0; n < 4000; n++) {
        if (n % 20 == 0)
            draw_profiles(&profiles, draw(9));
        try_hostile(n, &profiles.expanded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_block),
        cmocka_unit_test(large_quantisers),
        cmocka_unit_test(odd_exceptions_are_read_alike),
        cmocka_unit_test(hostile_bytes),
        cmocka_unit_test(every_kind_of_group),
        cmocka_unit_test(large_quantisers_of_groups),
        cmocka_unit_test(hostile_groups),
    };
    return cmocka_run_group_tests_name("codec-block-kernels", tests, NULL, NULL);
}
