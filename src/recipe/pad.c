/* Pad: torchvision's padding of an image, by a fill or by repeating its pixels. */
#include "recipe/operation.h"

static void defaults(struct hr_operation *operation)
{
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    for (int i = 0; i < 4; i++) {
        if (o->u.pad.padding[i] < 0 || o->u.pad.padding[i] > HR__MAX_SIDE)
            return hr__refuse(error, bound,
                              "a padding of %d pixels is not possible: set it between 0 and %d",
                              o->u.pad.padding[i], HR__MAX_SIDE);
    }
    if (o->u.pad.padding_mode < HR_PAD_CONSTANT || o->u.pad.padding_mode > HR_PAD_SYMMETRIC)
        return hr__refuse(error, bound,
                          "padding mode %d is unknown: use constant, edge, reflect or symmetric",
                          (int)o->u.pad.padding_mode);
    int r = hr__bind_fill(bound, state, o->u.pad.fill, error);
    if (r)
        return r;
    int more_width = o->u.pad.padding[0] + o->u.pad.padding[2];
    int more_height = o->u.pad.padding[1] + o->u.pad.padding[3];
    if (!state->width) {
        if (state->most_width)
            hr__state_vary(state, state->most_height + more_height, state->most_width + more_width);
        return 0;
    }
    state->width += more_width;
    state->height += more_height;
    return hr__check_size(bound, state->height, state->width, error);
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    hr__plan_pad(plan, o->u.pad.padding, o->u.pad.padding_mode, bound->fill);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"padding", HR__INTEGERS(pad.padding)},
    {"padding_mode", HR__WORD(pad.padding_mode, hr__padding_words)},
    {"fill", HR__REALS(pad.fill)},
    {0},
};

const struct hr__operation_class hr__class_pad = {
    .name = "Pad",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
