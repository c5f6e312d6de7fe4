/*
 * Boxes and points on their way through plans: where each operation leaves them, RandomIoUCrop's
 * draws, which rows are dropped, and recipes that are refused. Expected numbers are torchvision's.
 */
#include "recipe_cases.h"

#include "recipe/rows_geometry.h"

#define ROWS  4
#define DRAWS 3000

static const float boxes[ROWS][4] = {
    {10, 20, 50, 60}, {-5, 0, 30.5f, 110}, {90, 70, 100, 80}, {40, 40, 40.5f, 40.5f}};
static const float points[ROWS][2][3] = {{{10, 20, 2}, {0, 0, 0}}, {{99, 79, 1}, {3, 4, 2}}};
static const int64_t labels[ROWS] = {1, 2, 3, 4};

static struct hr__rows_layout layout;

static int set_layout(void **state)
{
    const struct hr_column columns[] = {
        {.name = "labels", .dtype = HR_INT64},
        {.name = "boxes", .dtype = HR_FLOAT32, .role = HR_COLUMN_BOX, .dims = 1, .shape = {4}},
        {.name = "keypoints",
         .dtype = HR_FLOAT32,
         .role = HR_COLUMN_POINTS,
         .dims = 2,
         .shape = {2, 3}}};
    return hr__rows_layout(&layout, columns, 3, ROWS, NULL);
}

/* A plan of an image of 100 x 80 pixels with these rows, and what is left of them. */
struct planned {
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    int r;
    struct hr_error error;
};

static struct planned planned_of(const struct hr_recipe *recipe, int orientation, uint64_t index)
{
    static struct hr__sample_rows in;
    struct planned p = {0};
    struct hr_image_info info = {HR_IMAGE_JPEG, 100, 80, 3, orientation};
    const struct hr_draw_key key = {.seed = 3, .epoch = 1, .index = index};
    in = (struct hr__sample_rows){&layout, ROWS, {labels, boxes, points}};
    assert_int_equal(hr__scratch_create(&p.scratch, &p.error), 0);
    hr__scratch_set_rows(p.scratch, &in);
    p.r = hr__recipe_plan(recipe, p.scratch, &info, &key, &p.plan, &p.region, &p.error);
    return p;
}

static void check_boxes(const struct hr_operation *list, size_t count, int orientation,
                        const float expected[ROWS][4])
{
    struct hr_recipe_options options;
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    hr_recipe_options_default(&options);
    options.apply_exif_orientation = 1;
    if (hr_recipe_create(&recipe, list, count, &options, &error))
        fail_msg("%s", error.message);
    if (hr__recipe_check_rows(recipe, &layout, &error))
        fail_msg("%s", error.message);
    struct planned p = planned_of(recipe, orientation, 0);
    assert_int_equal(p.r, 0);
    const float *found = hr__rows_boxes(&p.plan->rows);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < 4; k++)
            if (found[4 * i + k] != expected[i][k])
                fail_msg("box %d: %g %g %g %g instead of %g %g %g %g", i, (double)found[4 * i],
                         (double)found[4 * i + 1], (double)found[4 * i + 2],
                         (double)found[4 * i + 3], (double)expected[i][0], (double)expected[i][1],
                         (double)expected[i][2], (double)expected[i][3]);
    hr__scratch_destroy(&p.scratch);
    hr_recipe_unref(&recipe);
}

static struct hr_operation flip(enum hr_operation_kind kind)
{
    struct hr_operation o = op(kind);
    o.u.flip.p = 1;
    return o;
}

