/* RandomGrayscale: with probability p sets all channels to the luma. */
#include "recipe/enhance.h"
#include "recipe/operation.h"

static void defaults(struct hr_operation *operation)
{
    operation->u.random_grayscale.p = 0.1;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    int r = hr__check_probability(bound, bound->operation.u.random_grayscale.p, error);
    return r ? r : hr__check_color_place(bound, state, 0, error);
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    if (hr__random_unit(random) >= bound->operation.u.random_grayscale.p)
        return 0;
    if (bound->bytes)
        hr__plan_grayscale(plan);
    else
        hr__plan_color(plan, HR__STEP_GRAYSCALE, 0);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"p", HR__REAL(random_grayscale.p)},
    {0},
};

const struct hr__operation_class hr__class_random_grayscale = {
    .name = "RandomGrayscale",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
