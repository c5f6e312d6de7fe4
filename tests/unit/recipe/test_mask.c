/*
 * Masks: an image of greys that is its own mask, through random geometry to the nearest pixel, must
 * give one channel of the tensor and the mask the same numbers. Padding is 255 in both.
 */
#include "recipe_cases.h"

#include "codec/png_write.h"
#include "recipe/mask.h"
#include "recipe/recipe.h"
#include "recipe/rows.h"

#define WIDTH  83
#define HEIGHT 61
#define LARGE  100
#define GUARD  64

static struct hr__png_writer *writer;
static const void *file;
static size_t file_bytes;

static int write_file(void **state)
{
    struct hr__planar image = image_of(WIDTH, HEIGHT, 7);
    struct hr_image_info info = {.width = WIDTH, .height = HEIGHT, .channels = 1, .orientation = 1};
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) /* 255 is for padding alone */
            image.plane[0][y * image.stride + x] = (uint8_t)((y * 131 + x * 37) % 251);
    for (int c = 1; c < 3; c++)
        memcpy(image.plane[c], image.plane[0], (size_t)image.stride * HEIGHT);
    assert_int_equal(hr__png_writer_create(&writer, NULL), 0);
    assert_int_equal(hr__png_write(writer, &image, &info, &file, &file_bytes, NULL), 0);
    image_free(&image);
    return 0;
}

static int free_file(void **state)
{
    hr__png_writer_destroy(&writer);
    return 0;
}

static struct hr_operation nearest_resize(int height, int width)
{
    struct hr_operation o = sized(HR_RESIZE, height, width);
    o.u.resize.interpolation = HR_NEAREST;
    o.u.resize.antialias = 0;
    return o;
}

/* Runs a recipe on the image and its mask, for several draws. */
static void check_recipe(struct hr_operation *list, size_t count, int padded)
{
    struct hr_recipe_options options;
    struct hr_recipe *recipe;
    struct hr_preparer *p;
    struct hr_tensor_spec spec;
    struct hr_error error = {0};
    hr_recipe_options_default(&options);
    options.padded = padded;
    options.max_height = options.max_width = padded ? LARGE : 0;
    if (hr_recipe_create(&recipe, list, count, &options, &error))
        fail_msg("%s", error.message);
    assert_int_equal(hr__recipe_check_masks(recipe, &error), 0);
    hr_recipe_output(recipe, &spec);
    size_t pixels = (size_t)spec.height * (size_t)spec.width;
    uint8_t *tensor = malloc(spec.bytes), *mask = malloc(pixels + GUARD);
    void *outs[1] = {tensor};
    assert_int_equal(hr_preparer_create(&p, &error), 0);
    for (uint64_t i = 0; i < 40; i++) {
        struct hr_draw_key key = {9, 2, i};
        const struct hr_item item = {file, file_bytes, 0};
        int64_t size[2] = {0, 0}, extents[HR_TENSOR_MAX_DIMS];
        const struct hr__mask job = {file, file_bytes, mask, size};
        const struct hr__prepared prepared = {.outs = outs, .mask = &job};
        memset(mask, 1, pixels + GUARD);
        if (hr__preparer_run_item(p, recipe, &item, &key, &prepared, &error))
            fail_msg("%s", error.message);
        hr_preparer_extents(p, extents);
        assert_int_equal(size[0], extents[1]);
        assert_int_equal(size[1], extents[2]);
        for (int y = 0; y < spec.height; y++)
            for (int x = 0; x < spec.width; x++) {
                int is_inside = y < size[0] && x < size[1];
                size_t at = (size_t)y * (size_t)spec.width + (size_t)x;
                assert_int_equal(mask[at], is_inside ? tensor[at] : HR__MASK_IGNORED);
            }
        for (size_t k = 0; k < GUARD; k++)
            assert_int_equal(mask[pixels + k], 1);
    }
    free(tensor);
    free(mask);
    hr_preparer_destroy(&p);
    hr_recipe_unref(&recipe);
}

