/*
 * RandomZoomOut: places the image somewhere on a larger canvas with probability p, as in
 * torchvision v2. The canvas is the image's size times a factor from side_range.
 */
#include "recipe/canvas.h"

#include <math.h>

static void defaults(struct hr_operation *operation)
{
    operation->u.random_zoom_out.side_range[0] = 1;
    operation->u.random_zoom_out.side_range[1] = 4;
    operation->u.random_zoom_out.p = 0.5;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    const double *range = o->u.random_zoom_out.side_range;
    int r = hr__check_probability(bound, o->u.random_zoom_out.p, error);
    if (r)
        return r;
    if (!(range[0] >= 1 && range[0] <= range[1] && isfinite(range[1])))
        return hr__refuse(error, bound,
                          "side_range (%g, %g) must be two factors of at least 1, the smaller "
                          "first",
                          range[0], range[1]);
    r = hr__bind_fill(bound, state, o->u.random_zoom_out.fill, error);
    if (r)
        return r;
    double height = hr__state_most_height(state) * range[1];
    double width = hr__state_most_width(state) * range[1];
    int known = height <= HR__MAX_SIDE && width <= HR__MAX_SIDE;
    hr__state_vary(state, known ? (int)height : 0, known ? (int)width : 0);
    return 0;
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    const double *range = o->u.random_zoom_out.side_range;
    int width = hr__plan_width(plan), height = hr__plan_height(plan);
    int wanted = hr__random_unit(random) < o->u.random_zoom_out.p;
    double factor = hr__random_range(random, range[0], range[1]);
    double across = hr__random_unit(random), down = hr__random_unit(random);
    if (!wanted)
        return 0;
    if (width * factor > HR__MAX_RESIZED || height * factor > HR__MAX_RESIZED)
        return hr__refuse(error, bound,
                          "an image of %d x %d pixels is too large for it: put a Resize before it",
                          width, height);
    int more_x = (int)(width * factor) - width, more_y = (int)(height * factor) - height;
    int left = (int)(more_x * across), top = (int)(more_y * down);
    const int padding[4] = {left, top, more_x - left, more_y - top};
    hr__plan_canvas(bound, plan, padding);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"fill", HR__REALS(random_zoom_out.fill)},
    {"side_range", HR__REALS(random_zoom_out.side_range)},
    {"p", HR__REAL(random_zoom_out.p)},
    {0},
};

const struct hr__operation_class hr__class_random_zoom_out = {
    .name = "RandomZoomOut",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
