/*
 * Orders: permutations, uniform, pure functions, unchanged between versions; and the stand-ins for
 * bad samples.
 */
#include "../test.h"

#include "base/memory.h"
#include "order/order.h"
#include "order/shuffle.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct hr__order *make(uint64_t samples, int shuffle, uint64_t seed, uint64_t epoch)
{
    struct hr__order *order;
    struct hr_error error;
    assert_int_equal(hr__order_create(&order, samples, shuffle, seed, epoch, &error), 0);
    return order;
}

static void every_sample_once(void **state)
{
    static const uint64_t counts[] = {1, 2, 3, 10, 255, 1000, 65537};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint64_t n = counts[c];
            struct hr__order *order = make(n, 1, 5, epoch);
            unsigned char *seen = calloc(n, 1);
            assert_non_null(seen);
            for (uint64_t p = 0; p < n; p++) {
                uint64_t sample = hr__order_at(order, p);
                assert_true(sample < n);
                assert_int_equal(seen[sample]++, 0);
            }
            free(seen);
            hr__order_destroy(&order);
            assert_null(order);
        }
    assert_int_equal(hr__allocated(HR__TAG_ORDER), 0);
}

static void filling_gives_the_same(void **state)
{
    struct hr_error error;
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        uint64_t filled[1000];
        struct hr__order *order = make(1000, shuffle, 7, 3);
        assert_int_equal(hr_order_fill(filled, 1000, shuffle, 7, 3, &error), 0);
        for (uint64_t p = 0; p < 1000; p++)
            assert_int_equal(filled[p], hr__order_at(order, p));
        hr__order_destroy(&order);
    }
    assert_int_equal(hr__allocated(HR__TAG_ORDER), 0);
}

static void unshuffled_is_identity_without_memory(void **state)
{
    struct hr__order *order = make(UINT64_C(1) << 40, 0, 1, 2);
    assert_true(hr__allocated(HR__TAG_ORDER) < 256);
    assert_int_equal(hr__order_at(order, 0), 0);
    assert_int_equal(hr__order_at(order, UINT64_C(123456789012)), UINT64_C(123456789012));
    hr__order_destroy(&order);
    order = make(0, 1, 1, 2);
    hr__order_destroy(&order);
    hr__order_destroy(&order);
}

static void four_bytes_a_sample(void **state)
{
    struct hr__order *order = make(100000, 1, 1, 2);
    assert_in_range(hr__allocated(HR__TAG_ORDER), 400000, 400256);
    hr__order_destroy(&order);
}

/* All 120 orders of five samples, over the epochs of two seeds: chi-square with 119 degrees of
 * freedom below its 1 - 10^-6 quantile (202). */
static void orders_are_uniform(void **state)
{
    enum { N = 5, ORDERS = 120, DRAWS = 60000 };
    for (uint64_t seed = 0; seed < 2; seed++) {
        unsigned count[ORDERS] = {0};
        for (uint64_t epoch = 0; epoch < DRAWS; epoch++) {
            struct hr__order *order = make(N, 1, seed, epoch);
            unsigned rank = 0; /* Lehmer code of the permutation */
            for (unsigned i = 0; i < N; i++) {
                unsigned smaller = 0;
                for (unsigned j = i + 1; j < N; j++)
                    smaller += hr__order_at(order, j) < hr__order_at(order, i);
                rank = rank * (N - i) + smaller;
            }
            count[rank]++;
            hr__order_destroy(&order);
        }
        double chi = 0, expected = (double)DRAWS / ORDERS;
        for (int i = 0; i < ORDERS; i++)
            chi += (count[i] - expected) * (count[i] - expected) / expected;
        assert_true(chi < 202);
        assert_true(chi > 60); /* too even would be wrong, too */
    }
}

/* In larger orders, too, a sample's position over the epochs is uniform: every cell of the 40 x 40
 * table, chi-square with 39 x 39 degrees of freedom. */
static void positions_are_uniform(void **state)
{
    enum { N = 40, EPOCHS = 20000 };
    static unsigned count[N][N];
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        struct hr__order *order = make(N, 1, UINT64_MAX, epoch);
        for (uint64_t p = 0; p < N; p++)
            count[p][hr__order_at(order, p)]++;
        hr__order_destroy(&order);
    }
    double chi = 0, expected = (double)EPOCHS / N, freedom = (N - 1) * (N - 1);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            chi += (count[i][j] - expected) * (count[i][j] - expected) / expected;
    assert_true(fabs(chi - freedom) < 6 * sqrt(2 * freedom));
}

static void seeds_and_epochs_differ(void **state)
{
    enum { N = 1000 };
    struct hr__order *a = make(N, 1, 1, 0);
    struct hr__order *same = make(N, 1, 1, 0);
    struct hr__order *other[] = {make(N, 1, 1, 1), make(N, 1, 2, 0), make(N, 1, 0, 1)};
    unsigned equal[3] = {0};
    for (uint64_t p = 0; p < N; p++) {
        assert_int_equal(hr__order_at(a, p), hr__order_at(same, p));
        for (int o = 0; o < 3; o++)
            equal[o] += hr__order_at(a, p) == hr__order_at(other[o], p);
    }
    for (int o = 0; o < 3; o++) {
        assert_true(equal[o] < 10); /* fixed points of a random order: Poisson(1) */
        hr__order_destroy(&other[o]);
    }
    hr__order_destroy(&a);
    hr__order_destroy(&same);
}

