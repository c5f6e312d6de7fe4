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

/* Checks a sample of several sizes against one of a fixed size, in memory that held something. */
static void check_padded(struct hr_preparer *p, enum hr_layout layout, enum hr_dtype dtype)
{
    struct hr_operation list[2] = {sized(HR_RESIZE, 29, 0), to_dtype(dtype, dtype != HR_UINT8)};
    struct hr_recipe_options options;
    struct hr_recipe *padded, *fixed;
    struct hr_tensor_spec large, exact;
    struct hr_error error = {0};
    struct hr_draw_key key = {1, 2, 3};
    int64_t extents[HR_TENSOR_MAX_DIMS];
    list[0].u.resize.max_size = 48;
    hr_recipe_options_default(&options);
    options.layout = layout;
    options.padded = 1;
    if (hr_recipe_create(&padded, list, 2, &options, &error))
        fail_msg("%s", error.message);
    options.padded = 0;
    list[0] = sized(HR_RESIZE, 29, 46); /* 29 x 123 / 77 */
    assert_int_equal(hr_recipe_create(&fixed, list, 2, &options, &error), 0);
    hr_recipe_output(padded, &large);
    hr_recipe_output(fixed, &exact);
    assert_int_equal(large.height, 48);
    assert_int_equal(large.width, 48);
    uint8_t *out = malloc(large.bytes), *expected = malloc(exact.bytes);
    memset(out, 0xa5, large.bytes);
    assert_int_equal(hr_preparer_run(p, fixed, encoded, encoded_bytes, &key, expected, &error), 0);
    assert_int_equal(hr_preparer_extents(p, extents), 3);
    assert_memory_equal(extents, exact.shape, sizeof exact.shape[0] * 3);
    assert_int_equal(hr_preparer_run(p, padded, encoded, encoded_bytes, &key, out, &error), 0);
    assert_int_equal(hr_preparer_extents(p, extents), 3);
    assert_memory_equal(extents, exact.shape, sizeof exact.shape[0] * 3);
    size_t pixel = hr_dtype_bytes(dtype) * (layout == HR_NHWC ? 3 : 1);
    for (size_t line = 0; line < (layout == HR_NHWC ? 48 : 3 * 48); line++) {
        const uint8_t *row = out + line * 48 * pixel;
        size_t plane = line / 48, y = line % 48, used = y < 29 ? 46 * pixel : 0;
        if (used)
            assert_memory_equal(row, expected + (plane * 29 + y) * used, used);
        for (size_t i = used; i < 48 * pixel; i++)
            assert_int_equal(row[i], 0);
    }
    free(out);
    free(expected);
    hr_recipe_unref(&padded);
    hr_recipe_unref(&fixed);
}

static void padded_tensors(void **state)
{
    struct hr_error error = {0};
    struct hr_preparer *p;
    assert_int_equal(hr_preparer_create(&p, &error), 0);
    for (int layout = HR_NCHW; layout <= HR_NHWC; layout++)
        for (int dtype = HR_UINT8; dtype <= HR_FLOAT32; dtype++)
            check_padded(p, (enum hr_layout)layout, (enum hr_dtype)dtype);
    hr_preparer_destroy(&p);
}

/* How large the results of some operations may be. */
static void largest_results(void **state)
{
    struct hr_operation shortest = op(HR_RANDOM_SHORTEST_SIZE), pad = op(HR_PAD);
    struct hr_operation out = op(HR_RANDOM_ZOOM_OUT), crop = op(HR_RANDOM_IOU_CROP);
    shortest.u.random_shortest_size.min_size[0] = 30;
    shortest.u.random_shortest_size.max_size = 50;
    pad.u.pad.padding[0] = pad.u.pad.padding[1] = 3;
    out.u.random_zoom_out.side_range[1] = 2.5;
    const struct {
        struct hr_operation list[3];
        size_t count;
        int most, height, width; /* most: declared; height 0: refused */
    } cases[] = {
        {{shortest, pad}, 2, 0, 53, 53},
        {{shortest, pad}, 2, 40, 40, 40},
        {{shortest, out, crop}, 3, 0, 125, 125},
        {{sized(HR_CENTER_CROP, 20, 30), out}, 2, 60, 50, 60},
        {{sized(HR_CENTER_CROP, 20, 30), crop}, 2, 0, 20, 30},
        {{shortest, sized(HR_RESIZE, 20, 0)}, 2, 0, 0, 0},
        {{out, shortest, sized(HR_RESIZE, 20, 10)}, 3, 0, 20, 10},
        {{crop, out}, 2, 70, 70, 70},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr_recipe_options options;
        struct hr_recipe *recipe;
        struct hr_tensor_spec spec;
        struct hr_error error = {0};
        hr_recipe_options_default(&options);
        options.padded = 1;
        options.max_height = options.max_width = cases[i].most;
        int r = hr_recipe_create(&recipe, cases[i].list, cases[i].count, &options, &error);
        assert_int_equal(r, cases[i].height ? 0 : -EINVAL);
        if (r) {
            assert_non_null(strstr(error.message, "nothing limits the size"));
            continue;
        }
        hr_recipe_output(recipe, &spec);
        assert_int_equal(spec.height, cases[i].height);
        assert_int_equal(spec.width, cases[i].width);
        assert_int_equal(hr_recipe_create_views(&(struct hr_recipe *){NULL}, &recipe, 1, &error),
                         -EINVAL);
        hr_recipe_unref(&recipe);
    }
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
        cmocka_unit_test(padded_tensors),
        cmocka_unit_test(largest_results),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests_name("preparer", tests, encode, release);
}
