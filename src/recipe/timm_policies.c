/* timm's RandAugment, AutoAugment and AugMix, with its lists of operations and policies. */
#include "recipe/mixture.h"
#include "recipe/timm.h"

/* An operation to choose, and how likely it is; 0: none. */
struct choice {
    enum hr__timm_kind kind;
    double weight;
};

#define CHOICES 16

#define OF(kind, weight)                                                                           \
    {                                                                                              \
        HR__TIMM_##kind, weight                                                                    \
    }

/* By enum hr_timm_choices. */
static const struct choice lists[][CHOICES] = {
    [HR_TIMM_PLAIN] = {OF(AUTOCONTRAST, 1), OF(EQUALIZE, 1), OF(INVERT, 1), OF(ROTATE, 1),
                       OF(POSTERIZE, 1), OF(SOLARIZE, 1), OF(SOLARIZE_ADD, 1), OF(COLOR, 1),
                       OF(CONTRAST, 1), OF(BRIGHTNESS, 1), OF(SHARPNESS, 1), OF(SHEAR_X, 1),
                       OF(SHEAR_Y, 1), OF(TRANSLATE_X, 1), OF(TRANSLATE_Y, 1)},
    [HR_TIMM_INCREASING] = {OF(AUTOCONTRAST, 1), OF(EQUALIZE, 1), OF(INVERT, 1), OF(ROTATE, 1),
                            OF(POSTERIZE_INCREASING, 1), OF(SOLARIZE_INCREASING, 1),
                            OF(SOLARIZE_ADD, 1), OF(COLOR_INCREASING, 1),
                            OF(CONTRAST_INCREASING, 1), OF(BRIGHTNESS_INCREASING, 1),
                            OF(SHARPNESS_INCREASING, 1), OF(SHEAR_X, 1), OF(SHEAR_Y, 1),
                            OF(TRANSLATE_X, 1), OF(TRANSLATE_Y, 1)},
    [HR_TIMM_3A] = {OF(SOLARIZE_INCREASING, 1), OF(DESATURATE, 1), OF(BLUR, 1)},
    [HR_TIMM_WEIGHTED_3A] = {OF(SOLARIZE_INCREASING, 6), OF(DESATURATE, 6), OF(BLUR, 6),
                             OF(ROTATE, 3), OF(SHEAR_X, 2), OF(SHEAR_Y, 2),
                             OF(POSTERIZE_INCREASING, 1), OF(AUTOCONTRAST, 1),
                             OF(COLOR_INCREASING, 1), OF(SHARPNESS_INCREASING, 1),
                             OF(CONTRAST_INCREASING, 1), OF(BRIGHTNESS_INCREASING, 1),
                             OF(EQUALIZE, 1), OF(INVERT, 1)},
    [HR_TIMM_WEIGHTED] = {OF(ROTATE, 3), OF(SHEAR_X, 2), OF(SHEAR_Y, 2), OF(TRANSLATE_X, 1),
                          OF(TRANSLATE_Y, 1), OF(COLOR_INCREASING, 0.25),
                          OF(SHARPNESS_INCREASING, 0.25), OF(AUTOCONTRAST, 0.25),
                          OF(SOLARIZE_INCREASING, 0.05), OF(SOLARIZE_ADD, 0.05),
                          OF(CONTRAST_INCREASING, 0.05), OF(BRIGHTNESS_INCREASING, 0.05),
                          OF(EQUALIZE, 0.05), OF(POSTERIZE_INCREASING, 0.05), OF(INVERT, 0.05)},
};
static const struct choice mixed[CHOICES] = {OF(AUTOCONTRAST, 1),
                                             OF(COLOR_INCREASING, 1),
                                             OF(CONTRAST_INCREASING, 1),
                                             OF(BRIGHTNESS_INCREASING, 1),
                                             OF(SHARPNESS_INCREASING, 1),
                                             OF(EQUALIZE, 1),
                                             OF(ROTATE, 1),
                                             OF(POSTERIZE_INCREASING, 1),
                                             OF(SOLARIZE_INCREASING, 1),
                                             OF(SHEAR_X, 1),
                                             OF(SHEAR_Y, 1),
                                             OF(TRANSLATE_X, 1),
                                             OF(TRANSLATE_Y, 1)};

static int is_weighted(enum hr_timm_choices choices)
{
    return choices == HR_TIMM_WEIGHTED_3A || choices == HR_TIMM_WEIGHTED;
}

/* Chooses from a list; not what `taken` has. */
static int choose(const struct choice *list, const int *taken, struct hr__random *random)
{
    double sum = 0;
    int last = 0;
    for (int i = 0; i < CHOICES; i++)
        sum += taken[i] ? 0 : list[i].weight;
    double at = hr__random_range(random, 0, sum);
    for (int i = 0; i < CHOICES; i++) {
        if (taken[i] || list[i].weight <= 0)
            continue;
        last = i;
        at -= list[i].weight;
        if (at < 0)
            break;
    }
    return last;
}

