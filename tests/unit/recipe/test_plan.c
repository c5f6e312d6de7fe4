/*
 * Plans: random parameters against torchvision's formulas, by their moments and by chi-square;
 * sizes and rounding by known cases. Seeds are fixed, so a bound that holds once always holds;
 * bounds are five standard errors.
 */
#include "recipe_cases.h"

#define DRAWS ((uint64_t)test_rounds(20000))

/* Sum and sum of squares of a quantity. */
struct plan_moments {
    double n, sum, squares;
};

static void add(struct plan_moments *m, double v)
{
    m->n++;
    m->sum += v;
    m->squares += v * v;
}

static void check_mean(const struct plan_moments *m, double mean, double variance)
{
    double got = m->sum / m->n, spread = m->squares / m->n - got * got;
    if (fabs(got - mean) > 5 * sqrt(variance / m->n))
        fail_msg("mean %g, expected %g +- %g", got, mean, sqrt(variance / m->n));
    if (fabs(spread - variance) > 0.05 * variance)
        fail_msg("variance %g, expected %g", spread, variance);
}

/* Checks that counts are equal: chi-square is within five deviations of its mean. */
static void check_even(const int *counts, int bins)
{
    double n = 0, chi = 0;
    for (int i = 0; i < bins; i++)
        n += counts[i];
    for (int i = 0; i < bins; i++)
        chi += (counts[i] - n / bins) * (counts[i] - n / bins) / (n / bins);
    if (chi > bins - 1 + 5 * sqrt(2.0 * (bins - 1)))
        fail_msg("chi-square %g in %d bins", chi, bins);
}

/* Returns the crop of a plan, or the whole image if it has none. */
static struct hr_region crop_of(const struct hr__prepare_plan *plan)
{
    struct hr_region crop = {0, 0, plan->width, plan->height};
    if (plan->count && plan->step[0].kind == HR__STEP_CROP)
        crop = (struct hr_region){plan->step[0].u.crop.x, plan->step[0].u.crop.y,
                                  plan->step[0].width, plan->step[0].height};
    return crop;
}

/* A plain version of torchvision's make_params, with other random numbers. */
static struct hr_region reference_crop(struct hr__random *r, int width, int height)
{
    for (int i = 0; i < 10; i++) {
        double area = (double)width * height * (0.08 + 0.92 * hr__random_unit(r));
        double ratio = 0.75 * pow(16.0 / 9.0, hr__random_unit(r));
        int w = (int)nearbyint(sqrt(area * ratio)), h = (int)nearbyint(sqrt(area / ratio));
        if (w > 0 && w <= width && h > 0 && h <= height)
            return (struct hr_region){(int)hr__random_below(r, (uint64_t)(width - w) + 1),
                                      (int)hr__random_below(r, (uint64_t)(height - h) + 1), w, h};
    }
    return (struct hr_region){-1, -1, 0, 0};
}

static void crop_is_uniform_in_area_and_log_ratio(void **state)
{
    struct hr_operation list[1] = {sized(HR_RANDOM_RESIZED_CROP, 224, 224)};
    /* Crops this small always fit, so the distributions are uniform. */
    list[0].u.random_resized_crop.scale[0] = 0.1;
    list[0].u.random_resized_crop.scale[1] = 0.5;
    struct hr_recipe *recipe = recipe_of(list, 1);
    struct plan_moments area = {0}, log_ratio = {0};
    int area_bins[20] = {0}, ratio_bins[20] = {0}, x_bins[10] = {0}, y_bins[10] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct hr__prepare_plan plan = plan_of(recipe, 4000, 4000, i);
        struct hr_region c = crop_of(&plan);
        double a = (double)c.width * c.height / 16e6, l = log((double)c.width / c.height);
        add(&area, a);
        add(&log_ratio, l);
        area_bins[(int)fmin(fmax((a - 0.1) / 0.4 * 20, 0), 19)]++;
        ratio_bins[(int)fmin(fmax((l / log(4.0 / 3.0) + 1) * 10, 0), 19)]++;
        x_bins[(int)(c.x * 10.0 / (4000 - c.width + 1))]++;
        y_bins[(int)(c.y * 10.0 / (4000 - c.height + 1))]++;
        assert_int_equal(plan.step[plan.count - 1].width, 224);
        assert_int_equal(plan.step[plan.count - 1].height, 224);
    }
    check_mean(&area, 0.3, 0.4 * 0.4 / 12);
    check_mean(&log_ratio, 0, 4 * log(4.0 / 3) * log(4.0 / 3) / 12);
    check_even(area_bins, 20);
    check_even(ratio_bins, 20);
    check_even(x_bins, 10);
    check_even(y_bins, 10);
    hr_recipe_unref(&recipe);
}

