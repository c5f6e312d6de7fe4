/*
 * RandomRotation: a rotation counter-clockwise by a random angle. With `expand` the result is as
 * large as the rotated image, so that its size depends on the angle.
 */
#include "recipe/affine.h"
#include "recipe/warp.h"

#include <math.h>

static void defaults(struct hr_operation *operation)
{
    operation->u.random_rotation.interpolation = HR_NEAREST;
    operation->u.random_rotation.has_fill = 1;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int r = hr__check_range(bound, "degrees", o->u.random_rotation.degrees, error);
    if (r)
        return r;
    if (!isfinite(o->u.random_rotation.center[0]) || !isfinite(o->u.random_rotation.center[1]))
        return hr__refuse(error, bound, "the center is not a finite number");
    if (o->u.random_rotation.expand)
        hr__state_vary(state, 0, 0);
    return hr__check_warp(bound, state, o->u.random_rotation.interpolation,
                          o->u.random_rotation.fill, error);
}

/* Longest side of a rotated image. Up to this, sums of a few positions fit into int. */
#define MAX_ROTATED (1 << 28)

/* Computes one side of the rotated image as torchvision does, in float32: from the extreme
 * coordinates of the corners, without what is less than 1e-4 of a pixel. */
static float rotated_side(const double m[3], int width, int height, int size)
{
    float low = INFINITY, high = -INFINITY;
    for (int i = 0; i < 4; i++) {
        float x = (float)((i & 1 ? 0.5 : -0.5) * width), y = (float)((i & 2 ? 0.5 : -0.5) * height);
        float v = x * (float)m[0] + y * (float)m[1] + (float)m[2];
        low = fminf(low, v);
        high = fmaxf(high, v);
    }
    float half = (float)(0.5 * size);
    high = ceilf(truncf((high + half) * 10000.0f) * 1e-4f);
    low = floorf(truncf((low + half) * 10000.0f) * 1e-4f);
    return high - low < 1 ? 1 : high - low;
}

/* Turns the image around. Boxes and points are rotated: flips put points elsewhere. */
static void turn_around(struct hr__prepare_plan *plan)
{
    static const double matrix[6] = {-1, 0, 0, 0, -1, 0};
    const struct hr__sample_rows *in = plan->rows.in;
    hr__plan_affine_rows(plan, matrix);
    plan->rows.in = NULL;
    hr__plan_flip(plan, HR__STEP_FLIP_X);
    hr__plan_flip(plan, HR__STEP_FLIP_Y);
    plan->rows.in = in;
}

/* Angles that torchvision does without interpolation. Returns non-zero if it was one. */
static int draw_quarters(const struct hr_operation *o, double angle, struct hr__prepare_plan *plan)
{
    int width = hr__plan_width(plan), height = hr__plan_height(plan);
    if (o->u.random_rotation.has_center)
        return 0;
    if (angle == 180) {
        turn_around(plan);
    } else if ((angle == 90 || angle == 270) && (o->u.random_rotation.expand || width == height)) {
        double sign = angle == 90 ? 1 : -1;
        const double matrix[6] = {0, -sign, 0, sign, 0, 0};
        hr__plan_affine_to(plan, matrix, height, width, HR_NEAREST, NULL);
    } else if (angle == 0) {
        hr__plan_affine(plan, (const double[6]){1, 0, 0, 0, 1, 0}, HR_NEAREST, NULL);
    } else {
        return 0;
    }
    return 1;
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    static const double none[2] = {0, 0};
    const struct hr_operation *o = &bound->operation;
    int width = hr__plan_width(plan), height = hr__plan_height(plan);
    double center[2] = {0, 0}, matrix[6];
    double angle =
        hr__random_range(random, o->u.random_rotation.degrees[0], o->u.random_rotation.degrees[1]);
    angle = fmod(angle, 360);
    angle += angle < 0 ? 360 : 0;
    if (draw_quarters(o, angle, plan))
        return 0;
    if (o->u.random_rotation.has_center) {
        center[0] = o->u.random_rotation.center[0] - width * 0.5;
        center[1] = o->u.random_rotation.center[1] - height * 0.5;
    }
    hr__affine_matrix(-angle, none, 1, none, center, matrix);
    const double *fill = o->u.random_rotation.has_fill ? o->u.random_rotation.fill : NULL;
    if (!o->u.random_rotation.expand) {
        hr__plan_affine(plan, matrix, o->u.random_rotation.interpolation, fill);
        return 0;
    }
    float wide = rotated_side(matrix, width, height, width);
    float high = rotated_side(matrix + 3, width, height, height);
    if (!(wide <= MAX_ROTATED && high <= MAX_ROTATED))
        return hr__refuse(error, bound, "an image of %d x %d pixels becomes too large", width,
                          height);
    hr__plan_affine_to(plan, matrix, (int)wide, (int)high, o->u.random_rotation.interpolation,
                       fill);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"degrees", HR__REALS(random_rotation.degrees)},
    {"fill", HR__REALS(random_rotation.fill)},
    {"center", HR__REALS(random_rotation.center)},
    {"has_center", HR__FLAG(random_rotation.has_center)},
    {"has_fill", HR__FLAG(random_rotation.has_fill)},
    {"expand", HR__FLAG(random_rotation.expand)},
    {"interpolation", HR__WORD(random_rotation.interpolation, hr__interpolation_words)},
    {0},
};

const struct hr__operation_class hr__class_random_rotation = {
    .name = "RandomRotation",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