static int check_rand(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int choices = (int)o->u.timm.choices, most = HR__OPERATION_MAX_STEPS;
    if (choices < 0 || choices > HR_TIMM_WEIGHTED)
        return hr__refuse(error, bound, "choices = %d: 0 to %d", choices, HR_TIMM_WEIGHTED);
    if (is_weighted(o->u.timm.choices))
        for (most = 0; most < CHOICES && lists[choices][most].weight > 0;)
            most++;
    if (o->u.timm.num_ops < 0 || o->u.timm.num_ops > most)
        return hr__refuse(error, bound, "num_ops = %d: 0 to %d", o->u.timm.num_ops, most);
    return hr__check_timm(bound, state, error);
}

/* Weighted choices are made without repetition, others with. */
static int draw_rand(const struct hr__bound *bound, struct hr__random *random,
                     struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    const struct choice *list = lists[o->u.timm.choices];
    int taken[CHOICES] = {0};
    for (int i = 0; i < o->u.timm.num_ops; i++) {
        int chosen = choose(list, taken, random);
        taken[chosen] = is_weighted(o->u.timm.choices);
        hr__plan_timm(plan, o, list[chosen].kind,
                      (const double[2]){o->u.timm.p, o->u.timm.magnitude}, random);
    }
    return 0;
}

/* One half of a policy: the probability in tenths, and the magnitude. */
struct timm_half {
    uint8_t kind, tenths, magnitude;
};

#define POLICIES 25
#define HALF(kind, p, magnitude)                                                                   \
    {                                                                                              \
        HR__TIMM_##kind, p, magnitude                                                              \
    }

static const struct timm_half v0[POLICIES][2] = {
    {HALF(EQUALIZE, 8, 1), HALF(SHEAR_Y, 8, 4)},
    {HALF(COLOR, 4, 9), HALF(EQUALIZE, 6, 3)},
    {HALF(COLOR, 4, 1), HALF(ROTATE, 6, 8)},
    {HALF(SOLARIZE, 8, 3), HALF(EQUALIZE, 4, 7)},
    {HALF(SOLARIZE, 4, 2), HALF(SOLARIZE, 6, 2)},
    {HALF(COLOR, 2, 0), HALF(EQUALIZE, 8, 8)},
    {HALF(EQUALIZE, 4, 8), HALF(SOLARIZE_ADD, 8, 3)},
    {HALF(SHEAR_X, 2, 9), HALF(ROTATE, 6, 8)},
    {HALF(COLOR, 6, 1), HALF(EQUALIZE, 10, 2)},
    {HALF(INVERT, 4, 9), HALF(ROTATE, 6, 0)},
    {HALF(EQUALIZE, 10, 9), HALF(SHEAR_Y, 6, 3)},
    {HALF(COLOR, 4, 7), HALF(EQUALIZE, 6, 0)},
    {HALF(POSTERIZE, 4, 6), HALF(AUTOCONTRAST, 4, 7)},
    {HALF(SOLARIZE, 6, 8), HALF(COLOR, 6, 9)},
    {HALF(SOLARIZE, 2, 4), HALF(ROTATE, 8, 9)},
    {HALF(ROTATE, 10, 7), HALF(TRANSLATE_Y, 8, 9)},
    {HALF(SHEAR_X, 0, 0), HALF(SOLARIZE, 8, 4)},
    {HALF(SHEAR_Y, 8, 0), HALF(COLOR, 6, 4)},
    {HALF(COLOR, 10, 0), HALF(ROTATE, 6, 2)},
    {HALF(EQUALIZE, 8, 4), HALF(EQUALIZE, 0, 8)},
    {HALF(EQUALIZE, 10, 4), HALF(AUTOCONTRAST, 6, 2)},
    {HALF(SHEAR_Y, 4, 7), HALF(SOLARIZE_ADD, 6, 7)},
    {HALF(POSTERIZE, 8, 2), HALF(SOLARIZE, 6, 10)},
    {HALF(SOLARIZE, 6, 8), HALF(EQUALIZE, 6, 1)},
    {HALF(COLOR, 8, 6), HALF(ROTATE, 4, 5)},
};
static const struct timm_half original[POLICIES][2] = {
    {HALF(POSTERIZE_ORIGINAL, 4, 8), HALF(ROTATE, 6, 9)},
    {HALF(SOLARIZE, 6, 5), HALF(AUTOCONTRAST, 6, 5)},
    {HALF(EQUALIZE, 8, 8), HALF(EQUALIZE, 6, 3)},
    {HALF(POSTERIZE_ORIGINAL, 6, 7), HALF(POSTERIZE_ORIGINAL, 6, 6)},
    {HALF(EQUALIZE, 4, 7), HALF(SOLARIZE, 2, 4)},
    {HALF(EQUALIZE, 4, 4), HALF(ROTATE, 8, 8)},
    {HALF(SOLARIZE, 6, 3), HALF(EQUALIZE, 6, 7)},
    {HALF(POSTERIZE_ORIGINAL, 8, 5), HALF(EQUALIZE, 10, 2)},
    {HALF(ROTATE, 2, 3), HALF(SOLARIZE, 6, 8)},
    {HALF(EQUALIZE, 6, 8), HALF(POSTERIZE_ORIGINAL, 4, 6)},
    {HALF(ROTATE, 8, 8), HALF(COLOR, 4, 0)},
    {HALF(ROTATE, 4, 9), HALF(EQUALIZE, 6, 2)},
    {HALF(EQUALIZE, 0, 7), HALF(EQUALIZE, 8, 8)},
    {HALF(INVERT, 6, 4), HALF(EQUALIZE, 10, 8)},
    {HALF(COLOR, 6, 4), HALF(CONTRAST, 10, 8)},
    {HALF(ROTATE, 8, 8), HALF(COLOR, 10, 2)},
    {HALF(COLOR, 8, 8), HALF(SOLARIZE, 8, 7)},
    {HALF(SHARPNESS, 4, 7), HALF(INVERT, 6, 8)},
    {HALF(SHEAR_X, 6, 5), HALF(EQUALIZE, 10, 9)},
    {HALF(COLOR, 4, 0), HALF(EQUALIZE, 6, 3)},
    {HALF(EQUALIZE, 4, 7), HALF(SOLARIZE, 2, 4)},
    {HALF(SOLARIZE, 6, 5), HALF(AUTOCONTRAST, 6, 5)},
    {HALF(INVERT, 6, 4), HALF(EQUALIZE, 10, 8)},
    {HALF(COLOR, 6, 4), HALF(CONTRAST, 10, 8)},
    {HALF(EQUALIZE, 8, 8), HALF(EQUALIZE, 6, 3)},
};

