/*
 * Filters: steps that compute new pixel values from bytes, such as a blur or a rotation.
 *
 * Filters run before any ToDtype, on planes of bytes, and round like torchvision v2's kernels for
 * uint8 tensors. A filter sees a window of its input, at least the region that its `source`
 * returned, and computes the region that later steps need. The weights and coordinates depend only
 * on the sizes of the whole image, never on the window, so that a smaller window gives the same
 * bytes for its pixels.
 */
#ifndef HR_RECIPE_FILTER_H
#define HR_RECIPE_FILTER_H

#include "recipe/plan.h"
#include "recipe/scratch.h"

/* A window of an image, as three planes of bytes, which may be read HR__PIXEL_SLACK bytes past the
 * end of a row. */
struct hr__window {
    uint8_t *plane[3]; /* R, G, B: at the window's first pixel. Of a mask, the last two are NULL */
    ptrdiff_t stride;  /* bytes between rows; negative: the rows are upside down in memory */
    int x, y;          /* position and size of the window in its image, in pixels */
    int width, height;
    int image_width, image_height; /* pixels of the whole image */
};

struct hr__filter {
    const char *name;
    int pads; /* non-zero: places the input at (word[0], word[1]) of the result; all else has the
                 fill value[0..2]. The fused pass can do so instead of `run`. */
    int warp_fill; /* non-zero: it is geometric (warp.h). word[0] is the interpolation, word[1]
                      tells whether it has a fill, which is in value[] from here on */
    /* Returns the part of an input of width x height pixels that the filter reads for `need` of its
     * result. NULL: the same pixels. */
    struct hr_region (*source)(const struct hr__step *step, int width, int height,
                               const struct hr_region *need);
    /* Changes the pixels of *window in place. NULL: the filter has `run`. Errors: -ENOMEM. */
    int (*change)(struct hr__scratch *scratch, const struct hr__step *step,
                  const struct hr__window *window, struct hr_error *error);
    /* Computes all of *out, which is step->need of the result, in memory of its own. Errors:
     * -ENOMEM. */
    int (*run)(struct hr__scratch *scratch, const struct hr__step *step,
               const struct hr__window *in, const struct hr__window *out, struct hr_error *error);
};

/* For filters that read the whole input: statistics, for example. */
struct hr_region hr__whole_source(const struct hr__step *step, int width, int height,
                                  const struct hr_region *need);

/* Appends a step that runs `filter`; its result has width x height pixels. Returns the step, whose
 * u.filter the caller sets. */
struct hr__step *hr__plan_filter(struct hr__prepare_plan *plan, const struct hr__filter *filter,
                                 int width, int height);

/*
 * Runs the plan's steps up to plan->bytes on *window, which holds plan->source. *window is then
 * what is needed of the last of them, in the scratch's memory. Errors: -ENOMEM.
 */
int hr__bytes_run(struct hr__scratch *scratch, const struct hr__prepare_plan *plan,
                  struct hr__window *window, struct hr_error *error);

#endif