static void geometry_moves_boxes(void **state)
{
    const struct hr_operation end = sized(HR_RESIZE, 80, 100);
    struct hr_operation list[3] = {flip(HR_RANDOM_HORIZONTAL_FLIP), end};
    check_boxes(
        list, 2, 1,
        (const float[ROWS][4]){
            {50, 20, 90, 60}, {69.5f, 0, 105, 110}, {0, 70, 10, 80}, {59.5f, 40, 60, 40.5f}});
    list[0] = flip(HR_RANDOM_VERTICAL_FLIP);
    check_boxes(
        list, 2, 1,
        (const float[ROWS][4]){
            {10, 20, 50, 60}, {-5, -30, 30.5f, 80}, {90, 0, 100, 10}, {40, 39.5f, 40.5f, 40}});
    list[0] = sized(HR_RESIZE, 40, 25);
    check_boxes(list, 1, 1,
                (const float[ROWS][4]){{2.5f, 10, 12.5f, 30},
                                       {-1.25f, 0, 7.625f, 55},
                                       {22.5f, 35, 25, 40},
                                       {10, 20, 10.125f, 20.25f}});
    /* of 60 x 40 from (20, 20) */
    list[0] = sized(HR_CENTER_CROP, 40, 60);
    check_boxes(list, 1, 1,
                (const float[ROWS][4]){
                    {0, 0, 30, 40}, {0, 0, 10.5f, 40}, {60, 40, 60, 40}, {20, 20, 20.5f, 20.5f}});
    list[0] = op(HR_PAD);
    list[0].u.pad.padding[0] = 3;
    list[0].u.pad.padding[1] = 5;
    list[1] = sized(HR_RESIZE, 85, 103);
    check_boxes(
        list, 2, 1,
        (const float[ROWS][4]){
            {13, 25, 53, 65}, {0, 5, 33.5f, 85}, {93, 75, 103, 85}, {43, 45, 43.5f, 45.5f}});
    /* 0.5 x, and 10 rows above and below */
    list[0] = op(HR_LETTER_BOX);
    list[0].u.letter_box.height = 60;
    list[0].u.letter_box.width = 50;
    check_boxes(
        list, 1, 1,
        (const float[ROWS][4]){
            {5, 20, 25, 40}, {0, 10, 15.25f, 60}, {45, 45, 50, 50}, {20, 30, 20.25f, 30.25f}});
}

static void neutral_geometry_clamps_as_torchvisions(void **state)
{
    const float clamped[ROWS][4] = {
        {10, 20, 50, 60}, {0, 0, 30.5f, 80}, {90, 70, 100, 80}, {40, 40, 40.5f, 40.5f}};
    struct hr_operation list[2] = {sized(HR_RANDOM_CROP, 80, 100), sized(HR_RESIZE, 80, 100)};
    check_boxes(list, 1, 1, boxes);
    list[0] = sized(HR_CENTER_CROP, 80, 100);
    check_boxes(list, 1, 1, clamped);
    list[0] = op(HR_CLAMP_BOUNDING_BOXES);
    check_boxes(list, 2, 1, clamped);
    list[0] = op(HR_PAD);
    check_boxes(list, 2, 1, clamped);
}

static void orientation_moves_boxes(void **state)
{
    for (int o = 1; o <= 8; o++) {
        const struct hr_operation end = sized(HR_RESIZE, o >= 5 ? 100 : 80, o >= 5 ? 80 : 100);
        struct hr_recipe_options options;
        struct hr_recipe *recipe;
        hr_recipe_options_default(&options);
        options.apply_exif_orientation = 1;
        assert_int_equal(hr_recipe_create(&recipe, &end, 1, &options, NULL), 0);
        struct planned p = planned_of(recipe, o, 0);
        const float *found = hr__rows_boxes(&p.plan->rows);
        /* the pixels of the box are stored where the box was */
        const struct hr_region box = {(int)found[0], (int)found[1], (int)(found[2] - found[0]),
                                      (int)(found[3] - found[1])};
        struct hr_region stored = hr__orient_region(&box, 100, 80, o);
        assert_memory_equal(&stored, (&(struct hr_region){10, 20, 40, 40}), sizeof stored);
        hr__scratch_destroy(&p.scratch);
        hr_recipe_unref(&recipe);
    }
}

static void points_move_without_clamping(void **state)
{
    const struct hr_operation list[3] = {flip(HR_RANDOM_HORIZONTAL_FLIP),
                                         sized(HR_CENTER_CROP, 40, 60), sized(HR_RESIZE, 80, 120)};
    struct hr_recipe *recipe = recipe_of(list, 3);
    struct planned p = planned_of(recipe, 1, 0);
    const float *found = p.plan->rows.moved[2];
    /* (10, 20) -> (89, 20) -> (69, 0) -> (138, 0); (99, 79) -> (0, 79) -> (-20, 59) */
    const float expected[4][3] = {{138, 0, 2}, {158, -40, 0}, {-40, 118, 1}, {152, -32, 2}};
    assert_memory_equal(found, expected, sizeof expected);
    hr__scratch_destroy(&p.scratch);
    hr_recipe_unref(&recipe);
}

