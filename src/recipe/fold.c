/* Folds a plan's steps into one axis per direction, and runs them by the fused pass; see fold.h. */
#include "recipe/fold.h"

#include "recipe/general.h"
#include "recipe/orient.h"
#include "recipe/recipe.h"

/* The folding of one direction. `begin` and `count` are pixels of the crop before the resize, and
 * the window of the result after it. */
struct axis_fold {
    int before, in; /* crop before the resize: origin and pixels */
    int out;        /* pixels of the resized axis; 0: no resize yet */
    int first, count, flip;
};

static void fold_crop(struct axis_fold *f, int at, int size)
{
    f->first = f->flip ? f->first + f->count - at - size : f->first + at;
    f->count = size;
}

static void fold_resize(struct axis_fold *f, int out)
{
    f->before = f->first;
    f->in = f->count;
    f->out = out;
    f->first = 0;
    f->count = out;
}

static struct hr__axis fold_axis(const struct axis_fold *f, int size)
{
    struct hr__axis axis = {.in = f->out ? f->in : size,
                            .out = f->out ? f->out : size,
                            .first = f->first,
                            .count = f->count,
                            .origin = f->before,
                            .flip = f->flip};
    return axis;
}

int hr__fold_steps(const struct hr__prepare_plan *plan, struct hr__fold *fold)
{
    int width = hr__width_before(plan, fold->first), height = hr__height_before(plan, fold->first);
    struct axis_fold x = {.count = width}, y = {.count = height};
    int i;
    fold->interpolation = HR_BILINEAR;
    fold->antialias = 1;
    fold->colors = 0;
    for (i = fold->first; i < fold->last; i++) {
        const struct hr__step *step = &plan->step[i];
        switch (step->kind) {
        case HR__STEP_CROP:
            if (fold->colors)
                goto end;
            fold_crop(&x, step->u.crop.x, step->width);
            fold_crop(&y, step->u.crop.y, step->height);
            break;
        case HR__STEP_RESIZE:
            if (fold->colors || x.out)
                goto end;
            /* nearest pixels are not the same from either side */
            if (hr__is_nearest(step->u.resize.interpolation) && (x.flip || y.flip))
                goto end;
            fold_resize(&x, step->width);
            fold_resize(&y, step->height);
            fold->interpolation = step->u.resize.interpolation;
            fold->antialias = step->u.resize.antialias;
            break;
        case HR__STEP_FLIP_X:
            x.flip = !x.flip;
            break;
        case HR__STEP_FLIP_Y:
            y.flip = !y.flip;
            break;
        case HR__STEP_PAD:
        case HR__STEP_FILTER:
            goto end;
        default: /* flips commute with every colour step, so they may follow one */
            fold->colors++;
        }
    }
end:
    fold->x = fold_axis(&x, width);
    fold->y = fold_axis(&y, height);
    return i;
}

int hr__fold_fits(const struct hr__fold *fold)
{
    struct hr__fused_job job = {.x = fold->x,
                                .y = fold->y,
                                .interpolation = fold->interpolation,
                                .antialias = fold->antialias};
    return hr__fused_fits(&job);
}

static void narrow_axis(struct hr__axis *axis, int at, int size)
{
    axis->first = axis->flip ? axis->first + axis->count - at - size : axis->first + at;
    axis->count = size;
}

void hr__fold_narrow(struct hr__fold *fold, const struct hr_region *need)
{
    narrow_axis(&fold->x, need->x, need->width);
    narrow_axis(&fold->y, need->y, need->height);
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

int hr__fold_halve(struct hr__fold *fold, const struct hr__prepare_plan *plan,
                   enum hr_image_format format)
{
    int n = fold->antialias ? hr__format_halvings(format) : 0, columns, rows;
    while (n && (fold->x.in >> n < fold->x.out || fold->y.in >> n < fold->y.out))
        n--;
    hr__orient_mirrors(plan->orientation, &columns, &rows);
    halve_axis(&fold->x, plan->width, columns, n);
    halve_axis(&fold->y, plan->height, rows, n);
    return n;
}

struct hr_region hr__fold_source(const struct hr__fold *fold)
{
    struct hr_region source;
    int x_end, y_end;
    hr__axis_source(&fold->x, fold->interpolation, fold->antialias, &source.x, &x_end);
    hr__axis_source(&fold->y, fold->interpolation, fold->antialias, &source.y, &y_end);
    source.width = x_end - source.x;
    source.height = y_end - source.y;
    source.x += fold->x.origin;
    source.y += fold->y.origin;
    return source;
}

/* Returns what a step that pads puts around the window of its input. */
static struct hr__surround surround_of(const struct hr__step *step, const struct hr__window *window)
{
    struct hr__surround around = {.x = window->x + step->u.filter.word[0] - step->need.x,
                                  .y = window->y + step->u.filter.word[1] - step->need.y,
                                  .width = step->need.width,
                                  .height = step->need.height};
    for (int c = 0; c < 3; c++)
        around.fill[c] = (uint8_t)step->u.filter.value[c];
    return around;
}

int hr__fold_run(struct hr__scratch *scratch, const struct hr__fold *fold,
                 const struct hr__window *window, struct hr__fused_job *job, struct hr_error *error)
{
    struct hr__planar pixels = {.plane = {window->plane[0], window->plane[1], window->plane[2]},
                                .stride = window->stride,
                                .width = window->width,
                                .height = window->height};
    struct hr__surround around;
    job->pixels = &pixels;
    job->x = fold->x;
    job->y = fold->y;
    job->x.origin -= fold->canvas ? fold->canvas->need.x : window->x;
    job->y.origin -= fold->canvas ? fold->canvas->need.y : window->y;
    if (fold->canvas) {
        around = surround_of(fold->canvas, window);
        job->around = &around;
    }
    job->interpolation = fold->interpolation;
    job->antialias = fold->antialias;
    return hr__fused_run(scratch->fused, job, error);
}
