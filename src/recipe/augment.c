/*
 * The shared operations of RandAugment and its relatives; see augment.h.
 *
 * Magnitudes are torch's float32 numbers, to the bit: torch.linspace counts from the nearer end,
 * with a fused multiply-add.
 */
#include "recipe/augment.h"

#include "recipe/affine.h"
#include "recipe/enhance.h"

#include <math.h>

#define SHARED_RANGES                                                                              \
    [HR__AUGMENT_IDENTITY] = {.unit = HR__AUGMENT_NONE},                                           \
    [HR__AUGMENT_SOLARIZE] = {.from = 1, .to = 0},                                                 \
    [HR__AUGMENT_AUTOCONTRAST] = {.unit = HR__AUGMENT_NONE},                                       \
    [HR__AUGMENT_EQUALIZE] = {.unit = HR__AUGMENT_NONE},                                           \
    [HR__AUGMENT_INVERT] = {.unit = HR__AUGMENT_NONE}

#define BLENDS(largest)                                                                            \
    [HR__AUGMENT_BRIGHTNESS] = {.to = largest, .negated = 1},                                      \
    [HR__AUGMENT_COLOR] = {.to = largest, .negated = 1},                                           \
    [HR__AUGMENT_CONTRAST] = {.to = largest, .negated = 1},                                        \
    [HR__AUGMENT_SHARPNESS] = {.to = largest, .negated = 1}

const struct hr__augment_range hr__augment_narrow[HR__AUGMENT_KINDS] = {
    SHARED_RANGES,
    BLENDS(0.9),
    [HR__AUGMENT_SHEAR_X] = {.to = 0.3, .negated = 1},
    [HR__AUGMENT_SHEAR_Y] = {.to = 0.3, .negated = 1},
    [HR__AUGMENT_TRANSLATE_X] = {.to = 150.0 / 331.0, .unit = HR__AUGMENT_WIDTHS, .negated = 1},
    [HR__AUGMENT_TRANSLATE_Y] = {.to = 150.0 / 331.0, .unit = HR__AUGMENT_HEIGHTS, .negated = 1},
    [HR__AUGMENT_ROTATE] = {.to = 30, .negated = 1},
    [HR__AUGMENT_POSTERIZE] = {.from = 8, .to = 4, .unit = HR__AUGMENT_BITS},
};

const struct hr__augment_range hr__augment_wide[HR__AUGMENT_KINDS] = {
    SHARED_RANGES,
    BLENDS(0.99),
    [HR__AUGMENT_SHEAR_X] = {.to = 0.99, .negated = 1},
    [HR__AUGMENT_SHEAR_Y] = {.to = 0.99, .negated = 1},
    [HR__AUGMENT_TRANSLATE_X] = {.to = 32, .negated = 1},
    [HR__AUGMENT_TRANSLATE_Y] = {.to = 32, .negated = 1},
    [HR__AUGMENT_ROTATE] = {.to = 135, .negated = 1},
    [HR__AUGMENT_POSTERIZE] = {.from = 8, .to = 6, .unit = HR__AUGMENT_BITS},
};

const struct hr__augment_range hr__augment_mixed[HR__AUGMENT_KINDS] = {
    SHARED_RANGES,
    BLENDS(0.9),
    [HR__AUGMENT_SHEAR_X] = {.to = 0.3, .negated = 1},
    [HR__AUGMENT_SHEAR_Y] = {.to = 0.3, .negated = 1},
    [HR__AUGMENT_TRANSLATE_X] = {.to = 1, .divisor = 3, .unit = HR__AUGMENT_WIDTHS, .negated = 1},
    [HR__AUGMENT_TRANSLATE_Y] = {.to = 1, .divisor = 3, .unit = HR__AUGMENT_HEIGHTS, .negated = 1},
    [HR__AUGMENT_ROTATE] = {.to = 30, .negated = 1},
    [HR__AUGMENT_POSTERIZE] = {.from = 4, .to = 4, .unit = HR__AUGMENT_BITS},
};

/* torch.linspace(from, to, bins)[i] */
static double spaced(double from, double to, int bins, int i)
{
    float a = (float)from, b = (float)to, step = (b - a) / (float)(bins - 1);
    return i < bins / 2 ? fmaf(step, (float)i, a) : fmaf(-step, (float)(bins - i - 1), b);
}

