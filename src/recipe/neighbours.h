/* What filters of neighbourhoods share. */
#ifndef HR_RECIPE_NEIGHBOURS_H
#define HR_RECIPE_NEIGHBOURS_H

#include "recipe/filter.h"

/* Widens `need` by so many pixels, inside an image of width x height. */
struct hr_region hr__widened(const struct hr_region *need, int x, int y, int width, int height);

/* Computes n pixels of a row from it and from the row smoothed. */
typedef void hr__sharpen_part(const uint8_t *row, const uint8_t *smooth, int n, double factor,
                              uint8_t *out);

/* The source and the run of a filter that sharpens. Pixels at edges stay as they are. */
struct hr_region hr__sharpen_source(const struct hr__step *step, int width, int height,
                                    const struct hr_region *need);
void hr__sharpen_run(double factor, hr__sharpen_part *part, const struct hr__window *in,
                     const struct hr__window *out);

#endif