static void sanitize_drops_rows(void **state)
{
    struct hr_operation list[3] = {op(HR_SANITIZE_BOUNDING_BOXES), sized(HR_RESIZE, 10, 10)};
    struct hr_recipe *recipe = recipe_of(list, 2);
    struct planned p = planned_of(recipe, 1, 0);
    assert_memory_equal(p.plan->rows.dropped, "\0\1\0\1", ROWS);
    struct hr__row_record *record = calloc(1, layout.bytes);
    assert_non_null(record);
    assert_int_equal(hr__rows_finish(p.scratch, record, NULL), 0);
    assert_int_equal(record->rows, 2);
    assert_memory_equal((char *)record + layout.offset[0], ((const int64_t[]){1, 3}),
                        2 * sizeof(int64_t));
    assert_memory_equal((char *)record + layout.offset[1],
                        ((const float[2][4]){{1, 2.5f, 5, 7.5f}, {9, 8.75f, 10, 10}}),
                        8 * sizeof(float));
    free(record);
    hr__scratch_destroy(&p.scratch);
    hr_recipe_unref(&recipe);
    list[0].u.sanitize_bounding_boxes.min_size = 40;
    list[1] = op(HR_CLAMP_BOUNDING_BOXES);
    list[2] = sized(HR_RESIZE, 10, 10);
    recipe = recipe_of(list, 3);
    p = planned_of(recipe, 1, 0);
    assert_memory_equal(p.plan->rows.dropped, "\0\1\1\1", ROWS);
    hr__scratch_destroy(&p.scratch);
    hr_recipe_unref(&recipe);
}

/* The first sample of a thread has no rows: it still has the column of boxes. */
static void samples_without_rows_have_boxes(void **state)
{
    const struct hr_operation list[] = {op(HR_RANDOM_IOU_CROP), op(HR_SANITIZE_BOUNDING_BOXES),
                                        sized(HR_RESIZE, 40, 50)};
    const struct hr__sample_rows in = {&layout, 0, {labels, boxes, points}};
    const struct hr_image_info info = {HR_IMAGE_JPEG, 100, 80, 3, 1};
    const struct hr_draw_key key = {.seed = 3};
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_error error = {0};
    struct hr__scratch *scratch;
    struct hr_recipe *recipe;
    assert_int_equal(hr_recipe_create(&recipe, list, 3, NULL, &error), 0);
    assert_int_equal(hr__scratch_create(&scratch, &error), 0);
    hr__scratch_set_rows(scratch, &in);
    if (hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error))
        fail_msg("%s", error.message);
    assert_non_null(hr__rows_boxes(&plan->rows));
    struct hr__row_record *record = calloc(1, layout.bytes);
    assert_non_null(record);
    record->rows = 7;
    assert_int_equal(hr__rows_finish(scratch, record, &error), 0);
    assert_int_equal(record->rows, 0);
    free(record);
    hr__scratch_destroy(&scratch);
    hr_recipe_unref(&recipe);
}

/* Returns the overlap of a box and the crop, in double. */
static double iou(const float box[4], const struct hr_region *crop)
{
    double width = fmin(box[2], crop->x + crop->width) - fmax(box[0], crop->x);
    double height = fmin(box[3], crop->y + crop->height) - fmax(box[1], crop->y);
    double both = fmax(width, 0) * fmax(height, 0);
    double area = (double)(box[2] - box[0]) * (double)(box[3] - box[1]);
    return both / (area + (double)crop->width * crop->height - both);
}

static int holds_centre(const float box[4], const struct hr_region *crop)
{
    double x = (box[0] + box[2]) / 2, y = (box[1] + box[3]) / 2;
    return x > crop->x && x < crop->x + crop->width && y > crop->y && y < crop->y + crop->height;
}

/* Draws crops with one least overlap, or with the usual ones. */
static void check_iou_crops(double least)
{
    struct hr_operation list[2] = {op(HR_RANDOM_IOU_CROP), sized(HR_RESIZE, 80, 100)};
    if (least >= 0) {
        list[0].u.random_iou_crop.sampler_options[0] = least;
        list[0].u.random_iou_crop.option_count = 1;
    }
    struct hr_recipe *recipe = recipe_of(list, 2);
    int whole = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct planned p = planned_of(recipe, 1, i);
        assert_int_equal(p.r, 0);
        const struct hr__step *step = &p.plan->step[0];
        struct hr_region crop = {0, 0, 100, 80};
        double best = -1;
        if (p.plan->count && step->kind == HR__STEP_CROP)
            crop = (struct hr_region){step->u.crop.x, step->u.crop.y, step->width, step->height};
        else
            whole++;
        const float *found = hr__rows_boxes(&p.plan->rows);
        for (int k = 0; k < ROWS && (crop.width < 100 || crop.height < 80); k++) {
            if (holds_centre(boxes[k], &crop))
                best = fmax(best, iou(boxes[k], &crop));
            else
                for (int j = 0; j < 4; j++)
                    assert_true(found[4 * k + j] == 0);
        }
        if (crop.width < 100 || crop.height < 80) {
            double shape = (double)crop.width / crop.height;
            assert_true(crop.width >= 30 && crop.height >= 24 && shape >= 0.5 && shape <= 2);
            assert_true(best >= fmax(least, 0) - 1e-6);
            /* only the crop is decoded */
            assert_true(p.region.width <= crop.width + 2 && p.region.height <= crop.height + 2);
        }
        hr__scratch_destroy(&p.scratch);
    }
    /* an overlap of 0.9 is impossible in one of 7 rounds or so; 1 of 7 asks for no crop */
    if (least < 0)
        assert_true(whole > DRAWS / 10 && whole < DRAWS * 2 / 3);
    hr_recipe_unref(&recipe);
}

