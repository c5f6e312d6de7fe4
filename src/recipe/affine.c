/*
 * The affine filter. The matrix and the order of all operations are those of torchvision's
 * `affine` for uint8 tensors, so that nearest results are the same bytes.
 */
#include "recipe/affine.h"

#include "recipe/rows_geometry.h"
#include "recipe/warp.h"

#include <math.h>

static double radians(double degrees)
{
    return degrees * (3.14159265358979323846 / 180.0);
}

void hr__affine_matrix(double angle, const double translate[2], double scale, const double shear[2],
                       const double center[2], double matrix[6])
{
    double turn = radians(angle), shear_x = radians(shear[0]), shear_y = radians(shear[1]);
    /* rotation and shears; their determinant is 1 */
    double a = cos(turn - shear_y) / cos(shear_y);
    double b = -(a * tan(shear_x) + sin(turn));
    double c = sin(turn - shear_y) / cos(shear_y);
    double d = cos(turn) - c * tan(shear_x);
    double x = center[0] + translate[0], y = center[1] + translate[1];
    matrix[0] = d / scale;
    matrix[1] = -b / scale;
    matrix[3] = -c / scale;
    matrix[4] = a / scale;
    matrix[2] = center[0] - matrix[0] * x - matrix[1] * y;
    matrix[5] = center[1] - matrix[3] * x - matrix[4] * y;
}

static void move_rows(struct hr__prepare_plan *plan, const double matrix[6], int width, int height,
                      int is_expanded)
{
    const struct hr__rows_map map = {.matrix = matrix,
                                     .from_width = hr__plan_width(plan),
                                     .from_height = hr__plan_height(plan),
                                     .width = width,
                                     .height = height,
                                     .is_expanded = is_expanded};
    hr__rows_affine(&plan->rows, &map);
}

void hr__plan_affine_rows(struct hr__prepare_plan *plan, const double matrix[6])
{
    move_rows(plan, matrix, hr__plan_width(plan), hr__plan_height(plan), 0);
}

static void set_filter(struct hr__step *step, const double matrix[6],
                       enum hr_interpolation interpolation, const double *fill)
{
    for (int i = 0; i < 6; i++)
        step->u.filter.value[i] = matrix[i];
    for (int c = 0; c < 3 && fill; c++)
        step->u.filter.value[6 + c] = fill[c];
    step->u.filter.word[0] = interpolation;
    step->u.filter.word[1] = fill != NULL;
}

void hr__plan_affine_to(struct hr__prepare_plan *plan, const double matrix[6], int width,
                        int height, enum hr_interpolation interpolation, const double *fill)
{
    move_rows(plan, matrix, width, height, 1);
    set_filter(hr__plan_filter(plan, &hr__filter_affine, width, height), matrix, interpolation,
               fill);
}

void hr__plan_affine(struct hr__prepare_plan *plan, const double matrix[6],
                     enum hr_interpolation interpolation, const double *fill)
{
    static const double identity[6] = {1, 0, 0, 0, 1, 0};
    int width = hr__plan_width(plan), height = hr__plan_height(plan), same = 1;
    hr__plan_affine_rows(plan, matrix);
    for (int i = 0; i < 6; i++)
        same &= matrix[i] == identity[i];
    if (!same)
        set_filter(hr__plan_filter(plan, &hr__filter_affine, width, height), matrix, interpolation,
                   fill);
}

/* The map of `step` from an input of width x height pixels. */
static struct hr__affine_map map_of(const struct hr__step *step, int width, int height)
{
    struct hr__affine_map map = {.first_x = (float)((1.0 - step->width) * 0.5),
                                 .first_y = (float)((1.0 - step->height) * 0.5),
                                 .half_width = 0.5f * (float)width,
                                 .half_height = 0.5f * (float)height};
    for (int i = 0; i < 6; i++)
        map.m[i] = (float)step->u.filter.value[i] / (i < 3 ? map.half_width : map.half_height);
    return map;
}

/* Coordinates grow or shrink all the way along rows and columns, after rounding as before it: the
 * corners have the extremes. */
static struct hr_region source(const struct hr__step *step, int width, int height,
                               const struct hr_region *need)
{
    struct hr__affine_map map = map_of(step, width, height);
    float low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        float x, y;
        struct hr__warp_row corner = {.n = 1, .x = &x, .y = &y};
        hr__warp_rows_portable.affine(&map, need->x + (i & 1) * (need->width - 1),
                                      need->y + (i >> 1) * (need->height - 1), &corner);
        low[0] = fminf(low[0], x);
        low[1] = fminf(low[1], y);
        high[0] = fmaxf(high[0], x);
        high[1] = fmaxf(high[1], y);
    }
    return hr__warp_region(low, high, width, height);
}

static int run(struct hr__scratch *scratch, const struct hr__step *step,
               const struct hr__window *in, const struct hr__window *out, struct hr_error *error)
{
    struct hr__affine_map map = map_of(step, in->image_width, in->image_height);
    struct hr__warp warp = {.coordinates = hr__warp_rows(hr__isa())->affine,
                            .map = &map,
                            .interpolation = (enum hr_interpolation)step->u.filter.word[0],
                            .has_fill = step->u.filter.word[1]};
    for (int c = 0; c < 3; c++)
        warp.fill[c] = (float)step->u.filter.value[6 + c];
    return hr__warp_run(scratch, &warp, in, out, error);
}

const struct hr__filter hr__filter_affine = {
    .name = "affine", .source = source, .warp_fill = 6, .run = run};
