/*
 * Student's t compared with its own integral; intervals and paired shares compared with sums
 * computed by hand.
 */
#include "../../test.h"

#include "stalls/model/interval.h"
#include "stalls/model/rounds.h"

#include <string.h>

/* Returns the probability of a t between -x and x, by Simpson's rule over the density. */
static double inside(double x, double n)
{
    double c = exp(lgamma((n + 1) / 2) - lgamma(n / 2)) / sqrt(n * acos(-1)), sum = 0;
    int steps = 20000;
    for (int i = 0; i <= steps; i++) {
        double t = x * i / steps;
        double f = c * pow(1 + t * t / n, -(n + 1) / 2);
        sum += f * (i == 0 || i == steps ? 1 : i % 2 ? 4 : 2);
    }
    return 2 * sum * x / steps / 3;
}

static void test_student(void **state)
{
    const double degrees[] = {1, 2, 3, 4, 5, 7, 10, 20, 29, 30, 31, 60, 200, 1e6};
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++)
        assert_true(fabs(inside(hr__student(degrees[i]), degrees[i]) - 0.95) < 2e-6);
    /* Between whole numbers, and never rising. */
    assert_true(fabs(inside(hr__student(1.5), 1.5) - 0.95) < 4e-3);
    assert_true(fabs(inside(hr__student(6.3), 6.3) - 0.95) < 1e-4);
    for (double n = 1; n < 50; n += 0.13)
        assert_true(hr__student(n + 0.13) <= hr__student(n));
    assert_true(hr__student(0) == hr__student(1));
    assert_true(hr__student(NAN) == hr__student(1));
}

static void near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-6 * (1 + fabs(b)));
}

static void test_mean(void **state)
{
    /* Mean 2, variance 1, error 1/sqrt(3), two degrees. */
    const double v[] = {1, NAN, 2, 3, INFINITY};
    struct hr_interval i = hr__interval_mean(v, 5);
    near(i.value, 2);
    near(i.low, 2 - 4.302653 / sqrt(3));
    near(i.high, 2 + 4.302653 / sqrt(3));
    i = hr__interval_positive(v, 5);
    near(i.value, 2);
    near(i.low, 2 * exp(-4.302653 / sqrt(3) / 2));
    near(i.high, 2 * exp(4.302653 / sqrt(3) / 2));
    i = hr__interval_inverse(i, 10);
    near(i.value, 5);
    near(i.low, 5 * exp(-4.302653 / sqrt(3) / 2));
    assert_true(i.low < i.value && i.value < i.high);

    i = hr__interval_mean(v, 1);
    assert_true(i.value == 1 && isnan(i.low) && isnan(i.high));
    i = hr__interval_mean(v, 0);
    assert_true(isnan(i.value) && isnan(i.low));
    i = hr__interval_inverse((struct hr_interval){0, 0, 0}, 1);
    assert_true(isnan(i.value));
    const double same[] = {0.1, 0.1, 0.1};
    i = hr__interval_positive(same, 3);
    near(i.low, i.high);
}

#define ALL_PHASES 15

/* Shares computed by hand: of 100 ms, 50 compute, 5 copy, 30 preparation, 15 fetch; a drift of the
 * machine multiplies whole rounds and cancels. */
static void test_middle(void **state)
{
    double odd[] = {5, NAN, 1, 9}, even[] = {4, 1, 100, 2}, one[] = {INFINITY, 7}, none[] = {NAN};
    near(hr__middle_of(odd, 4), 5);
    near(hr__middle_of(even, 4), 3);
    near(hr__middle_of(one, 2), 7);
    near(hr__middle_of(none, 1), 0);
    near(hr__middle_of(NULL, 0), 0);
}

