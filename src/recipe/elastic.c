/*
 * ElasticTransform: displaces each pixel by smooth noise, of torchvision v2's distribution. The
 * noise comes from Headrace's random numbers, so for one seed it is not torch's.
 */
#include "recipe/displacement.h"
#include "recipe/filter.h"
#include "recipe/operation.h"
#include "recipe/warp.h"

#include <math.h>

/* Widest Gaussian, in pixels: its kernel has 8 sigma + 1 taps. */
#define MAX_SIGMA 256

/* The step's parameters: */
enum { ALPHA = 0, SIGMA = 2, FILL = 4 };

static int taps_of(double sigma)
{
    return (int)(8 * sigma + 1) | 1;
}

/* A displacement is at most alpha / 2 pixels: the weights of the Gaussian sum to 1 up to rounding,
 * for which one more pixel is enough. */
static struct hr_region source(const struct hr__step *step, int width, int height,
                               const struct hr_region *need)
{
    double by_x = fabs(step->u.filter.value[ALPHA]) * 0.5001 + 1;
    double by_y = fabs(step->u.filter.value[ALPHA + 1]) * 0.5001 + 1;
    const float low[2] = {(float)(need->x - by_x), (float)(need->y - by_y)};
    const float high[2] = {(float)(need->x + need->width + by_x),
                           (float)(need->y + need->height + by_y)};
    return hr__warp_region(low, high, width, height);
}

static int run(struct hr__scratch *scratch, const struct hr__step *step,
               const struct hr__window *in, const struct hr__window *out, struct hr_error *error)
{
    const double *value = step->u.filter.value;
    const struct hr_region need = {out->x, out->y, out->width, out->height};
    size_t pixels = (size_t)out->width * (size_t)out->height;
    int r = hr__buffer_reserve(&scratch->planes[1], 2 * pixels * sizeof(float), error);
    float *fields[2] = {scratch->planes[1].bytes, (float *)scratch->planes[1].bytes + pixels};
    for (int i = 0; i < 2 && !r; i++) {
        const struct hr__displacement field = {
            .seed = step->u.filter.seed,
            .stream = (uint32_t)i,
            .taps = value[SIGMA + i] > 0 ? taps_of(value[SIGMA + i]) : 1,
            .sigma = {value[SIGMA], value[SIGMA + 1]},
            .scale = (float)(value[ALPHA + i] / (i ? in->image_height : in->image_width)),
            .width = in->image_width,
            .height = in->image_height};
        r = hr__displacement_run(scratch, &field, &need, fields[i], error);
    }
    if (r)
        return r;
    const struct hr__displacement_map map = {fields[0],  fields[1],       out->x,          out->y,
                                             out->width, in->image_width, in->image_height};
    struct hr__warp warp = {.coordinates = hr__warp_rows(hr__isa())->displaced,
                            .map = &map,
                            .interpolation = (enum hr_interpolation)step->u.filter.word[0],
                            .has_fill = step->u.filter.word[1]};
    for (int c = 0; c < 3; c++)
        warp.fill[c] = (float)value[FILL + c];
    return hr__warp_run(scratch, &warp, in, out, error);
}

static const struct hr__filter filter = {
    .name = "elastic", .source = source, .warp_fill = FILL, .run = run};

static void defaults(struct hr_operation *operation)
{
    for (int i = 0; i < 2; i++) {
        operation->u.elastic_transform.alpha[i] = 50;
        operation->u.elastic_transform.sigma[i] = 5;
    }
    operation->u.elastic_transform.interpolation = HR_BILINEAR;
    operation->u.elastic_transform.has_fill = 1;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    const double *alpha = o->u.elastic_transform.alpha, *sigma = o->u.elastic_transform.sigma;
    for (int i = 0; i < 2; i++) {
        if (!(fabs(alpha[i]) <= HR__MAX_SIDE))
            return hr__refuse(error, bound, "alpha %g is not possible: set it between -%d and %d",
                              alpha[i], HR__MAX_SIDE, HR__MAX_SIDE);
        if (!(sigma[i] >= 0 && sigma[i] <= MAX_SIGMA))
            return hr__refuse(error, bound,
                              "sigma %g is not possible: set it between 0 (no blur) and %d pixels",
                              sigma[i], MAX_SIGMA);
    }
    if ((sigma[0] > 0) != (sigma[1] > 0))
        return hr__refuse(error, bound, "sigma (%g, %g) must be above 0 in both directions or none",
                          sigma[0], sigma[1]);
    return hr__check_warp(bound, state, o->u.elastic_transform.interpolation,
                          o->u.elastic_transform.fill, error);
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    struct hr__step *step =
        hr__plan_filter(plan, &filter, hr__plan_width(plan), hr__plan_height(plan));
    for (int i = 0; i < 2; i++) {
        step->u.filter.value[ALPHA + i] = o->u.elastic_transform.alpha[i];
        step->u.filter.value[SIGMA + i] = o->u.elastic_transform.sigma[i];
    }
    for (int c = 0; c < 3; c++)
        step->u.filter.value[FILL + c] =
            o->u.elastic_transform.has_fill ? o->u.elastic_transform.fill[c] : 0;
    step->u.filter.word[0] = o->u.elastic_transform.interpolation;
    step->u.filter.word[1] = o->u.elastic_transform.has_fill;
    step->u.filter.seed = hr__random_u64(random);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"alpha", HR__REALS(elastic_transform.alpha)},
    {"sigma", HR__REALS(elastic_transform.sigma)},
    {"fill", HR__REALS(elastic_transform.fill)},
    {"has_fill", HR__FLAG(elastic_transform.has_fill)},
    {"interpolation", HR__WORD(elastic_transform.interpolation, hr__interpolation_words)},
    {0},
};

const struct hr__operation_class hr__class_elastic_transform = {
    .name = "ElasticTransform",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
    .rows = HR__ROWS_MASKS,
};
