/*
 * PNG of every colour type, depth and interlacing: regions compared with the written samples,
 * orientation, and the effects of damage and unusual chunks.
 */
#include "../test.h"
#include "images.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct png_kind {
    int type, depth;
} kinds[] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
             {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int set_up(void **state)
{
    return hr__decoder_create((struct hr__decoder **)state, NULL);
}

static int tear_down(void **state)
{
    hr__decoder_destroy((struct hr__decoder **)state);
    return 0;
}

/* Computes the RGB pixels of a whole image from make_png's samples. */
static uint8_t *expected_pixels(const struct png_spec *spec, const uint8_t *samples)
{
    static const int channels_of[7] = {1, 0, 3, 1, 2, 0, 4};
    size_t channels = (size_t)channels_of[spec->type], depth = (size_t)spec->depth;
    size_t width = (size_t)spec->width, height = (size_t)spec->height;
    size_t pitch = (width * channels * depth + 7) / 8;
    uint8_t *rgb = malloc(width * height * 3);
    if (spec->type == 3)
        return memcpy(rgb, samples, width * height * 3);
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++)
            for (size_t c = 0; c < 3; c++) {
                size_t bit = (x * channels + (channels >= 3 ? c : 0)) * depth;
                unsigned v = samples[y * pitch + bit / 8];
                if (depth < 8)
                    v = (v >> (8 - depth - bit % 8) & ((1u << depth) - 1)) * 255 /
                        ((1u << depth) - 1);
                rgb[3 * (y * width + x) + c] = (uint8_t)v;
            }
    return rgb;
}

static void check_regions(struct hr__decoder *decoder, const struct png_spec *spec,
                          uint64_t *random)
{
    uint8_t *samples;
    struct bytes file = make_png(spec, &samples);
    uint8_t *reference = expected_pixels(spec, samples);
    struct hr_image_info info;
    struct hr_error error;
    if (hr__decoder_info(decoder, file.data, file.length, &info, &error))
        fail_msg("type %d depth %d: %s", spec->type, spec->depth, error.message);
    assert_int_equal(info.format, HR_IMAGE_PNG);
    assert_int_equal(info.width, spec->width);
    assert_int_equal(info.height, spec->height);
    for (int n = 0; n < 10; n++) {
        struct hr_region r = {0, 0, spec->width, spec->height};
        struct hr__planar out;
        if (n) {
            r.width = n == 1 ? 1 : random_between(random, 1, spec->width);
            r.height = n == 1 ? 1 : random_between(random, 1, spec->height);
            r.x = random_between(random, 0, spec->width - r.width);
            r.y = random_between(random, 0, spec->height - r.height);
        }
        if (hr__decoder_region(decoder, file.data, file.length, &info, &r, &out, &error))
            fail_msg("type %d depth %d: %s", spec->type, spec->depth, error.message);
        if (!planar_equals(&out, reference, spec->width, &r))
            fail_msg("type %d depth %d interlaced %d, %dx%d: region %d,%d %dx%d differs",
                     spec->type, spec->depth, spec->interlaced, spec->width, spec->height, r.x, r.y,
                     r.width, r.height);
    }
    free(reference);
    free(samples);
    free(file.data);
}

static void regions_are_exact(void **state)
{
    uint64_t random = 11;
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < 24; n++) {
            struct png_spec spec = {.type = kinds[k].type, .depth = kinds[k].depth};
            spec.width = random_between(&random, 1, n < 12 ? 12 : 150);
            spec.height = random_between(&random, 1, n < 12 ? 12 : 60);
            spec.interlaced = n % 2;
            spec.palette = spec.type == 3 ? random_between(&random, 1, 1 << spec.depth) : 0;
            spec.seed = next_random(&random);
            check_regions(*state, &spec, &random);
        }
}

