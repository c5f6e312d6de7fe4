/*
 * RandomPhotometricDistort: brightness, contrast, saturation, hue and a permutation of the
 * channels, each with probability p; contrast before or after saturation and hue. The factors are
 * always drawn, in a fixed order.
 */
#include "recipe/enhance.h"
#include "recipe/operation.h"

static const double *range_of(const struct hr_operation *o, int i)
{
    const double *ranges[4] = {o->u.photometric_distort.brightness,
                               o->u.photometric_distort.contrast,
                               o->u.photometric_distort.saturation, o->u.photometric_distort.hue};
    return ranges[i];
}

static void defaults(struct hr_operation *operation)
{
    static const double ranges[4][2] = {{0.875, 1.125}, {0.5, 1.5}, {0.5, 1.5}, {-0.05, 0.05}};
    for (int i = 0; i < 2; i++) {
        operation->u.photometric_distort.brightness[i] = ranges[0][i];
        operation->u.photometric_distort.contrast[i] = ranges[1][i];
        operation->u.photometric_distort.saturation[i] = ranges[2][i];
        operation->u.photometric_distort.hue[i] = ranges[3][i];
    }
    operation->u.photometric_distort.p = 0.5;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    int r = hr__check_probability(bound, bound->operation.u.photometric_distort.p, error);
    for (int i = 0; i < 4 && !r; i++)
        r = hr__check_factors(bound, i, range_of(&bound->operation, i), error);
    return r ? r : hr__check_bytes_place(bound, state, error);
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    double p = o->u.photometric_distort.p, factor[4];
    int wanted[4], order[3];
    for (int i = 0; i < 4; i++) {
        wanted[i] = hr__random_unit(random) < p;
        factor[i] = hr__random_range(random, range_of(o, i)[0], range_of(o, i)[1]);
    }
    int before = hr__random_unit(random) < 0.5;
    int permuted = hr__random_unit(random) < p;
    hr__draw_order(random, order, 3);
    if (wanted[0])
        hr__plan_brightness(plan, factor[0]);
    if (wanted[1] && before)
        hr__plan_contrast(plan, factor[1]);
    if (wanted[2])
        hr__plan_saturation(plan, factor[2]);
    if (wanted[3])
        hr__plan_hue(plan, factor[3]);
    if (wanted[1] && !before)
        hr__plan_contrast(plan, factor[1]);
    if (permuted)
        hr__plan_permute(plan, order);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"brightness", HR__REALS(photometric_distort.brightness)},
    {"contrast", HR__REALS(photometric_distort.contrast)},
    {"saturation", HR__REALS(photometric_distort.saturation)},
    {"hue", HR__REALS(photometric_distort.hue)},
    {"p", HR__REAL(photometric_distort.p)},
    {0},
};

const struct hr__operation_class hr__class_random_photometric_distort = {
    .name = "RandomPhotometricDistort",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
