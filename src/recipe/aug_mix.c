/* AugMix: the image, and several chains of operations on it, mixed by drawn weights (mixture.h). */
#include "recipe/augment.h"
#include "recipe/mixture.h"

#define SEVERITIES   10
#define RANDOM_DEPTH 3 /* chains of random depth have 1 to 3 operations */

static void defaults(struct hr_operation *operation)
{
    operation->u.aug_mix.severity = 3;
    operation->u.aug_mix.mixture_width = 3;
    operation->u.aug_mix.chain_depth = -1;
    operation->u.aug_mix.alpha = 1;
    operation->u.aug_mix.all_ops = 1;
    operation->u.aug_mix.interpolation = HR_BILINEAR;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int width = o->u.aug_mix.mixture_width, depth = o->u.aug_mix.chain_depth;
    if (o->u.aug_mix.severity < 1 || o->u.aug_mix.severity > SEVERITIES)
        return hr__refuse(error, bound, "severity = %d: 1 to %d", o->u.aug_mix.severity,
                          SEVERITIES);
    if (!(o->u.aug_mix.alpha >= 1e-3 && o->u.aug_mix.alpha <= 1e6))
        return hr__refuse(error, bound, "alpha = %g: 0.001 to 1e6", o->u.aug_mix.alpha);
    int64_t deepest = depth > 0 ? depth : RANDOM_DEPTH;
    if (width < 1 || width * (deepest + 1) + 1 > HR__OPERATION_MAX_STEPS)
        return hr__refuse(error, bound,
                          "mixture_width = %d chains of up to %d operations: at least 1 chain, and "
                          "width x (depth + 1) at most %d",
                          width, (int)deepest, HR__OPERATION_MAX_STEPS - 1);
    int r = hr__check_augment(bound, o->u.aug_mix.interpolation, o->u.aug_mix.fill, error);
    return r ? r : hr__check_bytes_place(bound, state, error);
}

static const enum hr__augment_kind kinds[] = {
    HR__AUGMENT_SHEAR_X,  HR__AUGMENT_SHEAR_Y,    HR__AUGMENT_TRANSLATE_X, HR__AUGMENT_TRANSLATE_Y,
    HR__AUGMENT_ROTATE,   HR__AUGMENT_POSTERIZE,  HR__AUGMENT_SOLARIZE,    HR__AUGMENT_AUTOCONTRAST,
    HR__AUGMENT_EQUALIZE, HR__AUGMENT_BRIGHTNESS, HR__AUGMENT_COLOR,       HR__AUGMENT_CONTRAST,
    HR__AUGMENT_SHARPNESS};
#define SOME_KINDS 9 /* without all_ops */

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    struct hr__augment_style style = {.ranges = hr__augment_mixed,
                                      .bins = SEVERITIES,
                                      .interpolation = o->u.aug_mix.interpolation,
                                      .fill = o->u.aug_mix.has_fill ? o->u.aug_mix.fill : NULL};
    double parts[2], weight[HR__OPERATION_MAX_STEPS];
    int width = o->u.aug_mix.mixture_width;
    uint64_t count = o->u.aug_mix.all_ops ? sizeof kinds / sizeof kinds[0] : SOME_KINDS;
    hr__draw_dirichlet(random, o->u.aug_mix.alpha, parts, 2);
    hr__draw_dirichlet(random, o->u.aug_mix.alpha, weight, width);
    hr__plan_sum_begin(plan, parts[0]);
    for (int i = 0; i < width; i++) {
        int depth = o->u.aug_mix.chain_depth;
        if (depth <= 0)
            depth = 1 + (int)hr__random_below(random, RANDOM_DEPTH);
        for (int k = 0; k < depth; k++) {
            enum hr__augment_kind kind = kinds[hr__random_below(random, count)];
            int index = (int)hr__random_below(random, (uint64_t)o->u.aug_mix.severity);
            hr__plan_augment(plan, &style, kind, index, random);
        }
        float share = (float)weight[i] * (float)parts[1];
        if (i < width - 1)
            hr__plan_sum_add(plan, share);
        else
            hr__plan_sum_end(plan, share, 1);
    }
    return 0;
}

static const struct hr__parameter fields[] = {
    {"severity", HR__INTEGER(aug_mix.severity)},
    {"mixture_width", HR__INTEGER(aug_mix.mixture_width)},
    {"chain_depth", HR__INTEGER(aug_mix.chain_depth)},
    {"all_ops", HR__FLAG(aug_mix.all_ops)},
    {"alpha", HR__REAL(aug_mix.alpha)},
    {"interpolation", HR__WORD(aug_mix.interpolation, hr__interpolation_words)},
    {"fill", HR__REALS(aug_mix.fill)},
    {"has_fill", HR__FLAG(aug_mix.has_fill)},
    {0},
};

const struct hr__operation_class hr__class_aug_mix = {
    .name = "AugMix",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
    .rows = HR__ROWS_LOST,
};
