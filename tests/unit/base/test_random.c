/* Philox against the published known answers, and the distributions over it. */
#include "../test.h"

#include "base/random.h"

#include <math.h>

/* Random123's kat_vectors for philox4x32-10. */
static void known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
        uint32_t out[4];
        hr__philox(kat[i].counter, kat[i].key, out);
        assert_memory_equal(out, kat[i].out, sizeof out);
    }
}

static void pure_function_of_its_key(void **state)
{
    struct hr__random a, b;
    hr__random_init(&a, 7, HR__PURPOSE_OPERATION, 3, 1000000007);
    hr__random_init(&b, 7, HR__PURPOSE_OPERATION, 3, 1000000007);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(hr__random_u32(&a), hr__random_u32(&b));
}

/* Streams that differ in one part of the key must be unrelated: no equal words at equal places
 * among many neighbours (chance: 2^-32 each). */
static void neighbours_differ(void **state)
{
    uint32_t seen[4][64];
    for (uint64_t i = 0; i < 64; i++) {
        struct hr__random r;
        for (int part = 0; part < 4; part++) {
            uint64_t v[4] = {1, 2, 3, 4};
            v[part] += i + 1;
            hr__random_init(&r, v[0], v[1], v[2], v[3]);
            seen[part][i] = hr__random_u32(&r);
        }
    }
    const uint32_t *all = &seen[0][0];
    for (int i = 0; i < 256; i++)
        for (int j = 0; j < i; j++)
            assert_int_not_equal(all[i], all[j]);
}

/* Chi-square over 1,000 cells, 10^6 draws: within 6 sigma of 999. */
static void below_is_uniform(void **state)
{
    enum { CELLS = 1000, DRAWS = 1000000 };
    static uint32_t cell[CELLS];
    struct hr__random r;
    hr__random_init(&r, 1, 2, 3, 4);
    for (int i = 0; i < DRAWS; i++)
        cell[hr__random_below(&r, CELLS)]++;
    double chi = 0, expected = (double)DRAWS / CELLS;
    for (int i = 0; i < CELLS; i++)
        chi += (cell[i] - expected) * (cell[i] - expected) / expected;
    assert_true(fabs(chi - (CELLS - 1)) < 6 * sqrt(2.0 * (CELLS - 1)));
}

static void below_large(void **state)
{
    struct hr__random r;
    uint64_t n = (uint64_t)3 << 61, high = 0;
    hr__random_init(&r, 1, 2, 3, 4);
    for (int i = 0; i < 10000; i++) {
        uint64_t v = hr__random_below(&r, n);
        assert_true(v < n);
        high += v >= n / 2;
    }
    assert_in_range(high, 4700, 5300);
    for (int i = 0; i < 100; i++)
        assert_int_equal(hr__random_below(&r, 1), 0);
}

static void unit_moments(void **state)
{
    struct hr__random r;
    double sum = 0, squares = 0;
    enum { N = 200000 };
    hr__random_init(&r, 9, 9, 9, 9);
    for (int i = 0; i < N; i++) {
        double v = hr__random_unit(&r);
        assert_true(v >= 0 && v < 1);
        sum += v;
        squares += v * v;
    }
    assert_true(fabs(sum / N - 0.5) < 6 * sqrt(1.0 / 12 / N));
    assert_true(fabs(squares / N - 1.0 / 3) < 6 * sqrt(4.0 / 45 / N));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),     cmocka_unit_test(pure_function_of_its_key),
        cmocka_unit_test(neighbours_differ), cmocka_unit_test(below_is_uniform),
        cmocka_unit_test(below_large),       cmocka_unit_test(unit_moments),
    };
    return cmocka_run_group_tests_name("base-random", tests, NULL, NULL);
}
