/*
 * WebP of every kind that libwebp writes: regions compared with the whole decode of libwebp's
 * simplest function, animations and canvases around the first frame, orientation, and damage.
 */
#include "../test.h"
#include "webp_images.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>

static int set_up(void **state)
{
    return hr__decoder_create((struct hr__decoder **)state, NULL);
}

static int tear_down(void **state)
{
    hr__decoder_destroy((struct hr__decoder **)state);
    return 0;
}

static int open_webp(struct hr__decoder *decoder, const struct bytes *file,
                     struct hr_image_info *info, struct hr_error *error)
{
    return hr__decoder_info(decoder, file->data, file->length, info, error);
}

static int decode_all(struct hr__decoder *decoder, const struct bytes *file,
                      struct hr_image_info *info, struct hr_error *error)
{
    struct hr__planar out;
    int rc = open_webp(decoder, file, info, error);
    if (rc)
        return rc;
    struct hr_region r = {0, 0, info->width, info->height};
    return hr__decoder_region(decoder, file->data, file->length, info, &r, &out, error);
}

static void check_region(struct hr__decoder *decoder, const struct bytes *file,
                         const struct hr_image_info *info, const uint8_t *reference,
                         const struct hr_region *r)
{
    struct hr__planar out;
    struct hr_error error;
    if (hr__decoder_region(decoder, file->data, file->length, info, r, &out, &error))
        fail_msg("%s", error.message);
    if (!planar_equals(&out, reference, info->width, r))
        fail_msg("%dx%d: region %d,%d %dx%d differs", info->width, info->height, r->x, r->y,
                 r->width, r->height);
}

static void check_regions(struct hr__decoder *decoder, const struct webp_spec *spec,
                          uint64_t *random)
{
    struct bytes file = make_webp(spec);
    struct hr_image_info info;
    struct hr_error error;
    int width, height;
    uint8_t *reference = WebPDecodeRGB(file.data, file.length, &width, &height);
    assert_non_null(reference);
    if (open_webp(decoder, &file, &info, &error))
        fail_msg("%s", error.message);
    assert_int_equal(info.format, HR_IMAGE_WEBP);
    assert_int_equal(info.width, spec->width);
    assert_int_equal(info.height, spec->height);
    assert_int_equal(info.channels, spec->alpha ? 4 : 3);
    assert_int_equal(info.orientation, 1);
    struct hr_region whole = {0, 0, width, height};
    check_region(decoder, &file, &info, reference, &whole);
    for (int n = 0; n < 12; n++) {
        struct hr_region r = random_region_often_small(random, width, height);
        check_region(decoder, &file, &info, reference, &r);
    }
    WebPFree(reference);
    free(file.data);
}

static void regions_are_exact(void **state)
{
    uint64_t random = 17;
    for (int n = 0; n < 160; n++) {
        struct webp_spec spec = {
            .width = random_between(&random, 1, n % 3 ? 150 : 12),
            .height = random_between(&random, 1, n % 3 ? 120 : 12),
            .lossless = n % 4 == 3,
            .alpha = n / 4 % 3 == 2,
            .quality = random_between(&random, 1, 100),
            .partitions = n % 4,
            .simple_filter = n / 2 % 2,
            .seed = next_random(&random),
        };
        check_regions(*state, &spec, &random);
    }
}

