/*
 * The form `indexed`: regions have the pixels of the file, by the index and through the decoder;
 * the file comes back byte for byte; the item is the same whether it is made by conversion or while
 * its file is decoded; a wrong point leaves the image to the decoder of files.
 */
#include "../test.h"
#include "images.h"

#include "codec/indexed.h"
#include "codec/jpeg_library.h"

#include <headrace/form.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct indexed_fixture {
    struct hr_converter *converter;
    struct hr__decoder *files, *items, *makers; /* libjpeg-turbo alone; of items; makes items */
    struct hr__baseline *baseline;
    struct hr__jpeg library;
    int halvings; /* of the images that are decoded */
    uint64_t random;
};

static int set_up(void **state)
{
    struct indexed_fixture *f = calloc(1, sizeof *f);
    struct hr_converter_options options;
    *state = f;
    hr_converter_options_default(&options);
    options.trust = 1;
    if (hr_converter_create(&f->converter, &options, NULL) || hr__decoder_create(&f->files, NULL) ||
        hr__decoder_create(&f->items, NULL) || hr__decoder_create(&f->makers, NULL) ||
        hr__baseline_create(&f->baseline, NULL))
        return -1;
    hr__decoder_use_library(f->files);
    hr__decoder_make_items(f->makers, 1);
    hr__jpeg_init(&f->library);
    return 0;
}

static int tear_down(void **state)
{
    struct indexed_fixture *f = *state;
    hr_converter_destroy(&f->converter);
    hr__decoder_destroy(&f->files);
    hr__decoder_destroy(&f->items);
    hr__decoder_destroy(&f->makers);
    hr__baseline_destroy(&f->baseline);
    free(f);
    return 0;
}

static struct bytes make_item(struct indexed_fixture *f, const struct bytes *file)
{
    struct hr_item item, back;
    struct hr_form_estimate estimate = {.size = sizeof estimate};
    struct hr_error error;
    if (hr_converter_run(f->converter, HR_FORM_INDEXED, file->data, file->length, &item, &error))
        fail_msg("%s", error.message);
    struct bytes copy = {malloc(item.length), item.length};
    memcpy(copy.data, item.bytes, item.length);
    assert_int_equal(hr_form_of(copy.data, copy.length), HR_FORM_INDEXED);
    assert_int_equal(hr_converter_estimate(f->converter, HR_FORM_INDEXED, file->data, file->length,
                                           &estimate, NULL),
                     0);
    assert_true(estimate.possible);
    assert_int_equal(estimate.bytes, copy.length);
    assert_int_equal(hr_converter_restore(f->converter, copy.data, copy.length, &back, NULL), 0);
    assert_int_equal(back.length, file->length);
    assert_memory_equal(back.bytes, file->data, file->length);
    return copy;
}

static struct hr__planar make_planes(const struct hr_region *r)
{
    struct hr__planar p = {.stride = (r->width + 63) & ~63, .width = r->width, .height = r->height};
    size_t bytes = (size_t)p.stride * (size_t)r->height;
    p.plane[0] = malloc(3 * bytes + HR__PIXEL_SLACK);
    p.plane[1] = p.plane[0] + bytes;
    p.plane[2] = p.plane[1] + bytes;
    return p;
}

static void compare(const struct hr__planar *a, const struct hr__planar *b,
                    const struct hr_region *r)
{
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < r->height; y++)
            if (memcmp(a->plane[c] + y * a->stride, b->plane[c] + y * b->stride, (size_t)r->width))
                fail_msg("channel %d, row %d of region %d,%d %dx%d differs", c, y, r->x, r->y,
                         r->width, r->height);
}

/* Decodes by the index alone. Returns 0 if it does not fit. */
static int decode_by_index(struct indexed_fixture *f, const struct hr__indexed *item,
                           const struct hr_region *r, struct hr__planar *out)
{
    struct hr__decode_job job = {
        .in = item->file, .halvings = f->halvings, .region = *r, .out = *out};
    int done = 0;
    if (setjmp(f->library.escape)) {
        jpeg_destroy_decompress(&f->library.cinfo);
        return 0;
    }
    hr__jpeg_read_header(&f->library, &item->file);
    int width = (((int)f->library.cinfo.image_width - 1) >> f->halvings) + 1;
    int height = (((int)f->library.cinfo.image_height - 1) >> f->halvings) + 1;
    if (r->x + r->width <= width && r->y + r->height <= height)
        assert_int_equal(
            hr__baseline_indexed(f->baseline, &f->library.cinfo, &job, &item->index, &done, NULL),
            0);
    jpeg_destroy_decompress(&f->library.cinfo);
    return done;
}