static void crop_retries_as_the_reference(void **state)
{
    struct hr_operation list[1] = {sized(HR_RANDOM_RESIZED_CROP, 224, 224)};
    struct hr_recipe *recipe = recipe_of(list, 1);
    struct hr__random r;
    struct plan_moments ours[4] = {{0}}, theirs[4] = {{0}};
    hr__random_init(&r, 99, 0, 0, 0);
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct hr__prepare_plan plan = plan_of(recipe, 500, 375, i);
        struct hr_region a = crop_of(&plan), b = reference_crop(&r, 500, 375);
        add(&ours[0], a.width);
        add(&ours[1], a.height);
        add(&ours[2], a.x);
        add(&ours[3], a.y);
        add(&theirs[0], b.width);
        add(&theirs[1], b.height);
        add(&theirs[2], b.x);
        add(&theirs[3], b.y);
        assert_true(a.x >= 0 && a.y >= 0 && a.x + a.width <= 500 && a.y + a.height <= 375);
    }
    for (int k = 0; k < 4; k++) {
        double mean = theirs[k].sum / DRAWS;
        double variance = theirs[k].squares / DRAWS - mean * mean;
        double got = ours[k].sum / DRAWS;
        assert_true(fabs(got - mean) < 5 * sqrt(2 * variance / DRAWS));
        assert_true(fabs(ours[k].squares / DRAWS - got * got - variance) < 0.05 * variance);
    }
    hr_recipe_unref(&recipe);
}

static void crop_falls_back_to_the_centre(void **state)
{
    struct hr_operation list[1] = {sized(HR_RANDOM_RESIZED_CROP, 8, 8)};
    list[0].u.random_resized_crop.scale[0] = 0.9;
    struct hr_recipe *recipe = recipe_of(list, 1);
    /* no crop of 90 % of 1000 x 100 has a ratio within 3/4..4/3: 100 x 4/3 = 133 */
    struct hr__prepare_plan plan = plan_of(recipe, 1000, 100, 0);
    struct hr_region c = crop_of(&plan);
    assert_int_equal(c.width, 133);
    assert_int_equal(c.height, 100);
    assert_int_equal(c.x, 433);
    assert_int_equal(c.y, 0);
    plan = plan_of(recipe, 101, 1001, 0); /* 101 / 0.75 = 134.67 */
    c = crop_of(&plan);
    assert_int_equal(c.width, 101);
    assert_int_equal(c.height, 135);
    assert_int_equal(c.x, 0);
    assert_int_equal(c.y, 433);
    hr_recipe_unref(&recipe);
    list[0].u.random_resized_crop.scale[0] = list[0].u.random_resized_crop.scale[1] = 2;
    recipe = recipe_of(list, 1);
    plan = plan_of(recipe, 40, 40, 0); /* a ratio in range: the whole image */
    assert_int_equal(crop_of(&plan).width, 40);
    assert_int_equal(plan.count, 1);
    hr_recipe_unref(&recipe);
    list[0].u.random_resized_crop.ratio[0] = 20;
    list[0].u.random_resized_crop.ratio[1] = 30;
    recipe = recipe_of(list, 1);
    plan = plan_of(recipe, 3, 1000, 0); /* 3 / 20 rounds to 0 rows, but a crop has at least one */
    assert_int_equal(crop_of(&plan).height, 1);
    hr_recipe_unref(&recipe);
}