static int check_auto(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    int policy = (int)bound->operation.u.timm.policy;
    if (policy < 0 || policy > HR_TIMM_POLICY_3A)
        return hr__refuse(error, bound, "policy = %d: 0 to %d", policy, HR_TIMM_POLICY_3A);
    return hr__check_timm(bound, state, error);
}

/* The policies whose names end with r have another posterize. */
static enum hr__timm_kind kind_of(enum hr_timm_policy policy, uint8_t kind)
{
    int is_r = policy == HR_TIMM_POLICY_V0R || policy == HR_TIMM_POLICY_ORIGINALR;
    int posterizes = kind == HR__TIMM_POSTERIZE || kind == HR__TIMM_POSTERIZE_ORIGINAL;
    return is_r && posterizes ? HR__TIMM_POSTERIZE_INCREASING : (enum hr__timm_kind)kind;
}

static int draw_auto(const struct hr__bound *bound, struct hr__random *random,
                     struct hr__prepare_plan *plan, struct hr_error *error)
{
    static const enum hr__timm_kind three[] = {HR__TIMM_SOLARIZE, HR__TIMM_DESATURATE,
                                               HR__TIMM_BLUR_RANDOM};
    const struct hr_operation *o = &bound->operation;
    enum hr_timm_policy policy = o->u.timm.policy;
    if (policy == HR_TIMM_POLICY_3A) {
        enum hr__timm_kind kind = three[hr__random_below(random, 3)];
        hr__plan_timm(plan, o, kind, (const double[2]){1, kind == HR__TIMM_SOLARIZE ? 5 : 10},
                      random);
        return 0;
    }
    int is_v0 = policy == HR_TIMM_POLICY_V0 || policy == HR_TIMM_POLICY_V0R;
    const struct timm_half *pair = (is_v0 ? v0 : original)[hr__random_below(random, POLICIES)];
    for (int i = 0; i < 2; i++)
        hr__plan_timm(plan, o, kind_of(policy, pair[i].kind),
                      (const double[2]){pair[i].tenths / 10.0, pair[i].magnitude}, random);
    return 0;
}

#define RANDOM_DEPTH 3 /* chains of random depth have 1 to 3 operations */

static int check_mix(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int64_t width = o->u.timm.width, depth = o->u.timm.depth;
    if (!(o->u.timm.alpha >= 1e-3 && o->u.timm.alpha <= 1e6))
        return hr__refuse(error, bound, "alpha = %g: 0.001 to 1e6", o->u.timm.alpha);
    depth = depth > 0 ? depth : RANDOM_DEPTH;
    if (width < 1 || width * (depth + 1) + 1 > HR__OPERATION_MAX_STEPS)
        return hr__refuse(error, bound,
                          "width = %d chains of up to %d operations: at least 1 chain, and width x "
                          "(depth + 1) at most %d",
                          (int)width, (int)depth, HR__OPERATION_MAX_STEPS - 1);
    return hr__check_timm(bound, state, error);
}

