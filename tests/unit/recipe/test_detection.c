/*
 * The operations that detectors are trained with: their draws against torchvision's formulas, sizes
 * by known cases, and what they refuse. Pixels are compared with torchvision in
 * tests/python/test_detection_transforms.py.
 */
#include "recipe_cases.h"

#define DRAWS 4000

static void refused(const struct hr_operation *operation, const char *words)
{
    struct hr_operation list[2] = {*operation, sized(HR_RESIZE, 8, 8)};
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    assert_int_equal(hr_recipe_create(&recipe, list, 2, NULL, &error), -EINVAL);
    if (!strstr(error.message, words))
        fail_msg("'%s' is not in '%s'", words, error.message);
}

/* Returns a recipe of the operation and a Resize that ends it. */
static struct hr_recipe *ended(const struct hr_operation *operation)
{
    const struct hr_operation list[2] = {*operation, sized(HR_RESIZE, 8, 8)};
    return recipe_of(list, 2);
}

static void zoom_out_places_the_image_anywhere(void **state)
{
    struct hr_operation o = op(HR_RANDOM_ZOOM_OUT);
    struct hr_recipe *recipe = ended(&o);
    double factors = 0, across = 0, down = 0;
    int zoomed = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct hr__prepare_plan plan = plan_of(recipe, 1000, 2000, i);
        const struct hr__step *pad = &plan.step[0];
        if (pad->kind != HR__STEP_FILTER)
            continue;
        zoomed++;
        int more_x = pad->width - 1000, more_y = pad->height - 2000;
        assert_true(pad->width < 4000 && pad->height < 8000);
        assert_true(abs(2 * pad->width - pad->height) <= 1);
        assert_true(pad->u.filter.word[0] >= 0 && pad->u.filter.word[0] <= more_x);
        assert_true(pad->u.filter.word[1] >= 0 && pad->u.filter.word[1] <= more_y);
        factors += pad->width / 1000.0;
        across += more_x ? pad->u.filter.word[0] / (double)more_x : 0.5;
        down += more_y ? pad->u.filter.word[1] / (double)more_y : 0.5;
    }
    /* five standard errors of uniform draws */
    assert_true(fabs(zoomed - DRAWS / 2.0) < 5 * sqrt(DRAWS / 4.0));
    assert_true(fabs(factors / zoomed - 2.5) < 5 * 3 / sqrt(12.0 * zoomed));
    assert_true(fabs(across / zoomed - 0.5) < 5 / sqrt(12.0 * zoomed) + 0.001);
    assert_true(fabs(down / zoomed - 0.5) < 5 / sqrt(12.0 * zoomed) + 0.001);
    hr_recipe_unref(&recipe);
}

static void shortest_size_truncates(void **state)
{
    static const struct {
        int width, height, max_size, expected_width, expected_height;
    } cases[] = {{640, 427, 0, 719, 479},   {427, 640, 0, 479, 719},   {640, 427, 600, 600, 400},
                 {500, 500, 333, 333, 333}, {1000, 100, 0, 4800, 480}, {3, 7, 0, 480, 1120}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hr_operation o = op(HR_RANDOM_SHORTEST_SIZE);
        o.u.random_shortest_size.min_size[0] = 480;
        o.u.random_shortest_size.max_size = cases[i].max_size;
        struct hr_recipe *recipe = ended(&o);
        struct hr__prepare_plan plan = plan_of(recipe, cases[i].width, cases[i].height, 0);
        assert_int_equal(plan.step[0].width, cases[i].expected_width);
        assert_int_equal(plan.step[0].height, cases[i].expected_height);
        hr_recipe_unref(&recipe);
    }
}

static void shortest_size_draws_evenly(void **state)
{
    struct hr_operation o = op(HR_RANDOM_SHORTEST_SIZE);
    int counts[3] = {0};
    for (int i = 0; i < 3; i++)
        o.u.random_shortest_size.min_size[i] = 100 * (i + 1);
    struct hr_recipe *recipe = ended(&o);
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct hr__prepare_plan plan = plan_of(recipe, 50, 60, i);
        counts[plan.step[0].width / 100 - 1]++;
    }
    for (int i = 0; i < 3; i++)
        assert_true(abs(counts[i] - DRAWS / 3) < 5 * sqrt(DRAWS * 2 / 9.0));
    hr_recipe_unref(&recipe);
}