static void center_crop_rounds_to_even(void **state)
{
    /* int(round((h - c) / 2.0)) for differences 1, 3, 5, 7: 0, 2, 2, 4 */
    static const int expected[] = {0, 2, 2, 4};
    struct hr_operation list[1] = {sized(HR_CENTER_CROP, 10, 10)};
    struct hr_recipe *recipe = recipe_of(list, 1);
    for (int i = 0; i < 4; i++) {
        struct hr__prepare_plan plan = plan_of(recipe, 11 + 2 * i, 10, 0);
        assert_int_equal(crop_of(&plan).x, expected[i]);
        assert_int_equal(crop_of(&plan).y, 0);
    }
    struct hr__prepare_plan plan = plan_of(recipe, 7, 15, 0); /* padded by 1 and 2 */
    assert_int_equal(plan.count, 2);
    assert_int_equal(plan.step[0].kind, HR__STEP_PAD);
    assert_int_equal(plan.step[0].u.pad.left, 1);
    assert_int_equal(plan.step[0].u.pad.top, 0);
    assert_int_equal(plan.step[0].width, 10);
    assert_int_equal(plan.step[1].u.crop.y, 2);
    assert_int_equal(plan.step[1].u.crop.x, 0);
    hr_recipe_unref(&recipe);
}

static void resize_truncates(void **state)
{
    static const int cases[][6] = {
        /* size, max_size, width, height, expected width and height */
        {256, 0, 500, 375, 341, 256}, {256, 0, 375, 500, 256, 341},   {256, 0, 333, 500, 256, 384},
        {7, 0, 3, 10, 7, 23},         {256, 300, 500, 333, 300, 200}, {10, 11, 100, 100, 10, 10},
        {256, 0, 1, 5, 256, 1280},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int *c = cases[i];
        struct hr_operation list[2] = {sized(HR_RESIZE, c[0], 0), sized(HR_CENTER_CROP, 1, 1)};
        list[0].u.resize.max_size = c[1];
        struct hr_recipe *recipe = recipe_of(list, 2);
        struct hr__prepare_plan plan = plan_of(recipe, c[2], c[3], 0);
        assert_int_equal(plan.step[0].kind, HR__STEP_RESIZE);
        assert_int_equal(plan.step[0].width, c[4]);
        assert_int_equal(plan.step[0].height, c[5]);
        hr_recipe_unref(&recipe);
    }
    struct hr_operation list[2] = {sized(HR_RESIZE, 256, 0), sized(HR_CENTER_CROP, 224, 224)};
    struct hr_recipe *recipe = recipe_of(list, 2);
    struct hr__prepare_plan plan =
        plan_of(recipe, 300, 256, 0); /* it already has this size, so there is no step */
    assert_int_equal(plan.step[0].kind, HR__STEP_CROP);
    hr_recipe_unref(&recipe);
}

static void random_crop_is_uniform(void **state)
{
    struct hr_operation list[1] = {sized(HR_RANDOM_CROP, 32, 30)};
    for (int i = 0; i < 4; i++)
        list[0].u.random_crop.padding[i] = 4;
    struct hr_recipe *recipe = recipe_of(list, 1);
    int x_bins[11] = {0}, y_bins[9] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct hr__prepare_plan plan = plan_of(recipe, 32, 32, i);
        assert_int_equal(plan.step[0].kind, HR__STEP_PAD);
        assert_int_equal(plan.step[1].kind, HR__STEP_CROP);
        x_bins[plan.step[1].u.crop.x]++;
        y_bins[plan.step[1].u.crop.y]++;
    }
    check_even(x_bins, 11);
    check_even(y_bins, 9);
    hr_recipe_unref(&recipe);
}

