/* When a conversion repays, by tables: costs and a moment, and what is decided. */
#include "../test.h"

#include "cache/worth.h"

#include <math.h>

/* `n` equal measurements of photographs: 600 us encoded, 150 us coefficients for
 * 1.35 times the bytes, 90 us planes for 4 times; 3 ms and 1.5 ms to convert. */
static struct hr__worth photographs(int n)
{
    struct hr__worth worth = {0};
    for (int i = 0; i < n; i++) {
        hr__mean_add(&worth.prepare_ns[HR_FORM_ENCODED], 600e3);
        hr__mean_add(&worth.prepare_ns[HR_FORM_COEFFICIENTS], 150e3);
        hr__mean_add(&worth.prepare_ns[HR_FORM_PLANES], 90e3);
        hr__mean_add(&worth.convert_ns[HR_FORM_COEFFICIENTS], 3e6);
        hr__mean_add(&worth.convert_ns[HR_FORM_PLANES], 1.5e6);
        hr__mean_add(&worth.growth[HR_FORM_COEFFICIENTS], 1.35);
        hr__mean_add(&worth.growth[HR_FORM_PLANES], 4);
        hr__mean_add(&worth.read_ns, 20e3);
        hr__mean_add(&worth.read_bytes, 110e3);
    }
    return worth;
}

static void test_mean(void **state)
{
    struct hr__mean mean = {0};
    for (int i = 1; i <= 100; i++)
        hr__mean_add(&mean, i);
    assert_true(fabs(mean.value - 50.5) < 1e-9);
    /* It follows: after many values of another kind the old ones are forgotten. */
    for (int i = 0; i < 3000; i++)
        hr__mean_add(&mean, 7);
    assert_true(fabs(mean.value - 7) < 0.01);
    assert_int_equal(mean.count, 3100);
}

/* A conversion of 3 ms that saves 450 us a use repays at the seventh. */
static void test_repays(void **state)
{
    struct hr__worth worth = photographs(100);
    assert_false(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 0));
    assert_false(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 6));
    assert_true(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 7));
    assert_false(hr__worth_repays(&worth, HR_FORM_PLANES, 2));
    assert_true(hr__worth_repays(&worth, HR_FORM_PLANES, 3));
    assert_true(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, HR__WORTH_FOREVER));
    assert_false(hr__worth_repays(&worth, HR_FORM_ENCODED, 100));
    /* A form that is no faster never repays. */
    worth.prepare_ns[HR_FORM_COEFFICIENTS].value = 600e3;
    assert_false(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 1000000));
    assert_false(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, HR__WORTH_FOREVER));
}

static void test_when(void **state)
{
    const uint64_t ms = 1000000;
    static const int known = 1, unknown = 0, idle = 1, busy = 0;
    const struct {
        struct hr__worth_moment moment;
        int coefficients;
    } cases[] = {
        /* Idle workers may while there are uses, whatever it cost so far. */
        {{known, 1, idle, 0, 0}, 1},
        {{known, 1, idle, 100 * ms, 100 * ms}, 1},
        {{known, 0, idle, 100 * ms, 0}, 0},
        {{unknown, 0, idle, 100 * ms, 50 * ms}, 1},
        /* Busy ones only when it repays, on a tenth of their time. */
        {{unknown, 0, busy, 1000 * ms, 0}, 0},
        {{known, 6, busy, 1000 * ms, 0}, 0},
        {{known, 7, busy, 1000 * ms, 0}, 1},
        {{known, 90, busy, 29 * ms, 0}, 0},
        {{known, 90, busy, 30 * ms, 0}, 1},
        {{known, 90, busy, 1000 * ms, 97 * ms}, 1},
        {{known, 90, busy, 1000 * ms, 98 * ms}, 0},
        {{known, HR__WORTH_FOREVER, busy, 1000 * ms, 97 * ms}, 1},
        {{known, HR__WORTH_FOREVER, busy, 1000 * ms, 98 * ms}, 0},
        {{known, HR__WORTH_FOREVER, idle, 0, 0}, 1},
    };
    struct hr__worth worth = photographs(100), none = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (hr__worth_convert(&worth, HR_FORM_COEFFICIENTS, &cases[i].moment) !=
            cases[i].coefficients)
            fail_msg("case %zu", i);
        assert_false(hr__worth_convert(&worth, HR_FORM_ENCODED, &cases[i].moment));
        assert_false(hr__worth_convert(&none, HR_FORM_COEFFICIENTS, &cases[i].moment));
    }
}

/* Before a form was measured, its costs are in proportion to encoded items. */
static void test_before_measuring(void **state)
{
    struct hr__worth worth = {0};
    hr__mean_add(&worth.prepare_ns[HR_FORM_ENCODED], 1e6);
    assert_false(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 7));
    assert_true(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 8));
    /* One odd measurement changes nothing yet. */
    hr__mean_add(&worth.prepare_ns[HR_FORM_COEFFICIENTS], 50e6);
    assert_true(hr__worth_repays(&worth, HR_FORM_COEFFICIENTS, 8));
}

