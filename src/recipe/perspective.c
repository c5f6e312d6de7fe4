/*
 * RandomPerspective: moves the corners of the image inwards by random whole pixels, as torchvision
 * v2 draws them, and the rest of the image with them. The filter reads the whole image.
 */
#include "recipe/perspective.h"

#include "recipe/operation.h"
#include "recipe/rows_geometry.h"
#include "recipe/warp.h"

#include <math.h>

/* Solves the 8 equations in place, by elimination with the largest pivot of each column. The
 * coefficients are row[i][0] to [7], the right sides row[i][8]. Returns 0 if there is no unique
 * solution. */
static int solve(double row[8][9])
{
    for (int k = 0; k < 8; k++) {
        int best = k;
        for (int i = k + 1; i < 8; i++)
            best = fabs(row[i][k]) > fabs(row[best][k]) ? i : best;
        if (!(fabs(row[best][k]) > 1e-9))
            return 0;
        for (int j = 0; j < 9; j++) {
            double swap = row[k][j];
            row[k][j] = row[best][j];
            row[best][j] = swap;
        }
        for (int i = 0; i < 8; i++) {
            double times = i == k ? 0 : row[i][k] / row[k][k];
            for (int j = k; j < 9 && times != 0; j++)
                row[i][j] -= times * row[k][j];
        }
    }
    return 1;
}

int hr__perspective_matrix(const double from[4][2], const double to[4][2], double m[8])
{
    double row[8][9] = {{0}};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++) {
            double *r = row[2 * i + k];
            r[3 * k] = to[i][0];
            r[3 * k + 1] = to[i][1];
            r[3 * k + 2] = 1;
            r[6] = -from[i][k] * to[i][0];
            r[7] = -from[i][k] * to[i][1];
            r[8] = from[i][k];
        }
    }
    if (!solve(row))
        return 0;
    for (int i = 0; i < 8; i++)
        m[i] = row[i][8] / row[i][i];
    return 1;
}

static int run(struct hr__scratch *scratch, const struct hr__step *step,
               const struct hr__window *in, const struct hr__window *out, struct hr_error *error)
{
    struct hr__perspective_map map = {.half_width = 0.5f * (float)in->image_width,
                                      .half_height = 0.5f * (float)in->image_height};
    struct hr__warp warp = {.coordinates = hr__warp_rows(hr__isa())->perspective,
                            .map = &map,
                            .interpolation = (enum hr_interpolation)step->u.filter.word[0],
                            .has_fill = step->u.filter.word[1]};
    for (int i = 0; i < 8; i++) {
        map.m[i] = (float)step->u.filter.value[i];
        if (i < 6)
            map.m[i] /= (i < 3 ? map.half_width : map.half_height);
    }
    for (int c = 0; c < 3; c++)
        warp.fill[c] = (float)step->u.filter.value[8 + c];
    return hr__warp_run(scratch, &warp, in, out, error);
}

static const struct hr__filter filter = {
    .name = "perspective", .source = hr__whole_source, .warp_fill = 8, .run = run};

void hr__plan_perspective(struct hr__prepare_plan *plan, const double m[8],
                          enum hr_interpolation interpolation, const double *fill)
{
    int width = hr__plan_width(plan), height = hr__plan_height(plan);
    struct hr__step *step = hr__plan_filter(plan, &filter, width, height);
    hr__rows_perspective(&plan->rows, m, width, height);
    for (int i = 0; i < 8; i++)
        step->u.filter.value[i] = m[i];
    for (int c = 0; c < 3 && fill; c++)
        step->u.filter.value[8 + c] = fill[c];
    step->u.filter.word[0] = interpolation;
    step->u.filter.word[1] = fill != NULL;
}

static void defaults(struct hr_operation *operation)
{
    operation->u.random_perspective.distortion_scale = 0.5;
    operation->u.random_perspective.p = 0.5;
    operation->u.random_perspective.interpolation = HR_BILINEAR;
    operation->u.random_perspective.has_fill = 1;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    if (!(o->u.random_perspective.distortion_scale >= 0 &&
          o->u.random_perspective.distortion_scale <= 1))
        return hr__refuse(error, bound, "the distortion_scale %g is outside 0..1",
                          o->u.random_perspective.distortion_scale);
    int r = hr__check_probability(bound, o->u.random_perspective.p, error);
    return r ? r
             : hr__check_warp(bound, state, o->u.random_perspective.interpolation,
                              o->u.random_perspective.fill, error);
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    const int side[2] = {hr__plan_width(plan), hr__plan_height(plan)};
    double from[4][2], to[4][2], m[8];
    if (hr__random_unit(random) >= o->u.random_perspective.p)
        return 0;
    for (int i = 0; i < 4; i++) { /* top left, top right, bottom right, bottom left */
        for (int k = 0; k < 2; k++) {
            int far = k ? i >= 2 : i == 1 || i == 2;
            int most = (int)(o->u.random_perspective.distortion_scale * (side[k] / 2));
            int by = (int)hr__random_below(random, (uint64_t)most + 1);
            from[i][k] = far ? side[k] - 1 : 0;
            to[i][k] = far ? side[k] - 1 - by : by;
        }
    }
    /* torch fails, or distorts arbitrarily, where corners meet in images of a few pixels */
    if (hr__perspective_matrix(from, to, m))
        hr__plan_perspective(plan, m, o->u.random_perspective.interpolation,
                             o->u.random_perspective.has_fill ? o->u.random_perspective.fill
                                                              : NULL);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"distortion_scale", HR__REAL(random_perspective.distortion_scale)},
    {"p", HR__REAL(random_perspective.p)},
    {"fill", HR__REALS(random_perspective.fill)},
    {"has_fill", HR__FLAG(random_perspective.has_fill)},
    {"interpolation", HR__WORD(random_perspective.interpolation, hr__interpolation_words)},
    {0},
};

const struct hr__operation_class hr__class_random_perspective = {
    .name = "RandomPerspective",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
