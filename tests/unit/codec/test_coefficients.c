/* The form `coefficients`: packing is lossless, and the limits hold. */
#include "codec/coefficients.h"
#include "codec/inverse_dct.h"
#include "codec/zigzag.h"

#include "../test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Makes an image of 4:2:0 with coefficients that value(k) chooses for position k. */
struct made {
    struct hr__packer_image image;
    uint16_t quant[64];
    int16_t (*blocks[3])[64];
    uint32_t blocks_x[3], blocks_y[3];
};

static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(seed >> 8) * below >> 24);
}

static void make(struct made *m, uint32_t width, uint32_t height, int components, unsigned share,
                 int most)
{
    memset(m, 0, sizeof *m);
    m->image = (struct hr__packer_image){width, height, components, 1, 1, 1, 0, {0}};
    m->image.h = m->image.v = components == 3 ? 2 : 1;
    for (int i = 0; i < 64; i++)
        m->quant[i] = (uint16_t)(1 + i / 16);
    for (int c = 0; c < components; c++) {
        m->image.quant[c] = m->quant;
        m->blocks_x[c] = (hr__item_samples(width, (uint8_t)m->image.h, c) + 7) / 8;
        m->blocks_y[c] = (hr__item_samples(height, (uint8_t)m->image.v, c) + 7) / 8;
        size_t n = (size_t)m->blocks_x[c] * m->blocks_y[c];
        m->blocks[c] = calloc(n, sizeof *m->blocks[c]);
        for (size_t i = 0; i < n; i++) {
            m->blocks[c][i][0] = (int16_t)((int)draw(2000) - 1000);
            for (int k = 1; k < 64; k++)
                if (draw(100) < share)
                    m->blocks[c][i][k] = (int16_t)((int)draw(2 * (uint32_t)most + 1) - most);
        }
    }
}

static void drop(struct made *m)
{
    for (int c = 0; c < 3; c++)
        free(m->blocks[c]);
}

static int pack(struct hr__packer *packer, const struct made *m, size_t limit,
                const uint8_t **bytes, size_t *length)
{
    struct hr_error error;
    int r = hr__packer_begin(packer, &m->image, limit, &error);
    for (int c = 0; !r && c < m->image.components; c++)
        for (uint32_t y = 0; !r && y < m->blocks_y[c]; y++)
            r = hr__packer_row(packer, (const int16_t(*)[64])m->blocks[c] + y * m->blocks_x[c],
                               &error);
    return r ? r : hr__packer_end(packer, bytes, length, &error);
}

static void expect_same(const struct made *m, const uint8_t *bytes, size_t length)
{
    struct hr__coefficients item;
    struct hr_error error;
    assert_int_equal(hr__coefficients_open(&item, bytes, length, &error), 0);
    for (int c = 0; c < m->image.components; c++) {
        int16_t(*row)[64] = calloc(m->blocks_x[c], sizeof *row);
        for (uint32_t y = 0; y < m->blocks_y[c]; y++) {
            assert_int_equal(hr__coefficients_row(&item, c, y, row, &error), 0);
            assert_memory_equal(row, m->blocks[c] + y * m->blocks_x[c],
                                m->blocks_x[c] * sizeof *row);
        }
        free(row);
    }
}

/* Checks that every version that this machine can run gives the samples of the portable one. */
static void expect_same_samples(const struct made *m, const uint8_t *bytes, size_t length)
{
    struct hr__coefficients item;
    struct hr__block_profiles profiles;
    assert_int_equal(hr__coefficients_open(&item, bytes, length, NULL), 0);
    for (int c = 0; c < m->image.components; c++) {
        size_t stride = (m->blocks_x[c] + 3) * 8;
        uint8_t *expected = calloc(8, stride), *got = calloc(8, stride);
        struct hr__block_run run = {
            .end = item.data + item.data_bytes,
            .quant = item.quant[c],
            .blocks = m->blocks_x[c],
            .stride = (ptrdiff_t)stride,
            .profiles = hr__coefficients_profiles(&item, &profiles),
        };
        for (uint32_t y = 0; y < m->blocks_y[c]; y++)
            for (int isa = HR__ISA_PORTABLE; isa <= (int)hr__isa(); isa++) {
                run.data = hr__coefficients_find(&item, c, y, 0);
                run.out = isa ? got : expected;
                assert_int_equal(hr__block_kernels((enum hr__isa)isa)->unpack(&run), 0);
                for (int line = 0; isa && line < 8; line++)
                    assert_memory_equal(got + line * stride, expected + line * stride,
                                        m->blocks_x[c] * 8);
            }
        free(expected);
        free(got);
    }
}

