/*
 * LetterBox: resizes the image so that it fits into a fixed size with its shape kept, and fills the
 * rest, half of it on each side, as YOLO's detectors do. Sides are rounded half to even; an odd
 * pixel of fill is right or below.
 */
#include "recipe/canvas.h"

#include <math.h>

static void defaults(struct hr_operation *operation)
{
    for (int c = 0; c < 3; c++)
        operation->u.letter_box.fill[c] = 114;
    operation->u.letter_box.enlarge = 1;
    operation->u.letter_box.interpolation = HR_BILINEAR;
    operation->u.letter_box.antialias = 1;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int r = hr__check_size(bound, o->u.letter_box.height, o->u.letter_box.width, error);
    if (!r)
        r = hr__check_interpolation(bound, o->u.letter_box.interpolation, error);
    if (r)
        return r;
    r = hr__bind_fill(bound, state, o->u.letter_box.fill, error);
    if (r)
        return r;
    state->height = o->u.letter_box.height;
    state->width = o->u.letter_box.width;
    return 0;
}

/* Returns the length of a side after the resize: at least a pixel, and not more than `room`. */
static int fit(int side, double factor, int room)
{
    double length = rint(side * factor);
    return length < 1 ? 1 : length > room ? room : (int)length;
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int height = o->u.letter_box.height, width = o->u.letter_box.width;
    double across = (double)width / hr__plan_width(plan);
    double down = (double)height / hr__plan_height(plan);
    double factor = across < down ? across : down;
    if (factor > 1 && !o->u.letter_box.enlarge)
        factor = 1;
    hr__plan_resize(plan, fit(hr__plan_width(plan), factor, width),
                    fit(hr__plan_height(plan), factor, height), o->u.letter_box.interpolation,
                    o->u.letter_box.antialias);
    int more_x = width - hr__plan_width(plan), more_y = height - hr__plan_height(plan);
    const int padding[4] = {more_x / 2, more_y / 2, more_x - more_x / 2, more_y - more_y / 2};
    hr__plan_canvas(bound, plan, padding);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"height", HR__INTEGER(letter_box.height)},
    {"width", HR__INTEGER(letter_box.width)},
    {"fill", HR__REALS(letter_box.fill)},
    {"enlarge", HR__FLAG(letter_box.enlarge)},
    {"interpolation", HR__WORD(letter_box.interpolation, hr__interpolation_words)},
    {"antialias", HR__FLAG(letter_box.antialias)},
    {0},
};

const struct hr__operation_class hr__class_letter_box = {
    .name = "LetterBox",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
