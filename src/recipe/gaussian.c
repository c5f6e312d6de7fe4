/* GaussianBlur and GaussianNoise. */
#include "recipe/enhance.h"
#include "recipe/operation.h"

#include <math.h>

/* Largest side of a blur's kernel, in pixels. */
#define MAX_KERNEL 1023

static void blur_defaults(struct hr_operation *operation)
{
    operation->u.gaussian_blur.sigma[0] = 0.1;
    operation->u.gaussian_blur.sigma[1] = 2.0;
    operation->u.gaussian_blur.p = 1;
}

static int blur_check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    const double *sigma = o->u.gaussian_blur.sigma;
    for (int i = 0; i < 2; i++) {
        int size = o->u.gaussian_blur.kernel_size[i];
        if (size < 1 || size > MAX_KERNEL || size % 2 == 0)
            return hr__refuse(error, bound, "kernel_size %d must be odd, and 1 to %d", size,
                              MAX_KERNEL);
    }
    if (!(sigma[0] >= 1e-3 && sigma[0] <= sigma[1] && sigma[1] <= 1e4))
        return hr__refuse(error, bound,
                          "sigma (%g, %g) must be two numbers of 0.001 to 10000, the smaller first",
                          sigma[0], sigma[1]);
    int r = hr__check_probability(bound, o->u.gaussian_blur.p, error);
    return r ? r : hr__check_bytes_place(bound, state, error);
}

static int blur_draw(const struct hr__bound *bound, struct hr__random *random,
                     struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    double sigma =
        hr__random_range(random, o->u.gaussian_blur.sigma[0], o->u.gaussian_blur.sigma[1]);
    if (o->u.gaussian_blur.p >= 1 || hr__random_unit(random) < o->u.gaussian_blur.p)
        hr__plan_blur(plan, o->u.gaussian_blur.kernel_size[1], o->u.gaussian_blur.kernel_size[0],
                      sigma);
    return 0;
}

static const struct hr__parameter blur_fields[] = {
    {"kernel_size", HR__INTEGERS(gaussian_blur.kernel_size)},
    {"sigma", HR__REALS(gaussian_blur.sigma)},
    {"p", HR__REAL(gaussian_blur.p)},
    {0},
};

const struct hr__operation_class hr__class_gaussian_blur = {
    .name = "GaussianBlur",
    .fields = blur_fields,
    .defaults = blur_defaults,
    .check = blur_check,
    .draw = blur_draw,
};

static void noise_defaults(struct hr_operation *operation)
{
    operation->u.gaussian_noise.sigma = 0.1;
    operation->u.gaussian_noise.clip = 1;
}

static int noise_check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    double mean = bound->operation.u.gaussian_noise.mean;
    double sigma = bound->operation.u.gaussian_noise.sigma;
    if (!(fabs(mean) <= 10 && sigma >= 0 && sigma <= 10))
        return hr__refuse(error, bound,
                          "mean = %g, sigma = %g: the mean must be within -10..10, sigma 0..10; 1 "
                          "is the range of the image",
                          mean, sigma);
    return hr__check_bytes_place(bound, state, error);
}

static int noise_draw(const struct hr__bound *bound, struct hr__random *random,
                      struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    hr__plan_noise(plan, o->u.gaussian_noise.mean, o->u.gaussian_noise.sigma,
                   o->u.gaussian_noise.clip != 0, hr__random_u64(random));
    return 0;
}

static const struct hr__parameter noise_fields[] = {
    {"mean", HR__REAL(gaussian_noise.mean)},
    {"sigma", HR__REAL(gaussian_noise.sigma)},
    {"clip", HR__FLAG(gaussian_noise.clip)},
    {0},
};

const struct hr__operation_class hr__class_gaussian_noise = {
    .name = "GaussianNoise",
    .fields = noise_fields,
    .defaults = noise_defaults,
    .check = noise_check,
    .draw = noise_draw,
};
