/*
 * Resizing: the definition of the filters, and a plain float implementation.
 *
 * With antialias, a filter is stretched by the scale when it shrinks, as in Pillow's resize of the
 * cropped image. Bilinear is the triangle of support 1; bicubic is Keys' cubic with a = -0.5 (R. G.
 * Keys, "Cubic convolution interpolation for digital image processing", IEEE ASSP 29(6), 1981).
 * Taps never leave the crop; at its edges the remaining ones are scaled to sum 1. Without antialias
 * there are 2 or 4 taps, as in torch's interpolate(align_corners=False): bicubic with a = -0.75,
 * and pixels beyond the crop repeat its edge.
 *
 * Nearest is one tap, without antialias, so that values stay as they are. Which pixel is the
 * nearest depends on rounding, and is found as torch or Pillow find it: torch's "nearest" at the
 * output's left edge, the others at its centre; torch in float, Pillow by adding up doubles.
 *
 * One function here computes the weights in double; all other code rounds those.
 */
#ifndef HR_RECIPE_RESAMPLE_H
#define HR_RECIPE_RESAMPLE_H

#include <headrace/base.h>
#include <headrace/recipe.h>

#include <stddef.h>

/*
 * One axis of resizing a crop of `in` pixels to `out` pixels, of which only the outputs [first,
 * first + count) are wanted.
 *
 * Where the decoder halved the image, the crop's pixels are those of the halved image that it
 * overlaps. It may begin and end inside such a pixel. Outputs keep their places in the image:
 * filter centres are in fractions of a halved pixel.
 */
struct hr__axis {
    int in;     /* pixels of the crop on this axis, in the image that was not halved */
    int out;    /* pixels of the whole resized axis */
    int first;  /* first wanted output */
    int count;  /* number of wanted outputs */
    int origin; /* position of the crop's pixel 0 in the planar region; negative if only the pixels
                 * for the wanted outputs were decoded */
    int flip;   /* write the wanted outputs in reverse order */
    int halvings; /* how many times the decoder halved the image */
    int lead;     /* pixels of the image in the crop's halved pixel 0 that precede the crop */
};

static inline int hr__is_nearest(enum hr_interpolation interpolation)
{
    return interpolation >= HR_NEAREST;
}

/* Returns the number of the crop's pixels, halved or not. */
static inline int hr__axis_pixels(const struct hr__axis *axis)
{
    return (axis->lead + axis->in - 1) / (1 << axis->halvings) + 1;
}

/* Rows of floats, owned by the code that created them. */
struct hr__plane_f32 {
    float *at;
    int width, height;
    ptrdiff_t stride; /* floats between rows */
};

/* The filter of one axis, with outputs in the order in which they are written. */
struct hr__taps {
    int count;             /* number of outputs */
    int taps;              /* most taps of any output */
    size_t stride;         /* doubles between the weights of tap t and tap t + 1 */
    int *begin;            /* [count]: the crop's pixel at tap 0 */
    double *weight;        /* [taps][stride]: sum 1 per output; 0 for unused taps */
    size_t capacity_bytes; /* of the one block that holds both arrays */
};

/*
 * Computes the filter of an axis into `taps`, growing its memory. Initialise `taps` with zeros, and
 * free it with hr__taps_free. Errors: -ENOMEM; the table is then empty.
 */
int hr__taps_build(struct hr__taps *taps, const struct hr__axis *axis,
                   enum hr_interpolation interpolation, int antialias, struct hr_error *error);
void hr__taps_free(struct hr__taps *taps);

/* Returns at least as many taps as hr__taps_build would find, without building the table. */
int hr__taps_bound(const struct hr__axis *axis, enum hr_interpolation interpolation, int antialias);

/* Finds the crop's pixels [*begin, *end) that the wanted outputs of `axis` read (count > 0). */
void hr__axis_source(const struct hr__axis *axis, enum hr_interpolation interpolation,
                     int antialias, int *begin, int *end);

/*
 * Resizes one channel in float, with any number of taps: horizontally, then vertically. `in` has
 * rows of values 0..255; pixel (0, 0) of the crop is at its column x->origin, row y->origin. `out`
 * gets y->count rows of x->count floats. Bicubic results are clamped to 0..255; with antialias, as
 * in Pillow, so are the rows between the passes. Does not read pixels of `in` that the wanted
 * outputs do not need. Errors: -ENOMEM.
 */
int hr__resample_f32(const struct hr__plane_f32 *in, const struct hr__axis *x,
                     const struct hr__axis *y, enum hr_interpolation interpolation, int antialias,
                     struct hr__plane_f32 *out, struct hr_error *error);

#endif
