/*
 * EXIF orientation (Exif 2.32, tag 0x0112): the eight ways to turn and mirror
 * an image, on regions and on planar pixels.
 */
#ifndef HR_RECIPE_ORIENT_H
#define HR_RECIPE_ORIENT_H

#include "codec/codec.h"

/* Where `region` of the oriented image lies in the stored one, whose size is
 * width x height. */
struct hr_region hr__orient_region(const struct hr_region *region, int width, int height,
                                   int orientation);

/* Copies the stored pixels `in` to `out` as orientation says. `out` has its
 * planes, stride and size set: in's size, with sides exchanged from 5 on. */
void hr__orient_pixels(const struct hr__planar *in, int orientation, struct hr__planar *out);

#endif
