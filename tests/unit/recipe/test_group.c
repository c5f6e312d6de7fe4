/* Groups of operations: which members run, in which order and how often, what sizes they leave, and
 * which recipes are refused. */
#include "recipe_cases.h"

#define DRAWS 2000

static struct hr_operation group(enum hr_operation_kind kind, int count)
{
    struct hr_operation o = op(kind);
    o.u.group.count = count;
    return o;
}

static struct hr_operation apply(double p, int count)
{
    struct hr_operation o = group(HR_RANDOM_APPLY, count);
    o.u.group.p = p;
    return o;
}

static struct hr_operation flip(enum hr_operation_kind kind)
{
    struct hr_operation o = op(kind);
    o.u.flip.p = 1;
    return o;
}

static struct hr_operation padded(int by)
{
    struct hr_operation o = op(HR_PAD);
    for (int i = 0; i < 4; i++)
        o.u.pad.padding[i] = by;
    return o;
}

/* Writes a letter for each step of a draw: x and y for flips, p for padding. */
static void letters(const struct hr_recipe *recipe, uint64_t index, char text[16])
{
    const struct hr_draw_key key = {.seed = 3, .index = index};
    struct hr__prepare_plan plan = plan_of_key(recipe, 8, 8, key);
    int n = 0;
    for (int i = 0; i < plan.count; i++) {
        enum hr__step_kind kind = plan.step[i].kind;
        text[n++] = kind == HR__STEP_FLIP_X   ? 'x'
                    : kind == HR__STEP_FLIP_Y ? 'y'
                    : kind == HR__STEP_PAD    ? 'p'
                                              : '?';
    }
    text[n] = 0;
}

/* Counts the draws that gave each of the texts; all draws must give one of them. */
static void count_draws(const struct hr_operation *list, size_t count, const char *const *texts,
                        int *found)
{
    struct hr_recipe *recipe = recipe_of(list, count);
    memset(found, 0, 8 * sizeof *found);
    for (uint64_t i = 0; i < DRAWS; i++) {
        char text[16];
        letters(recipe, i, text);
        int k = 0;
        while (texts[k] && strcmp(text, texts[k]))
            k++;
        if (!texts[k])
            fail_msg("the steps '%s' were not expected", text);
        found[k]++;
    }
    hr_recipe_unref(&recipe);
}

static void assert_share(int found, double share)
{
    double spread = sqrt(DRAWS * share * (1 - share));
    assert_true(fabs(found - DRAWS * share) <= 5 * spread);
}

static void members_run_as_often_as_asked(void **state)
{
    const struct hr_operation x = flip(HR_RANDOM_HORIZONTAL_FLIP),
                              y = flip(HR_RANDOM_VERTICAL_FLIP);
    const struct hr_operation end = sized(HR_CENTER_CROP, 8, 8);
    int found[8];
    const struct hr_operation applied[] = {apply(0.3, 2), x, y, end};
    count_draws(applied, 4, (const char *const[]){"", "xy", NULL}, found);
    assert_share(found[1], 0.3);
    const struct hr_operation choice[] = {group(HR_RANDOM_CHOICE, 2), x, y, end};
    count_draws(choice, 4, (const char *const[]){"x", "y", NULL}, found);
    assert_share(found[0], 0.5);
    struct hr_operation weighted[] = {
        group(HR_RANDOM_CHOICE, 3), group(HR_SEQUENCE, 2), x, y, group(HR_SEQUENCE, 1), y, x, end};
    weighted[1].u.group.weight = 3;
    weighted[4].u.group.weight = 0;
    count_draws(weighted, 8, (const char *const[]){"xy", "x", NULL}, found);
    assert_share(found[0], 0.75);
    /* an empty sequence leaves the image as it is */
    const struct hr_operation perhaps[] = {group(HR_RANDOM_CHOICE, 2), group(HR_SEQUENCE, 0), x,
                                           end};
    count_draws(perhaps, 4, (const char *const[]){"", "x", NULL}, found);
    assert_share(found[0], 0.5);
    const struct hr_operation order[] = {group(HR_RANDOM_ORDER, 2), x, y, end};
    count_draws(order, 4, (const char *const[]){"xy", "yx", NULL}, found);
    assert_share(found[0], 0.5);
    /* a group in a group, and one after it */
    const struct hr_operation nested[] = {
        group(HR_RANDOM_ORDER, 2), apply(0.5, 1), x, y, apply(1, 1), y, end};
    count_draws(nested, 7, (const char *const[]){"yy", "xyy", "yxy", NULL}, found);
    assert_share(found[0], 0.5);
    assert_share(found[1], 0.25);
}

