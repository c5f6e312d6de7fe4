/*
 * Runs the steps of a plan up to its last filter, on bytes. The fused pass runs the steps before
 * the first filter; of what is between filters, crops and flips only change the window, and padding
 * and resizing take the general path. Each result is rounded to bytes, as torchvision does for
 * uint8 tensors.
 */
#include "recipe/byte_rows.h"
#include "recipe/filter.h"
#include "recipe/fold.h"
#include "recipe/general.h"
#include "recipe/store.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

/* Makes a window for the part `need` of an image, in one of the scratch's buffers. */
static int reserve(struct hr__scratch *scratch, int which, const struct hr_region *need,
                   struct hr__window *window, struct hr_error *error)
{
    size_t plane = (size_t)need->width * (size_t)need->height;
    int r = hr__buffer_reserve(&scratch->bytes[which], 3 * plane + HR__PIXEL_SLACK, error);
    for (int c = 0; c < 3 && !r; c++)
        window->plane[c] = (uint8_t *)scratch->bytes[which].bytes + (size_t)c * plane;
    window->stride = need->width;
    window->x = need->x;
    window->y = need->y;
    window->width = need->width;
    window->height = need->height;
    return r;
}

static void set_image(struct hr__window *window, int width, int height)
{
    window->image_width = width;
    window->image_height = height;
}

/* Narrows the window to `need`, which is inside it. */
static void narrow(struct hr__window *w, const struct hr_region *need)
{
    for (int c = 0; c < 3; c++)
        w->plane[c] += (need->y - w->y) * w->stride + (need->x - w->x);
    w->x = need->x;
    w->y = need->y;
    w->width = need->width;
    w->height = need->height;
}

/* Runs steps [first, last) by the general path, and rounds to bytes in buffer `which`. */
static int run_general(struct hr__scratch *scratch, const struct hr__prepare_plan *plan, int first,
                       int last, int which, struct hr__window *window, struct hr_error *error)
{
    struct hr__picture picture;
    int r = hr__general_run(scratch, plan, first, last, window, &picture, error);
    if (r)
        return r;
    const struct hr_region need = {picture.x, picture.y, picture.width, picture.height};
    r = reserve(scratch, which, &need, window, error);
    for (int c = 0; c < 3 && !r; c++) {
        for (int y = 0; y < need.height; y++) {
            const float *restrict from = picture.plane[c] + y * picture.stride;
            uint8_t *restrict to = window->plane[c] + y * window->stride;
            for (int x = 0; x < need.width; x++)
                to[x] = hr__store_uint8(from[x]);
        }
    }
    return r;
}

/* Runs plan->head. The result is in buffer 0. */
static int run_head(struct hr__scratch *scratch, const struct hr__prepare_plan *plan,
                    struct hr__window *window, struct hr_error *error)
{
    const struct hr__fold *head = &plan->head;
    if (!head->fused)
        return run_general(scratch, plan, 0, head->last, 0, window, error);
    /* a fold may read a pixel more than it makes */
    struct hr_region need = {head->x.first, head->y.first, head->x.count, head->y.count};
    if (head->last)
        need = plan->step[head->last - 1].need;
    struct hr__window out;
    int r = reserve(scratch, 0, &need, &out, error);
    if (r)
        return r;
    struct hr__fused_job job = {
        .scale = {1, 1, 1}, .dtype = HR_UINT8, .cached = 1, .layout = HR_NCHW, .out = out.plane[0]};
    r = hr__fold_run(scratch, head, window, &job, error);
    *window = out;
    return r;
}

/* Mirrors a row in place, from both ends to the middle. */
static void flip_row(uint8_t *row, int n)
{
    const struct hr__byte_rows *kernels = hr__byte_rows(hr__isa());
    uint8_t left[1024], right[1024];
    while (n > 1) {
        int part = n / 2 < (int)sizeof left ? n / 2 : (int)sizeof left;
        kernels->reverse(row, part, left);
        kernels->reverse(row + n - part, part, right);
        memcpy(row, right, (size_t)part);
        memcpy(row + n - part, left, (size_t)part);
        row += part;
        n -= 2 * part;
    }
}

static void flip_x(struct hr__window *w)
{
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < w->height; y++)
            flip_row(w->plane[c] + y * w->stride, w->width);
    w->x = w->image_width - w->x - w->width;
}

static void flip_y(struct hr__window *w)
{
    for (int c = 0; c < 3; c++)
        w->plane[c] += (w->height - 1) * w->stride;
    w->stride = -w->stride;
    w->y = w->image_height - w->y - w->height;
}

static int run_filter(struct hr__scratch *scratch, const struct hr__step *step, int *which,
                      struct hr__window *window, struct hr_error *error)
{
    const struct hr__filter *filter = step->u.filter.filter;
    if (filter->change)
        return filter->change(scratch, step, window, error);
    struct hr__window out;
    int r = reserve(scratch, !*which, &step->need, &out, error);
    if (r)
        return r;
    set_image(&out, step->width, step->height);
    r = filter->run(scratch, step, window, &out, error);
    *window = out;
    *which = !*which;
    return r;
}

int hr__bytes_run(struct hr__scratch *scratch, const struct hr__prepare_plan *plan,
                  struct hr__window *window, struct hr_error *error)
{
    int which = 0;
    int r = run_head(scratch, plan, window, error);
    set_image(window, hr__width_before(plan, plan->head.last),
              hr__height_before(plan, plan->head.last));
    for (int i = plan->head.last; i < plan->bytes && !r; i++) {
        const struct hr__step *step = &plan->step[i];
        switch (step->kind) {
        case HR__STEP_CROP:
            window->x -= step->u.crop.x;
            window->y -= step->u.crop.y;
            break;
        case HR__STEP_FLIP_X:
            flip_x(window);
            break;
        case HR__STEP_FLIP_Y:
            flip_y(window);
            break;
        case HR__STEP_FILTER:
            r = run_filter(scratch, step, &which, window, error);
            break;
        default:
            which = !which;
            r = run_general(scratch, plan, i, i + 1, which, window, error);
        }
        if (r)
            break;
        set_image(window, step->width, step->height);
        narrow(window, &step->need);
    }
    return r;
}
