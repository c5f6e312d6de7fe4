/*
 * Sequence, RandomApply, RandomChoice and RandomOrder: operations that apply to the next ones in
 * the list, their members. A member may be a group again; its own members then follow it.
 *
 * Every operation draws from the stream of its place in the list, whichever others run and in
 * whichever order. When a recipe is created, the members are checked for every way in which they
 * may run: what they leave must have one element type and range, and a size that is not the same
 * in all cases counts as unknown.
 */
#include "recipe/group.h"

#include "recipe/erase.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>

static int is_group(const struct hr__bound *bound)
{
    return bound->operation.kind >= HR_SEQUENCE && bound->operation.kind <= HR_RANDOM_ORDER;
}

/* Returns the place after the operation at `first` and all that belongs to it; a number beyond
 * recipe->count if there are too few. */
static int end_of(const struct hr_recipe *recipe, int first)
{
    int end = first + 1;
    if (first >= recipe->count || !is_group(&recipe->operation[first]))
        return end;
    for (int i = 0; i < recipe->operation[first].operation.u.group.count; i++) {
        if (end > recipe->count)
            break;
        end = end_of(recipe, end);
    }
    return end;
}

static double weight_of(const struct hr__bound *member)
{
    return member->operation.kind == HR_SEQUENCE ? member->operation.u.group.weight : 1;
}

static int check_operation(struct hr_recipe *recipe, int i, struct hr__state *state,
                           struct hr_error *error);

/* Checks the member at `i` on *state. Refuses one that changes the element type or the range of
 * values, which must not be left to chance. */
static int check_member(struct hr_recipe *recipe, const struct hr__bound *group, int i,
                        struct hr__state *state, struct hr_error *error)
{
    struct hr__state before = *state;
    int r = check_operation(recipe, i, state, error);
    if (r)
        return r;
    int same = state->dtype == before.dtype && state->scaled == before.scaled &&
               state->normalized == before.normalized;
    for (int c = 0; c < 3; c++)
        same &= state->scale[c] == before.scale[c] && state->shift[c] == before.shift[c];
    if (same)
        return 0;
    return hr__refuse(error, group,
                      "%s inside it would change the type or the range of only some images: put it "
                      "after the group",
                      recipe->operation[i].class->name);
}

/* Keeps what *state and `other` have in common: a size, or none; and the more erasings. */
static void merge(struct hr__state *state, const struct hr__state *other)
{
    state->erasings = other->erasings > state->erasings ? other->erasings : state->erasings;
    if (state->width && state->width == other->width && state->height == other->height)
        return;
    int height = hr__state_most_height(state), width = hr__state_most_width(state);
    int other_height = hr__state_most_height(other), other_width = hr__state_most_width(other);
    int known = height && other_height;
    hr__state_vary(state,
                   !known                  ? 0
                   : height > other_height ? height
                                           : other_height,
                   !known                ? 0
                   : width > other_width ? width
                                         : other_width);
}

static int check_sequence(struct hr_recipe *recipe, int first, struct hr__state *state,
                          struct hr_error *error)
{
    int r = 0;
    for (int i = first + 1, end = end_of(recipe, first); i < end && !r; i = end_of(recipe, i))
        r = check_operation(recipe, i, state, error);
    return r;
}

static int check_apply(struct hr_recipe *recipe, int first, struct hr__state *state,
                       struct hr_error *error)
{
    const struct hr__state before = *state;
    int r = 0;
    for (int i = first + 1, end = end_of(recipe, first); i < end && !r; i = end_of(recipe, i))
        r = check_member(recipe, &recipe->operation[first], i, state, error);
    merge(state, &before);
    return r;
}

static int check_choice(struct hr_recipe *recipe, int first, struct hr__state *state,
                        struct hr_error *error)
{
    const struct hr__bound *group = &recipe->operation[first];
    const struct hr__state before = *state;
    double sum = 0;
    for (int i = first + 1, end = end_of(recipe, first); i < end; i = end_of(recipe, i)) {
        struct hr__state after = before;
        int r = check_member(recipe, group, i, &after, error);
        if (r)
            return r;
        if (i > first + 1)
            merge(&after, state);
        *state = after;
        sum += weight_of(&recipe->operation[i]);
    }
    if (sum > 0 && isfinite(sum))
        return 0;
    return hr__refuse(error, group, "it needs a member whose weight is not 0");
}

