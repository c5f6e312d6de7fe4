/* Filters of places on bytes with Pillow's rounding: affine maps, and its Gaussian blur, which is
 * three box filters along each axis, each rounded to bytes. */
#include "recipe/neighbours.h"
#include "recipe/pillow.h"
#include "recipe/pillow_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Python's round(v, 15). */
static double rounded(double v)
{
    char text[40];
    snprintf(text, sizeof text, "%.15f", v);
    return strtod(text, NULL);
}

void hr__pillow_rotation(double degrees, int width, int height, double matrix[6])
{
    double turn = fmod(degrees, 360), x = width / 2.0, y = height / 2.0;
    turn = -((turn < 0 ? turn + 360 : turn) * (3.14159265358979323846 / 180.0));
    matrix[0] = matrix[4] = rounded(cos(turn));
    matrix[1] = rounded(sin(turn));
    matrix[3] = rounded(-sin(turn));
    matrix[2] = matrix[0] * -x + matrix[1] * -y + x;
    matrix[5] = matrix[3] * -x + matrix[4] * -y + y;
}

/* Returns the pixels of `size` that places between low and high mix, and a few more. */
static void span(double low, double high, int size, int *begin, int *count)
{
    int end = (int)fmin(fmax(high + 4, 1), size);
    *begin = (int)fmin(fmax(low - 4, 0), size - 1);
    *count = end > *begin ? end - *begin : 1;
}

/* Places grow or shrink all the way along rows and columns, after rounding as before it: the
 * corners have the extremes. */
static struct hr_region map_source(const struct hr__step *step, int width, int height,
                                   const struct hr_region *need)
{
    const double *m = step->u.filter.value;
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        double x = need->x + (i & 1) * (need->width - 1) + 0.5;
        double y = need->y + (i >> 1) * (need->height - 1) + 0.5;
        for (int k = 0; k < 2; k++) {
            double v = m[3 * k] * x + m[3 * k + 1] * y + m[3 * k + 2];
            low[k] = v < low[k] ? v : low[k]; /* gcc 12 for ARM fails over fmin here */
            high[k] = v > high[k] ? v : high[k];
        }
    }
    struct hr_region region;
    span(low[0], high[0], width, &region.x, &region.width);
    span(low[1], high[1], height, &region.y, &region.height);
    return region;
}

static int map_run(struct hr__scratch *scratch, const struct hr__step *step,
                   const struct hr__window *in, const struct hr__window *out,
                   struct hr_error *error)
{
    struct hr__pillow_map map = {.cubic = step->u.filter.word[0] == HR_BICUBIC,
                                 .width = in->image_width,
                                 .height = in->image_height,
                                 .x = in->x,
                                 .y = in->y,
                                 .stride = in->stride};
    for (int i = 0; i < 6; i++)
        map.m[i] = step->u.filter.value[i];
    for (int c = 0; c < 3; c++) {
        map.plane[c] = in->plane[c];
        map.fill[c] = (uint8_t)step->u.filter.value[6 + c];
    }
    for (int y = 0; y < out->height; y++) {
        uint8_t *const rows[3] = {out->plane[0] + y * out->stride, out->plane[1] + y * out->stride,
                                  out->plane[2] + y * out->stride};
        hr__pillow_rows(hr__isa())->map(&map, out->x, out->y + y, out->width, rows);
    }
    return 0;
}

void hr__plan_pillow_affine(struct hr__prepare_plan *plan, const double matrix[6],
                            enum hr_interpolation interpolation, const double fill[3])
{
    static const struct hr__filter filter = {
        .name = "pillow_affine", .source = map_source, .run = map_run};
    static const double identity[6] = {1, 0, 0, 0, 1, 0};
    int same = 1;
    for (int i = 0; i < 6; i++)
        same &= matrix[i] == identity[i];
    if (same)
        return;
    struct hr__step *step =
        hr__plan_filter(plan, &filter, hr__plan_width(plan), hr__plan_height(plan));
    for (int i = 0; i < 6; i++)
        step->u.filter.value[i] = matrix[i];
    for (int c = 0; c < 3; c++)
        step->u.filter.value[6 + c] = fill[c];
    step->u.filter.word[0] = interpolation;
}

#define PASSES 3

/* A box filter: 2 `radius` + 1 pixels of one weight, and one more at each end. */
struct box {
    int radius;
    uint32_t weight_edge[2];
};

/* Gwosdek et al., "Theoretical Foundations of Gaussian Convolution by Extended Box Filtering"
 * (2011): the box of which PASSES have the variance of the Gaussian. */
