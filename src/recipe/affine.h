/*
 * Affine maps of images: rotations, shifts, scalings and shears.
 *
 * Matrices map pixels of the result to pixels of the input, both relative to the middles of their
 * images: x = m[0] x' + m[1] y' + m[2], y = m[3] x' + m[4] y' + m[5].
 */
#ifndef HR_RECIPE_AFFINE_H
#define HR_RECIPE_AFFINE_H

#include "recipe/filter.h"

/* Computes the matrix for a rotation by `angle` degrees (clockwise) around `center`, which is
 * relative to the image's middle, with a scale, shears in degrees, and a shift in pixels: x, y. */
void hr__affine_matrix(double angle, const double translate[2], double scale, const double shear[2],
                       const double center[2], double matrix[6]);

/*
 * Appends a filter that maps the image by `matrix`; none for the identity. The result has the size
 * of the input. interpolation: nearest or bilinear. fill: what surrounds the image, 0..255 per
 * channel; NULL: black. They differ at the border of a bilinear image: torchvision lets a pixel
 * that is half outside keep half of its value without `fill`, and a quarter with a black one.
 */
void hr__plan_affine(struct hr__prepare_plan *plan, const double matrix[6],
                     enum hr_interpolation interpolation, const double *fill);

/* The same, for a result of width x height pixels, the smallest around the mapped image. */
void hr__plan_affine_to(struct hr__prepare_plan *plan, const double matrix[6], int width,
                        int height, enum hr_interpolation interpolation, const double *fill);

/* Moves boxes and points as hr__plan_affine does, and no pixels. */
void hr__plan_affine_rows(struct hr__prepare_plan *plan, const double matrix[6]);

extern const struct hr__filter hr__filter_affine;

#endif