static void iou_crop_suits_a_box(void **state)
{
    check_iou_crops(-1);
    check_iou_crops(0);
    check_iou_crops(0.3);
}

int __wrap_hr__decoder_region(struct hr__decoder *decoder, const void *bytes, size_t length,
                              const struct hr_image_info *info, const struct hr_region *region,
                              struct hr__planar *out, struct hr_error *error);
int __real_hr__decoder_region(struct hr__decoder *decoder, const void *bytes, size_t length,
                              const struct hr_image_info *info, const struct hr_region *region,
                              struct hr__planar *out, struct hr_error *error);

static struct hr_region decoded; /* by the last call */
static int decodes;              /* calls */

int __wrap_hr__decoder_region(struct hr__decoder *decoder, const void *bytes, size_t length,
                              const struct hr_image_info *info, const struct hr_region *region,
                              struct hr__planar *out, struct hr_error *error)
{
    decoded = *region;
    decodes++;
    return __real_hr__decoder_region(decoder, bytes, length, info, region, out, error);
}

/* Pushdown: the crop that the boxes decide is known before the image is decoded, and nothing else
 * of it is decoded, neither with transforms around the crop that keep to it. */
static void only_the_region_of_the_boxes_crop_is_decoded(void **state)
{
    static uint8_t file[15 + 3 * 100 * 80] = "P6\n100 80\n255\n", out[3 * 40 * 50];
    static void *const outs[] = {out};
    const struct hr_operation list[] = {op(HR_RANDOM_HORIZONTAL_FLIP), op(HR_RANDOM_IOU_CROP),
                                        sized(HR_RESIZE, 40, 50), op(HR_SANITIZE_BOUNDING_BOXES)};
    const struct hr__sample_rows in = {&layout, ROWS, {labels, boxes, points}};
    const struct hr_item item = {file, sizeof file - 1, HR_FORM_ENCODED};
    struct hr__row_record *record = calloc(1, layout.bytes);
    const struct hr__prepared prepared = {.outs = outs, .in = &in, .record = record};
    struct hr_recipe *recipe = recipe_of(list, 4);
    struct hr_preparer *preparer;
    struct hr_error error = {0};
    double share = 0;
    assert_int_equal(hr_preparer_create(&preparer, &error), 0);
    for (uint64_t i = 0; i < DRAWS / 10; i++) {
        const struct hr_draw_key key = {.seed = 3, .epoch = 1, .index = i};
        struct planned p = planned_of(recipe, 1, i);
        struct hr_region crop = {0, 0, 100, 80};
        for (int k = 0; k < p.plan->count; k++) {
            const struct hr__step *step = &p.plan->step[k];
            if (step->kind == HR__STEP_CROP)
                crop =
                    (struct hr_region){step->u.crop.x, step->u.crop.y, step->width, step->height};
        }
        decodes = 0;
        if (hr__preparer_run_item(preparer, recipe, &item, &key, &prepared, &error))
            fail_msg("%s", error.message);
        assert_int_equal(decodes, 1);
        assert_true(decoded.width == crop.width && decoded.height == crop.height);
        assert_int_equal(decoded.y, crop.y); /* a flip may have been before it */
        share += (double)decoded.width * decoded.height / (100 * 80) / (DRAWS / 10.0);
        hr__scratch_destroy(&p.scratch);
    }
    assert_true(share > 0.3 && share < 0.9);
    hr_preparer_destroy(&preparer);
    hr_recipe_unref(&recipe);
    free(record);
}

static void iou_crop_ends(void **state)
{
    /* torchvision would go on for ever: nothing overlaps that much, and nothing ends it */
    struct hr_operation list[2] = {op(HR_RANDOM_IOU_CROP), sized(HR_RESIZE, 80, 100)};
    list[0].u.random_iou_crop.sampler_options[0] = 0.99;
    list[0].u.random_iou_crop.option_count = 1;
    struct hr_recipe *recipe = recipe_of(list, 2);
    struct planned p = planned_of(recipe, 1, 0);
    assert_int_equal(p.r, 0);
    assert_int_equal(p.plan->count, 0);
    hr__scratch_destroy(&p.scratch);
    hr_recipe_unref(&recipe);
}

