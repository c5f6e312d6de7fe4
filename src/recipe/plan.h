/*
 * The plan of one sample: the drawn parameters as a list of simple steps, and the part of the image
 * that each step needs.
 *
 * Drawing appends steps (crop, pad, resize, flip, colour); each knows the size of its result. Then
 * the needed region is traced backwards from the whole output to the image, so that only what the
 * output needs is decoded and computed. Steps that are crops and flips, at most one resize, crops
 * and flips, then colours, are also folded into one axis per direction for the fused pass (fold.h).
 *
 * A plan with filters has three parts: `head`, which is folded, then steps on bytes up to the last
 * filter (filter.h), then `rest`, which makes the tensor as if those bytes were the image. If the
 * last filter is a canvas (canvas.h) and `rest` is fused, the canvas belongs to `rest`, too.
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
#include "recipe/rows.h"

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
    HR__STEP_FILTER, /* on bytes; see filter.h */
};

struct hr__filter;
struct hr__bound;

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
        struct {
            const struct hr__filter *filter;
            double value[11]; /* the filter's parameters */
            int word[4];
            uint64_t seed; /* of its noise */
        } filter;
    } u;
};

/* Most steps of a plan, and most that one operation may append: a recipe has 32 operations. */
#define HR__PLAN_MAX_STEPS      1024
#define HR__OPERATION_MAX_STEPS 32

/* Most rectangles of a plan that RandomErasing sets. */
#define HR__PLAN_MAX_ERASINGS 64

struct hr__erasing {
    struct hr_region rectangle; /* of the tensor */
    const struct hr__bound *bound;
    uint64_t seed;
};

/* Steps [first, last) of a plan, folded for the fused pass. */
struct hr__fold {
    int first, last;
    int fused; /* non-zero: x and y represent all but the colour steps, and the fused pass
                  supports them */
    struct hr__axis x, y; /* origin: of the crop, in the image before step `first` */
    enum hr_interpolation interpolation;
    int antialias;
    int colors;                    /* number of colour steps */
    const struct hr__step *canvas; /* step `first` - 1, which pads and which the fused pass runs, so
                                      that it reads what that step reads; NULL: none */
};

struct hr__prepare_plan {
    int width, height;       /* of the oriented image */
    int orientation;         /* EXIF orientation 1..8 to apply; 1: none */
    struct hr_region source; /* what the first step reads, in the oriented image */
    struct hr_region region; /* the same in the stored image: what to decode */
    int halvings;            /* how many times the decoder has to halve the image; 0..3 */
    int bytes; /* number of steps, from the first, that run on bytes: up to the last filter, or up
                  to rest.canvas */
    /* head: with filters, the steps before the first of them that can be folded. rest: the steps
     * after the last filter; without filters, all. */
    struct hr__fold head, rest;
    int count;
    struct hr__step step[HR__PLAN_MAX_STEPS];
    int erasings;
    struct hr__erasing erasing[HR__PLAN_MAX_ERASINGS]; /* in the finished tensor; see erase.h */
    struct hr__plan_rows rows;
};

/* The size of the image that step i reads. */
static inline int hr__width_before(const struct hr__prepare_plan *plan, int i)
{
    return i ? plan->step[i - 1].width : plan->width;
}

static inline int hr__height_before(const struct hr__prepare_plan *plan, int i)
{
    return i ? plan->step[i - 1].height : plan->height;
}

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
    return step->kind >= HR__STEP_BRIGHTNESS && step->kind <= HR__STEP_GRAYSCALE;
}

#endif
