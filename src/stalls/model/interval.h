/*
 * Means and their 95 % confidence intervals (Student, "The Probable Error of a Mean", Biometrika
 * 1908), for the few rounds of a measuring run.
 *
 * Pure functions. Values that are not finite are ignored.
 */
#ifndef HR_STALLS_MODEL_INTERVAL_H
#define HR_STALLS_MODEL_INTERVAL_H

#include <headrace/stalls.h>

#include <math.h>
#include <stdbool.h>

#define HR__UNKNOWN ((struct hr_interval){NAN, NAN, NAN})

/* Returns Student's factor of the standard error for `degrees` >= 1 of freedom, which need not be
 * whole. */
double hr__student(double degrees);

/* Mean, sum of squared deviations and number of values. */
struct hr__moments {
    double mean, squares;
    int count;
};
struct hr__moments hr__moments_of(const double *values, size_t count);

/* Returns mean +- t s/sqrt(n). One value: low and high are NaN; none: all NaN. */
struct hr_interval hr__interval_mean(const double *values, size_t count);

/* For values that cannot be negative (times): uses the same standard error as a factor, mean x
 * exp(+- t s/(sqrt(n) mean)), so that rates, the inverse, have finite intervals. */
struct hr_interval hr__interval_positive(const double *values, size_t count);

/* Returns the median; 0: no values. Sorts `values`. */
double hr__middle_of(double *values, size_t count);

/* A share of the time counts as unknown if half its interval is wider than this. */
#define HR__SHARE_NOT_KNOWN 0.20
static inline bool hr__share_is_known(struct hr_interval share)
{
    return (share.high - share.low) / 2 <= HR__SHARE_NOT_KNOWN;
}

/* Returns amount / x for an interval of positive values: low and high swap. */
struct hr_interval hr__interval_inverse(struct hr_interval x, double amount);

#endif
