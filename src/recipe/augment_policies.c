/* RandAugment, TrivialAugmentWide and AutoAugment, with torchvision's policies. */
#include "recipe/augment.h"

#define KINDS                                                                                      \
    (HR__AUGMENT_EQUALIZE + 1) /* those that RandAugment and TrivialAugment choose from            \
                                */

static void defaults(struct hr_operation *operation)
{
    operation->u.auto_augment.num_ops = 2;
    operation->u.auto_augment.magnitude = 9;
    operation->u.auto_augment.num_magnitude_bins = 31;
    operation->u.auto_augment.interpolation = HR_NEAREST;
}

static struct hr__augment_style style_of(const struct hr_operation *o,
                                         const struct hr__augment_range *ranges, int bins)
{
    return (struct hr__augment_style){.ranges = ranges,
                                      .bins = bins,
                                      .interpolation = o->u.auto_augment.interpolation,
                                      .fill = o->u.auto_augment.has_fill ? o->u.auto_augment.fill
                                                                         : NULL};
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int bins = o->u.auto_augment.num_magnitude_bins;
    if (bins < 2 || bins > 1000000)
        return hr__refuse(error, bound, "num_magnitude_bins = %d: at least 2", bins);
    int r =
        hr__check_augment(bound, o->u.auto_augment.interpolation, o->u.auto_augment.fill, error);
    return r ? r : hr__check_bytes_place(bound, state, error);
}

static int check_rand(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int bins = o->u.auto_augment.num_magnitude_bins, magnitude = o->u.auto_augment.magnitude;
    if (o->u.auto_augment.num_ops < 0 || o->u.auto_augment.num_ops > HR__OPERATION_MAX_STEPS)
        return hr__refuse(error, bound, "num_ops = %d: 0 to %d", o->u.auto_augment.num_ops,
                          HR__OPERATION_MAX_STEPS);
    int r = check(bound, state, error);
    if (!r && (magnitude < 0 || magnitude >= bins))
        return hr__refuse(error, bound, "magnitude = %d: 0 to num_magnitude_bins - 1 = %d",
                          magnitude, bins - 1);
    return r;
}

static int draw_rand(const struct hr__bound *bound, struct hr__random *random,
                     struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    struct hr__augment_style style =
        style_of(o, hr__augment_narrow, o->u.auto_augment.num_magnitude_bins);
    for (int i = 0; i < o->u.auto_augment.num_ops; i++) {
        enum hr__augment_kind kind = (enum hr__augment_kind)hr__random_below(random, KINDS);
        hr__plan_augment(plan, &style, kind, o->u.auto_augment.magnitude, random);
    }
    return 0;
}

static int draw_trivial(const struct hr__bound *bound, struct hr__random *random,
                        struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int bins = o->u.auto_augment.num_magnitude_bins;
    struct hr__augment_style style = style_of(o, hr__augment_wide, bins);
    enum hr__augment_kind kind = (enum hr__augment_kind)hr__random_below(random, KINDS);
    hr__plan_augment(plan, &style, kind, (int)hr__random_below(random, (uint64_t)bins), random);
    return 0;
}

/* One half of a policy: the probability in tenths, and the number of the magnitude. */
struct half {
    uint8_t kind, tenths, index;
};

#define POLICIES  25
#define AUTO_BINS 10
#define HALF(kind, p, i)                                                                           \
    {                                                                                              \
        HR__AUGMENT_##kind, p, i                                                                   \
    }

