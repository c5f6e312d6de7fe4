/*
 * Builds plans: appends steps, traces the needed region backwards through them, and decides which
 * the fused pass runs.
 *
 * Computing only a region is exact by construction: the weights of a resize depend only on the
 * sizes of the whole axes, never on the region, so a smaller region gives the same bits for its
 * pixels.
 */
#include "recipe/plan.h"

#include "base/error.h"
#include "recipe/filter.h"
#include "recipe/fold.h"
#include "recipe/group.h"
#include "recipe/orient.h"
#include "recipe/rows_geometry.h"
#include "recipe/scratch.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

int hr__plan_width(const struct hr__prepare_plan *plan)
{
    return hr__width_before(plan, plan->count);
}

int hr__plan_height(const struct hr__prepare_plan *plan)
{
    return hr__height_before(plan, plan->count);
}

static struct hr__step *append(struct hr__prepare_plan *plan, enum hr__step_kind kind, int width,
                               int height)
{
    assert(plan->count < HR__PLAN_MAX_STEPS);
    struct hr__step *step = &plan->step[plan->count++];
    step->kind = kind;
    step->width = width;
    step->height = height;
    return step;
}

void hr__plan_crop(struct hr__prepare_plan *plan, int x, int y, int width, int height)
{
    hr__rows_cut(&plan->rows, x, y, width, height);
    if (width == hr__plan_width(plan) && height == hr__plan_height(plan))
        return;
    struct hr__step *step = append(plan, HR__STEP_CROP, width, height);
    step->u.crop.x = x;
    step->u.crop.y = y;
}

void hr__plan_pad(struct hr__prepare_plan *plan, const int padding[4], enum hr_padding_mode mode,
                  const float fill[3])
{
    int width = hr__plan_width(plan) + padding[0] + padding[2];
    int height = hr__plan_height(plan) + padding[1] + padding[3];
    hr__rows_cut(&plan->rows, -padding[0], -padding[1], width, height);
    if (!padding[0] && !padding[1] && !padding[2] && !padding[3])
        return;
    struct hr__step *step = append(plan, HR__STEP_PAD, width, height);
    step->u.pad.left = padding[0];
    step->u.pad.top = padding[1];
    step->u.pad.mode = mode;
    for (int c = 0; c < 3; c++)
        step->u.pad.fill[c] = fill[c];
}

void hr__plan_resize(struct hr__prepare_plan *plan, int width, int height,
                     enum hr_interpolation interpolation, int antialias)
{
    if (width == hr__plan_width(plan) && height == hr__plan_height(plan))
        return;
    hr__rows_scale(&plan->rows, (double)width / hr__plan_width(plan),
                   (double)height / hr__plan_height(plan));
    struct hr__step *step = append(plan, HR__STEP_RESIZE, width, height);
    step->u.resize.interpolation = interpolation;
    step->u.resize.antialias = antialias && !hr__is_nearest(interpolation);
}

void hr__plan_flip(struct hr__prepare_plan *plan, enum hr__step_kind kind)
{
    if (kind == HR__STEP_FLIP_X)
        hr__rows_mirror(&plan->rows, 0, hr__plan_width(plan));
    else
        hr__rows_mirror(&plan->rows, 1, hr__plan_height(plan));
    append(plan, kind, hr__plan_width(plan), hr__plan_height(plan));
}

void hr__plan_color(struct hr__prepare_plan *plan, enum hr__step_kind kind, double factor)
{
    append(plan, kind, hr__plan_width(plan), hr__plan_height(plan))->u.factor = (float)factor;
}

struct hr__step *hr__plan_filter(struct hr__prepare_plan *plan, const struct hr__filter *filter,
                                 int width, int height)
{
    struct hr__step *step = append(plan, HR__STEP_FILTER, width, height);
    memset(&step->u.filter, 0, sizeof step->u.filter);
    step->u.filter.filter = filter;
    plan->bytes = plan->count;
    return step;
}

struct hr_region hr__whole_source(const struct hr__step *step, int width, int height,
                                  const struct hr_region *need)
{
    return (struct hr_region){0, 0, width, height};
}

int hr__pad_index(int i, int size, enum hr_padding_mode mode)
{
    if (i >= 0 && i < size)
        return i;
    if (mode == HR_PAD_CONSTANT)
        return -1;
    if (mode == HR_PAD_EDGE || size == 1)
        return i < 0 ? 0 : size - 1;
    /* reflect does not repeat the edge pixel, symmetric does */
    int edge = mode == HR_PAD_REFLECT ? 1 : 0;
    int64_t period = 2 * ((int64_t)size - edge);
    int64_t k = i % period;
    k = k < 0 ? k + period : k;
    return (int)(k < size ? k : period - k - (1 - edge));
}