/* Growth is worth its bytes when reads are cheap, and never when storage is the
 * slow side. */
static void test_displacement(void **state)
{
    const struct {
        double read_ns;
        int fetch_bound, coefficients, planes;
    } cases[] = {
        {20e3, 0, 1, 1}, {160e3, 0, 1, 1}, {180e3, 0, 1, 0},
        {1e6, 0, 1, 0},  {1.3e6, 0, 0, 0}, {20e3, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__worth worth = photographs(100);
        worth.read_ns.value = cases[i].read_ns;
        struct hr__worth_space space = {.budget_bytes = 1000000,
                                        .reserved_bytes = 500000,
                                        .total_bytes = 2000000,
                                        .missing_bytes = 1500000,
                                        .fetch_bound = cases[i].fetch_bound};
        struct hr__worth_moment moment = {.uses_known = 1, .uses = 50};
        if (hr__worth_displaces(&worth, HR_FORM_COEFFICIENTS, &space) != cases[i].coefficients ||
            hr__worth_displaces(&worth, HR_FORM_PLANES, &space) != cases[i].planes)
            fail_msg("case %zu", i);
        assert_int_equal(hr__worth_reserve(&worth, HR_FORM_COEFFICIENTS, 1000, &space, &moment),
                         cases[i].coefficients ? 1350 : 0);
        assert_int_equal(hr__worth_leave_free(&worth, HR_FORM_COEFFICIENTS, &space),
                         cases[i].coefficients ? 0 : 1500000);
        /* Room for everything can be used up. */
        space.budget_bytes = 500000 + 2025001;
        assert_int_equal(hr__worth_leave_free(&worth, HR_FORM_COEFFICIENTS, &space), 0);
    }
}

/* Nothing is kept for conversions that will not come. */
static void test_reserve(void **state)
{
    struct hr__worth worth = photographs(100);
    struct hr__worth_space space = {
        .budget_bytes = 1000, .total_bytes = 2000, .missing_bytes = 2000, .converted = 5};
    struct hr__worth_moment moment = {.uses_known = 1, .uses = 6};
    assert_int_equal(hr__worth_reserve(&worth, HR_FORM_COEFFICIENTS, 100, &space, &moment), 0);
    moment.uses = 7;
    assert_int_equal(hr__worth_reserve(&worth, HR_FORM_COEFFICIENTS, 100, &space, &moment), 135);
    moment.uses_known = 0;
    space.staged = 5;
    assert_int_equal(hr__worth_reserve(&worth, HR_FORM_COEFFICIENTS, 100, &space, &moment), 0);
    space.staged = 4;
    assert_int_equal(hr__worth_reserve(&worth, HR_FORM_COEFFICIENTS, 100, &space, &moment), 135);
}

static void test_choice(void **state)
{
    const struct {
        uint64_t budget;
        double read_ns;
        int fetch_bound, uses_known;
        uint64_t uses;
        enum hr_form form;
    } cases[] = {
        /* Everything fits in planes; in coefficients; encoded only. */
        {4000, 20e3, 0, 1, 90, HR_FORM_PLANES},
        {1350, 20e3, 0, 1, 90, HR_FORM_COEFFICIENTS},
        {1000, 20e3, 0, 1, 90, HR_FORM_COEFFICIENTS},
        {1000, 5e6, 0, 1, 90, HR_FORM_ENCODED},
        {1000, 20e3, 1, 1, 90, HR_FORM_ENCODED},
        {1350, 20e3, 1, 1, 90, HR_FORM_COEFFICIENTS},
        {500, 20e3, 0, 1, 90, HR_FORM_COEFFICIENTS},
        /* Too few uses to repay. */
        {4000, 20e3, 0, 1, 1, HR_FORM_ENCODED},
        {1350, 20e3, 0, 1, 2, HR_FORM_ENCODED},
        {4000, 20e3, 0, 0, 0, HR_FORM_PLANES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__worth worth = photographs(100);
        worth.read_ns.value = cases[i].read_ns;
        struct hr__worth_space space = {.budget_bytes = cases[i].budget,
                                        .total_bytes = 1000,
                                        .missing_bytes = 1000,
                                        .fetch_bound = cases[i].fetch_bound};
        struct hr__worth_moment moment = {.uses_known = cases[i].uses_known, .uses = cases[i].uses};
        enum hr_form form = hr__worth_choose(&worth, &space, &moment);
        if (form != cases[i].form)
            fail_msg("case %zu: form %d", i, form);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean),         cmocka_unit_test(test_repays),
        cmocka_unit_test(test_when),         cmocka_unit_test(test_before_measuring),
        cmocka_unit_test(test_displacement), cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