static void refused(const struct hr_operation *list, size_t count,
                    const struct hr__rows_layout *rows, const char *words)
{
    struct hr_error error = {0};
    struct hr_recipe *recipe = recipe_of(list, count);
    assert_int_equal(hr__recipe_check_rows(recipe, rows, &error), -EINVAL);
    if (!strstr(error.message, words))
        fail_msg("'%s' is not in '%s'", words, error.message);
    hr_recipe_unref(&recipe);
}

static void recipes_that_lose_boxes_are_refused(void **state)
{
    static const enum hr_operation_kind lost[] = {
        HR_ELASTIC_TRANSFORM, HR_RAND_AUGMENT, HR_TRIVIAL_AUGMENT_WIDE, HR_AUTO_AUGMENT,
        HR_AUG_MIX,           HR_TIMM_AUG_MIX, HR_TIMM_RAND_AUGMENT,    HR_TIMM_AUTO_AUGMENT};
    struct hr_operation list[3] = {op(HR_RANDOM_APPLY), op(HR_PAD), sized(HR_RESIZE, 10, 10)};
    struct hr_error error = {0};
    struct hr_recipe *recipe, *views;
    char words[100];
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        list[1] = op(lost[i]);
        snprintf(words, sizeof words, "%s (operation 2 of the recipe): it does not move",
                 hr_operation_name(lost[i]));
        refused(list, 3, &layout, words);
    }
    list[1] = op(HR_PAD);
    list[1].u.pad.padding_mode = HR_PAD_REFLECT;
    refused(list, 3, &layout, "Pad (operation 2 of the recipe): padding that repeats pixels");
    list[1] = op(HR_RANDOM_IOU_CROP);
    refused(list, 3, NULL, "RandomIoUCrop (operation 2 of the recipe): the dataset has no boxes");
    list[1] = op(HR_SANITIZE_BOUNDING_BOXES);
    refused(list, 3, NULL, "the dataset has no boxes");
    list[1] = op(HR_CLAMP_BOUNDING_BOXES);
    recipe = recipe_of(list, 3);
    assert_int_equal(hr__recipe_check_rows(recipe, NULL, &error), 0);
    struct hr_recipe *both[2] = {recipe, recipe};
    assert_int_equal(hr_recipe_create_views(&views, both, 2, &error), 0);
    assert_int_equal(hr__recipe_check_rows(views, NULL, &error), 0);
    assert_int_equal(hr__recipe_check_rows(views, &layout, &error), -EINVAL);
    assert_non_null(strstr(error.message, "the recipe has 2 views"));
    hr_recipe_unref(&views);
    hr_recipe_unref(&recipe);
}

static void parameters_are_checked(void **state)
{
    struct hr_operation list[2] = {op(HR_RANDOM_IOU_CROP), sized(HR_RESIZE, 10, 10)};
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    const struct hr_operation good = list[0];
    for (int i = 0; i < 7; i++) {
        list[0] = good;
        switch (i) {
        case 0:
            list[0].u.random_iou_crop.max_scale = 1.5;
            break;
        case 1:
            list[0].u.random_iou_crop.min_aspect_ratio = 0;
            break;
        case 2:
            list[0].u.random_iou_crop.option_count = 0;
            break;
        case 3:
            list[0].u.random_iou_crop.option_count = 12;
            break;
        case 4:
            list[0].u.random_iou_crop.trials = 0;
            break;
        case 5:
            list[0].u.random_iou_crop.sampler_options[3] = NAN;
            break;
        default:
            list[0] = op(HR_SANITIZE_BOUNDING_BOXES);
            list[0].u.sanitize_bounding_boxes.min_area = 0.5;
        }
        assert_int_equal(hr_recipe_create(&recipe, list, 2, NULL, &error), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(geometry_moves_boxes),
        cmocka_unit_test(neutral_geometry_clamps_as_torchvisions),
        cmocka_unit_test(orientation_moves_boxes),
        cmocka_unit_test(points_move_without_clamping),
        cmocka_unit_test(sanitize_drops_rows),
        cmocka_unit_test(samples_without_rows_have_boxes),
        cmocka_unit_test(iou_crop_suits_a_box),
        cmocka_unit_test(only_the_region_of_the_boxes_crop_is_decoded),
        cmocka_unit_test(iou_crop_ends),
        cmocka_unit_test(recipes_that_lose_boxes_are_refused),
        cmocka_unit_test(parameters_are_checked),
    };
    return cmocka_run_group_tests_name("boxes", tests, set_layout, NULL);
}
