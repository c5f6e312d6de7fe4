/*
 * Resize: to a fixed size, or of the shorter side to a fixed length with the longer one in
 * proportion, at most max_size (torchvision's _compute_resized_output_size, whose divisions
 * truncate).
 */
#include "recipe/operation.h"

static void defaults(struct hr_operation *operation)
{
    operation->u.resize.interpolation = HR_BILINEAR;
    operation->u.resize.antialias = 1;
}

/* Computes the result's size. Returns non-zero if both sides are possible. */
static int resized_size(const struct hr_operation *o, int width, int height, int *out_width,
                        int *out_height)
{
    if (o->u.resize.width) {
        *out_width = o->u.resize.width;
        *out_height = o->u.resize.height;
        return 1;
    }
    int64_t shorter = width <= height ? width : height;
    int64_t longer = width <= height ? height : width;
    int64_t new_shorter = o->u.resize.height;
    int64_t new_longer = (int64_t)((double)(new_shorter * longer) / (double)shorter);
    if (o->u.resize.max_size && new_longer > o->u.resize.max_size) {
        new_shorter = (int64_t)((double)(o->u.resize.max_size * new_shorter) / (double)new_longer);
        new_longer = o->u.resize.max_size;
    }
    if (new_shorter < 1 || new_longer > HR__MAX_RESIZED)
        return 0;
    *out_width = (int)(width <= height ? new_shorter : new_longer);
    *out_height = (int)(width <= height ? new_longer : new_shorter);
    return 1;
}

static int impossible(const struct hr__bound *bound, int width, int height, struct hr_error *error)
{
    return hr__refuse(error, bound, "an image of %d x %d pixels is too long and narrow for it",
                      width, height);
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int height = o->u.resize.height, width = o->u.resize.width, max_size = o->u.resize.max_size;
    int r = hr__check_size(bound, height, width ? width : height, error);
    if (!r)
        r = hr__check_interpolation(bound, o->u.resize.interpolation, error);
    if (r)
        return r;
    if (max_size < 0 || max_size > HR__MAX_SIDE)
        return hr__refuse(error, bound,
                          "max_size %d is not possible: set it between 1 and %d, "
                          "or leave it out",
                          max_size, HR__MAX_SIDE);
    if (max_size && width)
        return hr__refuse(error, bound,
                          "max_size goes only with one size, for the shorter side, "
                          "and both are given: leave max_size out");
    if (max_size && max_size <= height)
        return hr__refuse(error, bound,
                          "max_size %d must be greater than the size %d of the "
                          "shorter side",
                          max_size, height);
    if (width) {
        state->width = width;
        state->height = height;
    } else if (state->width) {
        int new_width, new_height;
        if (!resized_size(o, state->width, state->height, &new_width, &new_height))
            return impossible(bound, state->width, state->height, error);
        state->width = new_width;
        state->height = new_height;
    } else {
        hr__state_vary(state, max_size, max_size);
    }
    return 0;
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int width = hr__plan_width(plan), height = hr__plan_height(plan), new_width, new_height;
    if (!resized_size(o, width, height, &new_width, &new_height))
        return impossible(bound, width, height, error);
    hr__plan_resize(plan, new_width, new_height, o->u.resize.interpolation, o->u.resize.antialias);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"height", HR__INTEGER(resize.height)},
    {"width", HR__INTEGER(resize.width)},
    {"max_size", HR__INTEGER(resize.max_size)},
    {"interpolation", HR__WORD(resize.interpolation, hr__interpolation_words)},
    {"antialias", HR__FLAG(resize.antialias)},
    {0},
};

const struct hr__operation_class hr__class_resize = {
    .name = "Resize",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
