/*
 * RandomShortestSize: resizes the shorter side to a size drawn from a list, with the longer one in
 * proportion and at most max_size, as in torchvision v2. Both sides are truncated to whole pixels.
 */
#include "recipe/operation.h"

static void defaults(struct hr_operation *operation)
{
    operation->u.random_shortest_size.interpolation = HR_BILINEAR;
    operation->u.random_shortest_size.antialias = 1;
}

/* Returns the number of sizes in the list, which ends with a 0 or with the array. */
static int sizes_of(const struct hr_operation *o)
{
    const int room = (int)(sizeof o->u.random_shortest_size.min_size / sizeof(int));
    int n = 0;
    while (n < room && o->u.random_shortest_size.min_size[n])
        n++;
    return n;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int n = sizes_of(o), max_size = o->u.random_shortest_size.max_size;
    int r = hr__check_interpolation(bound, o->u.random_shortest_size.interpolation, error);
    if (r)
        return r;
    if (!n)
        return hr__refuse(error, bound, "min_size is empty: give it one size or several");
    for (int i = 0; i < n && !r; i++)
        r = hr__check_size(bound, o->u.random_shortest_size.min_size[i],
                           o->u.random_shortest_size.min_size[i], error);
    if (r)
        return r;
    if (max_size < 0 || max_size > HR__MAX_SIDE)
        return hr__refuse(error, bound,
                          "max_size %d is not possible: set it between 1 and %d, or leave it out",
                          max_size, HR__MAX_SIDE);
    hr__state_vary(state, max_size, max_size);
    return 0;
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    int width = hr__plan_width(plan), height = hr__plan_height(plan);
    int shorter = width < height ? width : height, longer = width < height ? height : width;
    uint64_t chosen = hr__random_below(random, (uint64_t)sizes_of(o));
    double factor = (double)o->u.random_shortest_size.min_size[chosen] / shorter;
    double limit = (double)o->u.random_shortest_size.max_size / longer;
    if (limit > 0 && limit < factor)
        factor = limit;
    if (longer * factor > HR__MAX_RESIZED || (int)(shorter * factor) < 1)
        return hr__refuse(error, bound, "an image of %d x %d pixels is too long and narrow for it",
                          width, height);
    hr__plan_resize(plan, (int)(width * factor), (int)(height * factor),
                    o->u.random_shortest_size.interpolation, o->u.random_shortest_size.antialias);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"min_size", HR__INTEGERS(random_shortest_size.min_size)},
    {"max_size", HR__INTEGER(random_shortest_size.max_size)},
    {"interpolation", HR__WORD(random_shortest_size.interpolation, hr__interpolation_words)},
    {"antialias", HR__FLAG(random_shortest_size.antialias)},
    {0},
};

const struct hr__operation_class hr__class_random_shortest_size = {
    .name = "RandomShortestSize",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
};