static int decode_all(struct hr__decoder *decoder, const struct bytes *file,
                      struct hr_image_info *info, struct hr_error *error)
{
    struct hr__planar out;
    int rc = hr__decoder_info(decoder, file->data, file->length, info, error);
    if (rc)
        return rc;
    struct hr_region r = {0, 0, info->width, info->height};
    return hr__decoder_region(decoder, file->data, file->length, info, &r, &out, error);
}

/* Checks the indices of a region: those of greys are the samples, those of a palette stand for one
 * colour each. */
static void check_indices(struct hr__decoder *colours, struct hr__decoder *indices,
                          const struct png_spec *spec, uint64_t *random)
{
    struct bytes file = make_png(spec, NULL);
    struct hr_image_info info;
    struct hr_error error;
    struct hr__planar rgb, out;
    struct hr_region all = {0, 0, spec->width, spec->height}, r = all;
    int seen[256][3];
    memset(seen, -1, sizeof seen);
    r.width = random_between(random, 1, spec->width);
    r.height = random_between(random, 1, spec->height);
    r.x = random_between(random, 0, spec->width - r.width);
    r.y = random_between(random, 0, spec->height - r.height);
    assert_int_equal(hr__decoder_info(indices, file.data, file.length, &info, &error), 0);
    assert_int_equal(hr__decoder_region(colours, file.data, file.length, &info, &all, &rgb, NULL),
                     0);
    int rc = hr__decoder_region(indices, file.data, file.length, &info, &r, &out, &error);
    int is_mask = (spec->type == 0 && spec->depth <= 8) || spec->type == 3;
    assert_int_equal(rc, is_mask ? 0 : -ENOTSUP);
    if (!is_mask)
        assert_non_null(strstr(error.message, "class indices are those of a palette or greys"));
    for (int y = 0; is_mask && y < r.height; y++)
        for (int x = 0; x < r.width; x++) {
            int v = out.plane[0][y * out.stride + x];
            assert_true(v < 1 << spec->depth);
            for (int c = 0; c < 3; c++) {
                int colour = rgb.plane[c][(r.y + y) * rgb.stride + r.x + x];
                if (spec->type == 0)
                    assert_int_equal(colour, v * 255 / ((1 << spec->depth) - 1));
                if (seen[v][c] >= 0)
                    assert_int_equal(colour, seen[v][c]);
                seen[v][c] = colour;
            }
        }
    free(file.data);
}

static void masks_are_indices(void **state)
{
    uint64_t random = 12;
    struct hr__decoder *indices;
    assert_int_equal(hr__decoder_create(&indices, NULL), 0);
    hr__decoder_want_indices(indices, 1);
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < 8; n++) {
            struct png_spec spec = {.type = kinds[k].type, .depth = kinds[k].depth};
            spec.width = random_between(&random, 1, n < 4 ? 12 : 150);
            spec.height = random_between(&random, 1, n < 4 ? 12 : 60);
            spec.interlaced = n % 2;
            spec.palette = spec.type == 3 ? 1 << spec.depth : 0;
            spec.seed = next_random(&random);
            check_indices(*state, indices, &spec, &random);
        }
    hr__decoder_destroy(&indices);
}

static void orientation_is_read(void **state)
{
    for (int orientation = 0; orientation <= 9; orientation++)
        for (int big = 0; big < 2; big++) {
            struct bytes exif = make_exif(orientation, big);
            struct bytes chunk = make_chunk("eXIf", exif.data, exif.length);
            struct png_spec spec = {.width = 3, .height = 2, .depth = 8, .type = 2};
            struct hr_image_info info;
            struct hr_error error;
            spec.chunk = chunk.data;
            spec.chunk_bytes = chunk.length;
            struct bytes file = make_png(&spec, NULL);
            assert_int_equal(decode_all(*state, &file, &info, &error), 0);
            assert_int_equal(info.orientation,
                             orientation >= 1 && orientation <= 8 ? orientation : 1);
            free(file.data);
            free(chunk.data);
            free(exif.data);
        }
}

