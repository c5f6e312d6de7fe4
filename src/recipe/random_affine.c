/* RandomAffine: a rotation, a shift by whole pixels, a scaling and shears, drawn like torchvision
 * v2's make_params. All are always drawn, in a fixed order. */
#include "recipe/affine.h"
#include "recipe/warp.h"

#include <math.h>

static void defaults(struct hr_operation *operation)
{
    operation->u.random_affine.scale[0] = 1;
    operation->u.random_affine.scale[1] = 1;
    operation->u.random_affine.interpolation = HR_NEAREST;
    operation->u.random_affine.has_fill = 1;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int r = hr__check_range(bound, "degrees", o->u.random_affine.degrees, error);
    if (!r)
        r = hr__check_range(bound, "scale", o->u.random_affine.scale, error);
    for (int i = 0; i < 4 && !r; i += 2)
        r = hr__check_range(bound, "shear", o->u.random_affine.shear + i, error);
    if (r)
        return r;
    if (!(o->u.random_affine.scale[0] > 0))
        return hr__refuse(error, bound, "the scale %g must be above 0",
                          o->u.random_affine.scale[0]);
    for (int i = 0; i < 2; i++) {
        if (!(o->u.random_affine.translate[i] >= 0 && o->u.random_affine.translate[i] <= 1))
            return hr__refuse(error, bound,
                              "translate %g must be a share of the image's side, 0..1",
                              o->u.random_affine.translate[i]);
        if (!isfinite(o->u.random_affine.center[i]))
            return hr__refuse(error, bound, "the center is not a finite number");
    }
    return hr__check_warp(bound, state, o->u.random_affine.interpolation, o->u.random_affine.fill,
                          error);
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    const double *range = o->u.random_affine.shear;
    const double size[2] = {hr__plan_width(plan), hr__plan_height(plan)};
    double translate[2], shear[2], center[2] = {0, 0}, matrix[6];
    double angle =
        hr__random_range(random, o->u.random_affine.degrees[0], o->u.random_affine.degrees[1]);
    for (int i = 0; i < 2; i++) {
        double most = o->u.random_affine.translate[i] * size[i];
        translate[i] = rint(hr__random_range(random, -most, most));
        if (o->u.random_affine.has_center)
            center[i] = o->u.random_affine.center[i] - size[i] * 0.5;
    }
    double scale =
        hr__random_range(random, o->u.random_affine.scale[0], o->u.random_affine.scale[1]);
    shear[0] = hr__random_range(random, range[0], range[1]);
    shear[1] = hr__random_range(random, range[2], range[3]);
    hr__affine_matrix(angle, translate, scale, shear, center, matrix);
    hr__plan_affine(plan, matrix, o->u.random_affine.interpolation,
                    o->u.random_affine.has_fill ? o->u.random_affine.fill : NULL);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"degrees", HR__REALS(random_affine.degrees)},
    {"translate", HR__REALS(random_affine.translate)},
    {"scale", HR__REALS(random_affine.scale)},
    {"shear", HR__REALS(random_affine.shear)},
    {"fill", HR__REALS(random_affine.fill)},
    {"center", HR__REALS(random_affine.center)},
    {"has_center", HR__SHORT_FLAG(random_affine.has_center)},
    {"has_fill", HR__SHORT_FLAG(random_affine.has_fill)},
    {"interpolation", HR__WORD(random_affine.interpolation, hr__interpolation_words)},
    {0},
};

const struct hr__operation_class hr__class_random_affine = {
    .name = "RandomAffine",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
