/*
 * ColorJitter: brightness, contrast, saturation and hue with random factors, in random order. All
 * four factors are always drawn, in a fixed order, so that a step's factor does not depend on the
 * permutation.
 */
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

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    for (int i = 0; i < 4; i++) {
        const double *range = range_of(&bound->operation, i);
        if (!(range[0] >= steps[i].low && range[0] <= range[1] && range[1] <= steps[i].high &&
              isfinite(range[1])))
            return hr__refuse(error, bound,
                              "%s (%g, %g) must be two factors, the smaller first, "
                              "%s",
                              steps[i].name, range[0], range[1],
                              i == 3 ? "within -0.5..0.5" : "not negative");
    }
    return hr__check_color_place(bound, state, 1, error);
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    int order[4] = {0, 1, 2, 3};
    double factor[4];
    for (int i = 3; i > 0; i--) {
        int j = (int)hr__random_below(random, (uint64_t)i + 1);
        int swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int i = 0; i < 4; i++) {
        const double *range = range_of(&bound->operation, i);
        factor[i] = hr__random_range(random, range[0], range[1]);
    }
    for (int k = 0; k < 4; k++) {
        int i = order[k];
        const double *range = range_of(&bound->operation, i);
        if (range[0] != range[1] || range[0] != steps[i].neutral)
            hr__plan_color(plan, steps[i].kind, factor[i]);
    }
    return 0;
}

const struct hr__operation_class hr__class_color_jitter = {"ColorJitter", defaults, check, draw};
