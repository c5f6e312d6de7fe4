/*
 * The row kernels of geometric filters, one table per instruction set. All versions give the same
 * bits. They follow the order of operations of torch's grid_sample in float32, with fused
 * multiply-adds where its vector kernels have them.
 */
#ifndef HR_RECIPE_WARP_ROWS_H
#define HR_RECIPE_WARP_ROWS_H

#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>

/* Where a pixel of the result lies in the input. */
enum hr__warp_place {
    HR__WARP_OUTSIDE = 0, /* it shows only the surroundings */
    HR__WARP_INSIDE = 1,  /* all input pixels that it mixes are inside the image */
    HR__WARP_BORDER = 2,  /* some of them are; bilinear only */
};

/* `n` pixels of a row of the result. */
struct hr__warp_row {
    int n;
    float *x, *y;           /* coordinates in the input; the middle of its first pixel is 0 */
    float *part_x, *part_y; /* bilinear: their fractions */
    int32_t *at;            /* of pixels inside: the upper left of the pixels to mix, in bytes
                               from the window's first */
    int32_t *places;        /* enum hr__warp_place, for kernels to write in one width */
    uint8_t *place;         /* the same in bytes */
};

/* The input. */
struct hr__warp_input {
    int width, height; /* pixels of the whole image */
    int x, y;          /* of the window's first pixel */
    int stride;        /* bytes between rows */
};

/* One plane of the input, and its row of the result. */
struct hr__warp_plane {
    const uint8_t *from; /* may be read HR__PIXEL_SLACK bytes past the end of a row */
    ptrdiff_t stride;
    uint8_t *to;
    int has_fill; /* non-zero: mixed pixels are blended with `fill` */
    float fill;   /* 0..255 */
};

/* An affine map in the units of grid_sample: -1..1 in the input, pixels in the result. */
struct hr__affine_map {
    float m[6];                    /* to x: [0] to [2]; to y */
    float first_x, first_y;        /* of the result's first pixel, relative to its middle */
    float half_width, half_height; /* of the input, in pixels */
};

/* A perspective map: [0] to [2] to x, [3] to [5] to y, in 0..2 along the input, both divided by
 * [6] x + [7] y + 1. Coordinates of the result begin with 0.5. */
struct hr__perspective_map {
    float m[8];
    float half_width, half_height;
};

/* Displacements of the pixels of a window, in the units of grid_sample. */
struct hr__displacement_map {
    const float *x, *y;            /* by rows of `width` pixels */
    int first, row;                /* the window's first pixel */
    int width;                     /* of the window */
    int whole_width, whole_height; /* of the image */
};

struct hr__warp_rows {
    /* Set x and y for the pixels from (first, row) on. map: the struct of that name */
    void (*affine)(const void *map, int first, int row, struct hr__warp_row *to);
    void (*perspective)(const void *map, int first, int row, struct hr__warp_row *to);
    void (*displaced)(const void *map, int first, int row, struct hr__warp_row *to);
    /* Adds weight x (a + b) to `sum`. */
    void (*add_pair)(float *sum, const float *a, const float *b, float weight, int n);
    /* Set `place` and `at` (and the fractions) from x and y. */
    void (*nearest)(struct hr__warp_row *row, const struct hr__warp_input *input);
    void (*bilinear)(struct hr__warp_row *row, const struct hr__warp_input *input);
    /* Copies or mixes pixels [first, end), which are all inside. */
    void (*take)(const struct hr__warp_row *row, int first, int end,
                 const struct hr__warp_plane *plane);
    void (*mix)(const struct hr__warp_row *row, int first, int end,
                const struct hr__warp_plane *plane);
};

extern const struct hr__warp_rows hr__warp_rows_portable;
extern const struct hr__warp_rows hr__warp_rows_avx2;

/* Returns the version for `isa`, or the best lower one in this build. */
const struct hr__warp_rows *hr__warp_rows(enum hr__isa isa);

/* Rounds to the nearest integer, ties to even; |v| < 2^22. */
static inline float hr__round_even(float v)
{
    return (v + 12582912.0f) - 12582912.0f;
}

/* Rounds down; |v| < 2^22. */
static inline float hr__round_down(float v)
{
    float rounded = hr__round_even(v);
    return rounded > v ? rounded - 1.0f : rounded;
}

/* Mixes four pixels, upper left, upper right, lower left and lower right: w has their weights. */
static inline float hr__warp_mix(const float w[4], const float p[4])
{
    float v = __builtin_fmaf(w[1], p[1], w[0] * p[0]);
    return __builtin_fmaf(w[3], p[3], __builtin_fmaf(w[2], p[2], v));
}

#endif
