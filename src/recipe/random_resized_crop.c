/*
 * RandomResizedCrop: a crop of random area and shape, resized to a fixed size. Parameters are drawn
 * like torchvision v2's make_params: ten tries of area (uniform) and ratio (log-uniform), then the
 * largest central crop with an allowed ratio.
 */
#include "recipe/operation.h"

#include <math.h>

static void defaults(struct hr_operation *operation)
{
    operation->u.random_resized_crop.scale[0] = 0.08;
    operation->u.random_resized_crop.scale[1] = 1.0;
    operation->u.random_resized_crop.ratio[0] = 3.0 / 4.0;
    operation->u.random_resized_crop.ratio[1] = 4.0 / 3.0;
    operation->u.random_resized_crop.interpolation = HR_BILINEAR;
    operation->u.random_resized_crop.antialias = 1;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int height = o->u.random_resized_crop.height, width = o->u.random_resized_crop.width;
    const double *scale = o->u.random_resized_crop.scale, *ratio = o->u.random_resized_crop.ratio;
    int r = hr__check_size(bound, height, width, error);
    if (!r)
        r = hr__check_interpolation(bound, o->u.random_resized_crop.interpolation, error);
    if (r)
        return r;
    if (!(scale[0] >= 0 && scale[0] <= scale[1] && scale[1] > 0 && isfinite(scale[1])))
        return hr__refuse(error, bound,
                          "scale (%g, %g) must be two shares of the image's area, "
                          "not negative, the smaller first",
                          scale[0], scale[1]);
    if (!(ratio[0] > 0 && ratio[0] <= ratio[1] && isfinite(ratio[1])))
        return hr__refuse(error, bound,
                          "ratio (%g, %g) must be two positive ratios of width to "
                          "height, the smaller first",
                          ratio[0], ratio[1]);
    state->height = height;
    state->width = width;
    return 0;
}

/* Python's round() rounds half to even, like rint in the default rounding mode. */
static int round_side(double side)
{
    return side < 2.0 * INT32_MAX ? (int)fmin(rint(side), INT32_MAX) : INT32_MAX;
}

static void central(const double ratio[2], int width, int height, struct hr_region *crop)
{
    double shape = (double)width / (double)height;
    crop->width = width;
    crop->height = height;
    if (shape < ratio[0])
        crop->height = round_side(width / ratio[0]);
    else if (shape > ratio[1])
        crop->width = round_side(height * ratio[1]);
    /* a ratio beyond the image's sides would round to nothing */
    crop->width = crop->width < 1 ? 1 : crop->width;
    crop->height = crop->height < 1 ? 1 : crop->height;
    crop->x = (width - crop->width) / 2;
    crop->y = (height - crop->height) / 2;
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    const double *scale = o->u.random_resized_crop.scale, *ratio = o->u.random_resized_crop.ratio;
    int width = hr__plan_width(plan), height = hr__plan_height(plan);
    double area = (double)width * height;
    double low = log(ratio[0]), high = log(ratio[1]);
    struct hr_region crop;
    int found = 0;
    for (int i = 0; i < 10 && !found; i++) {
        double target = area * hr__random_range(random, scale[0], scale[1]);
        double shape = exp(hr__random_range(random, low, high));
        crop.width = round_side(sqrt(target * shape));
        crop.height = round_side(sqrt(target / shape));
        found = crop.width > 0 && crop.width <= width && crop.height > 0 && crop.height <= height;
    }
    if (found) {
        crop.y = (int)hr__random_below(random, (uint64_t)(height - crop.height) + 1);
        crop.x = (int)hr__random_below(random, (uint64_t)(width - crop.width) + 1);
    } else {
        central(ratio, width, height, &crop);
    }
    hr__plan_crop(plan, crop.x, crop.y, crop.width, crop.height);
    hr__plan_resize(plan, o->u.random_resized_crop.width, o->u.random_resized_crop.height,
                    o->u.random_resized_crop.interpolation, o->u.random_resized_crop.antialias);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"height", HR__INTEGER(random_resized_crop.height)},
    {"width", HR__INTEGER(random_resized_crop.width)},
    {"scale", HR__REALS(random_resized_crop.scale)},
    {"ratio", HR__REALS(random_resized_crop.ratio)},
    {"interpolation", HR__WORD(random_resized_crop.interpolation, hr__interpolation_words)},
    {"antialias", HR__FLAG(random_resized_crop.antialias)},
    {0},
};

const struct hr__operation_class hr__class_random_resized_crop = {
    .name = "RandomResizedCrop",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