static const struct half policies[3][POLICIES][2] = {
    {
        /* imagenet */
        {HALF(POSTERIZE, 4, 8), HALF(ROTATE, 6, 9)},
        {HALF(SOLARIZE, 6, 5), HALF(AUTOCONTRAST, 6, 0)},
        {HALF(EQUALIZE, 8, 0), HALF(EQUALIZE, 6, 0)},
        {HALF(POSTERIZE, 6, 7), HALF(POSTERIZE, 6, 6)},
        {HALF(EQUALIZE, 4, 0), HALF(SOLARIZE, 2, 4)},
        {HALF(EQUALIZE, 4, 0), HALF(ROTATE, 8, 8)},
        {HALF(SOLARIZE, 6, 3), HALF(EQUALIZE, 6, 0)},
        {HALF(POSTERIZE, 8, 5), HALF(EQUALIZE, 10, 0)},
        {HALF(ROTATE, 2, 3), HALF(SOLARIZE, 6, 8)},
        {HALF(EQUALIZE, 6, 0), HALF(POSTERIZE, 4, 6)},
        {HALF(ROTATE, 8, 8), HALF(COLOR, 4, 0)},
        {HALF(ROTATE, 4, 9), HALF(EQUALIZE, 6, 0)},
        {HALF(EQUALIZE, 0, 0), HALF(EQUALIZE, 8, 0)},
        {HALF(INVERT, 6, 0), HALF(EQUALIZE, 10, 0)},
        {HALF(COLOR, 6, 4), HALF(CONTRAST, 10, 8)},
        {HALF(ROTATE, 8, 8), HALF(COLOR, 10, 2)},
        {HALF(COLOR, 8, 8), HALF(SOLARIZE, 8, 7)},
        {HALF(SHARPNESS, 4, 7), HALF(INVERT, 6, 0)},
        {HALF(SHEAR_X, 6, 5), HALF(EQUALIZE, 10, 0)},
        {HALF(COLOR, 4, 0), HALF(EQUALIZE, 6, 0)},
        {HALF(EQUALIZE, 4, 0), HALF(SOLARIZE, 2, 4)},
        {HALF(SOLARIZE, 6, 5), HALF(AUTOCONTRAST, 6, 0)},
        {HALF(INVERT, 6, 0), HALF(EQUALIZE, 10, 0)},
        {HALF(COLOR, 6, 4), HALF(CONTRAST, 10, 8)},
        {HALF(EQUALIZE, 8, 0), HALF(EQUALIZE, 6, 0)},
    },
    {
        /* cifar10 */
        {HALF(INVERT, 1, 0), HALF(CONTRAST, 2, 6)},
        {HALF(ROTATE, 7, 2), HALF(TRANSLATE_X, 3, 9)},
        {HALF(SHARPNESS, 8, 1), HALF(SHARPNESS, 9, 3)},
        {HALF(SHEAR_Y, 5, 8), HALF(TRANSLATE_Y, 7, 9)},
        {HALF(AUTOCONTRAST, 5, 0), HALF(EQUALIZE, 9, 0)},
        {HALF(SHEAR_Y, 2, 7), HALF(POSTERIZE, 3, 7)},
        {HALF(COLOR, 4, 3), HALF(BRIGHTNESS, 6, 7)},
        {HALF(SHARPNESS, 3, 9), HALF(BRIGHTNESS, 7, 9)},
        {HALF(EQUALIZE, 6, 0), HALF(EQUALIZE, 5, 0)},
        {HALF(CONTRAST, 6, 7), HALF(SHARPNESS, 6, 5)},
        {HALF(COLOR, 7, 7), HALF(TRANSLATE_X, 5, 8)},
        {HALF(EQUALIZE, 3, 0), HALF(AUTOCONTRAST, 4, 0)},
        {HALF(TRANSLATE_Y, 4, 3), HALF(SHARPNESS, 2, 6)},
        {HALF(BRIGHTNESS, 9, 6), HALF(COLOR, 2, 8)},
        {HALF(SOLARIZE, 5, 2), HALF(INVERT, 0, 0)},
        {HALF(EQUALIZE, 2, 0), HALF(AUTOCONTRAST, 6, 0)},
        {HALF(EQUALIZE, 2, 0), HALF(EQUALIZE, 6, 0)},
        {HALF(COLOR, 9, 9), HALF(EQUALIZE, 6, 0)},
        {HALF(AUTOCONTRAST, 8, 0), HALF(SOLARIZE, 2, 8)},
        {HALF(BRIGHTNESS, 1, 3), HALF(COLOR, 7, 0)},
        {HALF(SOLARIZE, 4, 5), HALF(AUTOCONTRAST, 9, 0)},
        {HALF(TRANSLATE_Y, 9, 9), HALF(TRANSLATE_Y, 7, 9)},
        {HALF(AUTOCONTRAST, 9, 0), HALF(SOLARIZE, 8, 3)},
        {HALF(EQUALIZE, 8, 0), HALF(INVERT, 1, 0)},
        {HALF(TRANSLATE_Y, 7, 9), HALF(AUTOCONTRAST, 9, 0)},
    },
    {
        /* svhn */
        {HALF(SHEAR_X, 9, 4), HALF(INVERT, 2, 0)},
        {HALF(SHEAR_Y, 9, 8), HALF(INVERT, 7, 0)},
        {HALF(EQUALIZE, 6, 0), HALF(SOLARIZE, 6, 6)},
        {HALF(INVERT, 9, 0), HALF(EQUALIZE, 6, 0)},
        {HALF(EQUALIZE, 6, 0), HALF(ROTATE, 9, 3)},
        {HALF(SHEAR_X, 9, 4), HALF(AUTOCONTRAST, 8, 0)},
        {HALF(SHEAR_Y, 9, 8), HALF(INVERT, 4, 0)},
        {HALF(SHEAR_Y, 9, 5), HALF(SOLARIZE, 2, 6)},
        {HALF(INVERT, 9, 0), HALF(AUTOCONTRAST, 8, 0)},
        {HALF(EQUALIZE, 6, 0), HALF(ROTATE, 9, 3)},
        {HALF(SHEAR_X, 9, 4), HALF(SOLARIZE, 3, 3)},
        {HALF(SHEAR_Y, 8, 8), HALF(INVERT, 7, 0)},
        {HALF(EQUALIZE, 9, 0), HALF(TRANSLATE_Y, 6, 6)},
        {HALF(INVERT, 9, 0), HALF(EQUALIZE, 6, 0)},
        {HALF(CONTRAST, 3, 3), HALF(ROTATE, 8, 4)},
        {HALF(INVERT, 8, 0), HALF(TRANSLATE_Y, 0, 2)},
        {HALF(SHEAR_Y, 7, 6), HALF(SOLARIZE, 4, 8)},
        {HALF(INVERT, 6, 0), HALF(ROTATE, 8, 4)},
        {HALF(SHEAR_Y, 3, 7), HALF(TRANSLATE_X, 9, 3)},
        {HALF(SHEAR_X, 1, 6), HALF(INVERT, 6, 0)},
        {HALF(SOLARIZE, 7, 2), HALF(TRANSLATE_Y, 6, 7)},
        {HALF(SHEAR_Y, 8, 4), HALF(INVERT, 8, 0)},
        {HALF(SHEAR_X, 7, 9), HALF(TRANSLATE_Y, 8, 3)},
        {HALF(SHEAR_Y, 8, 5), HALF(AUTOCONTRAST, 7, 0)},
        {HALF(SHEAR_X, 7, 2), HALF(INVERT, 1, 0)},
    },
};