static double magnitude_of(const struct hr__augment_range *range, int bins, int i, int width,
                           int height)
{
    double to = range->to;
    if (range->unit == HR__AUGMENT_NONE)
        return 0;
    if (range->unit == HR__AUGMENT_BITS)
        return rintf((float)range->from - (float)i / (float)((bins - 1) / to));
    if (range->unit == HR__AUGMENT_WIDTHS)
        to *= width;
    if (range->unit == HR__AUGMENT_HEIGHTS)
        to *= height;
    return spaced(range->from, range->divisor != 0 ? to / range->divisor : to, bins, i);
}

static void plan_map(struct hr__prepare_plan *plan, const struct hr__augment_style *style,
                     enum hr__augment_kind kind, double magnitude)
{
    static const double origin[2] = {0, 0};
    double corner[2] = {-0.5 * hr__plan_width(plan), -0.5 * hr__plan_height(plan)};
    double angle = kind == HR__AUGMENT_ROTATE ? -magnitude : 0, matrix[6];
    double degrees = atan(magnitude) * (180 / M_PI);
    double translate[2] = {kind == HR__AUGMENT_TRANSLATE_X ? trunc(magnitude) : 0,
                           kind == HR__AUGMENT_TRANSLATE_Y ? trunc(magnitude) : 0};
    double shear[2] = {kind == HR__AUGMENT_SHEAR_X ? degrees : 0,
                       kind == HR__AUGMENT_SHEAR_Y ? degrees : 0};
    int sheared = kind == HR__AUGMENT_SHEAR_X || kind == HR__AUGMENT_SHEAR_Y;
    /* torchvision takes rotations to 0..360 first */
    if (angle > 0)
        angle -= 360;
    hr__affine_matrix(angle, translate, 1, shear, sheared ? corner : origin, matrix);
    hr__plan_affine(plan, matrix, style->interpolation, style->fill);
}

/* Appends the operation with this magnitude. */
static void plan_kind(struct hr__prepare_plan *plan, const struct hr__augment_style *style,
                      enum hr__augment_kind kind, double magnitude)
{
    switch (kind) {
    case HR__AUGMENT_BRIGHTNESS:
        hr__plan_brightness(plan, 1 + magnitude);
        break;
    case HR__AUGMENT_COLOR:
        hr__plan_saturation(plan, 1 + magnitude);
        break;
    case HR__AUGMENT_CONTRAST:
        hr__plan_contrast(plan, 1 + magnitude);
        break;
    case HR__AUGMENT_SHARPNESS:
        hr__plan_sharpness(plan, 1 + magnitude);
        break;
    case HR__AUGMENT_POSTERIZE:
        hr__plan_posterize(plan, (int)magnitude);
        break;
    case HR__AUGMENT_SOLARIZE:
        hr__plan_solarize(plan, 255 * magnitude);
        break;
    case HR__AUGMENT_AUTOCONTRAST:
        hr__plan_autocontrast(plan);
        break;
    case HR__AUGMENT_EQUALIZE:
        hr__plan_equalize(plan);
        break;
    case HR__AUGMENT_INVERT:
        hr__plan_invert(plan);
        break;
    case HR__AUGMENT_IDENTITY:
        break;
    default:
        if (magnitude != 0)
            plan_map(plan, style, kind, magnitude);
    }
}

void hr__plan_augment(struct hr__prepare_plan *plan, const struct hr__augment_style *style,
                      enum hr__augment_kind kind, int index, struct hr__random *random)
{
    const struct hr__augment_range *range = &style->ranges[kind];
    double magnitude =
        magnitude_of(range, style->bins, index, hr__plan_width(plan), hr__plan_height(plan));
    if (range->negated && hr__random_unit(random) < 0.5)
        magnitude = -magnitude;
    plan_kind(plan, style, kind, magnitude);
}

int hr__check_augment(const struct hr__bound *bound, enum hr_interpolation interpolation,
                      const double fill[3], struct hr_error *error)
{
    if (interpolation != HR_NEAREST && interpolation != HR_BILINEAR)
        return hr__refuse(error, bound, "interpolation %d is not possible: use nearest or bilinear",
                          (int)interpolation);
    for (int c = 0; c < 3; c++) {
        if (!(fill[c] >= 0 && fill[c] <= 255))
            return hr__refuse(error, bound, "the fill value %g is outside 0..255", fill[c]);
    }
    return 0;
}