static void masks_follow_their_image(void **state)
{
    struct hr_operation flip = op(HR_RANDOM_HORIZONTAL_FLIP), turn = op(HR_RANDOM_VERTICAL_FLIP);
    struct hr_operation pad = op(HR_PAD), repeat = op(HR_PAD), canvas = op(HR_RANDOM_ZOOM_OUT);
    struct hr_operation crop = sized(HR_RANDOM_RESIZED_CROP, 37, 41), box = op(HR_LETTER_BOX);
    const int padding[4] = {3, 0, 11, 5};
    for (int i = 0; i < 4; i++)
        pad.u.pad.padding[i] = repeat.u.pad.padding[i] = padding[i];
    for (int c = 0; c < 3; c++) {
        pad.u.pad.fill[c] = canvas.u.random_zoom_out.fill[c] = 255;
        box.u.letter_box.fill[c] = 255;
    }
    repeat.u.pad.padding_mode = HR_PAD_REFLECT;
    canvas.u.random_zoom_out.side_range[1] = 1.2;
    canvas.u.random_zoom_out.p = 1;
    crop.u.random_resized_crop.interpolation = HR_NEAREST;
    crop.u.random_resized_crop.antialias = 0;
    box.u.letter_box.height = 70;
    box.u.letter_box.width = 65;
    box.u.letter_box.interpolation = HR_NEAREST;
    box.u.letter_box.antialias = 0;
    struct hr_operation lists[][5] = {
        {crop, flip, turn},
        {pad, flip, nearest_resize(77, 29)},
        {repeat, turn, crop, nearest_resize(50, 90)},
        {canvas, flip, nearest_resize(70, 71), pad, sized(HR_CENTER_CROP, 40, 80)},
        {flip, canvas},
        {sized(HR_RANDOM_CROP, 20, 30), canvas, pad, turn},
        {flip, crop, box},
    };
    const size_t counts[] = {3, 3, 4, 5, 2, 4, 3};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (i != 4 && i != 5) /* their size varies */
            check_recipe(lists[i], counts[i], 0);
        check_recipe(lists[i], counts[i], 1);
    }
}

static void masks_are_warped_as_their_image(void **state)
{
    struct hr_operation flip = op(HR_RANDOM_HORIZONTAL_FLIP), affine = op(HR_RANDOM_AFFINE);
    struct hr_operation turn = op(HR_RANDOM_ROTATION), grow = op(HR_RANDOM_ROTATION);
    struct hr_operation tilt = op(HR_RANDOM_PERSPECTIVE), wave = op(HR_ELASTIC_TRANSFORM);
    struct hr_operation crop = sized(HR_RANDOM_RESIZED_CROP, 37, 41);
    struct hr_operation away = op(HR_RANDOM_AFFINE), quarter = op(HR_RANDOM_ROTATION);
    crop.u.random_resized_crop.interpolation = HR_NEAREST;
    crop.u.random_resized_crop.antialias = 0;
    affine.u.random_affine.degrees[0] = -40;
    affine.u.random_affine.degrees[1] = 70;
    affine.u.random_affine.translate[0] = affine.u.random_affine.translate[1] = 0.3;
    affine.u.random_affine.scale[0] = 0.6;
    affine.u.random_affine.scale[1] = 1.7;
    affine.u.random_affine.shear[1] = 20;
    affine.u.random_affine.interpolation = HR_NEAREST;
    away.u.random_affine.scale[0] = away.u.random_affine.scale[1] = 100;
    away.u.random_affine.has_center = 1; /* nothing of the image is left */
    away.u.random_affine.center[0] = away.u.random_affine.center[1] = -500;
    turn.u.random_rotation.degrees[0] = grow.u.random_rotation.degrees[0] = -180;
    turn.u.random_rotation.degrees[1] = grow.u.random_rotation.degrees[1] = 180;
    quarter.u.random_rotation.degrees[0] = quarter.u.random_rotation.degrees[1] = 180;
    grow.u.random_rotation.expand = 1;
    tilt.u.random_perspective.p = 1;
    tilt.u.random_perspective.interpolation = wave.u.elastic_transform.interpolation = HR_NEAREST;
    for (int c = 0; c < 3; c++) {
        affine.u.random_affine.fill[c] = away.u.random_affine.fill[c] = 255;
        turn.u.random_rotation.fill[c] = grow.u.random_rotation.fill[c] = 255;
        tilt.u.random_perspective.fill[c] = wave.u.elastic_transform.fill[c] = 255;
    }
    affine.u.random_affine.has_fill = away.u.random_affine.has_fill = 1;
    wave.u.elastic_transform.has_fill = 1;
    struct hr_operation lists[][5] = {
        {affine, crop},
        {crop, flip, turn},
        {turn, nearest_resize(77, 29)},
        {nearest_resize(50, 90), tilt, flip, crop},
        {wave, crop},
        {crop, affine, nearest_resize(60, 31), turn, tilt},
        {affine, sized(HR_CENTER_CROP, 40, 50), away, crop},
        {quarter, turn, crop},
        {grow, crop},
        {sized(HR_RANDOM_CROP, 30, 40), grow, flip},
    };
    const size_t counts[] = {2, 3, 2, 4, 2, 5, 4, 3, 2, 3};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (i != 9) /* its size varies */
            check_recipe(lists[i], counts[i], 0);
        check_recipe(lists[i], counts[i], 1);
    }
}

