/*
 * Geometric filters: each pixel of the result is taken from a place in the input that a map gives,
 * as in torch's grid_sample with zeros around the image and align_corners=False. What is outside
 * shows the fill.
 */
#ifndef HR_RECIPE_WARP_H
#define HR_RECIPE_WARP_H

#include "recipe/filter.h"
#include "recipe/operation.h"
#include "recipe/warp_rows.h"

struct hr__warp {
    /* Sets x and y of to->n pixels of the result, from (first, row) on. */
    void (*coordinates)(const void *map, int first, int row, struct hr__warp_row *to);
    const void *map;
    enum hr_interpolation interpolation; /* nearest or bilinear */
    int has_fill;                        /* 0: black, as torchvision's fill=None */
    float fill[3];                       /* 0..255 */
};

/* Computes the planes that *out has from *in, which contains what *out needs. Errors: -ENOMEM;
 * -EFBIG: a plane of 2 GiB or more. */
int hr__warp_run(struct hr__scratch *scratch, const struct hr__warp *warp,
                 const struct hr__window *in, const struct hr__window *out, struct hr_error *error);

/* Returns the pixels of an image of width x height that coordinates between `low` and `high` (x, y)
 * show; one pixel if there are none, so that no region is empty. */
struct hr_region hr__warp_region(const float low[2], const float high[2], int width, int height);

/* Checks the parameters that geometric operations share: their place, the interpolation and the
 * fill. */
int hr__check_warp(const struct hr__bound *bound, const struct hr__state *state,
                   enum hr_interpolation interpolation, const double fill[3],
                   struct hr_error *error);

/* Refuses a range that is not two finite numbers, the smaller first. */
int hr__check_range(const struct hr__bound *bound, const char *name, const double range[2],
                    struct hr_error *error);

#endif
