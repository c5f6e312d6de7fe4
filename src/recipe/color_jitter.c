/*
 * ColorJitter: brightness, contrast, saturation and hue with random factors, in random order. All
 * four factors are always drawn, in a fixed order, so that a step's factor does not depend on the
 * permutation. Before a ToDtype it runs on bytes, as in torchvision, after one on floats.
 */
#include "recipe/enhance.h"
#include "recipe/operation.h"

#include <math.h>

static const struct {
    const char *name;
    enum hr__step_kind kind;
    double neutral, low, high; /* the factor without effect; the allowed range */
} steps[4] = {
    {"brightness", HR__STEP_BRIGHTNESS, 1, 0, INFINITY},
    {"contrast", HR__STEP_CONTRAST, 1, 0, INFINITY},
    {"saturation", HR__STEP_SATURATION, 1, 0, INFINITY},
    {"hue", HR__STEP_HUE, 0, -0.5, 0.5},
};

static const double *range_of(const struct hr_operation *o, int i)
{
    const double *ranges[4] = {o->u.color_jitter.brightness, o->u.color_jitter.contrast,
                               o->u.color_jitter.saturation, o->u.color_jitter.hue};
    return ranges[i];
}

static void defaults(struct hr_operation *operation)
{
    for (int i = 0; i < 2; i++) {
        operation->u.color_jitter.brightness[i] = 1;
        operation->u.color_jitter.contrast[i] = 1;
        operation->u.color_jitter.saturation[i] = 1;
    }
}

int hr__check_factors(const struct hr__bound *bound, int kind, const double range[2],
                      struct hr_error *error)
{
    if (range[0] >= steps[kind].low && range[0] <= range[1] && range[1] <= steps[kind].high &&
        isfinite(range[1]))
        return 0;
    return hr__refuse(error, bound, "%s (%g, %g) must be two factors, the smaller first, %s",
                      steps[kind].name, range[0], range[1],
                      kind == 3 ? "within -0.5..0.5" : "not negative");
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    for (int i = 0; i < 4; i++) {
        int r = hr__check_factors(bound, i, range_of(&bound->operation, i), error);
        if (r)
            return r;
    }
    return hr__check_color_place(bound, state, 1, error);
}

static void plan_bytes(struct hr__prepare_plan *plan, enum hr__step_kind kind, double factor)
{
    switch (kind) {
    case HR__STEP_BRIGHTNESS:
        hr__plan_brightness(plan, factor);
        break;
    case HR__STEP_CONTRAST:
        hr__plan_contrast(plan, factor);
        break;
    case HR__STEP_SATURATION:
        hr__plan_saturation(plan, factor);
        break;
    default:
        hr__plan_hue(plan, factor);
    }
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    int order[4];
    double factor[4];
    hr__draw_order(random, order, 4);
    for (int i = 0; i < 4; i++) {
        const double *range = range_of(&bound->operation, i);
        factor[i] = hr__random_range(random, range[0], range[1]);
    }
    for (int k = 0; k < 4; k++) {
        int i = order[k];
        const double *range = range_of(&bound->operation, i);
        if (range[0] == range[1] && range[0] == steps[i].neutral)
            continue;
        if (bound->bytes)
            plan_bytes(plan, steps[i].kind, factor[i]);
        else
            hr__plan_color(plan, steps[i].kind, factor[i]);
    }
    return 0;
}

static const struct hr__parameter fields[] = {
    {"brightness", HR__REALS(color_jitter.brightness)},
    {"contrast", HR__REALS(color_jitter.contrast)},
    {"saturation", HR__REALS(color_jitter.saturation)},
    {"hue", HR__REALS(color_jitter.hue)},
    {0},
};

const struct hr__operation_class hr__class_color_jitter = {
    .name = "ColorJitter",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
