/*
 * Means and the intervals that hold them with 95 % confidence (Student, "The Probable
 * Error of a Mean", Biometrika 1908), of the few rounds that a measuring run has.
 *
 * Pure functions. Values that are not finite are left out.
 */
#ifndef HR_STALLS_MODEL_INTERVAL_H
#define HR_STALLS_MODEL_INTERVAL_H

#include <headrace/stalls.h>

#include <math.h>
#include <stdbool.h>

#define HR__UNKNOWN ((struct hr_interval){NAN, NAN, NAN})

/* The factor of the standard error for `degrees` >= 1 of freedom, whole or not. */
double hr__student(double degrees);

/* Mean, sum of squared distances from it, and how many values there were. */
struct hr__moments {
    double mean, squares;
    int count;
};
struct hr__moments hr__moments_of(const double *values, size_t count);

/* mean +- t s/sqrt(n). One value: low and high NaN; none: all NaN. */
struct hr_interval hr__interval_mean(const double *values, size_t count);

/* For values that cannot be negative (times): the same standard error taken as a factor,
 * mean x exp(+- t s/(sqrt(n) mean)), so that rates, its inverse, have finite intervals. */
struct hr_interval hr__interval_positive(const double *values, size_t count);

/* The middle value, or the mean of the two in the middle; 0: there is none. Sorts `values`. */
double hr__middle_of(double *values, size_t count);

/* A share of the time whose half interval is wider than that is not known. */
#define HR__SHARE_NOT_KNOWN 0.20
static inline bool hr__share_is_known(struct hr_interval share)
{
    return (share.high - share.low) / 2 <= HR__SHARE_NOT_KNOWN;
}

/* amount / x of an interval of positive values: low and high change places. */
struct hr_interval hr__interval_inverse(struct hr_interval x, double amount);

#endif