/* Turns weights of a sum into the shares of blends that follow one another. */
static void blend_shares(float *weight, int n)
{
    float left = 1;
    for (int i = n - 1; i >= 0; i--) {
        weight[i] = left > 0 ? weight[i] / left : 0;
        left *= 1 - weight[i];
    }
}

static void draw_chain(const struct hr_operation *o, struct hr__random *random,
                       struct hr__prepare_plan *plan)
{
    static const int none[CHOICES];
    int depth = o->u.timm.depth;
    if (depth <= 0)
        depth = 1 + (int)hr__random_below(random, RANDOM_DEPTH);
    for (int k = 0; k < depth; k++)
        hr__plan_timm(plan, o, mixed[choose(mixed, none, random)].kind,
                      (const double[2]){1, o->u.timm.magnitude}, random);
}

static int draw_mix(const struct hr__bound *bound, struct hr__random *random,
                    struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    double parts[2], drawn[HR__OPERATION_MAX_STEPS];
    float weight[HR__OPERATION_MAX_STEPS];
    int width = o->u.timm.width, blended = o->u.timm.blended;
    hr__draw_dirichlet(random, o->u.timm.alpha, parts, 2);
    hr__draw_dirichlet(random, o->u.timm.alpha, drawn, width);
    float share = (float)parts[0];
    for (int i = 0; i < width; i++)
        weight[i] = blended ? (float)drawn[i] * share : (float)drawn[i];
    if (blended) {
        blend_shares(weight, width);
        hr__plan_blends_begin(plan);
    } else {
        hr__plan_sum_begin(plan, 0);
    }
    for (int i = 0; i < width; i++) {
        draw_chain(o, random, plan);
        if (blended)
            hr__plan_blends_add(plan, weight[i], i == width - 1);
        else if (i < width - 1)
            hr__plan_sum_add(plan, weight[i]);
        else
            hr__plan_sum_end(plan, weight[i], share);
    }
    return 0;
}

static const char *const choice_words[] = {"plain", "increasing", "3a", "3aw", "weights", NULL};
static const char *const policy_words[] = {"v0", "v0r", "original", "originalr", "3a", NULL};

#define SHARED_FIELDS                                                                              \
    {"magnitude_std", HR__REAL(timm.magnitude_std)}, {"uniform", HR__FLAG(timm.uniform)},          \
        {"magnitude_max", HR__REAL(timm.magnitude_max)}, {"translate", HR__REAL(timm.translate)},  \
        {"fill", HR__REALS(timm.fill)},                                                            \
        {"interpolation", HR__WORD(timm.interpolation, hr__interpolation_words)},                  \
        {"any_interpolation", HR__FLAG(timm.any_interpolation)},                                   \
    {                                                                                              \
        0                                                                                          \
    }

static const struct hr__parameter rand_fields[] = {
    {"choices", HR__WORD(timm.choices, choice_words)},
    {"num_ops", HR__INTEGER(timm.num_ops)},
    {"p", HR__REAL(timm.p)},
    {"magnitude", HR__REAL(timm.magnitude)},
    SHARED_FIELDS,
};
static const struct hr__parameter auto_fields[] = {
    {"policy", HR__WORD(timm.policy, policy_words)},
    SHARED_FIELDS,
};
static const struct hr__parameter mix_fields[] = {
    {"width", HR__INTEGER(timm.width)},      {"depth", HR__INTEGER(timm.depth)},
    {"blended", HR__FLAG(timm.blended)},     {"alpha", HR__REAL(timm.alpha)},
    {"magnitude", HR__REAL(timm.magnitude)}, SHARED_FIELDS,
};

const struct hr__operation_class hr__class_timm_rand_augment = {
    .name = "TimmRandAugment",
    .fields = rand_fields,
    .defaults = hr__timm_defaults,
    .check = check_rand,
    .draw = draw_rand,
    .rows = HR__ROWS_LOST,
};
const struct hr__operation_class hr__class_timm_auto_augment = {
    .name = "TimmAutoAugment",
    .fields = auto_fields,
    .defaults = hr__timm_defaults,
    .check = check_auto,
    .draw = draw_auto,
    .rows = HR__ROWS_LOST,
};
const struct hr__operation_class hr__class_timm_aug_mix = {
    .name = "TimmAugMix",
    .fields = mix_fields,
    .defaults = hr__timm_defaults,
    .check = check_mix,
    .draw = draw_mix,
    .rows = HR__ROWS_LOST,
};
