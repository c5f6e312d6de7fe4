/*
 * Words of parameters and checks that several operations share.
 *
 * Checks run once, when a recipe is created. Messages give the operation's torchvision name, its
 * position counted from 1, and the remedy.
 */
#include "recipe/erase.h"
#include "recipe/operation.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

const char *const hr__interpolation_words[] = {[HR_BILINEAR] = "bilinear",
                                               [HR_BICUBIC] = "bicubic",
                                               [HR_NEAREST] = "nearest",
                                               [HR_NEAREST_EXACT] = "nearest-exact",
                                               [HR_NEAREST_PILLOW] = "nearest-pillow",
                                               NULL};
const char *const hr__padding_words[] = {[HR_PAD_CONSTANT] = "constant",
                                         [HR_PAD_EDGE] = "edge",
                                         [HR_PAD_REFLECT] = "reflect",
                                         [HR_PAD_SYMMETRIC] = "symmetric",
                                         NULL};
const char *const hr__dtype_words[] = {[HR_UINT8] = "uint8",
                                       [HR_FLOAT16] = "float16",
                                       [HR_BFLOAT16] = "bfloat16",
                                       [HR_FLOAT32] = "float32",
                                       NULL};

int hr__refuse(struct hr_error *error, const struct hr__bound *bound, const char *format, ...)
{
    char text[HR_ERROR_MESSAGE_BYTES - 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return hr__fail(error, -EINVAL, "%s (operation %d of the recipe): %s", bound->class->name,
                    bound->position % HR__VIEW_POSITIONS + 1, text);
}

void hr__state_vary(struct hr__state *state, int most_height, int most_width)
{
    state->width = 0;
    state->height = 0;
    state->most_height = most_height;
    state->most_width = most_width;
}

int hr__check_size(const struct hr__bound *bound, int height, int width, struct hr_error *error)
{
    if (height >= 1 && height <= HR__MAX_SIDE && width >= 1 && width <= HR__MAX_SIDE)
        return 0;
    return hr__refuse(error, bound,
                      "a size of %d x %d (height x width) is not possible: "
                      "set both between 1 and %d",
                      height, width, HR__MAX_SIDE);
}

int hr__check_interpolation(const struct hr__bound *bound, enum hr_interpolation interpolation,
                            struct hr_error *error)
{
    if (interpolation >= HR_BILINEAR && interpolation <= HR_NEAREST_PILLOW)
        return 0;
    return hr__refuse(error, bound,
                      "interpolation %d is unknown: use bilinear, bicubic or one of the nearest",
                      (int)interpolation);
}

int hr__check_probability(const struct hr__bound *bound, double p, struct hr_error *error)
{
    if (p >= 0 && p <= 1)
        return 0;
    return hr__refuse(error, bound, "the probability p = %g is outside 0..1", p);
}

int hr__check_color_place(const struct hr__bound *bound, const struct hr__state *state, int clamps,
                          struct hr_error *error)
{
    if (state->normalized)
        return hr__refuse(
            error, bound,
            "the colours are no longer 0..1 after Normalize: put it before Normalize");
    if (clamps && state->dtype != HR_UINT8 && !state->scaled)
        return hr__refuse(error, bound,
                          "floats are expected in 0..1 here, but the ToDtype before "
                          "it leaves 0..255: set its scale, or put it after");
    return 0;
}

int hr__check_bytes_place(const struct hr__bound *bound, const struct hr__state *state,
                          struct hr_error *error)
{
    if (state->dtype == HR_UINT8)
        return 0;
    return hr__refuse(error, bound, "it works on bytes: put it before the ToDtype");
}

void hr__draw_order(struct hr__random *random, int *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)hr__random_below(random, (uint64_t)i + 1);
        int swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

int hr__bind_fill(struct hr__bound *bound, const struct hr__state *state, const double fill[3],
                  struct hr_error *error)
{
    for (int c = 0; c < 3; c++) {
        if (!isfinite(fill[c]))
            return hr__refuse(error, bound, "a fill value is not a finite number");
        bound->fill[c] = (float)((fill[c] - state->shift[c]) / state->scale[c]);
    }
    return 0;
}

int hr__check_erasings(const struct hr__bound *bound, int erasings, struct hr_error *error)
{
    if (erasings <= HR__PLAN_MAX_ERASINGS)
        return 0;
    return hr__refuse(error, bound, "the recipe erases up to %d rectangles: at most %d", erasings,
                      HR__PLAN_MAX_ERASINGS);
}