static void random_crop_pads_if_needed(void **state)
{
    struct hr_operation list[1] = {sized(HR_RANDOM_CROP, 20, 10)};
    struct hr_error error = {0};
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *p;
    struct hr_region region;
    struct hr_recipe *recipe = recipe_of(list, 1);
    struct hr_image_info info = {HR_IMAGE_JPEG, 12, 17, 3, 1};
    struct hr_draw_key key = {0, 0, 0};
    assert_int_equal(hr__scratch_create(&scratch, NULL), 0);
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &p, &region, &error), -EINVAL);
    assert_non_null(strstr(error.message, "a crop of 20 x 10 (height x width) is larger than the "
                                          "image of 17 x 12: set pad_if_needed"));
    hr__scratch_destroy(&scratch);
    hr_recipe_unref(&recipe);
    list[0].u.random_crop.pad_if_needed = 1;
    recipe = recipe_of(list, 1);
    int y_bins[4] = {0};
    for (uint64_t i = 0; i < 2000; i++) {
        struct hr__prepare_plan plan = plan_of(recipe, 12, 17, i);
        /* 3 rows are missing: 3 are added on both sides, and 0..3 of them are cut off */
        assert_int_equal(plan.step[0].u.pad.top, 3);
        assert_int_equal(plan.step[0].u.pad.left, 0);
        assert_int_equal(plan.step[0].height, 23);
        y_bins[plan.step[1].u.crop.y]++;
    }
    check_even(y_bins, 4);
    hr_recipe_unref(&recipe);
}

static void chances(void **state)
{
    static const enum hr_operation_kind kinds[] = {HR_RANDOM_HORIZONTAL_FLIP,
                                                   HR_RANDOM_VERTICAL_FLIP, HR_RANDOM_GRAYSCALE};
    static const double ps[] = {0, 0.3, 1};
    for (int k = 0; k < 3; k++) {
        for (int j = 0; j < 3; j++) {
            struct hr_operation list[2] = {sized(HR_CENTER_CROP, 8, 8), op(kinds[k])};
            list[1].u.flip.p = ps[j];
            if (k == 2)
                list[1].u.random_grayscale.p = ps[j];
            struct hr_recipe *recipe = recipe_of(list, 2);
            int hits = 0;
            for (uint64_t i = 0; i < DRAWS; i++)
                hits += plan_of(recipe, 8, 8, i).count;
            double deviation = sqrt(DRAWS * ps[j] * (1 - ps[j]));
            assert_true(fabs(hits - DRAWS * ps[j]) <= 5 * deviation);
            hr_recipe_unref(&recipe);
        }
    }
}

static void jitter_order_and_factors(void **state)
{
    struct hr_operation list[3] = {sized(HR_CENTER_CROP, 8, 8), to_dtype(HR_FLOAT32, 1),
                                   op(HR_COLOR_JITTER)};
    static const double ranges[4][2] = {{0.6, 1.4}, {0.2, 1.8}, {0, 3}, {-0.1, 0.3}};
    memcpy(list[2].u.color_jitter.brightness, ranges[0], sizeof ranges[0]);
    memcpy(list[2].u.color_jitter.contrast, ranges[1], sizeof ranges[0]);
    memcpy(list[2].u.color_jitter.saturation, ranges[2], sizeof ranges[0]);
    memcpy(list[2].u.color_jitter.hue, ranges[3], sizeof ranges[0]);
    struct hr_recipe *recipe = recipe_of(list, 3);
    struct plan_moments factor[4] = {{0}};
    int orders[256] = {0}, even[24], n = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct hr__prepare_plan plan = plan_of(recipe, 8, 8, i);
        int code = 0;
        assert_int_equal(plan.count, 4);
        for (int k = 0; k < 4; k++) {
            int kind = (int)(plan.step[k].kind - HR__STEP_BRIGHTNESS);
            assert_in_range(kind, 0, 3);
            code = code * 4 + kind;
            add(&factor[kind], plan.step[k].u.factor);
        }
        orders[code]++;
    }
    for (int k = 0; k < 4; k++) {
        double range = ranges[k][1] - ranges[k][0];
        check_mean(&factor[k], (ranges[k][0] + ranges[k][1]) / 2, range * range / 12);
    }
    for (int code = 0; code < 256; code++) {
        if (orders[code]) {
            assert_true(n < 24);
            even[n++] = orders[code];
        }
    }
    assert_int_equal(n, 24);
    check_even(even, 24);
    hr_recipe_unref(&recipe);
}