/* Decodes the item through the decoder, and by its index alone. Pixels are those of the file.
 * Returns 0 if the index does not fit, or the item's headers are wrong. */
static int check_region(struct indexed_fixture *f, const struct bytes *file,
                        const struct bytes *item, const struct hr_region *r)
{
    struct hr_image_info info;
    struct hr__indexed opened;
    struct hr__planar want, got, by_index = make_planes(r);
    hr__decoder_halve(f->files, f->halvings);
    hr__decoder_halve(f->items, f->halvings);
    assert_int_equal(hr__decoder_info(f->files, file->data, file->length, &info, NULL), 0);
    assert_int_equal(hr__decoder_region(f->files, file->data, file->length, &info, r, &want, NULL),
                     0);
    if (!hr__decoder_info(f->items, item->data, item->length, &info, NULL) &&
        !hr__decoder_region(f->items, item->data, item->length, &info, r, &got, NULL))
        compare(&want, &got, r);
    int fits = !hr__indexed_open(&opened, item->data, item->length, NULL) &&
               decode_by_index(f, &opened, r, &by_index);
    if (fits)
        compare(&want, &by_index, r);
    free(by_index.plane[0]);
    return fits;
}

/* The decoder of files makes the same item while it decodes a region. */
static void check_made(struct indexed_fixture *f, const struct bytes *file,
                       const struct bytes *item, const struct hr_region *r)
{
    struct hr_image_info info;
    struct hr__planar out;
    size_t bytes;
    hr__decoder_halve(f->makers, f->halvings);
    assert_int_equal(hr__decoder_info(f->makers, file->data, file->length, &info, NULL), 0);
    assert_int_equal(hr__decoder_region(f->makers, file->data, file->length, &info, r, &out, NULL),
                     0);
    const void *made = hr__decoder_item(f->makers, &bytes);
    assert_non_null(made);
    assert_int_equal(bytes, item->length);
    assert_memory_equal(made, item->data, bytes);
}

static struct jpeg_spec random_spec(uint64_t *random)
{
    static const int sampling[5][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {0, 0}};
    const int *luma = sampling[random_between(random, 0, 4)];
    struct jpeg_spec spec = {.components = luma[0] ? 3 : 1};
    for (int c = 0; c < spec.components; c++) {
        spec.h[c] = c || !luma[0] ? 1 : luma[0];
        spec.v[c] = c || !luma[0] ? 1 : luma[1];
    }
    spec.width = random_between(random, 1, 600);
    spec.height = random_between(random, 1, 200);
    spec.quality = random_between(random, 20, 100);
    spec.restart = random_between(random, 0, 1) ? 0 : random_between(random, 1, 50);
    spec.optimised = random_between(random, 0, 1);
    spec.content = (enum jpeg_content)random_between(random, CONTENT_PICTURE, CONTENT_BINARY);
    spec.seed = next_random(random);
    return spec;
}

static void regions_are_exact(void **state)
{
    struct indexed_fixture *f = *state;
    for (int n = 0; n < 150; n++) {
        struct jpeg_spec spec = random_spec(&f->random);
        struct bytes file = make_jpeg(&spec), item = make_item(f, &file);
        for (int i = 0; i < 20; i++) {
            struct hr_region r = random_region(&f->random, spec.width, spec.height);
            if (!i)
                r = (struct hr_region){0, 0, spec.width, spec.height};
            assert_true(check_region(f, &file, &item, &r));
            check_made(f, &file, &item, &r);
        }
        free(file.data);
        free(item.data);
    }
}

/* Bands by two decoders in turn, from the last to the first, into the room of a third. */
static void check_bands(struct indexed_fixture *f, const struct bytes *item,
                        const struct hr_region *r, int most)
{
    struct hr_region part[8];
    struct hr__planar want, got;
    struct hr_image_info info;
    hr__decoder_halve(f->items, f->halvings);
    hr__decoder_halve(f->makers, f->halvings);
    assert_int_equal(hr__decoder_info(f->items, item->data, item->length, &info, NULL), 0);
    assert_int_equal(hr__decoder_region(f->items, item->data, item->length, &info, r, &want, NULL),
                     0);
    assert_int_equal(hr__decoder_room(f->files, r, &got, NULL), 0);
    int count = hr__decoder_bands(&info, r, most, part), end = r->y;
    assert_true(count >= 1 && count <= most && (count == most || r->height < 16 * most * 2));
    for (int i = 0; i < count; i++) {
        assert_true(part[i].x == r->x && part[i].width == r->width && part[i].y == end);
        end += part[i].height;
    }
    assert_int_equal(end, r->y + r->height);
    for (int i = count - 1; i >= 0; i--) {
        const struct hr__band band = {part[i], r, &got};
        assert_int_equal(hr__decoder_band(i % 2 ? f->makers : f->items, item->data, item->length,
                                          &info, &band, NULL),
                         0);
    }
    compare(&want, &got, r);
}