static void test_packing_loses_nothing(void **state)
{
    static const struct {
        unsigned share;
        int most;
    } kinds[] = {{0, 1},   {2, 1},    {20, 3},   {30, 40},  {100, 1},  {100, 20},
                 {8, 120}, {1, 1000}, {100, 90}, {30, 300}, {100, 64}, {60, 65}};
    struct hr__packer *packer;
    struct made m;
    const uint8_t *bytes;
    size_t length;
    (void)state;
    assert_int_equal(hr__packer_create(&packer, NULL), 0);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int components = 1; components <= 3; components += 2) {
            make(&m, 1 + draw(200), 1 + draw(100), components, kinds[i].share, kinds[i].most);
            assert_int_equal(pack(packer, &m, 0, &bytes, &length), 0);
            expect_same(&m, bytes, length);
            expect_same_samples(&m, bytes, length);
            drop(&m);
        }
    hr__packer_destroy(&packer);
}

static void test_rows_beyond_64_kib_have_a_wide_index(void **state)
{
    struct hr__packer *packer;
    struct made m;
    const uint8_t *bytes;
    size_t length;
    (void)state;
    assert_int_equal(hr__packer_create(&packer, NULL), 0);
    make(&m, 16000, 9, 3, 100, 20);
    assert_int_equal(pack(packer, &m, 0, &bytes, &length), 0);
    assert_true(((const struct hr__item_header *)bytes)->flags & HR__ITEM_WIDE);
    expect_same(&m, bytes, length);
    drop(&m);
    hr__packer_destroy(&packer);
}

static void test_the_best_version_is_chosen(void **state)
{
    (void)state;
    assert_ptr_equal(hr__block_kernels(HR__ISA_PORTABLE), &hr__block_kernels_portable);
#ifdef __x86_64__
    assert_ptr_equal(hr__block_kernels(HR__ISA_AVX2), hr__pdep_is_fast()
                                                          ? &hr__block_kernels_avx2
                                                          : &hr__block_kernels_avx2_slow_pdep);
    assert_ptr_equal(hr__block_kernels(HR__ISA_AVX512), &hr__block_kernels_avx512);
#endif
}

static void test_limits(void **state)
{
    struct hr__packer *packer;
    struct made m;
    const uint8_t *bytes;
    size_t length, exact;
    (void)state;
    assert_int_equal(hr__packer_create(&packer, NULL), 0);
    make(&m, 64, 64, 1, 30, 10);
    assert_int_equal(pack(packer, &m, 0, &bytes, &exact), 0);
    assert_int_equal(pack(packer, &m, exact, &bytes, &length), 0);
    assert_int_equal(length, exact);
    assert_int_equal(pack(packer, &m, exact - 1, &bytes, &length), -ENOSPC);
    m.blocks[0][5][4] = 3000;
    m.blocks[0][5][0] = -2000; /* columns 0 and 4: 3000 + 2000, and the values already there */
    assert_int_equal(pack(packer, &m, 0, &bytes, &length), 0);
    m.blocks[0][5][4] = 5000;
    assert_int_equal(pack(packer, &m, 0, &bytes, &length), -ENOTSUP);
    m.blocks[0][5][4] = 0;
    m.blocks[0][5][0] = -2049;
    assert_int_equal(pack(packer, &m, 0, &bytes, &length), -ENOTSUP);
    drop(&m);
    hr__packer_destroy(&packer);
}

/* Makes one grey block of zeros; its quantiser is 1 except at one position. The caller sets
 * image.quant to the returned copy. */
static struct made one_block(int at, uint16_t quant)
{
    struct made m;
    make(&m, 8, 8, 1, 0, 1);
    memset(m.blocks[0], 0, 64 * sizeof(int16_t));
    for (int i = 0; i < 64; i++)
        m.quant[i] = 1;
    m.quant[at] = quant;
    return m;
}

static void test_every_value_may_be_an_exception(void **state)
{
    struct made m = one_block(0, 1);
    struct hr__packer *packer;
    struct hr__coefficients item;
    const uint8_t *bytes;
    size_t length;
    (void)state;
    m.image.quant[0] = m.quant;
    for (int i = 1; i < 64; i++)
        m.blocks[0][0][i] = (int16_t)((200 + i) * (i % 3 ? 1 : -1));
    assert_int_equal(hr__packer_create(&packer, NULL), 0);
    assert_int_equal(pack(packer, &m, 0, &bytes, &length), 0);
    expect_same(&m, bytes, length);
    expect_same_samples(&m, bytes, length);
    assert_int_equal(hr__coefficients_open(&item, bytes, length, NULL), 0);
    assert_true(item.data[1] & 0x80);
    assert_int_equal(item.data[6], 63);
    /* header, kinds, count, four DC offsets of two bits, exceptions */
    assert_int_equal(item.data_bytes, 2 + 4 + 1 + 1 + 63 * 3);
    drop(&m);
    hr__packer_destroy(&packer);
}