/* Refuses RandomErasing among members that move or colour pixels, which may come after it. */
static int check_order_erased(const struct hr_recipe *recipe, int first, struct hr_error *error)
{
    const struct hr__bound *erasing = NULL, *drawing = NULL;
    for (int i = first + 1, end = end_of(recipe, first); i < end; i++) {
        const struct hr__bound *member = &recipe->operation[i];
        if (member->operation.kind == HR_RANDOM_ERASING)
            erasing = member;
        else if (member->class->draw)
            drawing = member;
    }
    if (!erasing || !drawing)
        return 0;
    return hr__refuse(error, erasing, "%s may come after it: put it after the RandomOrder",
                      drawing->class->name);
}

/* Returns non-zero if the operation at `first`, or one that belongs to it, may change the image's
 * size. */
static int changes_size(const struct hr_recipe *recipe, int first)
{
    for (int i = first, end = end_of(recipe, first); i < end && i < recipe->count; i++) {
        const struct hr_operation *o = &recipe->operation[i].operation;
        switch (o->kind) {
        case HR_RANDOM_RESIZED_CROP:
        case HR_RESIZE:
        case HR_CENTER_CROP:
        case HR_RANDOM_CROP:
        case HR_PAD:
        case HR_RANDOM_ZOOM_OUT:
        case HR_RANDOM_SHORTEST_SIZE:
        case HR_LETTER_BOX:
        case HR_RANDOM_IOU_CROP:
            return 1;
        case HR_RANDOM_ROTATION:
            if (o->u.random_rotation.expand)
                return 1;
            break;
        default:
            break;
        }
    }
    return 0;
}

/* The size after members in any order: if one of them changes it, that one's; if several do, what
 * they agree on, wherever they come. */
static int check_order(struct hr_recipe *recipe, int first, struct hr__state *state,
                       struct hr_error *error)
{
    const struct hr__bound *group = &recipe->operation[first];
    struct hr__state only = *state, any = *state;
    int changers = 0, erasings = state->erasings;
    int r = check_order_erased(recipe, first, error);
    if (r)
        return r;
    for (int i = first + 1, end = end_of(recipe, first); i < end; i = end_of(recipe, i)) {
        struct hr__state here = *state, unknown = *state;
        hr__state_vary(&unknown, 0, 0);
        r = check_member(recipe, group, i, &here, error);
        erasings += here.erasings - state->erasings;
        if (!r && !state->width)
            unknown = here; /* nested groups would be checked 2^depth times */
        else if (!r)
            r = check_member(recipe, group, i, &unknown, error);
        if (r)
            return r;
        if (!changes_size(recipe, i))
            continue;
        only = here;
        if (changers)
            merge(&unknown, &any);
        any = unknown;
        changers++;
    }
    if (changers > 1 && !any.width)
        hr__state_vary(&any, 0, 0);
    *state = changers > 1 ? any : only;
    state->erasings = erasings;
    return hr__check_erasings(group, erasings, error);
}

/* Refuses what would move or colour the pixels that a RandomErasing before it sets. */
static int check_erased(const struct hr__bound *bound, const struct hr__state *state,
                        struct hr_error *error)
{
    if (!state->erasings || bound->operation.kind == HR_RANDOM_ERASING || !bound->class->draw)
        return 0;
    return hr__refuse(error, bound,
                      "it follows RandomErasing, which sets pixels of the finished tensor: put it "
                      "before RandomErasing");
}

static int check_operation(struct hr_recipe *recipe, int i, struct hr__state *state,
                           struct hr_error *error)
{
    struct hr__bound *bound = &recipe->operation[i];
    bound->bytes = state->dtype == HR_UINT8;
    int r = check_erased(bound, state, error);
    if (!r)
        r = bound->class->check(bound, state, error);
    if (r || !is_group(bound))
        return r;
    if (end_of(recipe, i) > recipe->count)
        return hr__refuse(error, bound, "it has %d members, and the recipe ends before the last",
                          bound->operation.u.group.count);
    switch (bound->operation.kind) {
    case HR_RANDOM_APPLY:
        return check_apply(recipe, i, state, error);
    case HR_RANDOM_CHOICE:
        return check_choice(recipe, i, state, error);
    case HR_RANDOM_ORDER:
        return check_order(recipe, i, state, error);
    default:
        return check_sequence(recipe, i, state, error);
    }
}

