/*
 * Padding for detectors' operations, whose canvas may be much larger than the image. Where
 * torchvision would have bytes, it is a filter: a fill and a copy of what is needed of the canvas,
 * after which the fused pass can go on. The fill is truncated to a byte, as torchvision's is.
 * Elsewhere it is a step of padding, on floats.
 */
#include "recipe/canvas.h"

#include "recipe/filter.h"
#include "recipe/rows_geometry.h"

#include <string.h>

/* Finds [*begin, *end) of an image of `size` pixels that lies `before` pixels into the canvas and
 * is needed for [first, first + count) of the canvas; one pixel if nothing is. */
static void needed_part(int first, int count, int before, int size, int *begin, int *end)
{
    *begin = first > before ? first - before : 0;
    *end = first + count - before < size ? first + count - before : size;
    if (*begin < *end)
        return;
    *begin = 0;
    *end = 1;
}

static struct hr_region canvas_source(const struct hr__step *step, int width, int height,
                                      const struct hr_region *need)
{
    struct hr_region source;
    int x_end, y_end;
    needed_part(need->x, need->width, step->u.filter.word[0], width, &source.x, &x_end);
    needed_part(need->y, need->height, step->u.filter.word[1], height, &source.y, &y_end);
    source.width = x_end - source.x;
    source.height = y_end - source.y;
    return source;
}

static int canvas_run(struct hr__scratch *scratch, const struct hr__step *step,
                      const struct hr__window *in, const struct hr__window *out,
                      struct hr_error *error)
{
    /* where the window of the image is in the window of the canvas */
    int left = step->u.filter.word[0] + in->x - out->x;
    int top = step->u.filter.word[1] + in->y - out->y;
    int begin = left > 0 ? left : 0;
    int end = left + in->width < out->width ? left + in->width : out->width;
    for (int c = 0; c < 3; c++) {
        int fill = (int)step->u.filter.value[c];
        for (int y = 0; y < out->height; y++) {
            uint8_t *row = out->plane[c] + y * out->stride;
            int from = y - top;
            if (from < 0 || from >= in->height || begin >= end) {
                memset(row, fill, (size_t)out->width);
                continue;
            }
            memset(row, fill, (size_t)begin);
            memcpy(row + begin, in->plane[c] + from * in->stride + (begin - left),
                   (size_t)(end - begin));
            memset(row + end, fill, (size_t)(out->width - end));
        }
    }
    return 0;
}

static const struct hr__filter canvas = {
    .name = "canvas", .source = canvas_source, .run = canvas_run};

int hr__step_is_canvas(const struct hr__step *step, int *left, int *top)
{
    if (step->kind != HR__STEP_FILTER || step->u.filter.filter != &canvas)
        return 0;
    *left = step->u.filter.word[0];
    *top = step->u.filter.word[1];
    return 1;
}

void hr__plan_canvas(const struct hr__bound *bound, struct hr__prepare_plan *plan,
                     const int padding[4])
{
    if (!bound->bytes) {
        hr__plan_pad(plan, padding, HR_PAD_CONSTANT, bound->fill);
        return;
    }
    int width = hr__plan_width(plan) + padding[0] + padding[2];
    int height = hr__plan_height(plan) + padding[1] + padding[3];
    hr__rows_cut(&plan->rows, -padding[0], -padding[1], width, height);
    if (!padding[0] && !padding[1] && !padding[2] && !padding[3])
        return;
    struct hr__step *step = hr__plan_filter(plan, &canvas, width, height);
    for (int c = 0; c < 3; c++) {
        float fill = bound->fill[c];
        step->u.filter.value[c] = fill < 0 ? 0 : fill > 255 ? 255 : (int)fill;
    }
    step->u.filter.word[0] = padding[0];
    step->u.filter.word[1] = padding[1];
}
