/*
 * Computes the weights of a filter with antialias, one loop over the outputs for each tap. Each
 * instruction set's version of the fused pass includes this file, so that the compiler vectorises
 * the loops for it: every random crop needs new tables. Each operation is a correctly rounded IEEE
 * double operation, so all versions give the same bits.
 */
#ifndef HR_RECIPE_TAP_WEIGHTS_H
#define HR_RECIPE_TAP_WEIGHTS_H

#include "recipe/fused_kernels.h"

#include <math.h>

static inline double triangle(double x)
{
    double w = 1 - fabs(x);
    return w > 0 ? w : 0;
}

/* Keys' cubic, a = -0.5. */
static inline double cubic(double x)
{
    x = fabs(x);
    double inner = ((1.5 * x) - 2.5) * x * x + 1;
    double outer = (((x - 5) * x + 8) * x - 4) * -0.5;
    double w = x < 1 ? inner : outer;
    return x < 2 ? w : 0;
}

/* Computes the weights of tap t, and adds them to the sums. */
static inline __attribute__((always_inline)) void weigh_tap(const struct hr__tap_weights *w, int t,
                                                            double (*filter)(double x))
{
    const double *restrict from = w->from, *restrict length = w->length;
    double *restrict weight = w->weight + (size_t)t * w->stride, *restrict sum = w->sum;
    double inverse = w->inverse;
    for (int j = 0; j < w->count; j++) {
        double v = filter((from[j] + t) * inverse);
        weight[j] = t < length[j] ? v : 0;
        sum[j] += weight[j];
    }
}

static void weigh(const struct hr__tap_weights *w)
{
    double *restrict sum = w->sum;
    for (int j = 0; j < w->count; j++)
        sum[j] = 0;
    for (int t = 0; t < w->taps; t++)
        if (w->is_cubic)
            weigh_tap(w, t, cubic);
        else
            weigh_tap(w, t, triangle);
    for (int j = 0; j < w->count; j++)
        sum[j] = 1.0 / sum[j];
    for (int t = 0; t < w->taps; t++) {
        double *restrict weight = w->weight + (size_t)t * w->stride;
        for (int j = 0; j < w->count; j++)
            weight[j] *= sum[j];
    }
}

#endif