static void test_shares(void **state)
{
    struct hr__round rounds[4];
    struct hr_interval share[4];
    for (int r = 0; r < 4; r++) {
        double drift = 1 + 0.1 * r;
        rounds[r] = (struct hr__round){{.05 * drift, .055 * drift, .085 * drift, .1 * drift}};
    }
    assert_int_equal(hr__rounds_share(rounds, 4, ALL_PHASES, HR_STALLS_COLD, share), 4);
    const double want[] = {.5, .05, .3, .15};
    for (int p = 0; p < 4; p++) {
        near(share[p].value, want[p]);
        near(share[p].low, want[p]);
        near(share[p].high, want[p]);
    }
    assert_true(share[0].value + share[1].value + share[2].value + share[3].value == 1);

    /* An epoch from memory. */
    assert_int_equal(hr__rounds_share(rounds, 4, ALL_PHASES, HR_STALLS_WARM, share), 4);
    near(share[0].value, .05 / .085);
    near(share[2].value, .03 / .085);
    assert_true(isnan(share[3].value));

    /* One phase fewer: its time belongs to the next one. */
    int no_device = ALL_PHASES & ~(1 << HR_STALLS_DEVICE);
    assert_int_equal(hr__rounds_share(rounds, 4, no_device, HR_STALLS_COLD, share), 4);
    assert_true(isnan(share[0].value));
    near(share[1].value, .55);

    /* A round without a phase does not count; one round has no interval; without rounds nothing is
     * known. */
    rounds[1].seconds[3] = NAN;
    assert_int_equal(hr__rounds_share(rounds, 4, ALL_PHASES, HR_STALLS_COLD, share), 3);
    assert_int_equal(hr__rounds_share(rounds, 1, ALL_PHASES, HR_STALLS_COLD, share), 1);
    near(share[2].value, .3);
    assert_true(isnan(share[2].low));
    assert_int_equal(hr__rounds_share(rounds + 1, 1, ALL_PHASES, HR_STALLS_COLD, share), 0);
    assert_true(isnan(share[2].value));
    assert_int_equal(hr__rounds_share(rounds, 4, 7, HR_STALLS_COLD, share), 0);
}

/* Differences that noise made negative become 0, with an interval that shows it. */
static void test_negative(void **state)
{
    const struct hr__round rounds[] = {
        {{.100, .098, .150, .152}},
        {{.100, .103, .150, .146}},
        {{.102, .101, .151, .149}},
        {{.099, .100, .149, .149}},
    };
    struct hr_interval share[4];
    assert_int_equal(hr__rounds_share(rounds, 4, ALL_PHASES, HR_STALLS_COLD, share), 4);
    assert_true(share[3].value == 0 && share[3].low == 0);
    assert_true(share[3].high > 0 && share[3].high < 0.05);
    double sum = 0;
    for (int p = 0; p < 4; p++) {
        assert_true(share[p].value >= 0);
        assert_true(share[p].low <= share[p].value && share[p].value <= share[p].high);
        sum += share[p].value;
    }
    assert_true(sum == 1);

    /* Far beyond noise: still neither negative nor above 1. */
    const struct hr__round wild[] = {{{9, 1, 5, 2}}, {{8, 1, 5, 2}}};
    assert_int_equal(hr__rounds_share(wild, 2, ALL_PHASES, HR_STALLS_COLD, share), 2);
    sum = 0;
    for (int p = 0; p < 4; p++) {
        assert_true(share[p].value >= 0 && share[p].value <= 1);
        sum += share[p].value;
    }
    assert_true(sum == 1);
}

/* The 95 % are right: known shares, noise of a few per cent, many runs of six rounds. */
static void test_coverage(void **state)
{
    uint64_t x = 88172645463325252u;
    int held = 0, runs = 4000;
    for (int run = 0; run < runs; run++) {
        struct hr__round rounds[6];
        struct hr_interval share[4];
        for (int r = 0; r < 6; r++) {
            const double truth[] = {.05, .06, .08, .1};
            for (int p = 0; p < 4; p++) {
                double noise = 0;
                for (int k = 0; k < 12; k++) {
                    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                    noise += (double)(x >> 11) * 0x1p-53;
                }
                rounds[r].seconds[p] = truth[p] * (1 + 0.01 * (noise - 6));
            }
        }
        hr__rounds_share(rounds, 6, ALL_PHASES, HR_STALLS_COLD, share);
        held += share[2].low <= .2 && .2 <= share[2].high;
    }
    assert_in_range(held, runs * 0.935, runs * 0.965);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_student),  cmocka_unit_test(test_mean),
        cmocka_unit_test(test_middle),   cmocka_unit_test(test_shares),
        cmocka_unit_test(test_negative), cmocka_unit_test(test_coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
