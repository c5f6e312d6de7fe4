/*
 * A picture is a window of the image at one step. Before each step it is narrowed to what the step
 * needs. Crops and vertical flips only move the window; padding and resizing write to the other
 * buffer.
 */
#include "recipe/general.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

int hr__picture_reserve(struct hr__scratch *scratch, int which, int width, int height,
                        ptrdiff_t stride, struct hr__picture *picture, struct hr_error *error)
{
    size_t plane, bytes;
    if (__builtin_mul_overflow((size_t)stride, (size_t)height, &plane) ||
        __builtin_mul_overflow(plane, 3 * sizeof(float), &bytes))
        return hr__fail(error, -ENOMEM,
                        "an image of %d x %d pixels inside the recipe is too "
                        "large",
                        width, height);
    int r = hr__buffer_reserve(&scratch->planes[which], bytes, error);
    if (r)
        return r;
    for (int c = 0; c < 3; c++)
        picture->plane[c] = (float *)scratch->planes[which].bytes + (size_t)c * plane;
    picture->stride = stride;
    picture->x = 0;
    picture->y = 0;
    picture->width = width;
    picture->height = height;
    return 0;
}

/* Creates a picture for the window `need` of an image, in the buffer that is not in use. */
static int next_picture(struct hr__scratch *scratch, int *which, const struct hr_region *need,
                        struct hr__picture *picture, struct hr_error *error)
{
    *which = !*which;
    ptrdiff_t stride = ((ptrdiff_t)need->width + 15) & ~(ptrdiff_t)15;
    int r = hr__picture_reserve(scratch, *which, need->width, need->height, stride, picture, error);
    picture->x = need->x;
    picture->y = need->y;
    return r;
}

static void load(const struct hr__window *window, struct hr__picture *picture)
{
    for (int c = 0; c < 3; c++) {
        for (int y = 0; y < picture->height; y++) {
            const uint8_t *restrict from = window->plane[c] + y * window->stride;
            float *restrict to = picture->plane[c] + y * picture->stride;
            for (int x = 0; x < picture->width; x++)
                to[x] = (float)from[x];
        }
    }
}

/* Narrows the window to `need`, which is inside it. */
static void narrow(struct hr__picture *p, const struct hr_region *need)
{
    for (int c = 0; c < 3; c++)
        p->plane[c] += (need->y - p->y) * p->stride + (need->x - p->x);
    p->x = need->x;
    p->y = need->y;
    p->width = need->width;
    p->height = need->height;
}

static void flip_x(struct hr__picture *p, int image_width)
{
    for (int c = 0; c < 3; c++) {
        for (int y = 0; y < p->height; y++) {
            float *row = p->plane[c] + y * p->stride;
            for (int a = 0, b = p->width - 1; a < b; a++, b--) {
                float swap = row[a];
                row[a] = row[b];
                row[b] = swap;
            }
        }
    }
    p->x = image_width - p->x - p->width;
}

static void flip_y(struct hr__picture *p, int image_height)
{
    for (int c = 0; c < 3; c++)
        p->plane[c] += (p->height - 1) * p->stride;
    p->stride = -p->stride;
    p->y = image_height - p->y - p->height;
}

/* Computes one padded row from `from`, whose column 0 is column `at` of an image of `width` pixels.
 * NULL: a row of fill. */
static void pad_row(const struct hr__step *step, const float *from, int at, int width, float fill,
                    float *to)
{
    const struct hr_region *need = &step->need;
    int left = step->u.pad.left;
    for (int i = 0; i < need->width;) {
        int x = need->x + i - left;
        if (from && x >= 0 && x < width) {
            int run = width - x < need->width - i ? width - x : need->width - i;
            memcpy(to + i, from + (x - at), (size_t)run * sizeof *to);
            i += run;
            continue;
        }
        int k = from ? hr__pad_index(x, width, step->u.pad.mode) : -1;
        to[i++] = k < 0 ? fill : from[k - at];
    }
}

static void pad(const struct hr__step *step, const struct hr__picture *in, int width, int height,
                struct hr__picture *out)
{
    for (int c = 0; c < 3; c++) {
        for (int y = 0; y < out->height; y++) {
            int k = hr__pad_index(out->y + y - step->u.pad.top, height, step->u.pad.mode);
            const float *from = k < 0 ? NULL : in->plane[c] + (k - in->y) * in->stride;
            pad_row(step, from, in->x, width, step->u.pad.fill[c], out->plane[c] + y * out->stride);
        }
    }
}

static int resize(const struct hr__step *step, const struct hr__picture *in, int width, int height,
                  struct hr__picture *out, struct hr_error *error)
{
    struct hr__axis x = {
        .in = width, .out = step->width, .first = out->x, .count = out->width, .origin = -in->x};
    struct hr__axis y = {
        .in = height, .out = step->height, .first = out->y, .count = out->height, .origin = -in->y};
    for (int c = 0; c < 3; c++) {
        struct hr__plane_f32 from = {in->plane[c], in->width, in->height, in->stride};
        struct hr__plane_f32 to = {out->plane[c], out->width, out->height, out->stride};
        int r = hr__resample_f32(&from, &x, &y, step->u.resize.interpolation,
                                 step->u.resize.antialias, &to, error);
        if (r)
            return r;
    }
    return 0;
}

/* Runs one step on *p. width and height: size of the image before the step. */
static int run_step(struct hr__scratch *scratch, int *which, const struct hr__step *step, int width,
                    int height, struct hr__picture *p, struct hr_error *error)
{
    struct hr__picture in = *p;
    int r = 0;
    switch (step->kind) {
    case HR__STEP_CROP:
        p->x -= step->u.crop.x;
        p->y -= step->u.crop.y;
        break;
    case HR__STEP_FLIP_X:
        flip_x(p, width);
        break;
    case HR__STEP_FLIP_Y:
        flip_y(p, height);
        break;
    case HR__STEP_PAD:
        r = next_picture(scratch, which, &step->need, p, error);
        if (!r)
            pad(step, &in, width, height, p);
        break;
    case HR__STEP_RESIZE:
        r = next_picture(scratch, which, &step->need, p, error);
        if (!r)
            r = resize(step, &in, width, height, p, error);
        break;
    default:
        hr__color_run(step, p);
    }
    if (!r)
        narrow(p, &step->need);
    return r;
}

int hr__general_run(struct hr__scratch *scratch, const struct hr__prepare_plan *plan, int first,
                    int last, const struct hr__window *window, struct hr__picture *picture,
                    struct hr_error *error)
{
    const struct hr_region source = {window->x, window->y, window->width, window->height};
    int which = 1;
    int r = next_picture(scratch, &which, &source, picture, error);
    if (r)
        return r;
    load(window, picture);
    for (int i = first; i < last && !r; i++)
        r = run_step(scratch, &which, &plan->step[i], hr__width_before(plan, i),
                     hr__height_before(plan, i), picture, error);
    return r;
}