/* FNV-1a over the positions' samples as little-endian 64-bit words. */
static uint64_t digest(const struct hr__order *order, uint64_t samples)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint64_t p = 0; p < samples; p++)
        for (int byte = 0; byte < 8; byte++) {
            hash ^= hr__order_at(order, p) >> (8 * byte) & 0xff;
            hash *= UINT64_C(0x100000001b3);
        }
    return hash;
}

/* An order that changes between versions breaks every resume. These digests come from
 * tests/golden/order_reference.py, which shares no code with the library. */
static void golden_digests(void **state)
{
    static const struct {
        uint64_t samples, seed, epoch, digest;
    } golden[] = {
        {10, UINT64_C(0), UINT64_C(0), UINT64_C(0x1d96692dfa2af3c4)},
        {1000, UINT64_C(0), UINT64_C(0), UINT64_C(0x626755cb7dbadb35)},
        {1000, UINT64_C(0), UINT64_C(1), UINT64_C(0xd6d84251c6ebcae9)},
        {4096, UINT64_C(9223372036854775813), UINT64_C(90), UINT64_C(0xe6d733fd56aaa2f1)},
        {100003, UINT64_C(42), UINT64_C(1099511627776), UINT64_C(0x4455d1572e0350dd)},
    };
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        struct hr__order *order = make(golden[i].samples, 1, golden[i].seed, golden[i].epoch);
        assert_int_equal(digest(order, golden[i].samples), golden[i].digest);
        hr__order_destroy(&order);
    }
}

static void both_widths_agree(void **state)
{
    enum { N = 5000 };
    static uint32_t narrow[N];
    static uint64_t wide[N];
    hr__shuffle_narrow(narrow, N, 77, 3);
    hr__shuffle_wide(wide, N, 77, 3);
    for (int i = 0; i < N; i++)
        assert_int_equal(narrow[i], wide[i]);
}

static void memory_failures(void **state)
{
    for (uint64_t n = 1; n <= 2; n++) {
        struct hr__order *order;
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 0);
        assert_int_equal(hr__order_create(&order, 1000, 1, 0, 0, &error), -ENOMEM);
        assert_non_null(strstr(error.message, "1000 samples"));
        assert_int_equal(hr__order_create(&order, 1000, 1, 0, 0, NULL), 0);
        hr__order_destroy(&order);
    }
    hr__alloc_fail_at(0, 0);
    assert_int_equal(hr__allocated(HR__TAG_ORDER), 0);
}

static void replacement_walks_all_others(void **state)
{
    static const uint64_t counts[] = {2, 3, 7, 60, 97, 128};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint64_t position = 0; position < counts[c]; position += 5) {
            uint64_t n = counts[c];
            unsigned char seen[128] = {0};
            for (uint32_t attempt = 0; attempt < n - 1; attempt++) {
                uint64_t other = hr_order_replacement(n, 3, 4, position, attempt);
                assert_true(other < n && other != position);
                assert_int_equal(seen[other]++, 0);
            }
        }
    assert_int_equal(hr_order_replacement(1, 3, 4, 0, 0), 0);
    assert_int_equal(hr_order_replacement(1, 3, 4, 0, 7), 0);
    /* Numbers near 2^64 neither overflow nor leave the range. */
    for (uint32_t attempt = 0; attempt < 100; attempt++) {
        uint64_t n = UINT64_MAX;
        uint64_t other = hr_order_replacement(n, 1, 2, n - 1, UINT32_MAX - attempt);
        assert_true(other < n - 1);
    }
}

/* First attempts are uniform over the other samples, and depend on seed and epoch. */
static void replacement_is_uniform(void **state)
{
    enum { N = 20, DRAWS = 40000 };
    unsigned count[N] = {0}, moved = 0;
    for (uint64_t epoch = 0; epoch < DRAWS; epoch++) {
        uint64_t other = hr_order_replacement(N, 9, epoch, 6, 0);
        count[other]++;
        moved += other != hr_order_replacement(N, 10, epoch, 6, 0);
    }
    assert_int_equal(count[6], 0);
    double chi = 0, expected = (double)DRAWS / (N - 1);
    for (int i = 0; i < N; i++)
        if (i != 6)
            chi += (count[i] - expected) * (count[i] - expected) / expected;
    assert_true(chi < 58); /* 1 - 10^-5 quantile of 18 degrees of freedom: 57.1 */
    assert_true(moved > DRAWS * 9 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once),
        cmocka_unit_test(filling_gives_the_same),
        cmocka_unit_test(unshuffled_is_identity_without_memory),
        cmocka_unit_test(four_bytes_a_sample),
        cmocka_unit_test(orders_are_uniform),
        cmocka_unit_test(positions_are_uniform),
        cmocka_unit_test(seeds_and_epochs_differ),
        cmocka_unit_test(golden_digests),
        cmocka_unit_test(both_widths_agree),
        cmocka_unit_test(memory_failures),
        cmocka_unit_test(replacement_walks_all_others),
        cmocka_unit_test(replacement_is_uniform),
    };
    return cmocka_run_group_tests_name("order-order", tests, NULL, NULL);
}
