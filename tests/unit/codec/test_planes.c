/*
 * Items of the form `planes`. Whole images and regions have libjpeg-turbo's pixels for every
 * sampling; items lie in allocations of exactly their size. Damaged headers and sizes are refused.
 * Also failed allocations.
 */
#include "../test.h"
#include "components.h"

#include "base/memory.h"
#include "codec/planes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int samplings[] = {0, 111, 211, 121, 221, 411, 421, 141, 241, 311, 131, 321};

enum { SAMPLINGS = sizeof samplings / sizeof samplings[0] };

/* Writes an item as planes.h describes it, without the code under test. */
static struct bytes make_item(const struct bytes *file)
{
    struct components from;
    components_of(file, &from);
    struct bytes item = {NULL, 32 + 64};
    for (int c = 0; c < from.shape.components; c++)
        item.length += (size_t)(from.width[c] * from.height[c]);
    item.data = calloc(1, item.length);
    memcpy(item.data, "\x8AHRI\1\2", 6);
    item.data[6] = from.shape.components;
    item.data[7] = 6;
    memcpy(item.data + 8, &from.shape.width, 4);
    memcpy(item.data + 12, &from.shape.height, 4);
    item.data[16] = from.shape.components == 1 ? 1 : from.shape.across[1];
    item.data[17] = from.shape.components == 1 ? 1 : from.shape.down[1];
    memcpy(item.data + 24, &(uint64_t){item.length}, 8);
    uint8_t *at = item.data + 32;
    for (int c = 0; c < from.shape.components; c++) {
        size_t plane = (size_t)(from.width[c] * from.height[c]);
        memcpy(at, from.plane[c], plane);
        at += plane;
    }
    components_free(&from);
    return item;
}

static struct bytes small_item(void)
{
    struct jpeg_spec spec = sampled_spec(221, 33, 21, 3);
    struct bytes file = make_jpeg(&spec), item = make_item(&file);
    free(file.data);
    return item;
}

static void image_is_exact(struct hr__decoder *decoder, int sampling, int width, int height,
                           uint64_t seed)
{
    struct jpeg_spec spec = sampled_spec(sampling, width, height, seed);
    struct bytes file = make_jpeg(&spec), item = make_item(&file);
    struct hr_image_info info;
    struct hr__planar out;
    int w, h;
    uint8_t *reference = decode_plainly(&file, &w, &h);
    assert_non_null(reference);
    assert_int_equal(hr__decoder_info(decoder, item.data, item.length, &info, NULL), 0);
    assert_int_equal(info.format, HR_IMAGE_PLANES);
    assert_int_equal(info.width, width);
    assert_int_equal(info.height, height);
    assert_int_equal(info.channels, sampling ? 3 : 1);
    assert_int_equal(info.orientation, 6);
    for (int n = 0; n < 8; n++) {
        struct hr_region r = {0, 0, width, height};
        if (n) {
            r.width = random_between(&seed, 1, n < 4 ? width : width < 3 ? width : 3);
            r.height = random_between(&seed, 1, n < 4 ? height : height < 3 ? height : 3);
            r.x = random_between(&seed, 0, width - r.width);
            r.y = random_between(&seed, 0, height - r.height);
        }
        assert_int_equal(hr__decoder_region(decoder, item.data, item.length, &info, &r, &out, NULL),
                         0);
        if (!planar_equals(&out, reference, width, &r))
            fail_msg("sampling %d, %dx%d: region %d,%d %dx%d differs", sampling, width, height, r.x,
                     r.y, r.width, r.height);
    }
    free(reference);
    free(item.data);
    free(file.data);
}

static void pixels_are_libjpegs(void **state)
{
    struct hr__decoder *decoder;
    uint64_t random = 5;
    assert_int_equal(hr__decoder_create(&decoder, NULL), 0);
    for (int s = 0; s < SAMPLINGS; s++) {
        for (int n = 1; n <= 20; n++)
            image_is_exact(decoder, samplings[s], n, 21 - n, next_random(&random));
        for (int n = 0; n < 25; n++)
            image_is_exact(decoder, samplings[s], random_between(&random, 1, 300),
                           random_between(&random, 1, 300), next_random(&random));
    }
    hr__decoder_destroy(&decoder);
    assert_int_equal(hr__allocated(HR__TAG_CODEC), 0);
}

static void sizes_are_known_beforehand(void **state)
{
    struct hr__item_header h = {.width = 5, .height = 3, .components = 3, .h = 2, .v = 2};
    assert_int_equal(hr__planes_bytes(&h), 32 + 15 + 6 + 6 + 64);
    h.v = 1;
    assert_int_equal(hr__planes_bytes(&h), 32 + 15 + 9 + 9 + 64);
    h.components = 1;
    assert_int_equal(hr__planes_bytes(&h), 32 + 15 + 64);
    h = (struct hr__item_header){.width = 65535, .height = 65535, .components = 3, .h = 1, .v = 1};
    assert_true(hr__planes_bytes(&h) == UINT64_C(3) * 65535 * 65535 + 96);
    struct bytes item = small_item();
    struct hr__planes planes;
    assert_int_equal(hr__planes_open(&planes, item.data, item.length, NULL), 0);
    assert_ptr_equal(planes.at[2], item.data + 32 + 33 * 21 + 17 * 11);
    assert_int_equal(planes.width[1], 17);
    assert_int_equal(planes.height[2], 11);
    free(item.data);
}

