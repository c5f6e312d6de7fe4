/*
 * The shared operations of timm's policies; see timm.h. A magnitude is a level of 0 to 10, or to
 * magnitude_max; formulas and their order are timm's, in double precision.
 */
#include "recipe/timm.h"

#include "base/distribution.h"
#include "recipe/enhance.h"
#include "recipe/pillow.h"

#include <math.h>

#define HIGHEST_LEVEL 10.0

void hr__timm_defaults(struct hr_operation *operation)
{
    operation->u.timm.num_ops = 2;
    operation->u.timm.p = 0.5;
    operation->u.timm.magnitude = HIGHEST_LEVEL;
    operation->u.timm.magnitude_max = HIGHEST_LEVEL;
    operation->u.timm.translate = 0.45;
    operation->u.timm.interpolation = HR_BICUBIC;
    operation->u.timm.width = 3;
    operation->u.timm.depth = -1;
    operation->u.timm.alpha = 1;
    for (int c = 0; c < 3; c++)
        operation->u.timm.fill[c] = 128;
}

static int check_magnitudes(const struct hr__bound *bound, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    if (!(o->u.timm.magnitude >= 0 && o->u.timm.magnitude <= 1e6))
        return hr__refuse(error, bound, "magnitude = %g: 0 to 1e6", o->u.timm.magnitude);
    if (!(o->u.timm.magnitude_std >= 0 && o->u.timm.magnitude_std <= 1e6))
        return hr__refuse(error, bound,
                          "magnitude_std = %g: 0 to 1e6; for uniform magnitudes set "
                          "`uniform`",
                          o->u.timm.magnitude_std);
    if (!(o->u.timm.magnitude_max > 0 && o->u.timm.magnitude_max <= 1e6))
        return hr__refuse(error, bound, "magnitude_max = %g: above 0, to 1e6",
                          o->u.timm.magnitude_max);
    if (!(fabs(o->u.timm.translate) <= 1e3))
        return hr__refuse(error, bound, "translate = %g: a part of the image's size, to 1000",
                          o->u.timm.translate);
    return hr__check_probability(bound, o->u.timm.p, error);
}

int hr__check_timm(const struct hr__bound *bound, const struct hr__state *state,
                   struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    if (o->u.timm.interpolation != HR_BILINEAR && o->u.timm.interpolation != HR_BICUBIC)
        return hr__refuse(error, bound, "interpolation %d is not possible: use bilinear or bicubic",
                          (int)o->u.timm.interpolation);
    for (int c = 0; c < 3; c++) {
        double fill = o->u.timm.fill[c];
        if (!(fill >= 0 && fill <= 255 && fill == rint(fill)))
            return hr__refuse(error, bound, "the fill value %g is no whole number of 0..255", fill);
    }
    int r = check_magnitudes(bound, error);
    return r ? r : hr__check_bytes_place(bound, state, error);
}

static double negated(double v, struct hr__random *random)
{
    return hr__random_unit(random) > 0.5 ? -v : v;
}

/* The part `level` of the way from low to high. */
static double between(double level, double low, double high)
{
    double v = low + (high - low) * (level / HIGHEST_LEVEL);
    return fmax(low, fmin(high, v));
}

static void plan_map(struct hr__prepare_plan *plan, const struct hr_operation *o,
                     enum hr__timm_kind kind, double v, struct hr__random *random)
{
    double matrix[6] = {1, 0, 0, 0, 1, 0};
    enum hr_interpolation interpolation = o->u.timm.interpolation;
    if (o->u.timm.any_interpolation)
        interpolation = hr__random_below(random, 2) ? HR_BICUBIC : HR_BILINEAR;
    if (kind == HR__TIMM_ROTATE)
        hr__pillow_rotation(v, hr__plan_width(plan), hr__plan_height(plan), matrix);
    else if (kind == HR__TIMM_SHEAR_X)
        matrix[1] = v;
    else if (kind == HR__TIMM_SHEAR_Y)
        matrix[3] = v;
    else if (kind == HR__TIMM_TRANSLATE_X)
        matrix[2] = v * hr__plan_width(plan);
    else
        matrix[5] = v * hr__plan_height(plan);
    hr__plan_pillow_affine(plan, matrix, interpolation, o->u.timm.fill);
}

static void plan_bits(struct hr__prepare_plan *plan, enum hr__timm_kind kind, double level)
{
    double bits = trunc(level / HIGHEST_LEVEL * 4);
    if (kind == HR__TIMM_POSTERIZE_INCREASING)
        bits = 4 - bits;
    else if (kind == HR__TIMM_POSTERIZE_ORIGINAL)
        bits += 4;
    hr__plan_posterize(plan, (int)fmax(0, fmin(8, bits)));
}

