/*
 * EXIF orientation (Exif 2.32, tag 0x0112): eight combinations of rotation and mirroring, applied
 * to regions and to planar pixels.
 */
#ifndef HR_RECIPE_ORIENT_H
#define HR_RECIPE_ORIENT_H

#include "codec/codec.h"

/* Returns where `region` of the oriented image is in the stored image of width x height pixels. */
struct hr_region hr__orient_region(const struct hr_region *region, int width, int height,
                                   int orientation);

/* Finds whether columns and rows of the oriented image run against the stored image's. */
void hr__orient_mirrors(int orientation, int *columns, int *rows);

/* Copies the stored pixels `in` to `out` in the given orientation. The caller sets out's planes,
 * stride and size: in's size, with the sides exchanged for orientations 5 to 8. */
void hr__orient_pixels(const struct hr__planar *in, int orientation, struct hr__planar *out);

#endif
