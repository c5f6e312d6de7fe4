/*
 * RandomErasing of torchvision and of timm: with probability p, `count` rectangles, each of a share
 * of the image's area that is drawn and divided by the count, and of a log-uniform ratio of height
 * to width; ten attempts for one that is smaller than the image. timm's differ from torchvision's
 * in the defaults alone.
 */
#include "recipe/erase.h"

#include <math.h>

#define ATTEMPTS 10

static void defaults(struct hr_operation *operation)
{
    operation->u.random_erasing.p = 0.5;
    operation->u.random_erasing.scale[0] = 0.02;
    operation->u.random_erasing.scale[1] = 0.33;
    operation->u.random_erasing.ratio[0] = 0.3;
    operation->u.random_erasing.ratio[1] = 3.3;
    operation->u.random_erasing.min_count = 1;
    operation->u.random_erasing.max_count = 1;
}

static int check_value(const struct hr__bound *bound, const struct hr__state *state,
                       struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    if (o->u.random_erasing.mode < HR_ERASE_CONSTANT || o->u.random_erasing.mode > HR_ERASE_NOISE)
        return hr__refuse(error, bound, "mode %d is unknown: use constant, random or noise",
                          (int)o->u.random_erasing.mode);
    for (int c = 0; c < 3; c++) {
        double v = o->u.random_erasing.value[c];
        if (!(fabs(v) <= 1e30))
            return hr__refuse(error, bound, "value %g is not a number that fits", v);
        if (state->dtype == HR_UINT8 && !(v >= 0 && v <= 255))
            return hr__refuse(error, bound,
                              "value %g: before a ToDtype values are 0..255; put it after", v);
    }
    return 0;
}

static int check_count(const struct hr__bound *bound, struct hr__state *state,
                       struct hr_error *error)
{
    int low = bound->operation.u.random_erasing.min_count;
    int high = bound->operation.u.random_erasing.max_count;
    if (low < 1 || low > high || high > HR__PLAN_MAX_ERASINGS)
        return hr__refuse(error, bound, "min_count %d, max_count %d: 1 to %d, the smaller first",
                          low, high, HR__PLAN_MAX_ERASINGS);
    state->erasings += high;
    return hr__check_erasings(bound, state->erasings, error);
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const double *scale = bound->operation.u.random_erasing.scale;
    const double *ratio = bound->operation.u.random_erasing.ratio;
    if (!(scale[0] >= 0 && scale[0] <= scale[1] && scale[1] <= 1))
        return hr__refuse(error, bound,
                          "scale (%g, %g) must be two shares of the area, 0..1, the smaller first",
                          scale[0], scale[1]);
    if (!(ratio[0] >= 1e-6 && ratio[0] <= ratio[1] && ratio[1] <= 1e6))
        return hr__refuse(error, bound,
                          "ratio (%g, %g) must be two numbers of 1e-6 to 1e6, the smaller first",
                          ratio[0], ratio[1]);
    int r = hr__check_probability(bound, bound->operation.u.random_erasing.p, error);
    if (!r)
        r = check_value(bound, state, error);
    if (!r)
        r = check_count(bound, state, error);
    for (int c = 0; c < 3; c++) {
        bound->scale[c] = state->scale[c];
        bound->shift[c] = state->shift[c];
    }
    return r;
}

/* Draws a rectangle inside width x height pixels. Returns 0 if no attempt fits. */
static int draw_rectangle(const struct hr_operation *o, struct hr__random *random, double area,
                          const struct hr_region *image, struct hr_region *box)
{
    const double *scale = o->u.random_erasing.scale, *ratio = o->u.random_erasing.ratio;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        double part = area * hr__random_range(random, scale[0], scale[1]);
        double aspect = exp(hr__random_range(random, log(ratio[0]), log(ratio[1])));
        double height = rint(sqrt(part * aspect)), width = rint(sqrt(part / aspect));
        if (!(height < image->height && width < image->width))
            continue;
        box->height = (int)height;
        box->width = (int)width;
        box->y = (int)hr__random_below(random, (uint64_t)(image->height - box->height) + 1);
        box->x = (int)hr__random_below(random, (uint64_t)(image->width - box->width) + 1);
        return 1;
    }
    return 0;
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    struct hr_region image = {0, 0, hr__plan_width(plan), hr__plan_height(plan)}, box;
    if (hr__random_unit(random) >= o->u.random_erasing.p)
        return 0;
    int low = o->u.random_erasing.min_count, high = o->u.random_erasing.max_count;
    int count = low + (int)hr__random_below(random, (uint64_t)(high - low) + 1);
    double area = (double)image.width * image.height / count;
    for (int i = 0; i < count; i++) {
        if (draw_rectangle(o, random, area, &image, &box))
            hr__plan_erase(plan, bound, &box, hr__random_u64(random));
    }
    return 0;
}

static const char *const mode_words[] = {[HR_ERASE_CONSTANT] = "constant",
                                         [HR_ERASE_RANDOM] = "random",
                                         [HR_ERASE_NOISE] = "noise",
                                         NULL};
static const struct hr__parameter fields[] = {
    {"p", HR__REAL(random_erasing.p)},
    {"scale", HR__REALS(random_erasing.scale)},
    {"ratio", HR__REALS(random_erasing.ratio)},
    {"value", HR__REALS(random_erasing.value)},
    {"mode", HR__WORD(random_erasing.mode, mode_words)},
    {"min_count", HR__INTEGER(random_erasing.min_count)},
    {"max_count", HR__INTEGER(random_erasing.max_count)},
    {0},
};

const struct hr__operation_class hr__class_random_erasing = {
    .name = "RandomErasing",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
