/* The moments of each distribution over many draws, within six standard errors. */
#include "../test.h"

#include "base/distribution.h"

#include <math.h>

#define DRAWS 200000

struct moments {
    double mean, variance;
};

static struct moments moments_of(double (*draw)(struct hr__random *, double, double), double a,
                                 double b)
{
    struct hr__random r;
    double sum = 0, squares = 0;
    hr__random_init(&r, 3, HR__PURPOSE_MIX, 5, (uint64_t)(1000 * a + b));
    for (int i = 0; i < DRAWS; i++) {
        double x = draw(&r, a, b);
        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
    }
    double mean = sum / DRAWS;
    return (struct moments){mean, squares / DRAWS - mean * mean};
}

static double normal(struct hr__random *r, double a, double b)
{
    return hr__random_normal(r);
}

static double gamma_of(struct hr__random *r, double a, double b)
{
    return exp(hr__random_log_gamma(r, a));
}

/* kurtosis: fourth central moment / variance squared, for the error of the variance. */
static void check(struct moments m, double mean, double variance, double kurtosis)
{
    double mean_error = sqrt(variance / DRAWS);
    double variance_error = variance * sqrt((kurtosis - 1) / DRAWS);
    if (fabs(m.mean - mean) > 6 * mean_error || fabs(m.variance - variance) > 6 * variance_error)
        fail_msg("mean %g for %g, variance %g for %g", m.mean, mean, m.variance, variance);
}

static void normal_moments(void **state)
{
    check(moments_of(normal, 0, 0), 0, 1, 3);
}

static void gamma_moments(void **state)
{
    const double shapes[] = {0.05, 0.2, 0.9, 1, 2.5, 40};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        double a = shapes[i];
        check(moments_of(gamma_of, a, 0), a, a, 3 + 6 / a);
    }
}

static void beta_moments(void **state)
{
    const double cases[][2] = {{1, 1}, {0.2, 0.2}, {0.8, 0.8}, {2, 5}, {1e-3, 1e-3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double a = cases[i][0], b = cases[i][1], sum = a + b;
        double variance = a * b / (sum * sum * (sum + 1));
        double excess = 6 * ((a - b) * (a - b) * (sum + 1) - a * b * (sum + 2)) /
                        (a * b * (sum + 2) * (sum + 3));
        check(moments_of(hr__random_beta, a, b), a / sum, variance, 3 + excess);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_moments),
        cmocka_unit_test(gamma_moments),
        cmocka_unit_test(beta_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
