/*
 * The plan of one sample: the drawn parameters as a list of simple steps, and the part of the image
 * that each step needs.
 *
 * Drawing appends steps (crop, pad, resize, flip, colour); each knows the size of its result. Then
 * the needed region is traced backwards from the whole output to the image, so that only what the
 * output needs is decoded and computed. If the steps are crops and flips, at most one resize, crops
 * and flips, then colours, they are also folded into one axis per direction for the fused pass.
 *
 * All coordinates refer to the image after EXIF orientation, where that is applied; only `region`
 * refers to the image as stored.
 *
 * If the recipe allows it and the fused pass shrinks, the decoder halves the image as often as
 * leaves the crop at least the pixels of its result, on both axes. `source`, `region` and the
 * origins of the axes are then in pixels of the halved image.
 */
#ifndef HR_RECIPE_PLAN_H
#define HR_RECIPE_PLAN_H

#include "recipe/fused.h"
#include "recipe/resample.h"

#include <headrace/prepare.h>
#include <headrace/recipe.h>

enum hr__step_kind {
    HR__STEP_CROP = 1,
    HR__STEP_PAD,
    HR__STEP_RESIZE,
    HR__STEP_FLIP_X, /* mirrors left and right */
    HR__STEP_FLIP_Y,
    HR__STEP_BRIGHTNESS,
    HR__STEP_CONTRAST,
    HR__STEP_SATURATION,
    HR__STEP_HUE,
    HR__STEP_GRAYSCALE,
};

struct hr__step {
    enum hr__step_kind kind;
    int width, height;     /* of the result, in pixels */
    struct hr_region need; /* the part of the result that later steps read */
    union {
        struct {
            int x, y;
        } crop;
        struct {
            int left, top;
            enum hr_padding_mode mode;
            float fill[3]; /* 0..255 */
        } pad;
        struct {
            enum hr_interpolation interpolation;
            int antialias;
        } resize;
        float factor; /* brightness, contrast, saturation; hue: turns, -0.5..0.5 */
    } u;
};

/* An operation appends at most four steps. */
#define HR__PLAN_MAX_STEPS 128

struct hr__prepare_plan {
    int width, height;       /* of the oriented image */
    int orientation;         /* EXIF orientation 1..8 to apply; 1: none */
    struct hr_region source; /* what the first step reads, in the oriented image */
    struct hr_region region; /* the same in the stored image: what to decode */
    int halvings;            /* how many times the decoder has to halve the image; 0..3 */
    int fused;               /* non-zero: axes x and y represent all but the colour steps */
    struct hr__axis x, y;    /* origin: of the crop, in the oriented image */
    enum hr_interpolation interpolation;
    int antialias;
    int colors; /* number of colour steps */
    int count;
    struct hr__step step[HR__PLAN_MAX_STEPS];
};

/* The size of the result of the steps so far. */
int hr__plan_width(const struct hr__prepare_plan *plan);
int hr__plan_height(const struct hr__prepare_plan *plan);

/* Each function appends one step, or none if it would change nothing. A crop must be inside the
 * current image; padding must not be negative. */
void hr__plan_crop(struct hr__prepare_plan *plan, int x, int y, int width, int height);
void hr__plan_resize(struct hr__prepare_plan *plan, int width, int height,
                     enum hr_interpolation interpolation, int antialias);
void hr__plan_flip(struct hr__prepare_plan *plan, enum hr__step_kind kind);
void hr__plan_color(struct hr__prepare_plan *plan, enum hr__step_kind kind, double factor);

/* padding: left, top, right, bottom. */
void hr__plan_pad(struct hr__prepare_plan *plan, const int padding[4], enum hr_padding_mode mode,
                  const float fill[3]);

/* Returns the pixel, in an image of `size` pixels, that padding pixel `i` (any integer) repeats; -1
 * for the fill of HR_PAD_CONSTANT. Reflections repeat as often as necessary, like numpy.pad; where
 * torch's padding is defined, the two agree. */
int hr__pad_index(int i, int size, enum hr_padding_mode mode);

static inline int hr__step_is_color(const struct hr__step *step)
{
    return step->kind >= HR__STEP_BRIGHTNESS;
}

#endif