/* The factor of a blend. */
static double factor_of(double level, int increasing, struct hr__random *random)
{
    if (!increasing)
        return level / HIGHEST_LEVEL * 1.8 + 0.1;
    return fmax(0.1, 1.0 + negated(level / HIGHEST_LEVEL * .9, random));
}

static void plan_blend(struct hr__prepare_plan *plan, enum hr__timm_kind kind, double level,
                       struct hr__random *random)
{
    int increasing = kind == HR__TIMM_COLOR_INCREASING || kind == HR__TIMM_CONTRAST_INCREASING ||
                     kind == HR__TIMM_BRIGHTNESS_INCREASING ||
                     kind == HR__TIMM_SHARPNESS_INCREASING;
    double factor = factor_of(level, increasing, random);
    if (kind == HR__TIMM_COLOR || kind == HR__TIMM_COLOR_INCREASING)
        hr__plan_pillow_color(plan, factor);
    else if (kind == HR__TIMM_CONTRAST || kind == HR__TIMM_CONTRAST_INCREASING)
        hr__plan_pillow_contrast(plan, factor);
    else if (kind == HR__TIMM_BRIGHTNESS || kind == HR__TIMM_BRIGHTNESS_INCREASING)
        hr__plan_pillow_brightness(plan, factor);
    else
        hr__plan_pillow_sharpness(plan, factor);
}

static void plan_level(struct hr__prepare_plan *plan, const struct hr_operation *o,
                       enum hr__timm_kind kind, double level, struct hr__random *random)
{
    double part = level / HIGHEST_LEVEL;
    switch (kind) {
    case HR__TIMM_AUTOCONTRAST:
        hr__plan_pillow_autocontrast(plan);
        break;
    case HR__TIMM_EQUALIZE:
        hr__plan_equalize(plan);
        break;
    case HR__TIMM_INVERT:
        hr__plan_invert(plan);
        break;
    case HR__TIMM_ROTATE:
        plan_map(plan, o, kind, negated(part * 30, random), random);
        break;
    case HR__TIMM_SHEAR_X:
    case HR__TIMM_SHEAR_Y:
        plan_map(plan, o, kind, negated(part * 0.3, random), random);
        break;
    case HR__TIMM_TRANSLATE_X:
    case HR__TIMM_TRANSLATE_Y:
        plan_map(plan, o, kind, negated(part * o->u.timm.translate, random), random);
        break;
    case HR__TIMM_POSTERIZE:
    case HR__TIMM_POSTERIZE_INCREASING:
    case HR__TIMM_POSTERIZE_ORIGINAL:
        plan_bits(plan, kind, level);
        break;
    case HR__TIMM_SOLARIZE:
        hr__plan_solarize(plan, fmin(256, trunc(part * 256)));
        break;
    case HR__TIMM_SOLARIZE_INCREASING:
        hr__plan_solarize(plan, 256 - fmin(256, trunc(part * 256)));
        break;
    case HR__TIMM_SOLARIZE_ADD:
        hr__plan_solarize_add(plan, (int)fmin(128, trunc(part * 110)));
        break;
    case HR__TIMM_DESATURATE:
        hr__plan_pillow_color(plan, fmin(1, fmax(0, 1 - between(level, 0.5, 1))));
        break;
    case HR__TIMM_BLUR:
        hr__plan_pillow_blur(plan, between(level, 0.1, 2));
        break;
    case HR__TIMM_BLUR_RANDOM:
        hr__plan_pillow_blur(plan, hr__random_range(random, 0.1, 2 * between(level, 0, 1)));
        break;
    default:
        plan_blend(plan, kind, level, random);
    }
}

void hr__plan_timm(struct hr__prepare_plan *plan, const struct hr_operation *operation,
                   enum hr__timm_kind kind, const double p_magnitude[2], struct hr__random *random)
{
    double magnitude = p_magnitude[1];
    if (p_magnitude[0] < 1 && hr__random_unit(random) > p_magnitude[0])
        return;
    if (operation->u.timm.uniform)
        magnitude = hr__random_range(random, 0, magnitude);
    else if (operation->u.timm.magnitude_std > 0)
        magnitude += operation->u.timm.magnitude_std * hr__random_normal(random);
    magnitude = fmax(0, fmin(magnitude, operation->u.timm.magnitude_max));
    plan_level(plan, operation, kind, magnitude, random);
}
