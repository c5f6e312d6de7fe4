/*
 * Compares regions of JPEG files with libjpeg's decode of the whole image: no pixel may differ, for
 * any sampling, scan structure, size, quality, restart interval or region. Compares regions of
 * halved images with libjpeg's own scaled decode.
 */
#include "../test.h"
#include "images.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct sampling {
    const char *name;
    int components, h[4], v[4];
} samplings[] = {
    {"4:4:4", 3, {1, 1, 1}, {1, 1, 1}},
    {"4:2:0", 3, {2, 1, 1}, {2, 1, 1}},
    {"4:2:2", 3, {2, 1, 1}, {1, 1, 1}},
    {"4:4:0", 3, {1, 1, 1}, {2, 1, 1}},
    {"4:1:1", 3, {4, 1, 1}, {1, 1, 1}},
    {"4:1:0", 3, {4, 1, 1}, {2, 1, 1}},
    {"1x4", 3, {1, 1, 1}, {4, 1, 1}},
    {"2x4", 3, {2, 1, 1}, {4, 1, 1}},
    {"3x1", 3, {3, 1, 1}, {1, 1, 1}},
    {"1x3", 3, {1, 1, 1}, {3, 1, 1}},
    {"3x2", 3, {3, 1, 1}, {2, 1, 1}},
    {"4:2:2 written 2x2,1x2", 3, {2, 1, 1}, {2, 2, 2}},
    {"4:4:0 written 2x2,2x1", 3, {2, 2, 2}, {2, 1, 1}},
    {"4:4:4 written 1x2", 3, {1, 1, 1}, {2, 2, 2}},
    {"4:4:4 written 2x1", 3, {2, 2, 2}, {1, 1, 1}},
    {"2x2,2x1,1x2", 3, {2, 2, 1}, {2, 1, 2}},
    {"chroma finer", 3, {1, 2, 2}, {1, 2, 2}},
    {"grey", 1, {1}, {1}},
    {"grey written 2x2", 1, {2}, {2}},
    {"cmyk", 4, {1, 1, 1, 1}, {1, 1, 1, 1}},
    {"cmyk 2x2", 4, {2, 1, 1, 2}, {2, 1, 1, 2}},
};

enum { SAMPLINGS = sizeof samplings / sizeof samplings[0] };

struct jpeg_fixture {
    struct hr__decoder *decoder;
    uint64_t random;
};

static int set_up(void **state)
{
    struct jpeg_fixture *f = calloc(1, sizeof *f);
    *state = f;
    return hr__decoder_create(&f->decoder, NULL);
}

static int tear_down(void **state)
{
    struct jpeg_fixture *f = *state;
    hr__decoder_destroy(&f->decoder);
    free(f);
    return 0;
}

static struct jpeg_spec random_spec(struct jpeg_fixture *f, const struct sampling *s, int largest)
{
    struct jpeg_spec spec = {.components = s->components};
    memcpy(spec.h, s->h, sizeof spec.h);
    memcpy(spec.v, s->v, sizeof spec.v);
    spec.width = random_between(&f->random, 1, largest);
    spec.height = random_between(&f->random, 1, largest);
    spec.quality = random_between(&f->random, 5, 100);
    spec.restart = random_between(&f->random, 0, 2) ? 0 : random_between(&f->random, 1, 30);
    spec.ycck = s->components == 4 && random_between(&f->random, 0, 1);
    spec.rgb = s->components == 3 && !random_between(&f->random, 0, 7);
    spec.optimised = !random_between(&f->random, 0, 2);
    spec.content = (enum jpeg_content)random_between(&f->random, CONTENT_PICTURE, CONTENT_BINARY);
    spec.seed = next_random(&f->random);
    return spec;
}

/* Returns region number `n` of an image: first the cases at the borders, then random ones. */
static struct hr_region numbered_region(struct jpeg_fixture *f, int n, int width, int height)
{
    struct hr_region r = {0, 0, width, height};
    if (n == 0)
        return r;
    int small = n < 6;
    r.width = random_between(&f->random, 1, small && width > 4 ? 4 : width);
    r.height = random_between(&f->random, 1, small && height > 4 ? 4 : height);
    if (n == 1)
        r.width = r.height = 1;
    r.x = random_between(&f->random, 0, width - r.width);
    r.y = random_between(&f->random, 0, height - r.height);
    if (n == 2)
        r.x = r.y = 0;
    if (n == 3) {
        r.x = width - r.width;
        r.y = height - r.height;
    }
    return r;
}

