/*
 * Builds plans: appends steps, traces the needed region backwards through them, and folds them for
 * the fused pass.
 *
 * Computing only a region is exact by construction: the weights of a resize depend only on the
 * sizes of the whole axes, never on the region, so a smaller region gives the same bits for its
 * pixels.
 */
#include "recipe/plan.h"

#include "base/error.h"
#include "recipe/operation.h"
#include "recipe/orient.h"
#include "recipe/scratch.h"

#include <assert.h>
#include <errno.h>

int hr__plan_width(const struct hr__prepare_plan *plan)
{
    return plan->count ? plan->step[plan->count - 1].width : plan->width;
}

int hr__plan_height(const struct hr__prepare_plan *plan)
{
    return plan->count ? plan->step[plan->count - 1].height : plan->height;
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
    if (width == hr__plan_width(plan) && height == hr__plan_height(plan))
        return;
    struct hr__step *step = append(plan, HR__STEP_CROP, width, height);
    step->u.crop.x = x;
    step->u.crop.y = y;
}

void hr__plan_pad(struct hr__prepare_plan *plan, const int padding[4], enum hr_padding_mode mode,
                  const float fill[3])
{
    if (!padding[0] && !padding[1] && !padding[2] && !padding[3])
        return;
    struct hr__step *step =
        append(plan, HR__STEP_PAD, hr__plan_width(plan) + padding[0] + padding[2],
               hr__plan_height(plan) + padding[1] + padding[3]);
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
    struct hr__step *step = append(plan, HR__STEP_RESIZE, width, height);
    step->u.resize.interpolation = interpolation;
    step->u.resize.antialias = antialias;
}

void hr__plan_flip(struct hr__prepare_plan *plan, enum hr__step_kind kind)
{
    append(plan, kind, hr__plan_width(plan), hr__plan_height(plan));
}

void hr__plan_color(struct hr__prepare_plan *plan, enum hr__step_kind kind, double factor)
{
    append(plan, kind, hr__plan_width(plan), hr__plan_height(plan))->u.factor = (float)factor;
    plan->colors++;
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
        source = (struct hr_region){0, 0, width, height};
        break;
    default:
        break;
    }
    return source;
}

