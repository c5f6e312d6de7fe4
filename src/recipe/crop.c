/*
 * CenterCrop and RandomCrop, with the padding that both may add, as in torchvision v2. Padding and
 * crop are two steps of the plan; tracing the needed region backwards keeps only the padding that
 * the crop shows.
 */
#include "recipe/operation.h"

#include <limits.h>
#include <math.h>

static void center_defaults(struct hr_operation *operation)
{
}

static int center_check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    static const double zero[3] = {0, 0, 0};
    const struct hr_operation *o = &bound->operation;
    int r = hr__check_size(bound, o->u.center_crop.height, o->u.center_crop.width, error);
    if (!r)
        r = hr__bind_fill(bound, state, zero, error);
    if (r)
        return r;
    state->height = o->u.center_crop.height;
    state->width = o->u.center_crop.width;
    return 0;
}

/* Python's int(round(x / 2)): rounds half to even. */
static int round_half(int x)
{
    return (int)rint(x / 2.0);
}

static int center_draw(const struct hr__bound *bound, struct hr__random *random,
                       struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int width = o->u.center_crop.width, height = o->u.center_crop.height;
    int more_x = width - hr__plan_width(plan), more_y = height - hr__plan_height(plan);
    more_x = more_x > 0 ? more_x : 0;
    more_y = more_y > 0 ? more_y : 0;
    int padding[4] = {more_x / 2, more_y / 2, (more_x + 1) / 2, (more_y + 1) / 2};
    hr__plan_pad(plan, padding, HR_PAD_CONSTANT, bound->fill);
    hr__plan_crop(plan, round_half(hr__plan_width(plan) - width),
                  round_half(hr__plan_height(plan) - height), width, height);
    return 0;
}

static const struct hr__parameter center_fields[] = {
    {"height", HR__INTEGER(center_crop.height)},
    {"width", HR__INTEGER(center_crop.width)},
    {0},
};

const struct hr__operation_class hr__class_center_crop = {
    .name = "CenterCrop",
    .fields = center_fields,
    .defaults = center_defaults,
    .check = center_check,
    .draw = center_draw,
};

static void random_defaults(struct hr_operation *operation)
{
    operation->u.random_crop.padding_mode = HR_PAD_CONSTANT;
}

/* Computes the padding for an image of the given size: left, top, right, bottom. */
static void full_padding(const struct hr_operation *o, int width, int height, int padding[4])
{
    for (int i = 0; i < 4; i++)
        padding[i] = o->u.random_crop.padding[i];
    if (!o->u.random_crop.pad_if_needed)
        return;
    int more_x = o->u.random_crop.width - (width + padding[0] + padding[2]);
    int more_y = o->u.random_crop.height - (height + padding[1] + padding[3]);
    if (more_x > 0) {
        padding[0] += more_x;
        padding[2] += more_x;
    }
    if (more_y > 0) {
        padding[1] += more_y;
        padding[3] += more_y;
    }
}

static int check_fits(const struct hr__bound *bound, int width, int height, int padding[4],
                      struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    full_padding(o, width, height, padding);
    int padded_width = width + padding[0] + padding[2];
    int padded_height = height + padding[1] + padding[3];
    if (padded_width >= o->u.random_crop.width && padded_height >= o->u.random_crop.height)
        return 0;
    return hr__refuse(error, bound,
                      "a crop of %d x %d (height x width) is larger than the %simage "
                      "of %d x %d: set pad_if_needed, or resize before it",
                      o->u.random_crop.height, o->u.random_crop.width,
                      padded_width > width || padded_height > height ? "padded " : "",
                      padded_height, padded_width);
}

static int random_check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int padding[4];
    int r = hr__check_size(bound, o->u.random_crop.height, o->u.random_crop.width, error);
    if (r)
        return r;
    for (int i = 0; i < 4; i++) {
        if (o->u.random_crop.padding[i] < 0 || o->u.random_crop.padding[i] > HR__MAX_SIDE)
            return hr__refuse(error, bound,
                              "a padding of %d pixels is not possible: set it "
                              "between 0 and %d",
                              o->u.random_crop.padding[i], HR__MAX_SIDE);
    }
    if (o->u.random_crop.padding_mode < HR_PAD_CONSTANT ||
        o->u.random_crop.padding_mode > HR_PAD_SYMMETRIC)
        return hr__refuse(error, bound,
                          "padding mode %d is unknown: use constant, edge, reflect "
                          "or symmetric",
                          (int)o->u.random_crop.padding_mode);
    r = hr__bind_fill(bound, state, o->u.random_crop.fill, error);
    if (r)
        return r;
    if (state->width && (r = check_fits(bound, state->width, state->height, padding, error)))
        return r;
    state->height = o->u.random_crop.height;
    state->width = o->u.random_crop.width;
    return 0;
}

static int random_draw(const struct hr__bound *bound, struct hr__random *random,
                       struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int width = o->u.random_crop.width, height = o->u.random_crop.height, padding[4];
    int r = check_fits(bound, hr__plan_width(plan), hr__plan_height(plan), padding, error);
    if (r)
        return r;
    /* as in torchvision, a crop or padding of nothing does not even clamp boxes */
    if (padding[0] || padding[1] || padding[2] || padding[3])
        hr__plan_pad(plan, padding, o->u.random_crop.padding_mode, bound->fill);
    uint64_t room_y = (uint64_t)(hr__plan_height(plan) - height);
    uint64_t room_x = (uint64_t)(hr__plan_width(plan) - width);
    int y = (int)hr__random_below(random, room_y + 1);
    int x = (int)hr__random_below(random, room_x + 1);
    if (room_x || room_y)
        hr__plan_crop(plan, x, y, width, height);
    return 0;
}

static const struct hr__parameter random_fields[] = {
    {"height", HR__INTEGER(random_crop.height)},
    {"width", HR__INTEGER(random_crop.width)},
    {"padding", HR__INTEGERS(random_crop.padding)},
    {"pad_if_needed", HR__FLAG(random_crop.pad_if_needed)},
    {"fill", HR__REALS(random_crop.fill)},
    {"padding_mode", HR__WORD(random_crop.padding_mode, hr__padding_words)},
    {0},
};

const struct hr__operation_class hr__class_random_crop = {
    .name = "RandomCrop",
    .fields = random_fields,
    .defaults = random_defaults,
    .check = random_check,
    .draw = random_draw,
};
