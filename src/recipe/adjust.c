/*
 * The operations that change the colours or the sharpness of bytes with probability p, without
 * other random parameters; and RandomChannelPermutation.
 */
#include "recipe/enhance.h"
#include "recipe/operation.h"

#include <math.h>

static void defaults(struct hr_operation *operation)
{
    operation->u.adjust.p = 0.5;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    int r = hr__check_probability(bound, bound->operation.u.adjust.p, error);
    return r ? r : hr__check_bytes_place(bound, state, error);
}

static int chosen(const struct hr__bound *bound, struct hr__random *random)
{
    return hr__random_unit(random) < bound->operation.u.adjust.p;
}

static int draw_invert(const struct hr__bound *bound, struct hr__random *random,
                       struct hr__prepare_plan *plan, struct hr_error *error)
{
    if (chosen(bound, random))
        hr__plan_invert(plan);
    return 0;
}

static int draw_autocontrast(const struct hr__bound *bound, struct hr__random *random,
                             struct hr__prepare_plan *plan, struct hr_error *error)
{
    if (chosen(bound, random))
        hr__plan_autocontrast(plan);
    return 0;
}

static int draw_equalize(const struct hr__bound *bound, struct hr__random *random,
                         struct hr__prepare_plan *plan, struct hr_error *error)
{
    if (chosen(bound, random))
        hr__plan_equalize(plan);
    return 0;
}

static int check_posterize(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    int bits = bound->operation.u.adjust.bits;
    if (bits < 0 || bits > 8)
        return hr__refuse(error, bound, "bits = %d: bytes keep 0 to 8 bits", bits);
    return check(bound, state, error);
}

static int draw_posterize(const struct hr__bound *bound, struct hr__random *random,
                          struct hr__prepare_plan *plan, struct hr_error *error)
{
    if (chosen(bound, random))
        hr__plan_posterize(plan, bound->operation.u.adjust.bits);
    return 0;
}

static int check_solarize(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    double threshold = bound->operation.u.adjust.threshold;
    if (!(threshold >= 0 && threshold <= 256))
        return hr__refuse(error, bound, "threshold = %g: for bytes it is 0..256", threshold);
    return check(bound, state, error);
}

static int draw_solarize(const struct hr__bound *bound, struct hr__random *random,
                         struct hr__prepare_plan *plan, struct hr_error *error)
{
    if (chosen(bound, random))
        hr__plan_solarize(plan, bound->operation.u.adjust.threshold);
    return 0;
}

static int check_sharpness(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    double factor = bound->operation.u.adjust.sharpness;
    if (!(factor >= 0 && factor <= 1e6))
        return hr__refuse(error, bound, "sharpness = %g: the factor must be 0 to 1e6", factor);
    return check(bound, state, error);
}

static int draw_sharpness(const struct hr__bound *bound, struct hr__random *random,
                          struct hr__prepare_plan *plan, struct hr_error *error)
{
    if (chosen(bound, random))
        hr__plan_sharpness(plan, bound->operation.u.adjust.sharpness);
    return 0;
}

static void no_defaults(struct hr_operation *operation)
{
}

static int check_place(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    return hr__check_bytes_place(bound, state, error);
}

static int draw_permutation(const struct hr__bound *bound, struct hr__random *random,
                            struct hr__prepare_plan *plan, struct hr_error *error)
{
    int order[3];
    hr__draw_order(random, order, 3);
    hr__plan_permute(plan, order);
    return 0;
}

static const struct hr__parameter no_fields[] = {{0}};
static const struct hr__parameter p_fields[] = {{"p", HR__REAL(adjust.p)}, {0}};
static const struct hr__parameter posterize_fields[] = {
    {"bits", HR__INTEGER(adjust.bits)}, {"p", HR__REAL(adjust.p)}, {0}};
static const struct hr__parameter solarize_fields[] = {
    {"threshold", HR__REAL(adjust.threshold)}, {"p", HR__REAL(adjust.p)}, {0}};
static const struct hr__parameter sharpness_fields[] = {
    {"sharpness", HR__REAL(adjust.sharpness)}, {"p", HR__REAL(adjust.p)}, {0}};

const struct hr__operation_class hr__class_random_invert = {
    .name = "RandomInvert",
    .fields = p_fields,
    .defaults = defaults,
    .check = check,
    .draw = draw_invert,
};
const struct hr__operation_class hr__class_random_posterize = {
    .name = "RandomPosterize",
    .fields = posterize_fields,
    .defaults = defaults,
    .check = check_posterize,
    .draw = draw_posterize,
};
const struct hr__operation_class hr__class_random_solarize = {
    .name = "RandomSolarize",
    .fields = solarize_fields,
    .defaults = defaults,
    .check = check_solarize,
    .draw = draw_solarize,
};
const struct hr__operation_class hr__class_random_adjust_sharpness = {
    .name = "RandomAdjustSharpness",
    .fields = sharpness_fields,
    .defaults = defaults,
    .check = check_sharpness,
    .draw = draw_sharpness,
};
const struct hr__operation_class hr__class_random_autocontrast = {
    .name = "RandomAutocontrast",
    .fields = p_fields,
    .defaults = defaults,
    .check = check,
    .draw = draw_autocontrast,
};
const struct hr__operation_class hr__class_random_equalize = {
    .name = "RandomEqualize",
    .fields = p_fields,
    .defaults = defaults,
    .check = check,
    .draw = draw_equalize,
};
const struct hr__operation_class hr__class_random_channel_permutation = {
    .name = "RandomChannelPermutation",
    .fields = no_fields,
    .defaults = no_defaults,
    .check = check_place,
    .draw = draw_permutation,
};