static void walk_backwards(struct hr__prepare_plan *plan)
{
    struct hr_region need = {0, 0, hr__plan_width(plan), hr__plan_height(plan)};
    for (int i = plan->count - 1; i >= 0; i--) {
        int width = i ? plan->step[i - 1].width : plan->width;
        int height = i ? plan->step[i - 1].height : plan->height;
        plan->step[i].need = need;
        need = step_source(&plan->step[i], width, height, &need);
    }
    plan->source = need;
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

/* The folding of one direction. `begin` and `count` are pixels of the crop before the resize, and
 * the window of the result after it. */
struct fold {
    int before, in; /* crop before the resize: origin and pixels */
    int out;        /* pixels of the resized axis; 0: no resize yet */
    int first, count, flip;
};

static void fold_crop(struct fold *f, int at, int size)
{
    f->first = f->flip ? f->first + f->count - at - size : f->first + at;
    f->count = size;
}

static void fold_resize(struct fold *f, int out)
{
    f->before = f->first;
    f->in = f->count;
    f->out = out;
    f->first = 0;
    f->count = out;
}

static struct hr__axis fold_axis(const struct fold *f, int size)
{
    struct hr__axis axis = {.in = f->out ? f->in : size,
                            .out = f->out ? f->out : size,
                            .first = f->first,
                            .count = f->count,
                            .origin = f->before,
                            .flip = f->flip};
    return axis;
}

/* Returns non-zero if all but the colour steps were folded into the two axes. */
static int fold_steps(struct hr__prepare_plan *plan)
{
    struct fold x = {.count = plan->width}, y = {.count = plan->height};
    int colors = 0;
    plan->interpolation = HR_BILINEAR;
    plan->antialias = 1;
    for (int i = 0; i < plan->count; i++) {
        const struct hr__step *step = &plan->step[i];
        switch (step->kind) {
        case HR__STEP_CROP:
            if (colors)
                return 0;
            fold_crop(&x, step->u.crop.x, step->width);
            fold_crop(&y, step->u.crop.y, step->height);
            break;
        case HR__STEP_RESIZE:
            if (colors || x.out)
                return 0;
            fold_resize(&x, step->width);
            fold_resize(&y, step->height);
            plan->interpolation = step->u.resize.interpolation;
            plan->antialias = step->u.resize.antialias;
            break;
        case HR__STEP_FLIP_X:
            x.flip = !x.flip;
            break;
        case HR__STEP_FLIP_Y:
            y.flip = !y.flip;
            break;
        case HR__STEP_PAD:
            return 0;
        default: /* flips commute with every colour step, so they may follow one */
            colors++;
        }
    }
    plan->x = fold_axis(&x, plan->width);
    plan->y = fold_axis(&y, plan->height);
    return 1;
}

/* Returns non-zero if the fused pass supports the folded steps. */
static int fits(const struct hr__prepare_plan *plan)
{
    struct hr__fused_job job = {.x = plan->x,
                                .y = plan->y,
                                .interpolation = plan->interpolation,
                                .antialias = plan->antialias};
    return hr__fused_fits(&job);
}

/* Lets the folded axis, along `size` pixels of the image, read a halved image. `mirrored`: its
 * pixels are counted from the other end, where the last halved pixel may exceed the image. */
static void halve_axis(struct hr__axis *axis, int size, int mirrored, int halvings)
{
    int unit = 1 << halvings;
    int before = mirrored ? (unit - size % unit) % unit : 0;
    axis->halvings = halvings;
    axis->lead = (axis->origin + before) % unit;
    axis->origin = (axis->origin + before) / unit;
}

/* Halves the image as often as possible while the crop keeps at least the pixels of its result. */
static void halve(struct hr__prepare_plan *plan, enum hr_image_format format)
{
    int n = plan->antialias ? hr__format_halvings(format) : 0, columns, rows;
    while (n && (plan->x.in >> n < plan->x.out || plan->y.in >> n < plan->y.out))
        n--;
    hr__orient_mirrors(plan->orientation, &columns, &rows);
    halve_axis(&plan->x, plan->width, columns, n);
    halve_axis(&plan->y, plan->height, rows, n);
    plan->halvings = n;
}

/* Returns what the fused pass reads. With flips before a resize it may differ by a pixel from what
 * the single steps read. */
static struct hr_region fused_source(const struct hr__prepare_plan *plan)
{
    struct hr_region source;
    int x_end, y_end;
    hr__axis_source(&plan->x, plan->interpolation, plan->antialias, &source.x, &x_end);
    hr__axis_source(&plan->y, plan->interpolation, plan->antialias, &source.y, &y_end);
    source.width = x_end - source.x;
    source.height = y_end - source.y;
    source.x += plan->x.origin;
    source.y += plan->y.origin;
    return source;
}

static void start(struct hr__prepare_plan *plan, const struct hr_recipe *recipe,
                  const struct hr_image_info *info)
{
    int orientation = recipe->options.apply_exif_orientation ? info->orientation : 1;
    plan->orientation = orientation >= 1 && orientation <= 8 ? orientation : 1;
    plan->width = plan->orientation >= 5 ? info->height : info->width;
    plan->height = plan->orientation >= 5 ? info->width : info->height;
    plan->count = 0;
    plan->colors = 0;
    plan->halvings = 0;
}

/* Folds the plan, halves the image if that is allowed, and finds what to read. */
static int finish(struct hr__prepare_plan *plan, const struct hr_recipe *recipe,
                  const struct hr_image_info *info, struct hr_error *error)
{
    walk_backwards(plan);
    plan->fused = fold_steps(plan);
    if (plan->fused && recipe->options.inexact)
        halve(plan, info->format);
    plan->fused = plan->fused && fits(plan);
    if (!plan->fused) {
        plan->halvings = 0;
        int r = check_inside(plan, recipe->options.max_pixels, error);
        if (r)
            return r;
    } else {
        plan->source = fused_source(plan);
    }
    int width = ((info->width - 1) >> plan->halvings) + 1;
    int height = ((info->height - 1) >> plan->halvings) + 1;
    plan->region = hr__orient_region(&plan->source, width, height, plan->orientation);
    return 0;
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
    for (int i = 0; i < recipe->count; i++) {
        const struct hr__bound *bound = &recipe->operation[i];
        const struct hr__operation_class *class = hr__operation_class(bound->operation.kind);
        if (!class->draw)
            continue;
        struct hr__random random;
        uint64_t purpose = HR__PURPOSE_OPERATION + ((uint64_t)bound->position << 8);
        hr__random_init(&random, key->seed, purpose, key->epoch, key->index);
        r = class->draw(bound, &random, plan, error);
        if (r)
            return r;
    }
    r = finish(plan, recipe, info, error);
    if (r)
        return r;
    *out = plan;
    *region = plan->region;
    return 0;
}
