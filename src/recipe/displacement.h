/*
 * Random displacements of pixels that are alike for neighbours: noise, blurred by a Gaussian.
 *
 * Each pixel's noise depends on a seed and its place in the whole image only, so that a window of
 * the field has the same values as the whole.
 */
#ifndef HR_RECIPE_DISPLACEMENT_H
#define HR_RECIPE_DISPLACEMENT_H

#include "recipe/scratch.h"

struct hr__displacement {
    uint64_t seed;
    uint32_t stream;   /* fields with different streams are independent */
    int taps;          /* of the Gaussian, odd; 1: no blur */
    double sigma[2];   /* of the Gaussian in pixels: x, y */
    float scale;       /* of the result; the noise is uniform in -1..1 */
    int width, height; /* of the whole image; noise is mirrored at its edges */
};

/* Computes the window `need` of the field, in rows of need->width floats. Uses the scratch's
 * planes[0]. Errors: -ENOMEM. */
int hr__displacement_run(struct hr__scratch *scratch, const struct hr__displacement *field,
                         const struct hr_region *need, float *out, struct hr_error *error);

#endif