static void neutral_jitter_is_nothing(void **state)
{
    struct hr_operation list[3] = {sized(HR_CENTER_CROP, 8, 8), to_dtype(HR_FLOAT32, 1),
                                   op(HR_COLOR_JITTER)};
    struct hr_recipe *recipe = recipe_of(list, 3);
    assert_int_equal(plan_of(recipe, 8, 8, 0).count, 0);
    hr_recipe_unref(&recipe);
    list[2].u.color_jitter.hue[0] = list[2].u.color_jitter.hue[1] = 0.25;
    list[2].u.color_jitter.brightness[0] = list[2].u.color_jitter.brightness[1] = 0.5;
    recipe = recipe_of(list, 3);
    struct hr__prepare_plan plan = plan_of(recipe, 8, 8, 0);
    assert_int_equal(plan.count, 2);
    for (int k = 0; k < 2; k++)
        assert_true(plan.step[k].u.factor == (plan.step[k].kind == HR__STEP_HUE ? 0.25f : 0.5f));
    hr_recipe_unref(&recipe);
}

static int same_draw(const struct hr_recipe *recipe, struct hr_draw_key a, struct hr_draw_key b)
{
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region first, second;
    struct hr_image_info info = {HR_IMAGE_JPEG, 500, 375, 3, 1};
    assert_int_equal(hr__scratch_create(&scratch, NULL), 0);
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &a, &plan, &first, NULL), 0);
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &b, &plan, &second, NULL), 0);
    hr__scratch_destroy(&scratch);
    return !memcmp(&first, &second, sizeof first);
}

static void draws_are_a_function_of_the_key(void **state)
{
    struct hr_operation list[3] = {sized(HR_RANDOM_RESIZED_CROP, 224, 224),
                                   sized(HR_RANDOM_RESIZED_CROP, 224, 224),
                                   sized(HR_CENTER_CROP, 8, 8)};
    struct hr_recipe *recipe = recipe_of(list, 1);
    struct hr_draw_key key = {1, 2, 3};
    assert_true(same_draw(recipe, key, key));
    assert_false(same_draw(recipe, key, (struct hr_draw_key){2, 2, 3}));
    assert_false(same_draw(recipe, key, (struct hr_draw_key){1, 3, 3}));
    assert_false(same_draw(recipe, key, (struct hr_draw_key){1, 2, 4}));
    /* Another position in the list draws other numbers; later operations change nothing. */
    struct hr_recipe *two = recipe_of(list, 2);
    struct hr_recipe *cropped = recipe_of((struct hr_operation[]){list[0], list[2]}, 2);
    struct hr__prepare_plan a = plan_of(recipe, 5000, 5000, 7), b = plan_of(two, 5000, 5000, 7);
    struct hr__prepare_plan c = plan_of(cropped, 5000, 5000, 7);
    assert_int_equal(crop_of(&a).x, crop_of(&b).x);
    assert_int_equal(crop_of(&a).x, crop_of(&c).x);
    double first = (double)b.step[0].width / 5000, second = (double)b.step[2].width / 224;
    assert_true(fabs(first - second) > 0.02);
    hr_recipe_unref(&recipe);
    hr_recipe_unref(&two);
    hr_recipe_unref(&cropped);
}

static void limits_of_images(void **state)
{
    struct hr_operation list[2] = {sized(HR_RESIZE, 65536, 0), sized(HR_CENTER_CROP, 8, 8)};
    struct hr_recipe_options options;
    struct hr_recipe *recipe;
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_error error = {0};
    struct hr_draw_key key = {0, 0, 0};
    struct hr_image_info info = {HR_IMAGE_JPEG, 101, 100, 3, 1};
    hr_recipe_options_default(&options);
    options.max_pixels = 10000;
    assert_int_equal(hr_recipe_create(&recipe, list, 2, &options, NULL), 0);
    assert_int_equal(hr__scratch_create(&scratch, NULL), 0);
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error), -EFBIG);
    assert_string_equal(error.message, "the image declares 101 x 100 pixels, more than "
                                       "max_pixels of 10000; remove it, make it smaller or "
                                       "raise the limit");
    info.width = 60000;
    info.height = 60000;
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error), -EFBIG);
    info.width = 0;
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error),
                     -EBADMSG);
    info.width = 10000;
    info.height = 1;
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error),
                     -EINVAL);
    assert_non_null(strstr(error.message, "10000 x 1 pixels is too long and narrow"));
    info.width = 100;
    info.height = 100;
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error), 0);
    hr__scratch_destroy(&scratch);
    hr_recipe_unref(&recipe);
}