static void check_regions(struct jpeg_fixture *f, const struct bytes *file,
                          const struct hr_image_info *info, int halvings, int regions,
                          const char *name)
{
    int width, height;
    uint8_t *reference = decode_halved(file, halvings, &width, &height);
    struct hr_error error;
    assert_non_null(reference);
    assert_int_equal(width, (info->width + (1 << halvings) - 1) >> halvings);
    assert_int_equal(height, (info->height + (1 << halvings) - 1) >> halvings);
    hr__decoder_halve(f->decoder, halvings);
    for (int n = 0; n < regions; n++) {
        struct hr_region r = numbered_region(f, n, width, height);
        struct hr__planar out;
        if (hr__decoder_region(f->decoder, file->data, file->length, info, &r, &out, &error))
            fail_msg("%s %dx%d: %s", name, width, height, error.message);
        assert_int_equal(out.width, r.width);
        assert_int_equal(out.height, r.height);
        assert_int_equal(out.stride % 64, 0);
        for (int c = 0; c < 3; c++)
            assert_int_equal((uintptr_t)out.plane[c] % 64, 0);
        if (!planar_equals(&out, reference, width, &r))
            fail_msg("%s %dx%d, halved %d times: region %d,%d %dx%d differs from the full decode",
                     name, width, height, halvings, r.x, r.y, r.width, r.height);
    }
    free(reference);
}

static void check_file(struct jpeg_fixture *f, const struct bytes *file, const char *name,
                       int regions)
{
    struct hr_image_info info;
    struct hr_error error;
    if (hr__decoder_info(f->decoder, file->data, file->length, &info, &error))
        fail_msg("%s: %s", name, error.message);
    assert_int_equal(info.format, HR_IMAGE_JPEG);
    assert_int_equal(info.orientation, 1);
    for (int halvings = 0; halvings <= hr__format_halvings(info.format); halvings++)
        check_regions(f, file, &info, halvings, halvings ? regions / 2 : regions, name);
}

static void only_jpeg_is_halved(void **state)
{
    struct jpeg_fixture *f = *state;
    struct jpeg_spec spec = {.width = 33, .height = 17, .components = 3, .quality = 80};
    struct bytes file = make_jpeg(&spec);
    const struct hr_region all = {0, 0, 17, 9}, one = {0, 0, 1, 1};
    struct hr_image_info info;
    struct hr__planar out;
    assert_int_equal(hr__format_halvings(HR_IMAGE_JPEG), 3);
    assert_int_equal(hr__format_halvings(HR_IMAGE_PNG), 0);
    assert_int_equal(hr__format_halvings(HR_IMAGE_COEFFICIENTS), 0);
    assert_int_equal(hr__decoder_info(f->decoder, file.data, file.length, &info, NULL), 0);
    for (int halvings = -1; halvings <= 4; halvings++) {
        hr__decoder_halve(f->decoder, halvings);
        assert_int_equal(
            hr__decoder_region(f->decoder, file.data, file.length, &info, &all, &out, NULL),
            halvings == 0 || halvings == 1 ? 0 : -ERANGE);
        assert_int_equal(
            hr__decoder_region(f->decoder, file.data, file.length, &info, &one, &out, NULL),
            halvings >= 0 && halvings <= 3 ? 0 : -ERANGE);
    }
    free(file.data);
}

static void sweep(struct jpeg_fixture *f, enum jpeg_scans scans, int images, int largest)
{
    for (int s = 0; s < SAMPLINGS; s++) {
        if (scans == SCANS_INCOMPLETE && samplings[s].components != 3)
            continue;
        for (int n = 0; n < images; n++) {
            struct jpeg_spec spec = random_spec(f, &samplings[s], largest);
            spec.scans = scans;
            struct bytes file = make_jpeg(&spec);
            check_file(f, &file, samplings[s].name, 12);
            free(file.data);
        }
    }
}

static void baseline_regions_are_exact(void **state)
{
    sweep(*state, SCANS_BASELINE, 20, 64);
    sweep(*state, SCANS_BASELINE, 4, 300);
}

static void progressive_regions_are_exact(void **state)
{
    sweep(*state, SCANS_PROGRESSIVE, 8, 64);
    sweep(*state, SCANS_PROGRESSIVE, 1, 300);
}

static void separate_scans_are_exact(void **state)
{
    sweep(*state, SCANS_SEPARATE, 6, 80);
}

/* If scans lack the full precision, libjpeg smooths across blocks. */
static void smoothed_regions_are_exact(void **state)
{
    sweep(*state, SCANS_INCOMPLETE, 8, 120);
}

static void arithmetic_regions_are_exact(void **state)
{
    sweep(*state, SCANS_ARITHMETIC, 4, 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(baseline_regions_are_exact),
        cmocka_unit_test(progressive_regions_are_exact),
        cmocka_unit_test(separate_scans_are_exact),
        cmocka_unit_test(smoothed_regions_are_exact),
        cmocka_unit_test(arithmetic_regions_are_exact),
        cmocka_unit_test(only_jpeg_is_halved),
    };
    return cmocka_run_group_tests_name("codec-jpeg", tests, set_up, tear_down);
}