static void what_does_not_suit(void **state)
{
    struct hr_operation list[2] = {op(HR_RAND_AUGMENT), sized(HR_CENTER_CROP, 8, 8)};
    struct hr_recipe *recipe = recipe_of(list, 2), *crop = recipe_of(list + 1, 1), *views;
    struct hr_preparer *p;
    struct hr_error error = {0};
    struct hr_draw_key key = {0, 0, 0};
    uint8_t tensor[3 * 8 * 8], out[8 * 8];
    void *outs[1] = {tensor};
    assert_int_equal(hr__recipe_check_masks(recipe, &error), -EINVAL);
    assert_non_null(strstr(error.message, "RandAugment"));
    struct hr_recipe *const two[2] = {crop, crop};
    assert_int_equal(hr_recipe_create_views(&views, two, 2, &error), 0);
    assert_int_equal(hr__recipe_check_masks(views, &error), -EINVAL);
    assert_int_equal(hr_preparer_create(&p, &error), 0);
    const struct hr_item item = {file, file_bytes, 0};
    const struct {
        const void *bytes;
        size_t length;
        int code;
    } cases[] = {{file, file_bytes, 0},
                 {NULL, 0, -EBADMSG},
                 {file, 40, -EBADMSG},
                 {file, file_bytes / 4, -EBADMSG},
                 {"no image", 8, -ENOTSUP}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct hr__mask job = {cases[i].bytes, cases[i].length, out, NULL};
        const struct hr__prepared prepared = {.outs = outs, .mask = &job};
        int r = hr__preparer_run_item(p, crop, &item, &key, &prepared, &error);
        assert_int_equal(r, cases[i].code);
        if (r)
            assert_non_null(strstr(error.message, "its mask: "));
    }
    hr_preparer_destroy(&p);
    hr_recipe_unref(&recipe);
    hr_recipe_unref(&crop);
    hr_recipe_unref(&views);
}

static void out_of_memory(void **state)
{
    struct hr_operation list[2] = {op(HR_RANDOM_ROTATION), sized(HR_CENTER_CROP, 8, 8)};
    list[0].u.random_rotation.degrees[1] = 40;
    struct hr_recipe *recipe = recipe_of(list, 2);
    struct hr_draw_key key = {0, 0, 0};
    const struct hr_item item = {file, file_bytes, 0};
    uint8_t tensor[3 * 8 * 8], out[8 * 8];
    void *outs[1] = {tensor};
    const struct hr__mask job = {file, file_bytes, out, NULL};
    const struct hr__prepared prepared = {.outs = outs, .mask = &job};
    int r = -ENOMEM;
    for (uint64_t n = 1; r; n++) {
        struct hr_preparer *p;
        struct hr_error error = {0};
        assert_int_equal(hr_preparer_create(&p, &error), 0);
        hr__alloc_fail_at(n, 0);
        r = hr__preparer_run_item(p, recipe, &item, &key, &prepared, &error);
        hr__alloc_fail_at(0, 0);
        if (r && r != -ENOMEM)
            fail_msg("allocation %d: %s", (int)n, error.message);
        hr_preparer_destroy(&p);
    }
    hr_recipe_unref(&recipe);
    assert_int_equal(hr__allocated(HR__TAG_RECIPE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_follow_their_image),
        cmocka_unit_test(masks_are_warped_as_their_image),
        cmocka_unit_test(what_does_not_suit),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("mask", tests, write_file, free_file);
}