/* Finds the pixels [*begin, *end) that the padded pixels [first, first + count) come from; one
 * pixel if all of them are fill, so that no region is empty. */
static void pad_source(int first, int count, int before, int size, enum hr_padding_mode mode,
                       int *begin, int *end)
{
    int low = size, high = -1;
    for (int i = first - before; i < first - before + count; i++) {
        int k = hr__pad_index(i, size, mode);
        if (k >= 0) {
            low = k < low ? k : low;
            high = k > high ? k : high;
        }
    }
    *begin = high < 0 ? 0 : low;
    *end = high < 0 ? 1 : high + 1;
}

static struct hr_region resize_source(const struct hr__step *step, int width, int height,
                                      const struct hr_region *need)
{
    struct hr__axis x = {.in = width, .out = step->width, .first = need->x, .count = need->width};
    struct hr__axis y = {
        .in = height, .out = step->height, .first = need->y, .count = need->height};
    int x_end, y_end;
    struct hr_region source;
    hr__axis_source(&x, step->u.resize.interpolation, step->u.resize.antialias, &source.x, &x_end);
    hr__axis_source(&y, step->u.resize.interpolation, step->u.resize.antialias, &source.y, &y_end);
    source.width = x_end - source.x;
    source.height = y_end - source.y;
    return source;
}

/* Returns what `step` reads of its input of width x height for `need` of its result. */
static struct hr_region step_source(const struct hr__step *step, int width, int height,
                                    const struct hr_region *need)
{
    struct hr_region source = *need;
    int end;
    switch (step->kind) {
    case HR__STEP_CROP:
        source.x += step->u.crop.x;
        source.y += step->u.crop.y;
        break;
    case HR__STEP_PAD:
        pad_source(need->x, need->width, step->u.pad.left, width, step->u.pad.mode, &source.x,
                   &end);
        source.width = end - source.x;
        pad_source(need->y, need->height, step->u.pad.top, height, step->u.pad.mode, &source.y,
                   &end);
        source.height = end - source.y;
        break;
    case HR__STEP_RESIZE:
        source = resize_source(step, width, height, need);
        break;
    case HR__STEP_FLIP_X:
        source.x = width - need->x - need->width;
        break;
    case HR__STEP_FLIP_Y:
        source.y = height - need->y - need->height;
        break;
    case HR__STEP_CONTRAST: /* needs the mean of the whole picture */
        source = hr__whole_source(step, width, height, need);
        break;
    case HR__STEP_FILTER:
        if (step->u.filter.filter->source)
            source = step->u.filter.filter->source(step, width, height, need);
        break;
    default:
        break;
    }
    return source;
}

/* Sets what is needed of each step in [first, last), where `need` is needed of the last. Returns
 * what the first reads. */
static struct hr_region walk_backwards(struct hr__prepare_plan *plan, int first, int last,
                                       struct hr_region need)
{
    for (int i = last - 1; i >= first; i--) {
        plan->step[i].need = need;
        need = step_source(&plan->step[i], hr__width_before(plan, i), hr__height_before(plan, i),
                           &need);
    }
    return need;
}

/* Refuses an image that becomes larger inside the recipe than any image may be: for example a long
 * and narrow one, resized by its shorter side before a colour step that needs all of it. Only the
 * general path keeps such intermediate images. */
static int check_inside(const struct hr__prepare_plan *plan, uint64_t max_pixels,
                        struct hr_error *error)
{
    int rows = plan->source.height;
    for (int i = 0; i < plan->count; i++) {
        const struct hr__step *step = &plan->step[i];
        /* a resize first makes its source's rows as wide as its result */
        int height =
            step->kind == HR__STEP_RESIZE && rows > step->need.height ? rows : step->need.height;
        if ((uint64_t)step->need.width * (uint64_t)height > max_pixels)
            return hr__fail(error, -EFBIG,
                            "the image of %d x %d pixels becomes %d x %d inside the "
                            "recipe, more than its max_pixels of %llu",
                            plan->width, plan->height, step->need.width, height,
                            (unsigned long long)max_pixels);
        rows = step->need.height;
    }
    return 0;
}

static void start(struct hr__prepare_plan *plan, const struct hr_recipe *recipe,
                  const struct hr_image_info *info)
{
    int orientation = recipe->options.apply_exif_orientation ? info->orientation : 1;
    plan->orientation = orientation >= 1 && orientation <= 8 ? orientation : 1;
    plan->width = plan->orientation >= 5 ? info->height : info->width;
    plan->height = plan->orientation >= 5 ? info->width : info->height;
    plan->count = 0;
    plan->bytes = 0;
    plan->erasings = 0;
    plan->halvings = 0;
}

