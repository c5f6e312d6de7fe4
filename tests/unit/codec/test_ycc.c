/*
 * Upsampling and colour conversion. Whole images and random regions have libjpeg-turbo's pixels for
 * every sampling and size, on every instruction set. Only the windows and the slack after them are
 * read. Also failed allocations.
 *
 * With --time it prints microseconds per crop of each version instead.
 */
#include "../test.h"
#include "components.h"

#include "base/memory.h"
#include "codec/ycc.h"
#include "codec/ycc_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct jpeg_spec samplings[] = {
    {.components = 1},
    {.components = 3},
    {.components = 3, .h = {2, 1, 1}, .v = {1, 1, 1}},
    {.components = 3, .h = {1, 1, 1}, .v = {2, 1, 1}},
    {.components = 3, .h = {2, 1, 1}, .v = {2, 1, 1}},
    {.components = 3, .h = {4, 1, 1}, .v = {1, 1, 1}},
    {.components = 3, .h = {4, 1, 1}, .v = {2, 1, 1}},
    {.components = 3, .h = {1, 1, 1}, .v = {4, 1, 1}},
    {.components = 3, .h = {2, 1, 1}, .v = {4, 1, 1}},
    {.components = 3, .h = {3, 1, 1}, .v = {1, 1, 1}},
    {.components = 3, .h = {1, 1, 1}, .v = {3, 1, 1}},
    {.components = 3, .h = {3, 1, 1}, .v = {2, 1, 1}},
    {.components = 3, .h = {2, 2, 1}, .v = {2, 1, 2}},
    {.components = 3, .h = {2, 1, 1}, .v = {2, 1, 2}},
    {.components = 3, .h = {1, 2, 2}, .v = {1, 2, 2}},
    {.components = 3, .h = {2, 4, 1}, .v = {1, 1, 1}},
    {.components = 3, .h = {2, 1, 1}, .v = {2, 1, 1}, .rgb = 1},
    {.components = 3, .h = {1, 1, 4}, .v = {1, 1, 1}, .rgb = 1},
};

enum { SAMPLINGS = sizeof samplings / sizeof samplings[0], SLACK = 64 };

/* Copies a window to an allocation that ends with the last readable byte, so that a sanitizer
 * detects a read past it. */
static uint8_t *copy_window(const struct components *from, int c, const struct hr_region *window)
{
    size_t w = (size_t)window->width, h = (size_t)window->height;
    uint8_t *block = malloc(w * h + SLACK);
    memset(block, 0xEE, w * h + SLACK);
    for (size_t y = 0; y < h; y++)
        memcpy(block + y * w,
               from->plane[c] + ((size_t)window->y + y) * (size_t)from->width[c] +
                   (size_t)window->x,
               w);
    return block;
}

static struct hr__planar planar_make(int width, int height)
{
    struct hr__planar out = {.width = width, .height = height};
    out.stride = (width + 63) / 64 * 64;
    for (int c = 0; c < 3; c++) {
        out.plane[c] = aligned_alloc(64, (size_t)out.stride * (size_t)height);
        memset(out.plane[c], 0x5A, (size_t)out.stride * (size_t)height);
    }
    return out;
}

static void planar_free(struct hr__planar *planar)
{
    for (int c = 0; c < 3; c++)
        free(planar->plane[c]);
}

/* Checks a region converted from windows with `margin` more samples than it needs. */
static int region_is_exact(struct hr__ycc *ycc, const struct components *from,
                           const uint8_t *reference, const struct hr_region *region, int margin)
{
    struct hr__ycc_planes planes = {.shape = &from->shape};
    uint8_t *blocks[3] = {NULL};
    for (int c = 0; c < from->shape.components; c++) {
        struct hr_region *w = &planes.window[c];
        hr__ycc_window(&from->shape, region, c, w);
        assert_true(w->x >= 0 && w->y >= 0 && w->width > 0 && w->height > 0);
        assert_true(w->x + w->width <= from->width[c] && w->y + w->height <= from->height[c]);
        int left = w->x < margin ? w->x : margin, top = w->y < margin ? w->y : margin;
        *w = (struct hr_region){w->x - left, w->y - top, w->width + left, w->height + top};
        blocks[c] = copy_window(from, c, w);
        planes.at[c] = blocks[c];
        planes.stride[c] = w->width;
    }
    struct hr__planar out = planar_make(region->width, region->height);
    assert_int_equal(hr__ycc_run(ycc, &planes, region, &out, NULL), 0);
    int equal = planar_equals(&out, reference, (int)from->shape.width, region);
    planar_free(&out);
    for (int c = 0; c < 3; c++)
        free(blocks[c]);
    return equal;
}

static void image_is_exact(struct hr__ycc *const ycc[3], int sampling, int width, int height,
                           uint64_t seed)
{
    static const int qualities[] = {100, 98, 90, 75, 30, 5};
    struct jpeg_spec spec = samplings[sampling];
    spec.width = width;
    spec.height = height;
    spec.quality = qualities[seed % 6];
    spec.seed = seed;
    struct bytes file = make_jpeg(&spec);
    struct components from;
    int w, h;
    uint64_t random = seed;
    uint8_t *reference = decode_plainly(&file, &w, &h);
    components_of(&file, &from);
    assert_true(reference && w == width && h == height);
    for (int n = 0; n < 12; n++) {
        struct hr_region region = {0, 0, width, height};
        if (n)
            region = random_region_often_small(&random, width, height);
        for (int isa = 0; isa <= (int)hr__isa(); isa++)
            if (!region_is_exact(ycc[isa], &from, reference, &region, n % 3))
                fail_msg("version %d, sampling %d, %dx%d, seed %d: region %d,%d %dx%d differs", isa,
                         sampling, width, height, (int)seed, region.x, region.y, region.width,
                         region.height);
    }
    components_free(&from);
    free(reference);
    free(file.data);
}

