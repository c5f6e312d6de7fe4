/*
 * The public preparer with a JPEG that the test encodes: header, regions, a recipe from bytes to
 * tensor, and its errors.
 */
#include "recipe_cases.h"

#include <stdio.h>

#include <jpeglib.h>

#define WIDTH  123
#define HEIGHT 77

static unsigned char *encoded;
static unsigned long encoded_bytes;
static uint8_t whole[WIDTH * HEIGHT * 3];

static int encode(void **state)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    struct hr__planar image = image_of(WIDTH, HEIGHT, 1);
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &encoded, &encoded_bytes);
    c.image_width = WIDTH;
    c.image_height = HEIGHT;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < HEIGHT; y++) {
        JSAMPLE line[WIDTH * 3];
        JSAMPROW rows[1] = {line};
        for (int x = 0; x < WIDTH * 3; x++)
            line[x] = image.plane[x % 3][y * image.stride + x / 3];
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    image_free(&image);
    return 0;
}

static int release(void **state)
{
    free(encoded);
    return 0;
}

static void headers_and_regions(void **state)
{
    struct hr_preparer *p;
    struct hr_image_info info;
    struct hr_error error = {0};
    struct hr_region region = {30, 20, 50, 40}, outside = {100, 20, 50, 40};
    static uint8_t part[50 * 40 * 3];
    assert_int_equal(hr_preparer_create(&p, &error), 0);
    assert_int_equal(hr_preparer_info(p, encoded, encoded_bytes, &info, &error), 0);
    assert_int_equal(info.format, HR_IMAGE_JPEG);
    assert_int_equal(info.width, WIDTH);
    assert_int_equal(info.height, HEIGHT);
    assert_int_equal(
        hr_preparer_decode(p, encoded, encoded_bytes, NULL, whole, sizeof whole, &error), 0);
    assert_int_equal(
        hr_preparer_decode(p, encoded, encoded_bytes, &region, part, sizeof part, &error), 0);
    for (int y = 0; y < 40; y++)
        assert_memory_equal(part + y * 150, whole + ((y + 20) * WIDTH + 30) * 3, 150);
    assert_int_equal(
        hr_preparer_decode(p, encoded, encoded_bytes, NULL, whole, sizeof whole - 1, &error),
        -ENOSPC);
    assert_string_equal(error.message, "123 x 77 pixels need 28413 bytes and 28412 are there");
    assert_int_equal(
        hr_preparer_decode(p, encoded, encoded_bytes, &outside, part, sizeof part, &error),
        -ERANGE);
    assert_int_equal(
        hr_preparer_decode(p, encoded, encoded_bytes / 2, NULL, whole, sizeof whole, &error),
        -EBADMSG);
    assert_true(hr_preparer_memory(p) > 0);
    hr_preparer_destroy(&p);
    hr_preparer_destroy(&p);
    assert_null(p);
}

/* Crop, resize, flip, scale and normalise are within the tolerance of the passes, compared with a
 * float computation on the pixels of the whole image. */
static void bytes_to_tensor(void **state)
{
    struct hr_operation list[5] = {sized(HR_RANDOM_RESIZED_CROP, 32, 40),
                                   op(HR_RANDOM_HORIZONTAL_FLIP), to_dtype(HR_FLOAT32, 1),
                                   op(HR_NORMALIZE)};
    struct hr_error error = {0};
    struct hr_preparer *p;
    static float tensor[3 * 32 * 40], expected[3 * 32 * 40];
    list[3].u.normalize.mean[0] = 0.485;
    list[3].u.normalize.std[0] = 0.229;
    struct hr_recipe *recipe = recipe_of(list, 4);
    struct hr__planar image = image_of(WIDTH, HEIGHT, 1);
    assert_int_equal(hr_preparer_create(&p, &error), 0);
    assert_int_equal(
        hr_preparer_decode(p, encoded, encoded_bytes, NULL, whole, sizeof whole, &error), 0);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH * 3; x++)
            image.plane[x % 3][y * image.stride + x / 3] = whole[y * WIDTH * 3 + x];
    for (uint64_t i = 0; i < 30; i++) {
        struct hr_draw_key key = {4, 5, i};
        if (hr_preparer_run(p, recipe, encoded, encoded_bytes, &key, tensor, &error))
            fail_msg("%s", error.message);
        run_how(recipe, &image, 1, &key, GENERAL, expected, NULL);
        for (int k = 0; k < 3 * 32 * 40; k++)
            assert_float_equal(tensor[k], expected[k], 0.02 / 255 / 0.229);
    }
    image_free(&image);
    hr_preparer_destroy(&p);
    hr_recipe_unref(&recipe);
}

static void errors(void **state)
{
    struct hr_operation list[1] = {sized(HR_CENTER_CROP, 8, 8)};
    struct hr_recipe_options options;
    struct hr_recipe *recipe;
    struct hr_preparer *p;
    struct hr_error error = {0};
    struct hr_draw_key key = {0, 0, 0};
    uint8_t out[3 * 8 * 8];
    hr_recipe_options_default(&options);
    options.max_pixels = WIDTH * HEIGHT - 1;
    assert_int_equal(hr_recipe_create(&recipe, list, 1, &options, NULL), 0);
    assert_int_equal(hr_preparer_create(&p, &error), 0);
    assert_int_equal(hr_preparer_run(p, recipe, encoded, encoded_bytes, &key, out, &error), -EFBIG);
    assert_int_equal(error.code, -EFBIG);
    assert_int_equal(hr_preparer_run(p, recipe, "some text", 9, &key, out, &error), -ENOTSUP);
    assert_int_equal(hr_preparer_run(p, recipe, "", 0, &key, out, NULL), -EBADMSG);
    hr_preparer_destroy(&p);
    hr_recipe_unref(&recipe);
    for (uint64_t n = 1;; n++) {
        hr__alloc_fail_at(n, 0);
        int r = hr_preparer_create(&p, &error);
        hr__alloc_fail_at(0, 0);
        if (!r)
            break;
        assert_int_equal(r, -ENOMEM);
        assert_null(p);
    }
    hr_preparer_destroy(&p);
    assert_int_equal(hr__allocated(HR__TAG_RECIPE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_and_regions),
        cmocka_unit_test(bytes_to_tensor),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests_name("preparer", tests, encode, release);
}