/* Returns the plan of a recipe that allows scaled decoding. */
static struct hr__prepare_plan scaled_plan(const struct hr_operation *operations, size_t count,
                                           const struct hr_image_info *info, uint64_t index)
{
    struct hr_recipe_options options;
    struct hr_recipe *recipe;
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_error error = {0};
    struct hr_draw_key key = {3, 1, index};
    hr_recipe_options_default(&options);
    options.inexact = options.apply_exif_orientation = 1;
    assert_int_equal(hr_recipe_create(&recipe, operations, count, &options, NULL), 0);
    assert_int_equal(hr__scratch_create(&scratch, NULL), 0);
    if (hr__recipe_plan(recipe, scratch, info, &key, &plan, &region, &error))
        fail_msg("%s", error.message);
    assert_memory_equal(&region, &plan->region, sizeof region);
    struct hr__prepare_plan copy = *plan;
    hr__scratch_destroy(&scratch);
    hr_recipe_unref(&recipe);
    return copy;
}

/* An image is halved as often as the crop still has at least as many pixels as its result on both
 * axes. */
static void the_scale_keeps_the_results_pixels(void **state)
{
    struct hr_operation list[4] = {sized(HR_RESIZE, 100, 50), sized(HR_CENTER_CROP, 20, 30),
                                   op(HR_RANDOM_VERTICAL_FLIP), op(HR_RANDOM_GRAYSCALE)};
    static const struct {
        int width, height, halvings;
    } cases[] = {
        {99, 500, 0},  {100, 199, 0},  {100, 200, 1}, {199, 400, 1}, {200, 399, 1},
        {200, 400, 2}, {399, 3000, 2}, {400, 800, 3}, {700, 799, 2}, {6000, 9000, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hr_image_info info = {HR_IMAGE_JPEG, cases[i].width, cases[i].height, 3, 1};
        struct hr__prepare_plan plan = scaled_plan(list, 4, &info, i);
        assert_int_equal(plan.halvings, cases[i].halvings);
        assert_true(plan.rest.fused);
        info.format = HR_IMAGE_PNG;
        assert_int_equal(scaled_plan(list, 4, &info, i).halvings, 0);
        info.format = HR_IMAGE_COEFFICIENTS;
        assert_int_equal(scaled_plan(list, 4, &info, i).halvings, 0);
    }
    /* Recipes that do not fold are decoded exactly: padding or colours first, a second resize. */
    struct hr_image_info info = {HR_IMAGE_JPEG, 800, 800, 3, 1};
    struct hr_operation padded[2] = {sized(HR_RANDOM_CROP, 700, 700), list[0]};
    assert_int_equal(scaled_plan(padded, 2, &info, 0).halvings, 2);
    padded[0].u.random_crop.padding[1] = 1;
    assert_int_equal(scaled_plan(padded, 2, &info, 0).halvings, 0);
    struct hr_operation grey[2] = {op(HR_RANDOM_GRAYSCALE), list[0]};
    grey[0].u.random_grayscale.p = 1;
    assert_int_equal(scaled_plan(grey, 2, &info, 0).halvings, 0);
    struct hr_operation twice[2] = {sized(HR_RESIZE, 99, 99), list[0]};
    assert_int_equal(scaled_plan(twice, 2, &info, 0).halvings, 0);
    /* shrinks too much for the fused pass alone */
    info.width = info.height = 50 * 100;
    assert_int_equal(scaled_plan(list, 1, &info, 0).rest.fused, 1);
    info.width = 56000;
    info.height = 800;
    assert_int_equal(scaled_plan(list, 1, &info, 0).rest.fused, 0);
    assert_int_equal(scaled_plan(list, 1, &info, 0).halvings, 0);
}

/* Scaled decoding does not move the crop, for all orientations. */
static void scaled_crops_stay_in_place(void **state)
{
    struct hr_operation list[2] = {sized(HR_RANDOM_RESIZED_CROP, 13, 17),
                                   op(HR_RANDOM_HORIZONTAL_FLIP)};
    struct hr__random r;
    hr__random_init(&r, 8, 0, 0, 0);
    for (uint64_t i = 0; i < 4000; i++) {
        struct hr_image_info info = {HR_IMAGE_PNG, 1 + (int)hr__random_below(&r, 400),
                                     1 + (int)hr__random_below(&r, 400), 3, 1 + (int)(i % 8)};
        struct hr__prepare_plan exact = scaled_plan(list, 2, &info, i);
        info.format = HR_IMAGE_JPEG;
        struct hr__prepare_plan plan = scaled_plan(list, 2, &info, i);
        int n = plan.halvings, unit = 1 << n;
        int width = (info.width + unit - 1) / unit, height = (info.height + unit - 1) / unit;
        assert_true(plan.region.x >= 0 && plan.region.x + plan.region.width <= width);
        assert_true(plan.region.y >= 0 && plan.region.y + plan.region.height <= height);
        /* In the stored image, the region covers the exact one and little more. */
        const struct hr_region *a = &exact.region, *b = &plan.region;
        int more = n ? 2 * unit : 0;
        assert_true(b->x * unit <= a->x + more && b->x * unit >= a->x - more - unit);
        assert_true((b->x + b->width) * unit >= a->x + a->width - more);
        assert_true((b->y + b->height) * unit >= a->y + a->height - more);
        /* where the crop begins in the oriented image */
        int x = plan.rest.x.origin * unit + plan.rest.x.lead,
            y = plan.rest.y.origin * unit + plan.rest.y.lead;
        int mirror_x, mirror_y;
        hr__orient_mirrors(plan.orientation, &mirror_x, &mirror_y);
        x -= mirror_x ? (unit - plan.width % unit) % unit : 0;
        y -= mirror_y ? (unit - plan.height % unit) % unit : 0;
        assert_int_equal(x, exact.rest.x.origin);
        assert_int_equal(y, exact.rest.y.origin);
        assert_int_equal(plan.rest.x.in, exact.rest.x.in);
        assert_int_equal(plan.rest.y.in, exact.rest.y.in);
        assert_true(plan.rest.x.in >= plan.rest.x.out << n || !n);
        assert_true(n == 3 || plan.rest.x.in < plan.rest.x.out << (n + 1) ||
                    plan.rest.y.in < plan.rest.y.out << (n + 1));
    }
}

/* Rows are padded to whole vectors, so a narrow image in a file of 100 KB could take tens of GB. */
static void limits_narrow_images(void **state)
{
    struct hr_operation list[2] = {sized(HR_RANDOM_CROP, 8, 8), sized(HR_RESIZE, 8, 8)};
    struct hr_recipe_options options;
    struct hr_recipe *recipe;
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_error error = {0};
    struct hr_draw_key key = {0, 0, 0};
    hr_recipe_options_default(&options);
    options.apply_exif_orientation = 1;
    assert_int_equal(hr_recipe_create(&recipe, &list[1], 1, &options, NULL), 0);
    assert_int_equal(hr__scratch_create(&scratch, NULL), 0);
    for (int turned = 0; turned < 2; turned++) {
        struct hr_image_info info = {HR_IMAGE_PNG, 1, 178956970, 3, turned ? 6 : 1};
        if (turned)
            info = (struct hr_image_info){HR_IMAGE_PNG, 178956970, 1, 3, 6};
        assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error),
                         -EFBIG);
        assert_non_null(strstr(error.message, "too long and narrow"));
        *(turned ? &info.width : &info.height) =
            1 << 19; /* 2^24 pixels if the other side is padded to 32 */
        assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, NULL), 0);
    }
    hr_recipe_unref(&recipe);
    /* sides that would overflow an int */
    options.max_pixels = UINT64_MAX;
    list[0].u.random_crop.pad_if_needed = 1;
    list[0].u.random_crop.padding[0] = list[0].u.random_crop.padding[2] = 65536;
    assert_int_equal(hr_recipe_create(&recipe, list, 1, &options, NULL), 0);
    struct hr_image_info widest = {HR_IMAGE_PNG, INT32_MAX, 1, 3, 1};
    assert_int_equal(hr__recipe_plan(recipe, scratch, &widest, &key, &plan, &region, &error),
                     -EFBIG);
    widest.width = 1 << 28;
    assert_int_equal(hr__recipe_plan(recipe, scratch, &widest, &key, &plan, &region, NULL), 0);
    hr__scratch_destroy(&scratch);
    hr_recipe_unref(&recipe);
}