static void orders_are_permutations(void **state)
{
    const struct hr_operation list[] = {group(HR_RANDOM_ORDER, 3), flip(HR_RANDOM_HORIZONTAL_FLIP),
                                        flip(HR_RANDOM_VERTICAL_FLIP), padded(1),
                                        sized(HR_CENTER_CROP, 10, 10)};
    int found[8];
    count_draws(list, 5, (const char *const[]){"xyp", "xpy", "yxp", "ypx", "pxy", "pyx", NULL},
                found);
    for (int k = 0; k < 6; k++)
        assert_share(found[k], 1 / 6.0);
}

/* An operation draws the same numbers inside a group as at the same place outside. */
static void streams_belong_to_places(void **state)
{
    const struct hr_operation crop = sized(HR_RANDOM_RESIZED_CROP, 8, 8);
    const struct hr_operation first = flip(HR_RANDOM_HORIZONTAL_FLIP);
    const struct hr_operation end = sized(HR_CENTER_CROP, 8, 8);
    const struct hr_operation plain[] = {first, crop, end}, grouped[] = {apply(1, 1), crop, end};
    struct hr_recipe *a = recipe_of(plain, 3), *b = recipe_of(grouped, 3);
    for (uint64_t i = 0; i < 50; i++) {
        const struct hr_draw_key key = {.seed = 9, .index = i};
        struct hr__prepare_plan one = plan_of_key(a, 60, 50, key);
        struct hr__prepare_plan other = plan_of_key(b, 60, 50, key);
        const struct hr__step *p = &one.step[1], *q = &other.step[0];
        assert_int_equal(p->kind, q->kind);
        assert_int_equal(p->width, q->width);
        assert_int_equal(p->height, q->height);
    }
    hr_recipe_unref(&a);
    hr_recipe_unref(&b);
}

static int width_of(const struct hr_operation *list, size_t count, char *message)
{
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    if (hr_recipe_create(&recipe, list, count, NULL, &error)) {
        snprintf(message, HR_ERROR_MESSAGE_BYTES, "%s", error.message);
        return -1;
    }
    struct hr_tensor_spec spec;
    hr_recipe_output(recipe, &spec);
    hr_recipe_unref(&recipe);
    return spec.width;
}

static void assert_refused(const struct hr_operation *list, size_t count, const char *words)
{
    char message[HR_ERROR_MESSAGE_BYTES] = "";
    assert_int_equal(width_of(list, count, message), -1);
    if (!strstr(message, words))
        fail_msg("'%s' is not in '%s'", words, message);
}

