/* Perspective maps of images. */
#ifndef HR_RECIPE_PERSPECTIVE_H
#define HR_RECIPE_PERSPECTIVE_H

#include "recipe/filter.h"

/*
 * Computes the map from the result to the input that takes corner `to[i]` of the result (x, y) to
 * `from[i]`: x = (m[0] x' + m[1] y' + m[2]) / (m[6] x' + m[7] y' + 1), y likewise with m[3] to
 * m[5]. Returns 0 if there is no such map, because three corners are in a line.
 */
int hr__perspective_matrix(const double from[4][2], const double to[4][2], double m[8]);

/* Appends a filter that maps the image by `m`; fill as in hr__plan_affine. */
void hr__plan_perspective(struct hr__prepare_plan *plan, const double m[8],
                          enum hr_interpolation interpolation, const double *fill);

#endif
