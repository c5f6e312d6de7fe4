/*
 * The list of operations, and checks that several of them share.
 *
 * Checks run once, when a recipe is created. Messages give the operation's torchvision name, its
 * position counted from 1, and the remedy.
 */
#include "recipe/operation.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct hr__operation_class *const classes[] = {
    [HR_RANDOM_RESIZED_CROP] = &hr__class_random_resized_crop,
    [HR_RESIZE] = &hr__class_resize,
    [HR_CENTER_CROP] = &hr__class_center_crop,
    [HR_RANDOM_CROP] = &hr__class_random_crop,
    [HR_RANDOM_HORIZONTAL_FLIP] = &hr__class_horizontal_flip,
    [HR_RANDOM_VERTICAL_FLIP] = &hr__class_vertical_flip,
    [HR_COLOR_JITTER] = &hr__class_color_jitter,
    [HR_RANDOM_GRAYSCALE] = &hr__class_random_grayscale,
    [HR_TO_DTYPE] = &hr__class_to_dtype,
    [HR_NORMALIZE] = &hr__class_normalize,
};

const struct hr__operation_class *hr__operation_class(enum hr_operation_kind kind)
{
    size_t i = (size_t)kind;
    return i < sizeof classes / sizeof classes[0] ? classes[i] : NULL;
}

const char *hr_operation_name(enum hr_operation_kind kind)
{
    const struct hr__operation_class *class = hr__operation_class(kind);
    return class ? class->name : NULL;
}

void hr_operation_default(struct hr_operation *operation, enum hr_operation_kind kind)
{
    const struct hr__operation_class *class = hr__operation_class(kind);
    memset(operation, 0, sizeof *operation);
    operation->kind = kind;
    if (class)
        class->defaults(operation);
}

int hr__refuse(struct hr_error *error, const struct hr__bound *bound, const char *format, ...)
{
    char text[HR_ERROR_MESSAGE_BYTES - 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return hr__fail(error, -EINVAL, "%s (operation %d of the recipe): %s",
                    hr_operation_name(bound->operation.kind), bound->position + 1, text);
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
    if (interpolation == HR_BILINEAR || interpolation == HR_BICUBIC)
        return 0;
    return hr__refuse(error, bound, "interpolation %d is unknown: use bilinear or bicubic",
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

void hr__bind_fill(struct hr__bound *bound, const struct hr__state *state, const double fill[3])
{
    for (int c = 0; c < 3; c++)
        bound->fill[c] = (float)((fill[c] - state->shift[c]) / state->scale[c]);
}