/* Values around the largest that a width holds. A width is at most 8 bits at zigzag positions 1..7,
 * and 7 at the others. */
static void test_widths_hold_what_they_say(void **state)
{
    struct hr__packer *packer;
    const uint8_t *bytes;
    size_t length;
    (void)state;
    assert_int_equal(hr__packer_create(&packer, NULL), 0);
    for (int k = 1; k < 64; k += k < 9 ? 1 : 9)
        for (int v = -140; v <= 140; v++) {
            int at = hr__zigzag[k], most = k < 8 ? 127 : 64;
            struct made m = one_block(0, 1);
            struct hr__coefficients item;
            m.image.quant[0] = m.quant;
            m.blocks[0][0][at] = (int16_t)v;
            assert_int_equal(pack(packer, &m, 0, &bytes, &length), 0);
            expect_same(&m, bytes, length);
            expect_same_samples(&m, bytes, length);
            assert_int_equal(hr__coefficients_open(&item, bytes, length, NULL), 0);
            assert_int_equal(item.data[1] >> 7, v < -most || v > most);
            drop(&m);
        }
    hr__packer_destroy(&packer);
}

/* No packer writes larger widths. Their values would not fit in the lanes of a vector. */
static void test_widths_are_checked(void **state)
{
    struct hr__packer *packer;
    struct made m;
    const uint8_t *bytes;
    size_t length, at = sizeof(struct hr__item_header) + 128;
    (void)state;
    assert_int_equal(hr__packer_create(&packer, NULL), 0);
    make(&m, 64, 64, 1, 30, 10);
    assert_int_equal(pack(packer, &m, 0, &bytes, &length), 0);
    for (int k = 0; k < 64; k++)
        for (int width = 0; width < 16; width++) {
            struct hr__coefficients item;
            uint8_t *copy = malloc(length), *byte = copy + at + k % 32;
            memcpy(copy, bytes, length);
            *byte = (uint8_t)(k < 32 ? (*byte & 0xF0) | width : (*byte & 15) | width << 4);
            int sane = width <= (!k ? 0 : k < 8 ? 8 : 7);
            int r = hr__coefficients_open(&item, copy, length, NULL);
            assert_int_equal(r, sane ? 0 : -EBADMSG);
            free(copy);
        }
    drop(&m);
    hr__packer_destroy(&packer);
}

static void test_versions(void **state)
{
    struct hr__packer *packer;
    struct hr__coefficients item;
    struct made m;
    const uint8_t *bytes;
    size_t length;
    (void)state;
    assert_int_equal(hr__packer_create(&packer, NULL), 0);
    make(&m, 64, 64, 1, 30, 10);
    assert_int_equal(pack(packer, &m, 0, &bytes, &length), 0);
    struct hr__item_header *h = malloc(length);
    memcpy(h, bytes, length);
    assert_int_equal(h->version, 2);
    assert_int_equal(h->profiles, 1); /* of 64 blocks */
    for (int version = 0; version < 5; version++)
        for (int profiles = 0; profiles < 19; profiles++) {
            h->version = (uint8_t)version;
            h->profiles = (uint8_t)profiles;
            int r = hr__coefficients_open(&item, h, length, NULL);
            if (version < 1 || version > 2)
                assert_int_equal(r, -ENOTSUP);
            else if (version == 1 ? profiles : !profiles || profiles > 16)
                assert_int_equal(r, -EBADMSG);
            else if (profiles < 2)
                assert_int_equal(r, 0);
        }
    free(h);
    drop(&m);
    hr__packer_destroy(&packer);
}

