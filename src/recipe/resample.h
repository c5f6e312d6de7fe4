/*
 * Resizing: what the filters are, and the plain float version of it.
 *
 * With antialias a filter is stretched by the scale when it shrinks, as in
 * Pillow's resize of the cropped image: bilinear is the triangle of support 1,
 * bicubic Keys' cubic with a = -0.5 (R. G. Keys, "Cubic convolution
 * interpolation for digital image processing", IEEE ASSP 29(6), 1981). Taps never
 * leave the crop; what is left of them at its edges is scaled to sum 1. Without
 * antialias they are the 2 or 4 taps of torch's interpolate(align_corners=False):
 * bicubic with a = -0.75, pixels beyond the crop repeat its edge.
 *
 * Weights are made in double by one function, here; all else rounds those.
 */
#ifndef HR_RECIPE_RESAMPLE_H
#define HR_RECIPE_RESAMPLE_H

#include <headrace/base.h>
#include <headrace/recipe.h>

#include <stddef.h>

/* One axis of a resize of a crop of `in` pixels to `out` pixels, of which only
 * [first, first + count) are wanted. */
struct hr__axis {
    int in;     /* pixels of the crop on this axis */
    int out;    /* pixels of the whole resized axis */
    int first;  /* first wanted output */
    int count;  /* wanted outputs */
    int origin; /* pixel of the planar region that is pixel 0 of the crop; may be
                   negative when only what `first, count` need was decoded */
    int flip;   /* wanted outputs are written in reverse */
};

/* Rows of floats; owned by whoever made them. */
struct hr__plane_f32 {
    float *at;
    int width, height;
    ptrdiff_t stride; /* floats between rows */
};

/* The filter of one axis: outputs in the order in which they are written. */
struct hr__taps {
    int count;             /* outputs */
    int taps;              /* most taps of any output */
    size_t stride;         /* doubles between the weights of tap t and tap t + 1 */
    int *begin;            /* [count]: the crop's pixel under tap 0 */
    double *weight;        /* [taps][stride]: sum 1 per output; 0 where it has fewer taps */
    size_t capacity_bytes; /* of the one block that both live in */
};

/*
 * Fills `taps` for the axis, growing its memory, which starts out as zeros and
 * is freed with hr__taps_free. Errors: -ENOMEM; the table is then empty.
 */
int hr__taps_build(struct hr__taps *taps, const struct hr__axis *axis,
                   enum hr_interpolation interpolation, int antialias, struct hr_error *error);
void hr__taps_free(struct hr__taps *taps);

/* At least the taps that hr__taps_build would find; no memory is needed. */
int hr__taps_bound(const struct hr__axis *axis, enum hr_interpolation interpolation, int antialias);

/* Source pixels [*begin, *end) of the crop that the wanted outputs of `axis`
 * read (count > 0). */
void hr__axis_source(const struct hr__axis *axis, enum hr_interpolation interpolation,
                     int antialias, int *begin, int *end);

/*
 * The resize in float, one channel, any number of taps: horizontally, then
 * vertically. `in` holds rows of values 0..255; pixel (0, 0) of the crop is at
 * column x->origin, row y->origin of it. `out` takes y->count rows of x->count
 * floats. Bicubic results are cut to 0..255, with antialias (as in Pillow) the
 * rows between the passes too. Bytes of `in` outside the sources of the wanted
 * outputs are not read. Errors: -ENOMEM.
 */
int hr__resample_f32(const struct hr__plane_f32 *in, const struct hr__axis *x,
                     const struct hr__axis *y, enum hr_interpolation interpolation, int antialias,
                     struct hr__plane_f32 *out, struct hr_error *error);

#endif