/* A narrow image is refused if a colour step would need all of its resized pixels. */
static void limits_inside(void **state)
{
    struct hr_operation list[3] = {sized(HR_RESIZE, 256, 0), op(HR_COLOR_JITTER),
                                   sized(HR_CENTER_CROP, 8, 8)};
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_error error = {0};
    struct hr_draw_key key = {0, 0, 0};
    struct hr_image_info info = {HR_IMAGE_JPEG, 30000, 1, 3, 1};
    struct hr_recipe *recipe = recipe_of(list, 3);
    assert_int_equal(hr__scratch_create(&scratch, NULL), 0);
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error), 0);
    hr_recipe_unref(&recipe);
    list[1].u.color_jitter.contrast[1] = 2;
    recipe = recipe_of(list, 3);
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error), -EFBIG);
    assert_string_equal(error.message,
                        "the image of 30000 x 1 pixels becomes 7680000 x 256 inside the recipe, "
                        "more than its max_pixels of 178956970");
    hr__scratch_destroy(&scratch);
    hr_recipe_unref(&recipe);
}

static void padding_indices(void **state)
{
    /* numpy.pad of 0 1 2 3 by six on both sides */
    static const int reflect[] = {0, 1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1, 2, 3};
    static const int symmetric[] = {2, 3, 3, 2, 1, 0, 0, 1, 2, 3, 3, 2, 1, 0, 0, 1};
    for (int i = -6; i < 10; i++) {
        assert_int_equal(hr__pad_index(i, 4, HR_PAD_REFLECT), reflect[i + 6]);
        assert_int_equal(hr__pad_index(i, 4, HR_PAD_SYMMETRIC), symmetric[i + 6]);
        assert_int_equal(hr__pad_index(i, 4, HR_PAD_EDGE), i < 0 ? 0 : i > 3 ? 3 : i);
        assert_int_equal(hr__pad_index(i, 4, HR_PAD_CONSTANT), i < 0 || i > 3 ? -1 : i);
        assert_int_equal(hr__pad_index(i, 1, HR_PAD_REFLECT), 0);
        assert_int_equal(hr__pad_index(i, 1, HR_PAD_SYMMETRIC), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crop_is_uniform_in_area_and_log_ratio),
        cmocka_unit_test(crop_retries_as_the_reference),
        cmocka_unit_test(crop_falls_back_to_the_centre),
        cmocka_unit_test(center_crop_rounds_to_even),
        cmocka_unit_test(resize_truncates),
        cmocka_unit_test(random_crop_is_uniform),
        cmocka_unit_test(random_crop_pads_if_needed),
        cmocka_unit_test(chances),
        cmocka_unit_test(jitter_order_and_factors),
        cmocka_unit_test(neutral_jitter_is_nothing),
        cmocka_unit_test(draws_are_a_function_of_the_key),
        cmocka_unit_test(limits_of_images),
        cmocka_unit_test(limits_narrow_images),
        cmocka_unit_test(limits_inside),
        cmocka_unit_test(the_scale_keeps_the_results_pixels),
        cmocka_unit_test(scaled_crops_stay_in_place),
        cmocka_unit_test(padding_indices),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