/* Decides whether the fused pass runs the fold, and returns what it reads: by `source` if step by
 * step. halves: the format to decode at a smaller scale, if that is allowed; else 0. */
static struct hr_region choose_pass(struct hr__prepare_plan *plan, struct hr__fold *fold,
                                    enum hr_image_format halves, struct hr_region source)
{
    int n = fold->fused && halves ? hr__fold_halve(fold, plan, halves) : 0;
    fold->fused = fold->fused && hr__fold_fits(fold);
    if (!fold->fused)
        return source;
    plan->halvings = n;
    return hr__fold_source(fold);
}

/* Plans what happens after the last filter. Returns what it reads. */
static struct hr_region plan_rest(struct hr__prepare_plan *plan, enum hr_image_format halves)
{
    struct hr__fold *rest = &plan->rest;
    struct hr_region all = {0, 0, hr__plan_width(plan), hr__plan_height(plan)};
    rest->first = plan->bytes;
    rest->last = plan->count;
    rest->fused = hr__fold_steps(plan, rest) == rest->last;
    struct hr_region source = walk_backwards(plan, rest->first, rest->last, all);
    return choose_pass(plan, rest, halves, source);
}

/* Plans the steps up to the last filter, of whose result `need` is needed. Returns what they
 * read. */
static struct hr_region plan_bytes(struct hr__prepare_plan *plan, enum hr_image_format halves,
                                   struct hr_region need)
{
    struct hr__fold *head = &plan->head;
    head->first = 0;
    head->last = plan->bytes;
    head->last = hr__fold_steps(plan, head);
    need = walk_backwards(plan, head->last, plan->bytes, need);
    hr__fold_narrow(head, &need);
    head->fused = !head->colors; /* after a ToDtype to floats, before one to uint8 */
    return choose_pass(plan, head, halves, walk_backwards(plan, 0, head->last, need));
}

/* Folds the plan, halves the image if that is allowed, and finds what to read. */
static int finish(struct hr__prepare_plan *plan, const struct hr_recipe *recipe,
                  const struct hr_image_info *info, struct hr_error *error)
{
    enum hr_image_format halves = recipe->options.inexact ? info->format : (enum hr_image_format)0;
    plan->source = plan_rest(plan, plan->bytes ? (enum hr_image_format)0 : halves);
    if (plan->bytes)
        plan->source = plan_bytes(plan, halves, plan->source);
    if (plan->bytes || !plan->rest.fused) {
        int r = check_inside(plan, recipe->options.max_pixels, error);
        if (r)
            return r;
    }
    int width = ((info->width - 1) >> plan->halvings) + 1;
    int height = ((info->height - 1) >> plan->halvings) + 1;
    plan->region = hr__orient_region(&plan->source, width, height, plan->orientation);
    return 0;
}

/* Refuses a result that does not fit into the tensor of a padded recipe. */
static int check_largest(const struct hr_recipe *recipe, int width, int height,
                         struct hr_error *error)
{
    if (width <= recipe->spec.width && height <= recipe->spec.height)
        return 0;
    return hr__fail(error, -EFBIG,
                    "the recipe makes %d x %d pixels (height x width) of this image, and batches "
                    "have room for %d x %d: raise max_size (in C, max_height and max_width), or "
                    "give the recipe's Resize a max_size",
                    height, width, recipe->spec.height, recipe->spec.width);
}

int hr__recipe_plan(const struct hr_recipe *recipe, struct hr__scratch *scratch,
                    const struct hr_image_info *info, const struct hr_draw_key *key,
                    const struct hr__prepare_plan **out, struct hr_region *region,
                    struct hr_error *error)
{
    struct hr__prepare_plan *plan = &scratch->plan;
    int r = hr__check_pixels(info, recipe->options.max_pixels, error);
    if (r)
        return r;
    start(plan, recipe, info);
    r = hr__rows_begin(scratch, error);
    if (r)
        return r;
    hr__rows_orient(&plan->rows, plan->orientation, plan->width, plan->height);
    r = hr__draw_operations(recipe, key, plan, error);
    if (r)
        return r;
    int width = hr__plan_width(plan), height = hr__plan_height(plan);
    if (recipe->options.padded)
        r = check_largest(recipe, width, height, error);
    else if (width != recipe->spec.width || height != recipe->spec.height)
        return hr__fail(error, -EINVAL,
                        "the recipe makes %d x %d pixels (height x width) of this image instead of "
                        "%d x %d: please report this as an error of Headrace",
                        height, width, recipe->spec.height, recipe->spec.width);
    if (!r)
        r = finish(plan, recipe, info, error);
    if (r)
        return r;
    *out = plan;
    *region = plan->region;
    return 0;
}