static void check_letter_box(int width, int height, int enlarge, const struct hr_region *inside)
{
    struct hr_operation o = op(HR_LETTER_BOX);
    o.u.letter_box.height = 100;
    o.u.letter_box.width = 200;
    o.u.letter_box.enlarge = enlarge;
    struct hr_recipe *recipe = recipe_of(&o, 1);
    struct hr__prepare_plan plan = plan_of(recipe, width, height, 0);
    struct hr_region made = {0, 0, width, height};
    for (int i = 0; i < plan.count; i++) {
        const struct hr__step *step = &plan.step[i];
        if (step->kind == HR__STEP_RESIZE) {
            made.width = step->width;
            made.height = step->height;
        } else {
            made.x = step->u.filter.word[0];
            made.y = step->u.filter.word[1];
        }
    }
    assert_memory_equal(&made, inside, sizeof made);
    hr_recipe_unref(&recipe);
}

static void letter_box_keeps_the_shape(void **state)
{
    check_letter_box(400, 100, 1, &(struct hr_region){0, 25, 200, 50});
    check_letter_box(100, 101, 1, &(struct hr_region){50, 0, 99, 100});
    check_letter_box(20, 10, 1, &(struct hr_region){0, 0, 200, 100});
    check_letter_box(21, 11, 0, &(struct hr_region){89, 44, 21, 11});
    check_letter_box(60000, 1, 1, &(struct hr_region){0, 49, 200, 1});
    check_letter_box(200, 100, 1, &(struct hr_region){0, 0, 200, 100});
}

static void refusals(void **state)
{
    struct hr_operation o = op(HR_RANDOM_ZOOM_OUT);
    o.u.random_zoom_out.side_range[0] = 0.5;
    refused(&o, "RandomZoomOut (operation 1 of the recipe): side_range (0.5, 4) must be two");
    o = op(HR_RANDOM_ZOOM_OUT);
    o.u.random_zoom_out.side_range[1] = NAN;
    refused(&o, "must be two factors");
    o = op(HR_RANDOM_ZOOM_OUT);
    o.u.random_zoom_out.fill[2] = INFINITY;
    refused(&o, "not a finite number");
    o = op(HR_RANDOM_ZOOM_OUT);
    o.u.random_zoom_out.p = 2;
    refused(&o, "RandomZoomOut");
    o = op(HR_RANDOM_SHORTEST_SIZE);
    refused(&o, "min_size is empty");
    o.u.random_shortest_size.min_size[0] = -1;
    refused(&o, "RandomShortestSize (operation 1 of the recipe): a size of -1 x -1");
    o.u.random_shortest_size.min_size[0] = 100;
    o.u.random_shortest_size.max_size = -1;
    refused(&o, "max_size -1 is not possible");
    o = op(HR_LETTER_BOX);
    refused(&o, "LetterBox (operation 1 of the recipe): a size of 0 x 0");
    o = op(HR_RANDOM_ZOOM_OUT);
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    assert_int_equal(hr_recipe_create(&recipe, &o, 1, NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "no fixed size"));
}

static void too_large_inside(void **state)
{
    struct hr_operation o = op(HR_RANDOM_ZOOM_OUT);
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_error error = {0};
    struct hr_draw_key key = {0, 0, 0};
    struct hr_image_info info = {HR_IMAGE_JPEG, 10000, 1, 3, 1};
    o.u.random_zoom_out.p = 1;
    o.u.random_zoom_out.side_range[0] = o.u.random_zoom_out.side_range[1] = 1e6;
    struct hr_recipe *recipe = ended(&o);
    assert_int_equal(hr__scratch_create(&scratch, NULL), 0);
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error),
                     -EINVAL);
    assert_non_null(strstr(error.message, "too large for it"));
    hr_recipe_unref(&recipe);
    o = op(HR_RANDOM_SHORTEST_SIZE);
    o.u.random_shortest_size.min_size[0] = 65536;
    recipe = ended(&o);
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error),
                     -EINVAL);
    assert_non_null(strstr(error.message, "too long and narrow"));
    hr__scratch_destroy(&scratch);
    hr_recipe_unref(&recipe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zoom_out_places_the_image_anywhere),
        cmocka_unit_test(shortest_size_truncates),
        cmocka_unit_test(shortest_size_draws_evenly),
        cmocka_unit_test(letter_box_keeps_the_shape),
        cmocka_unit_test(refusals),
        cmocka_unit_test(too_large_inside),
    };
    return cmocka_run_group_tests_name("detection", tests, NULL, NULL);
}