/* Any changed byte in a critical chunk is an error, because chunks have checksums. */
static void every_flipped_byte_is_found(void **state)
{
    struct png_spec spec = {
        .width = 23, .height = 9, .depth = 8, .type = 3, .palette = 200, .seed = 3};
    struct bytes file = make_png(&spec, NULL);
    struct hr_image_info info;
    struct hr_error error;
    assert_int_equal(decode_all(*state, &file, &info, &error), 0);
    /* The last 12 bytes are IEND, which may be missing. */
    for (size_t i = 0; i < file.length - 12; i++) {
        file.data[i] ^= 0x10;
        int rc = decode_all(*state, &file, &info, &error);
        file.data[i] ^= 0x10;
        if (rc != -EBADMSG && rc != -ENOTSUP)
            fail_msg("byte %zu changed: %d", i, rc);
        if (rc == -ENOTSUP && i >= 8 && strstr(error.message, "extension") == NULL)
            fail_msg("byte %zu changed: %s", i, error.message);
    }
    free(file.data);
}

static void every_cut_is_found(void **state)
{
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        struct png_spec spec = {
            .width = 23, .height = 9, .depth = 16, .type = 6, .seed = 3, .interlaced = interlaced};
        struct bytes file = make_png(&spec, NULL);
        struct hr_image_info info;
        struct hr_error error;
        /* The last 12 bytes are IEND, which Pillow does not require either. */
        for (size_t cut = 13; cut <= file.length; cut++) {
            struct bytes part = {malloc(file.length - cut), file.length - cut};
            memcpy(part.data, file.data, part.length);
            int rc = decode_all(*state, &part, &info, &error);
            if (rc != -EBADMSG)
                fail_msg("%zu of %zu bytes: %d", part.length, file.length, rc);
            free(part.data);
        }
        free(file.data);
    }
}

/* Text that inflates to a large size, and invalid ancillary chunks, are not read. */
static void ancillary_chunks_cost_nothing(void **state)
{
    uint8_t *junk = calloc(1, 3000000);
    memcpy(junk, "key\0\0", 5);
    struct bytes chunk = make_chunk("zTXt", junk, 3000000);
    struct png_spec spec = {.width = 5, .height = 5, .depth = 8, .type = 2};
    spec.chunk = chunk.data;
    spec.chunk_bytes = chunk.length;
    struct bytes file = make_png(&spec, NULL);
    struct hr_image_info info;
    struct hr_error error;
    assert_int_equal(decode_all(*state, &file, &info, &error), 0);
    assert_true(hr__decoder_memory(*state) < 1000000);
    free(file.data);
    free(chunk.data);
    free(junk);
}

/* Each allocation of a new decoder, for info and for a decode, fails in turn. */
static void failing_allocations_are_reported(void **state)
{
    struct png_spec spec = {.width = 50, .height = 40, .depth = 8, .type = 3, .palette = 16};
    struct bytes file = make_png(&spec, NULL);
    int failures = 0, rc = -ENOMEM;
    uint64_t before = hr__allocated(HR__TAG_CODEC);
    for (uint64_t n = 1; rc; n++) {
        struct hr__decoder *decoder = NULL;
        struct hr_image_info info;
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 0);
        rc = hr__decoder_create(&decoder, &error);
        if (!rc)
            rc = decode_all(decoder, &file, &info, &error);
        hr__alloc_fail_at(0, 0);
        hr__decoder_destroy(&decoder);
        assert_int_equal(hr__allocated(HR__TAG_CODEC), before);
        if (rc) {
            if (rc != -ENOMEM)
                fail_msg("allocation %d: %s", (int)n, error.message);
            assert_int_equal(error.code, -ENOMEM);
            failures++;
        }
    }
    assert_true(failures >= 4);
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_exact),
        cmocka_unit_test(masks_are_indices),
        cmocka_unit_test(orientation_is_read),
        cmocka_unit_test(every_flipped_byte_is_found),
        cmocka_unit_test(every_cut_is_found),
        cmocka_unit_test(ancillary_chunks_cost_nothing),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests_name("codec-png", tests, set_up, tear_down);
}