int hr__check_operations(struct hr_recipe *recipe, struct hr__state *state, struct hr_error *error)
{
    int r = 0;
    for (int i = 0; i < recipe->count && !r; i = end_of(recipe, i))
        r = check_operation(recipe, i, state, error);
    return r;
}

struct drawing {
    const struct hr_recipe *recipe;
    const struct hr_draw_key *key;
    struct hr__prepare_plan *plan;
    struct hr_error *error;
};

static int draw_operation(const struct drawing *d, int i);

/* Draws from the places of the members of a choice: one, by weight. */
static int choose(const struct hr_recipe *recipe, const int *member, int count,
                  struct hr__random *random)
{
    double sum = 0;
    for (int k = 0; k < count; k++)
        sum += weight_of(&recipe->operation[member[k]]);
    double at = hr__random_unit(random) * sum;
    int chosen = -1;
    for (int k = 0; k < count; k++) {
        double weight = weight_of(&recipe->operation[member[k]]);
        if (weight > 0)
            chosen = k; /* also if rounding leaves `at` beyond the last */
        if (weight > 0 && at < weight)
            break;
        at -= weight;
    }
    return member[chosen];
}

static void shuffle(int *member, int count, struct hr__random *random)
{
    for (int i = count - 1; i > 0; i--) {
        int j = (int)hr__random_below(random, (uint64_t)i + 1), swap = member[i];
        member[i] = member[j];
        member[j] = swap;
    }
}

static int draw_group(const struct drawing *d, int first, struct hr__random *random)
{
    const struct hr__bound *group = &d->recipe->operation[first];
    int member[HR__RECIPE_MAX_OPERATIONS], count = 0;
    for (int i = first + 1, end = end_of(d->recipe, first); i < end; i = end_of(d->recipe, i))
        member[count++] = i;
    switch (group->operation.kind) {
    case HR_RANDOM_APPLY:
        if (hr__random_unit(random) >= group->operation.u.group.p)
            return 0;
        break;
    case HR_RANDOM_CHOICE:
        return draw_operation(d, choose(d->recipe, member, count, random));
    case HR_RANDOM_ORDER:
        shuffle(member, count, random);
        break;
    default:
        break;
    }
    int r = 0;
    for (int k = 0; k < count && !r; k++)
        r = draw_operation(d, member[k]);
    return r;
}

static int draw_operation(const struct drawing *d, int i)
{
    const struct hr__bound *bound = &d->recipe->operation[i];
    const struct hr__operation_class *class = bound->class;
    if (!class->draw && !is_group(bound))
        return 0;
    struct hr__random random;
    uint64_t purpose = HR__PURPOSE_OPERATION + ((uint64_t)bound->position << 8);
    hr__random_init(&random, d->key->seed, purpose, d->key->epoch, d->key->index);
    return is_group(bound) ? draw_group(d, i, &random)
                           : class->draw(bound, &random, d->plan, d->error);
}

int hr__draw_operations(const struct hr_recipe *recipe, const struct hr_draw_key *key,
                        struct hr__prepare_plan *plan, struct hr_error *error)
{
    const struct drawing d = {recipe, key, plan, error};
    int r = 0;
    for (int i = 0; i < recipe->count && !r; i = end_of(recipe, i))
        r = draw_operation(&d, i);
    return r;
}

static void defaults(struct hr_operation *operation)
{
    operation->u.group.count = 1;
    operation->u.group.p = 0.5;
    operation->u.group.weight = 1;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    if (o->u.group.count < 0)
        return hr__refuse(error, bound, "it cannot have %d members", o->u.group.count);
    if (!(o->u.group.weight >= 0 && isfinite(o->u.group.weight)))
        return hr__refuse(error, bound, "the weight %g must not be negative", o->u.group.weight);
    return hr__check_probability(bound, o->u.group.p, error);
}

static const struct hr__parameter fields[] = {
    {"count", HR__INTEGER(group.count)},
    {"p", HR__REAL(group.p)},
    {"weight", HR__REAL(group.weight)},
    {0},
};

#define HR__GROUP(title)                                                                           \
    {                                                                                              \
        .name = title, .fields = fields, .defaults = defaults, .check = check                      \
    }

const struct hr__operation_class hr__class_sequence = HR__GROUP("Sequence");
const struct hr__operation_class hr__class_random_apply = HR__GROUP("RandomApply");
const struct hr__operation_class hr__class_random_choice = HR__GROUP("RandomChoice");
const struct hr__operation_class hr__class_random_order = HR__GROUP("RandomOrder");
