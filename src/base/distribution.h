/*
 * Random numbers of other distributions than the uniform one, each a function of its stream.
 */
#ifndef HR_BASE_DISTRIBUTION_H
#define HR_BASE_DISTRIBUTION_H

#include "base/random.h"

/* Standard normal. Box and Muller, "A Note on the Generation of Random Normal Deviates" (1958). */
double hr__random_normal(struct hr__random *r);

/* The logarithm of a gamma variate with scale 1; shape > 0. With small shapes the variate itself
 * may be below the range of doubles. Marsaglia and Tsang, "A Simple Method for Generating Gamma
 * Variables" (2000); shapes below 1 as in its section 6. */
double hr__random_log_gamma(struct hr__random *r, double shape);

/* Beta(a, b), a and b > 0. */
double hr__random_beta(struct hr__random *r, double a, double b);

#endif