static void sizes_must_not_depend_on_chance(void **state)
{
    const struct hr_operation eight = sized(HR_CENTER_CROP, 8, 8), nine = sized(HR_RESIZE, 9, 9);
    const struct hr_operation x = flip(HR_RANDOM_HORIZONTAL_FLIP);
    char message[HR_ERROR_MESSAGE_BYTES];
    const struct hr_operation fixed[] = {apply(0.5, 2), padded(3), x, eight};
    assert_int_equal(width_of(fixed, 4, message), 8);
    const struct hr_operation same[] = {eight, group(HR_RANDOM_CHOICE, 2), eight,
                                        sized(HR_RESIZE, 8, 8)};
    assert_int_equal(width_of(same, 4, message), 8);
    const struct hr_operation in_order[] = {group(HR_RANDOM_ORDER, 2), nine, x};
    assert_int_equal(width_of(in_order, 3, message), 9);
    const struct hr_operation from_known[] = {eight, group(HR_RANDOM_ORDER, 2), padded(2), x};
    assert_int_equal(width_of(from_known, 4, message), 12);
    const struct hr_operation sequence[] = {group(HR_SEQUENCE, 2), eight, nine};
    assert_int_equal(width_of(sequence, 3, message), 9);

    const struct hr_operation perhaps[] = {eight, apply(0.5, 1), padded(1)};
    assert_refused(perhaps, 3, "no fixed size");
    const struct hr_operation either[] = {group(HR_RANDOM_CHOICE, 2), eight, nine};
    assert_refused(either, 3, "no fixed size");
    const struct hr_operation any_order[] = {group(HR_RANDOM_ORDER, 2), eight, nine};
    assert_refused(any_order, 3, "no fixed size");
    const struct hr_operation grown[] = {eight, group(HR_RANDOM_ORDER, 2), eight, padded(1)};
    assert_refused(grown, 4, "no fixed size");
    /* the same from an image of any size, where only one member fixes the size */
    assert_refused(grown + 1, 3, "no fixed size");
    struct hr_operation turned = op(HR_RANDOM_ROTATION), shorter = sized(HR_RESIZE, 8, 0);
    turned.u.random_rotation.expand = 1;
    const struct hr_operation expanded[] = {group(HR_RANDOM_ORDER, 2), turned, eight};
    assert_refused(expanded, 3, "no fixed size");
    const struct hr_operation inside[] = {group(HR_RANDOM_ORDER, 2), eight, apply(0.5, 1),
                                          padded(1)};
    assert_refused(inside, 4, "no fixed size");
    /* the resize keeps the size of the image, but not of the crop */
    const struct hr_operation unchanged[] = {sized(HR_CENTER_CROP, 8, 12),
                                             group(HR_RANDOM_ORDER, 2), shorter,
                                             sized(HR_CENTER_CROP, 4, 4)};
    assert_refused(unchanged, 4, "no fixed size");
}

static void impossible_groups_are_refused(void **state)
{
    const struct hr_operation eight = sized(HR_CENTER_CROP, 8, 8);
    const struct hr_operation convert = to_dtype(HR_FLOAT32, 1);
    struct hr_operation list[40] = {eight, apply(0.5, 1), convert};
    assert_refused(list, 3,
                   "RandomApply (operation 2 of the recipe): ToDtype inside it would change");
    list[1] = group(HR_RANDOM_ORDER, 1);
    assert_refused(list, 3, "put it after the group");
    list[1] = apply(0.5, 2);
    assert_refused(list, 3, "it has 2 members, and the recipe ends before the last");
    list[1] = apply(0.5, INT32_MAX);
    assert_refused(list, 3, "the recipe ends before the last");
    list[1] = apply(0.5, -1);
    assert_refused(list, 3, "it cannot have -1 members");
    list[1] = group(HR_RANDOM_CHOICE, 0);
    assert_refused(list, 2, "it needs a member whose weight is not 0");
    list[1] = apply(NAN, 1);
    assert_refused(list, 3, "the probability p = nan");
    list[1] = group(HR_RANDOM_CHOICE, 1);
    list[2] = group(HR_SEQUENCE, 1);
    list[3] = eight;
    list[2].u.group.weight = 0;
    assert_refused(list, 4, "it needs a member whose weight is not 0");
    list[2].u.group.weight = -1;
    assert_refused(list, 4, "must not be negative");
    list[2].u.group.weight = NAN;
    assert_refused(list, 4, "must not be negative");
    /* groups in groups up to the longest recipe are checked in no time */
    for (int i = 0; i < 31; i++)
        list[i] = group(HR_RANDOM_ORDER, 1);
    list[31] = eight;
    char message[HR_ERROR_MESSAGE_BYTES];
    assert_int_equal(width_of(list, 32, message), 8);
    list[0] = eight;
    assert_int_equal(width_of(list, 32, message), 8);
    list[31] = group(HR_RANDOM_ORDER, 1);
    assert_refused(list, 32, "ends before the last");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_run_as_often_as_asked),
        cmocka_unit_test(orders_are_permutations),
        cmocka_unit_test(streams_belong_to_places),
        cmocka_unit_test(sizes_must_not_depend_on_chance),
        cmocka_unit_test(impossible_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
