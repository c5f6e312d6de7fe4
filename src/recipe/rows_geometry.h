/*
 * Moves the boxes and points of a plan's rows (rows.h), as torchvision v2 moves its BoundingBoxes
 * and KeyPoints: in float32, in the same order, so that the results have the same bits. Those of
 * affine and perspective maps, whose sums torch may round otherwise, are within 1e-4 pixels. Boxes
 * are clamped to the image by crops, padding and maps; points are not.
 *
 * plan.c calls these for each step that it appends.
 */
#ifndef HR_RECIPE_ROWS_GEOMETRY_H
#define HR_RECIPE_ROWS_GEOMETRY_H

#include "recipe/rows.h"

/* From the stored image to the oriented one, which has width x height pixels. */
void hr__rows_orient(const struct hr__plan_rows *rows, int orientation, int width, int height);

/* Moves the origin to (x, y) of an image; the result has width x height pixels. Padding has a
 * negative origin. */
void hr__rows_cut(const struct hr__plan_rows *rows, int x, int y, int width, int height);

/* Multiplies coordinates: both ratios are new / old. */
void hr__rows_scale(const struct hr__plan_rows *rows, double ratio_x, double ratio_y);

/* Mirrors columns (axis 0) or rows (axis 1) of an image of `size` pixels on that axis. */
void hr__rows_mirror(const struct hr__plan_rows *rows, int axis, int size);

/* An affine map of an image (affine.h): `matrix` maps pixels of the result, of width x height
 * pixels, to those of an input of from_width x from_height, both relative to the middles. */
struct hr__rows_map {
    const double *matrix;
    int from_width, from_height, width, height;
    int is_expanded; /* the result begins where the mapped input does */
};

/* A box becomes the smallest one around its mapped corners. */
void hr__rows_affine(const struct hr__plan_rows *rows, const struct hr__rows_map *map);

/* The same for a perspective map of an image of width x height pixels (perspective.h): m maps
 * positions in the result to those in the input. */
void hr__rows_perspective(const struct hr__plan_rows *rows, const double m[8], int width,
                          int height);

/* Clamps boxes to the image. */
void hr__rows_clamp(const struct hr__plan_rows *rows, int width, int height);

/* Returns the boxes as they stand, 4 numbers for each row: those of the first column of boxes;
 * NULL: there is none. */
float *hr__rows_boxes(const struct hr__plan_rows *rows);

/* Returns non-zero if row `i` is still there. */
static inline int hr__row_is_kept(const struct hr__plan_rows *rows, size_t i)
{
    return !rows->dropped[i];
}

#endif