static void make_versions(struct hr__ycc *ycc[3])
{
    for (int isa = 0; isa <= (int)hr__isa(); isa++)
        assert_int_equal(hr__ycc_create(&ycc[isa], (enum hr__isa)isa, NULL), 0);
}

static void free_versions(struct hr__ycc *ycc[3])
{
    for (int isa = 0; isa <= (int)hr__isa(); isa++)
        hr__ycc_destroy(&ycc[isa]);
    assert_int_equal(hr__allocated(HR__TAG_CODEC), 0);
}

static void pixels_are_libjpegs(void **state)
{
    struct hr__ycc *ycc[3];
    uint64_t random = 77;
    make_versions(ycc);
    for (int s = 0; s < SAMPLINGS; s++) {
        /* Every small size: libjpeg replicates chroma in some of them, and blocks end there. */
        for (int n = 1; n <= 36; n++) {
            image_is_exact(ycc, s, n, random_between(&random, 1, 20), next_random(&random));
            image_is_exact(ycc, s, random_between(&random, 1, 20), n, next_random(&random));
        }
        for (int n = 0; n < test_rounds(40); n++)
            image_is_exact(ycc, s, random_between(&random, 1, 300), random_between(&random, 1, 300),
                           next_random(&random));
    }
    free_versions(ycc);
}

/* libjpeg's conversion, independent of the code under test. */
static int libjpeg_channel(int channel, int y, int cb, int cr)
{
    double add = channel == 0   ? 91881.0 * (cr - 128)
                 : channel == 1 ? -22554.0 * (cb - 128) - 46802.0 * (cr - 128)
                                : 116130.0 * (cb - 128);
    int v = y + (int)__builtin_floor((add + 32768) / 65536);
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

static void every_colour_is_exact(void **state)
{
    static uint8_t luma[256], chroma[2][256], want[3][256], got[3][256];
    const struct hr__ycc_row row = {luma, {got[0], got[1], got[2]}, 256};
    for (int i = 0; i < 256; i++)
        luma[i] = (uint8_t)i;
    for (int isa = 0; isa <= (int)hr__isa(); isa++)
        for (int both = 0; both < 65536; both++) {
            int cb = both & 255, cr = both >> 8;
            memset(chroma[0], cb, 256);
            memset(chroma[1], cr, 256);
            hr__ycc_kernels((enum hr__isa)isa)
                ->same(&row, (const uint8_t *const[2]){chroma[0], chroma[1]});
            for (int c = 0; c < 3; c++) {
                /* Two luma values show the chroma term; all others follow by adding it and
                 * clamping. */
                int low = libjpeg_channel(c, 0, cb, cr), high = libjpeg_channel(c, 255, cb, cr);
                int add = low ? low : high - 255;
                for (int i = 0; i < 256; i++) {
                    int v = i + add;
                    want[c][i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
                }
                assert_memory_equal(got[c], want[c], 256);
            }
        }
}

static void no_memory_is_an_error(void **state)
{
    struct hr__ycc_shape shape = {
        .width = 6, .height = 4, .components = 3, .across = {1, 2, 2}, .down = {1, 2, 2}};
    struct hr_region region = {1, 1, 4, 3};
    struct hr__ycc_planes planes = {.shape = &shape};
    struct hr_error error = {0};
    struct hr__ycc *ycc = NULL;
    static uint8_t samples[24 + SLACK];
    for (int c = 0; c < 3; c++) {
        planes.at[c] = samples;
        planes.stride[c] = c ? 3 : 6;
        planes.window[c] = (struct hr_region){0, 0, c ? 3 : 6, c ? 2 : 4};
    }
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr__ycc_create(&ycc, hr__isa(), &error), -ENOMEM);
    assert_null(ycc);
    hr__ycc_destroy(&ycc);
    hr__alloc_fail_at(0, 0);
    assert_int_equal(hr__ycc_create(&ycc, hr__isa(), NULL), 0);
    struct hr__planar out = planar_make(4, 3);
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr__ycc_run(ycc, &planes, &region, &out, &error), -ENOMEM);
    assert_int_equal(error.code, -ENOMEM);
    hr__alloc_fail_at(0, 0);
    /* The object is still usable. */
    assert_int_equal(hr__ycc_run(ycc, &planes, &region, &out, NULL), 0);
    assert_true(hr__ycc_memory(ycc) > 128);
    planar_free(&out);
    hr__ycc_destroy(&ycc);
    assert_int_equal(hr__allocated(HR__TAG_CODEC), 0);
}

#include "ycc_timing.h"

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--time"))
        return time_versions();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_libjpegs),
        cmocka_unit_test(every_colour_is_exact),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests_name("codec-ycc", tests, NULL, NULL);
}