static struct box box_of(double sigma)
{
    float radius = (float)sigma, variance = radius * radius / PASSES;
    float length = (float)sqrt(12.0 * (double)variance + 1.0);
    float whole = (float)floor(((double)length - 1.0) / 2.0);
    float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
    part /= 6 * (variance - (whole + 1) * (whole + 1));
    float both = whole + part;
    struct box box = {.radius = (int)both};
    box.weight_edge[0] = (uint32_t)((float)(1u << 24) / (both * 2 + 1));
    box.weight_edge[1] = ((1u << 24) - (uint32_t)(2 * box.radius + 1) * box.weight_edge[0]) / 2;
    return box;
}

/* How far the result of all passes depends on its input. */
static int reach(const struct hr__step *step)
{
    return PASSES * (box_of(step->u.filter.value[0]).radius + 1);
}

static struct hr_region blur_source(const struct hr__step *step, int width, int height,
                                    const struct hr_region *need)
{
    return hr__widened(need, reach(step), reach(step), width, height);
}

/* Most rows of a box. */
#define MAX_TAPS 16

/* Filters along a row of n pixels, from `in` with `margin` to either side of it, which this sets.
 */
static void box_along(const struct box *box, uint8_t *in, int n, uint8_t *out)
{
    const uint8_t *rows[MAX_TAPS];
    int margin = box->radius + 1, taps = 2 * margin + 1;
    memset(in, in[margin], (size_t)margin);
    memset(in + margin + n, in[margin + n - 1], (size_t)margin);
    for (int k = 0; k < taps; k++)
        rows[k] = in + k;
    hr__pillow_rows(hr__isa())->box(rows, taps, box->weight_edge, n, out);
}

/* Filters across all rows of width x height pixels. */
static void box_across(const struct box *box, const uint8_t *in, int width, int height,
                       uint8_t *out)
{
    const uint8_t *rows[MAX_TAPS];
    int margin = box->radius + 1, taps = 2 * margin + 1;
    for (int y = 0; y < height; y++) {
        for (int k = 0; k < taps; k++) {
            int row = y + k - margin;
            row = row < 0 ? 0 : row < height ? row : height - 1;
            rows[k] = in + (ptrdiff_t)row * width;
        }
        hr__pillow_rows(hr__isa())->box(rows, taps, box->weight_edge, width,
                                        out + (ptrdiff_t)y * width);
    }
}

/* Filters what is needed, and what it depends on: at edges of the window that are not the image's
 * the margin becomes wrong, pixel by pixel from outside, and is left out. */
static int blur_run(struct hr__scratch *scratch, const struct hr__step *step,
                    const struct hr__window *in, const struct hr__window *out,
                    struct hr_error *error)
{
    struct box box = box_of(step->u.filter.value[0]);
    struct hr_region need = {out->x, out->y, out->width, out->height};
    struct hr_region wide = blur_source(step, in->image_width, in->image_height, &need);
    size_t margin = (size_t)box.radius + 1, width = (size_t)wide.width;
    size_t area = width * (size_t)wide.height, line = width + 2 * margin;
    int r = hr__buffer_reserve(&scratch->extra, 2 * (area + line), error);
    if (r)
        return r;
    uint8_t *plane[2] = {scratch->extra.bytes, (uint8_t *)scratch->extra.bytes + area};
    uint8_t *lines[2] = {plane[1] + area, plane[1] + area + line};
    for (int c = 0; c < 3; c++) {
        for (int y = 0; y < wide.height; y++) {
            const uint8_t *row = in->plane[c] + (wide.y + y - in->y) * in->stride;
            memcpy(lines[0] + margin, row + (wide.x - in->x), width);
            for (int k = 0; k < PASSES; k++)
                box_along(&box, lines[k % 2], wide.width,
                          k < PASSES - 1 ? lines[(k + 1) % 2] + margin
                                         : plane[0] + (size_t)y * width);
        }
        for (int k = 0; k < PASSES; k++)
            box_across(&box, plane[k % 2], wide.width, wide.height, plane[(k + 1) % 2]);
        for (int y = 0; y < out->height; y++)
            memcpy(out->plane[c] + y * out->stride,
                   plane[PASSES % 2] + (size_t)(out->y + y - wide.y) * width +
                       (size_t)(out->x - wide.x),
                   (size_t)out->width);
    }
    return 0;
}

void hr__plan_pillow_blur(struct hr__prepare_plan *plan, double radius)
{
    static const struct hr__filter filter = {
        .name = "pillow_blur", .source = blur_source, .run = blur_run};
    if ((float)radius > 0)
        hr__plan_filter(plan, &filter, hr__plan_width(plan), hr__plan_height(plan))
            ->u.filter.value[0] = radius;
}