static void bands_are_exact(void **state)
{
    struct indexed_fixture *f = *state;
    for (int n = 0; n < 60; n++) {
        struct jpeg_spec spec = random_spec(&f->random);
        spec.height = random_between(&f->random, 1, 600);
        struct bytes file = make_jpeg(&spec), item = make_item(f, &file);
        for (int most = 1; most <= 8; most++) {
            struct hr_region r = random_region(&f->random, spec.width, spec.height);
            check_bands(f, &item, &r, most);
        }
        free(file.data);
        free(item.data);
    }
}

/* Files without an index cannot be read from the middle. */
static void files_are_one_band(void **state)
{
    const struct hr_image_info info = {.format = HR_IMAGE_JPEG, .width = 500, .height = 500};
    const struct hr_region r = {1, 2, 300, 400};
    struct hr_region part[8];
    (void)state;
    assert_int_equal(hr__decoder_bands(&info, &r, 8, part), 1);
    assert_memory_equal(&part[0], &r, sizeof r);
}

static void halved_images_are_exact(void **state)
{
    struct indexed_fixture *f = *state;
    int by_index = 0;
    for (int n = 0; n < 90; n++) {
        struct jpeg_spec spec = random_spec(&f->random);
        struct bytes file = make_jpeg(&spec), item = make_item(f, &file);
        f->halvings = 1 + n % 3;
        struct hr_region r = random_region(&f->random, ((spec.width - 1) >> f->halvings) + 1,
                                           ((spec.height - 1) >> f->halvings) + 1);
        int fits = check_region(f, &file, &item, &r);
        if (fits)
            check_made(f, &file, &item, &r);
        by_index += fits;
        free(file.data);
        free(item.data);
    }
    f->halvings = 0;
    assert_true(by_index > 45); /* some samplings are left to libjpeg */
}

/* A changed bit of any point, or of the headers. Not with restart markers, which hide a wrong DC
 * coefficient from the next point: there only the container's checksum tells. */
static void wrong_points_are_found(void **state)
{
    struct indexed_fixture *f = *state;
    int refused = 0;
    for (int n = 0; n < 40; n++) {
        struct jpeg_spec spec = random_spec(&f->random);
        spec.restart = 0;
        struct bytes file = make_jpeg(&spec), item = make_item(f, &file);
        size_t head = item.length - file.length - HR__ITEM_PAD;
        for (int i = 0; i < 40; i++) {
            struct hr_region r = random_region(&f->random, spec.width, spec.height);
            size_t bit = (size_t)next_random(&f->random) % (head * 8);
            if (bit / 8 == offsetof(struct hr__item_header, orientation))
                continue; /* concerns no pixel here */
            item.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            refused += !check_region(f, &file, &item, &r);
            item.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        free(file.data);
        free(item.data);
    }
    assert_true(refused > 100);
}

static void other_files_are_refused(void **state)
{
    struct indexed_fixture *f = *state;
    const struct jpeg_spec specs[] = {
        {.width = 50, .height = 50, .components = 3, .quality = 80, .scans = SCANS_ARITHMETIC},
        {.width = 50, .height = 50, .components = 3, .quality = 80, .scans = SCANS_SEPARATE},
        {.width = 50, .height = 50, .components = 4, .quality = 80},
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct bytes file = make_jpeg(&specs[i]);
        struct hr_item item;
        struct hr_error error;
        assert_int_equal(
            hr_converter_run(f->converter, HR_FORM_INDEXED, file.data, file.length, &item, &error),
            -ENOTSUP);
        free(file.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_exact),      cmocka_unit_test(halved_images_are_exact),
        cmocka_unit_test(bands_are_exact),        cmocka_unit_test(files_are_one_band),
        cmocka_unit_test(wrong_points_are_found), cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests_name("codec-indexed", tests, set_up, tear_down);
}
