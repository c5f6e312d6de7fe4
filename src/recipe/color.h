/*
 * Colour operations on float planes with values 0..255, defined like torchvision v2's float tensor
 * kernels, scaled from 0..1. Results are the same on every machine: sums have a fixed order, and no
 * multiplication is contracted with an addition.
 */
#ifndef HR_RECIPE_COLOR_H
#define HR_RECIPE_COLOR_H

#include "recipe/plan.h"

#include <stddef.h>

/* A window of an image, as three float planes. */
struct hr__picture {
    float *plane[3];  /* at the window's first pixel */
    ptrdiff_t stride; /* floats between rows */
    int x, y;         /* position and size of the window in its image, in pixels */
    int width, height;
};

/* Applies one colour step in place. Contrast uses the mean over the window, which must therefore be
 * the whole image. */
void hr__color_run(const struct hr__step *step, const struct hr__picture *picture);

#endif
