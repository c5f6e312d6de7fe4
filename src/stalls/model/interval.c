/* Student's t and the intervals based on it; see interval.h. */
#include "stalls/model/interval.h"

#include <stdlib.h>

/* 97.5 % quantiles for whole degrees of freedom from 1. */
static const double quantiles[] = {
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004,
    2.262157,  2.228139, 2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905,
    2.109816,  2.100922, 2.093024, 2.085963, 2.079614, 2.073873, 2.068658, 2.063899,
    2.059539,  2.055529, 2.051831, 2.048407, 2.045230, 2.042272,
};
#define QUANTILES ((int)(sizeof quantiles / sizeof quantiles[0]))

double hr__student(double degrees)
{
    if (!(degrees >= 1))
        degrees = 1;
    if (degrees < QUANTILES) {
        /* The quantile's logarithm is nearly linear in 1/degrees. */
        int k = (int)degrees;
        double from = 1.0 / k, to = 1.0 / (k + 1);
        double at = (from - 1 / degrees) / (from - to);
        return quantiles[k - 1] * pow(quantiles[k] / quantiles[k - 1], at);
    }
    /* Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5. */
    double z = 1.959963984540054, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
    return z + (z3 + z) / (4 * degrees) + (5 * z5 + 16 * z3 + 3 * z) / (96 * degrees * degrees) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * degrees * degrees * degrees);
}

struct hr__moments hr__moments_of(const double *values, size_t count)
{
    struct hr__moments m = {0, 0, 0};
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) {
            m.mean += values[i];
            m.count++;
        }
    if (!m.count)
        return (struct hr__moments){NAN, NAN, 0};
    m.mean /= m.count;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            m.squares += (values[i] - m.mean) * (values[i] - m.mean);
    return m;
}

/* Returns t s/sqrt(n); NaN for fewer than two values. */
static double half_width(struct hr__moments m)
{
    if (m.count < 2)
        return NAN;
    return hr__student(m.count - 1) * sqrt(m.squares / (m.count - 1) / m.count);
}

struct hr_interval hr__interval_mean(const double *values, size_t count)
{
    struct hr__moments m = hr__moments_of(values, count);
    double half = half_width(m);
    return (struct hr_interval){m.mean, m.mean - half, m.mean + half};
}

struct hr_interval hr__interval_positive(const double *values, size_t count)
{
    struct hr__moments m = hr__moments_of(values, count);
    double relative = m.mean > 0 ? half_width(m) / m.mean : NAN;
    return (struct hr_interval){m.mean, m.mean * exp(-relative), m.mean * exp(relative)};
}

struct hr_interval hr__interval_inverse(struct hr_interval x, double amount)
{
    if (!(x.value > 0))
        return HR__UNKNOWN;
    return (struct hr_interval){amount / x.value, amount / x.high, amount / x.low};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double hr__middle_of(double *values, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            values[n++] = values[i];
    if (!n)
        return 0;
    qsort(values, n, sizeof *values, by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}