static int check_auto(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    enum hr_augment_policy policy = bound->operation.u.auto_augment.policy;
    if (policy < HR_POLICY_IMAGENET || policy > HR_POLICY_SVHN)
        return hr__refuse(error, bound, "policy %d is unknown: use imagenet, cifar10 or svhn",
                          (int)policy);
    return check(bound, state, error);
}

static int draw_auto(const struct hr__bound *bound, struct hr__random *random,
                     struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    struct hr__augment_style style = style_of(o, hr__augment_narrow, AUTO_BINS);
    const struct half *policy =
        policies[o->u.auto_augment.policy][hr__random_below(random, POLICIES)];
    for (int i = 0; i < 2; i++) {
        if (hr__random_unit(random) < policy[i].tenths / 10.0)
            hr__plan_augment(plan, &style, (enum hr__augment_kind)policy[i].kind, policy[i].index,
                             random);
    }
    return 0;
}

#define STYLE_FIELDS                                                                               \
    {"interpolation", HR__WORD(auto_augment.interpolation, hr__interpolation_words)},              \
        {"fill", HR__REALS(auto_augment.fill)},                                                    \
    {                                                                                              \
        "has_fill", HR__FLAG(auto_augment.has_fill)                                                \
    }

static const char *const policy_words[] = {[HR_POLICY_IMAGENET] = "imagenet",
                                           [HR_POLICY_CIFAR10] = "cifar10",
                                           [HR_POLICY_SVHN] = "svhn",
                                           NULL};
static const struct hr__parameter rand_fields[] = {
    {"num_ops", HR__INTEGER(auto_augment.num_ops)},
    {"magnitude", HR__INTEGER(auto_augment.magnitude)},
    {"num_magnitude_bins", HR__INTEGER(auto_augment.num_magnitude_bins)},
    STYLE_FIELDS,
    {0},
};
static const struct hr__parameter trivial_fields[] = {
    {"num_magnitude_bins", HR__INTEGER(auto_augment.num_magnitude_bins)},
    STYLE_FIELDS,
    {0},
};
static const struct hr__parameter auto_fields[] = {
    {"policy", HR__WORD(auto_augment.policy, policy_words)},
    STYLE_FIELDS,
    {0},
};

const struct hr__operation_class hr__class_rand_augment = {
    .name = "RandAugment",
    .fields = rand_fields,
    .defaults = defaults,
    .check = check_rand,
    .draw = draw_rand,
    .rows = HR__ROWS_LOST,
};
const struct hr__operation_class hr__class_trivial_augment_wide = {
    .name = "TrivialAugmentWide",
    .fields = trivial_fields,
    .defaults = defaults,
    .check = check,
    .draw = draw_trivial,
    .rows = HR__ROWS_LOST,
};
const struct hr__operation_class hr__class_auto_augment = {
    .name = "AutoAugment",
    .fields = auto_fields,
    .defaults = defaults,
    .check = check_auto,
    .draw = draw_auto,
    .rows = HR__ROWS_LOST,
};