/* The first frame of an animation at its place on a black canvas. */
static void the_first_frame_is_taken(void **state)
{
    uint64_t random = 18;
    for (int n = 0; n < 40; n++) {
        struct webp_spec spec = {.width = random_between(&random, 1, 40),
                                 .height = random_between(&random, 1, 40),
                                 .lossless = n % 2,
                                 .alpha = n / 2 % 2,
                                 .quality = 80,
                                 .seed = next_random(&random)};
        int x = 2 * random_between(&random, 0, 10), y = 2 * random_between(&random, 0, 10);
        int width = spec.width + x + random_between(&random, 0, 20), rgb_width, rgb_height;
        int height = spec.height + y + random_between(&random, 0, 20);
        struct bytes still = make_webp(&spec);
        struct bytes file = make_webp_animation(&still, width, height, x, y);
        uint8_t *frame = WebPDecodeRGB(still.data, still.length, &rgb_width, &rgb_height);
        uint8_t *canvas = calloc((size_t)width * (size_t)height, 3);
        for (int row = 0; row < spec.height; row++)
            memcpy(canvas + 3 * ((y + row) * width + x), frame + 3 * row * spec.width,
                   3 * (size_t)spec.width);
        struct hr_image_info info;
        struct hr_error error;
        if (open_webp(*state, &file, &info, &error))
            fail_msg("%s", error.message);
        assert_int_equal(info.width, width);
        assert_int_equal(info.height, height);
        struct hr_region whole = {0, 0, width, height};
        check_region(*state, &file, &info, canvas, &whole);
        for (int k = 0; k < 8; k++) {
            struct hr_region r = random_region_often_small(&random, width, height);
            check_region(*state, &file, &info, canvas, &r);
        }
        free(canvas);
        WebPFree(frame);
        free(file.data);
        free(still.data);
    }
}

static void orientation_is_read(void **state)
{
    struct webp_spec spec = {.width = 6, .height = 5, .quality = 80};
    struct bytes still = make_webp(&spec);
    for (int orientation = 0; orientation <= 9; orientation++)
        for (int prefix = 0; prefix < 2; prefix++) {
            struct bytes exif = make_exif(orientation, prefix);
            if (prefix) {
                exif.data = realloc(exif.data, exif.length + 6);
                memmove(exif.data + 6, exif.data, exif.length);
                memcpy(exif.data, "Exif\0", 6);
                exif.length += 6;
            }
            struct bytes file = make_webp_extended(&still, spec.width, spec.height, &exif);
            struct hr_image_info info;
            struct hr_error error;
            if (decode_all(*state, &file, &info, &error))
                fail_msg("%s", error.message);
            assert_int_equal(info.orientation,
                             orientation >= 1 && orientation <= 8 ? orientation : 1);
            free(file.data);
            free(exif.data);
        }
    free(still.data);
}

static void files_that_end_early_are_refused(void **state)
{
    static const struct webp_spec specs[] = {
        {.width = 30, .height = 20, .quality = 70},
        {.width = 30, .height = 20, .quality = 70, .alpha = 1},
        {.width = 30, .height = 20, .quality = 70, .lossless = 1},
    };
    for (size_t k = 0; k < sizeof specs / sizeof specs[0]; k++) {
        struct bytes file = make_webp(&specs[k]);
        struct hr_image_info info;
        struct hr_error error;
        size_t length = file.length;
        assert_int_equal(decode_all(*state, &file, &info, &error), 0);
        for (file.length = 12; file.length < length; file.length++) {
            assert_int_equal(open_webp(*state, &file, &info, &error), -EBADMSG);
            assert_non_null(strstr(error.message, "damaged WebP: the file ends after"));
        }
        /* The same with sizes that fit: the image's data is what ends. */
        for (size_t cut = 6 + length % 2; cut < length / 2; cut += 2) {
            struct bytes cropped = cut_webp(&file, length - cut);
            int rc = decode_all(*state, &cropped, &info, &error);
            if (rc != -EBADMSG)
                fail_msg("kind %zu without its last %zu bytes: %d", k, cut, rc);
            free(cropped.data);
        }
        free(file.data);
    }
}

/* No memory is taken for a size that a small file declares. */
static void declared_sizes_are_checked(void **state)
{
    struct webp_spec spec = {.width = 4, .height = 4, .quality = 80};
    struct bytes still = make_webp(&spec);
    struct bytes file = make_webp_animation(&still, 1 << 24, 100, 0, 0);
    struct hr_image_info info;
    struct hr_error error;
    assert_int_equal(open_webp(*state, &file, &info, &error), 0);
    assert_int_equal(info.width, 1 << 24);
    assert_int_equal(hr__check_pixels(&info, 178956970, &error), -EFBIG);
    free(file.data);
    free(still.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_exact),
        cmocka_unit_test(the_first_frame_is_taken),
        cmocka_unit_test(orientation_is_read),
        cmocka_unit_test(files_that_end_early_are_refused),
        cmocka_unit_test(declared_sizes_are_checked),
    };
    return cmocka_run_group_tests_name("codec-webp", tests, set_up, tear_down);
}