static void test_what_is_refused(void **state)
{
    static const struct {
        int at, value, other, other_value;
        uint16_t quant; /* of `at` */
        int result;
    } cases[] = {
        {0, 2047, 1, 0, 1, 0},
        {0, 2048, 1, 0, 1, -ENOTSUP},
        {0, -2048, 1, 0, 1, 0},
        {0, -2049, 1, 0, 1, -ENOTSUP},
        {9, 5800, 1, 0, 1, 0},
        {9, 5801, 1, 0, 1, -ENOTSUP},
        {9, -5800, 1, 0, 1, 0},
        {9, -5801, 1, 0, 1, -ENOTSUP},
        {9, 5000, 61, -800, 1, 0},
        {9, 5000, 61, -801, 1, -ENOTSUP},
        {63, 2900, 59, 2900, 1, 0},
        {63, 2900, 59, 2901, 1, -ENOTSUP},
        {62, 2, 1, 0, 2900, 0},
        {62, 2, 1, 0, 2901, -ENOTSUP},
        {62, 1, 1, 0, 5800, 0},
        {62, -1, 1, 0, 5801, -ENOTSUP},
        {62, 1, 1, 0, 65535, -ENOTSUP},
        {62, 0, 1, 0, 65535, 0},
        {62, 32767, 1, 0, 1, -ENOTSUP},
        {62, -32768, 1, 0, 1, -ENOTSUP},
        {62, 32767, 58, -32768, 65535, -ENOTSUP},
        {62, -32768, 1, 0, 0, 0},
    };
    struct hr__packer *packer;
    const uint8_t *bytes;
    size_t length;
    (void)state;
    assert_int_equal(hr__packer_create(&packer, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct made m = one_block(cases[i].at, cases[i].quant);
        m.image.quant[0] = m.quant;
        m.blocks[0][0][cases[i].other] = (int16_t)cases[i].other_value;
        m.blocks[0][0][cases[i].at] = (int16_t)cases[i].value;
        int r = pack(packer, &m, 0, &bytes, &length);
        if (r != cases[i].result)
            fail_msg("case %zu: %d", i, r);
        if (!r)
            expect_same(&m, bytes, length);
        drop(&m);
    }
    hr__packer_destroy(&packer);
}

/* Makes a block whose pairs of columns use a random share of the limit of the packer. */
static void draw_block(int16_t block[64], unsigned terms)
{
    int left[4] = {HR__COLUMN_LIMIT, HR__COLUMN_LIMIT, HR__COLUMN_LIMIT, HR__COLUMN_LIMIT};
    memset(block, 0, 64 * sizeof *block);
    while (terms--) {
        unsigned at = draw(64), pair = at & 3;
        int most = terms % 4 ? left[pair] / 3 : left[pair];
        int value = (int)draw((uint32_t)most + 1);
        if (block[at])
            continue;
        left[pair] -= value;
        block[at] = (int16_t)(draw(2) ? value : -value);
    }
}

/* Transforms to fewer samples than 8 x 8. */
static void check_reduced(const int16_t block[64], const uint16_t quant[64])
{
    hr__inverse_dct_fn *const plain[] = {hr__inverse_dct_2_plain, hr__inverse_dct_4_plain};
    hr__inverse_dct_fn *const own[] = {hr__inverse_dct_2, hr__inverse_dct_4};
    for (int k = 0; k < 2; k++) {
        uint8_t out[2][4 * 16];
        memset(out, 0xA5, sizeof out);
        plain[k](block, quant, out[0] + 4, 16);
        own[k](block, quant, out[1] + 4, 16);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        for (int i = 0; i < (int)sizeof out[0]; i++)
            if (i / 16 >= 2 * k + 2 || i % 16 < 4 || i % 16 >= 4 + 2 * k + 2)
                assert_int_equal(out[1][i], 0xA5);
    }
}

static void test_the_machines_transform_is_the_plain_one(void **state)
{
    static const uint16_t quant[64] = {
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    };
    int16_t block[64] __attribute__((aligned(16)));
    uint8_t plain[64], own[8 * 24];
    (void)state;
    for (unsigned n = 0; n < 40000; n++) {
        if (n < 256) { /* one coefficient at the limit */
            memset(block, 0, sizeof block);
            block[n / 4] = (int16_t)((n & 1 ? HR__COLUMN_LIMIT : 1000) * (n & 2 ? -1 : 1));
        } else {
            draw_block(block, 1 + draw(80));
        }
        memset(own, 0xA5, sizeof own);
        hr__inverse_dct_plain(block, quant, plain, 8);
        hr__inverse_dct(block, quant, own + 8, 24);
        for (int i = 0; i < (int)sizeof own; i++)
            assert_int_equal(own[i], i % 24 / 8 == 1 ? plain[i / 24 * 8 + i % 8] : 0xA5);
        check_reduced(block, quant);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing_loses_nothing),
        cmocka_unit_test(test_rows_beyond_64_kib_have_a_wide_index),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_every_value_may_be_an_exception),
        cmocka_unit_test(test_widths_hold_what_they_say),
        cmocka_unit_test(test_widths_are_checked),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_the_machines_transform_is_the_plain_one),
        cmocka_unit_test(test_the_best_version_is_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
