/* RandomHorizontalFlip and RandomVerticalFlip: mirror with probability p. */
#include "recipe/operation.h"

static void defaults(struct hr_operation *operation)
{
    operation->u.flip.p = 0.5;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    return hr__check_probability(bound, bound->operation.u.flip.p, error);
}

static int draw_horizontal(const struct hr__bound *bound, struct hr__random *random,
                           struct hr__prepare_plan *plan, struct hr_error *error)
{
    if (hr__random_unit(random) < bound->operation.u.flip.p)
        hr__plan_flip(plan, HR__STEP_FLIP_X);
    return 0;
}

static int draw_vertical(const struct hr__bound *bound, struct hr__random *random,
                         struct hr__prepare_plan *plan, struct hr_error *error)
{
    if (hr__random_unit(random) < bound->operation.u.flip.p)
        hr__plan_flip(plan, HR__STEP_FLIP_Y);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"p", HR__REAL(flip.p)},
    {0},
};

const struct hr__operation_class hr__class_horizontal_flip = {
    .name = "RandomHorizontalFlip",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw_horizontal,
};
const struct hr__operation_class hr__class_vertical_flip = {
    .name = "RandomVerticalFlip",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw_vertical,
};
