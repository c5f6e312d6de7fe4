/*
 * The row kernels of the colour steps, one table per instruction set. All versions give the same
 * bits. n: pixels in the row; planes do not overlap.
 */
#ifndef HR_RECIPE_COLOR_ROWS_H
#define HR_RECIPE_COLOR_ROWS_H

#include "base/cpu.h"

/* Number of lanes for sums of luma: pixel x is added to lane x modulo this. */
#define HR__LUMA_LANES 8

struct hr__color_rows {
    void (*brightness)(float *p, int n, float factor);
    /* p x factor + offset */
    void (*blend)(float *p, int n, float factor, float offset);
    void (*saturation)(float *r, float *g, float *b, int n, float factor);
    void (*grayscale)(float *r, float *g, float *b, int n);
    /* turn: in sixths of a circle, -3..3 */
    void (*hue)(float *r, float *g, float *b, int n, float turn);
    /* Adds each pixel's luma to its lane. */
    void (*luma)(const float *r, const float *g, const float *b, int n, double *lane);
};

extern const struct hr__color_rows hr__color_rows_portable;
extern const struct hr__color_rows hr__color_rows_avx2;

/* Returns the version for `isa`, or the best lower one in this build. */
const struct hr__color_rows *hr__color_rows(enum hr__isa isa);

#endif