static void assert_refused(const struct bytes *item, int code)
{
    struct hr_image_info info;
    struct hr__decoder *decoder;
    struct hr_error error = {0};
    assert_int_equal(hr__decoder_create(&decoder, NULL), 0);
    assert_int_equal(hr__decoder_info(decoder, item->data, item->length, &info, &error), code);
    assert_int_equal(error.code, code);
    assert_true(strstr(error.message, "convert the file again") != NULL);
    hr__decoder_destroy(&decoder);
}

static void damaged_items_are_refused(void **state)
{
    static const struct {
        int at, value, code;
    } bytes[] = {
        {4, 3, -ENOTSUP},   /* version */
        {4, 2, -EBADMSG},   /* the version of R, G and B without the flag */
        {6, 2, -EBADMSG},   /* components */
        {6, 1, -EBADMSG},   /* grey with subsampling */
        {7, 9, -EBADMSG},   /* orientation */
        {8, 34, -EBADMSG},  /* width */
        {8, 0, -EBADMSG},   /* width */
        {10, 1, -EBADMSG},  /* width of 65569 */
        {12, 20, -EBADMSG}, /* height */
        {16, 1, -EBADMSG},  /* sampling */
        {17, 3, -EBADMSG},  /* sampling */
        {18, 1, -EBADMSG},  /* a flag of coefficients */
        {18, 4, -EBADMSG},  /* R, G and B in the version without them */
        {19, 1, -EBADMSG},  /* reserved */
        {24, 0, -EBADMSG},  /* bytes */
        {31, 1, -EBADMSG},  /* bytes */
    };
    struct bytes item = small_item();
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        uint8_t before = item.data[bytes[i].at];
        item.data[bytes[i].at] = (uint8_t)bytes[i].value;
        assert_refused(&item, bytes[i].code);
        item.data[bytes[i].at] = before;
    }
    struct bytes less = item;
    for (less.length = 4; less.length < item.length; less.length += 1 + less.length / 8)
        assert_refused(&less, -EBADMSG);
    free(item.data);
}

static void info_of_another_item_is_refused(void **state)
{
    struct bytes item = small_item();
    struct hr_image_info info;
    struct hr__decoder *decoder;
    struct hr__planar out;
    const struct hr_region region = {0, 0, 4, 4}, outside = {30, 0, 4, 4};
    assert_int_equal(hr__decoder_create(&decoder, NULL), 0);
    assert_int_equal(hr__decoder_info(decoder, item.data, item.length, &info, NULL), 0);
    assert_int_equal(
        hr__decoder_region(decoder, item.data, item.length, &info, &outside, &out, NULL), -ERANGE);
    info.width = 40;
    assert_int_equal(
        hr__decoder_region(decoder, item.data, item.length, &info, &region, &out, NULL), -EINVAL);
    hr__decoder_destroy(&decoder);
    free(item.data);
}

static void no_memory_is_an_error(void **state)
{
    struct bytes item = small_item();
    const struct hr_region region = {1, 1, 30, 18};
    int failures = 0;
    for (int n = 1, done = 0; !done; n++) {
        struct hr__decoder *decoder;
        struct hr_image_info info;
        struct hr_error error = {0};
        struct hr__planar out;
        assert_int_equal(hr__decoder_create(&decoder, NULL), 0);
        hr__alloc_fail_at((uint64_t)n, 0);
        int r = hr__decoder_info(decoder, item.data, item.length, &info, &error);
        if (!r)
            r = hr__decoder_region(decoder, item.data, item.length, &info, &region, &out, &error);
        hr__alloc_fail_at(0, 0);
        if (r) {
            assert_int_equal(r, -ENOMEM);
            assert_int_equal(error.code, -ENOMEM);
            failures++;
        }
        done = !r;
        hr__decoder_destroy(&decoder);
        assert_int_equal(hr__allocated(HR__TAG_CODEC), 0);
    }
    assert_int_equal(failures, 4); /* the state, its ycc, the pixels, the intermediate rows */
    free(item.data);
}

/* Thousands of changed items, the same in every run. */
static void changed_items_are_safe(void **state)
{
    struct bytes item = small_item();
    uint8_t *input = malloc(9 + item.length);
    uint64_t random = 99;
    for (int n = 0; n < 4000; n++) {
        size_t length = item.length;
        memcpy(input + 9, item.data, length);
        for (int i = 0; i < 9; i++)
            input[i] = (uint8_t)next_random(&random);
        for (int k = random_between(&random, 0, 3); k; k--)
            input[9 + random_between(&random, 0, 31)] = (uint8_t)next_random(&random);
        if (n % 5 == 0)
            length = (size_t)random_between(&random, 0, (int)length);
        assert_int_equal(LLVMFuzzerTestOneInput(input, 9 + length), 0);
    }
    free(input);
    free(item.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_libjpegs),
        cmocka_unit_test(sizes_are_known_beforehand),
        cmocka_unit_test(damaged_items_are_refused),
        cmocka_unit_test(info_of_another_item_is_refused),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(changed_items_are_safe),
    };
    return cmocka_run_group_tests_name("codec-planes", tests, NULL, NULL);
}
