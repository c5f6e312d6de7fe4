/*
 * The form `indexed`. Regions have the pixels of the file, decoded with the index alone and through
 * the decoder. Restoring gives the file byte for byte. Converting a file and decoding it make the
 * same item. If a point of the index is wrong, the image is decoded without the index.
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
    struct hr__decoder *files, *items,
        *makers; /* with libjpeg-turbo; of items; while making items */
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

/* Decodes with the index alone, and as far as the claims allow, if there are any. Returns 0 if the
 * index does not fit the file. */
static int decode_by_index(struct indexed_fixture *f, const struct hr__indexed *item,
                           const struct hr_region *r, const struct hr__row_claims *claims,
                           struct hr__planar *out)
{
    struct hr__decode_job job = {
        .in = item->file, .halvings = f->halvings, .region = *r, .out = *out, .claims = claims};
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

/* Decodes the item through the decoder and with its index alone, and compares the pixels with the
 * file's. Returns 0 if the index does not fit, or the item's headers are wrong. */
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
               decode_by_index(f, &opened, r, NULL, &by_index);
    if (fits)
        compare(&want, &by_index, r);
    free(by_index.plane[0]);
    return fits;
}

/* Checks that the parts of an item follow each other in `item`, and that the file is not copied. */
static void check_parts(const struct hr_item_part *parts, const struct bytes *file,
                        const struct bytes *item)
{
    size_t at = 0;
    assert_non_null(parts);
    for (int i = 0; i < HR_ITEM_PARTS; at += parts[i++].length) {
        assert_true(parts[i].length <= item->length - at);
        assert_memory_equal(parts[i].bytes, item->data + at, parts[i].length);
    }
    assert_int_equal(at, item->length);
    assert_ptr_equal(parts[1].bytes, file->data);
}

/* Checks that the decoder makes the same item while it decodes a region of the file, whole or in
 * parts. */
static void check_made(struct indexed_fixture *f, const struct bytes *file,
                       const struct bytes *item, const struct hr_region *r)
{
    struct hr_image_info info;
    struct hr__planar out;
    size_t bytes;
    int in_parts = random_between(&f->random, 0, 1);
    hr__decoder_make_items(f->makers, in_parts ? HR_ITEMS_IN_PARTS : 1);
    hr__decoder_halve(f->makers, f->halvings);
    assert_int_equal(hr__decoder_info(f->makers, file->data, file->length, &info, NULL), 0);
    assert_int_equal(hr__decoder_region(f->makers, file->data, file->length, &info, r, &out, NULL),
                     0);
    if (in_parts) {
        assert_null(hr__decoder_item(f->makers, &bytes));
        check_parts(hr__decoder_item_parts(f->makers), file, item);
        return;
    }
    assert_null(hr__decoder_item_parts(f->makers));
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
    for (int n = 0; n < test_rounds(150); n++) {
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

/* Rows of a shared region. While its owner decodes, others sometimes take rows from its end. */
struct rows_test {
    uint64_t *random;
    int next, end, often;
    int bands, from[64], to[64];
};

static int claim_rows(void *arg, int until)
{
    struct rows_test *t = arg;
    while (t->bands < 64 && t->next < t->end && random_between(t->random, 0, 99) < t->often) {
        int from = random_between(t->random, t->next, t->end - 1);
        if (random_between(t->random, 0, 3))
            from = (from + HR__BAND_ROWS - 1) / HR__BAND_ROWS * HR__BAND_ROWS;
        if (from >= t->end)
            break;
        t->from[t->bands] = from;
        t->to[t->bands++] = t->end;
        t->end = from;
    }
    assert_true(until >= t->next);
    t->next = until < t->end ? until : t->end;
    return t->end;
}

/* The owner decodes what others leave, in strips of any size if the index serves for it; then
 * another decoder decodes the bands, first the one that was taken last. */
static void check_shared(struct indexed_fixture *f, const struct bytes *item,
                         const struct hr_region *r)
{
    struct hr__planar want;
    struct hr__shared_region s = {.bytes = item->data, .length = item->length, .region = *r};
    struct rows_test t = {
        .random = &f->random,
        .next = r->y,
        .end = r->y + r->height,
        .often = random_between(&f->random, 0, 60),
    };
    const struct hr__row_claims claims = {claim_rows, &t};
    s.halvings = f->halvings;
    s.out = make_planes(r);
    hr__decoder_halve(f->items, f->halvings);
    assert_int_equal(hr__decoder_info(f->items, item->data, item->length, &s.info, NULL), 0);
    assert_int_equal(
        hr__decoder_region(f->items, item->data, item->length, &s.info, r, &want, NULL), 0);
    if (s.info.format != HR_IMAGE_INDEXED || random_between(&f->random, 0, 1)) {
        assert_int_equal(hr__decoder_shared(f->makers, &s, &claims), 0);
    } else {
        struct hr__indexed opened;
        hr__baseline_set_strip(f->baseline, (size_t)random_between(&f->random, 1, 100000));
        assert_int_equal(hr__indexed_open(&opened, item->data, item->length, NULL), 0);
        assert_true(decode_by_index(f, &opened, r, &claims, &s.out));
    }
    assert_int_equal(t.next, t.end);
    for (int i = t.bands - 1; i >= 0; i--)
        assert_int_equal(hr__decoder_band(f->makers, &s, t.from[i], t.to[i]), 0);
    compare(&want, &s.out, r);
    free(s.out.plane[0]);
}

static void shared_regions_are_exact(void **state)
{
    struct indexed_fixture *f = *state;
    for (int n = 0; n < test_rounds(60); n++) {
        struct jpeg_spec spec = random_spec(&f->random);
        spec.height = random_between(&f->random, 1, 600);
        struct bytes file = make_jpeg(&spec), item = make_item(f, &file);
        for (int i = 0; i < 16; i++) {
            f->halvings = i % 4 == 3;
            struct hr_region r = random_region(&f->random, ((spec.width - 1) >> f->halvings) + 1,
                                               ((spec.height - 1) >> f->halvings) + 1);
            check_shared(f, &item, &r);
        }
        f->halvings = 0;
        free(file.data);
        free(item.data);
    }
}

/* A whole image takes the memory of its pixels and of the samples of a band. */
static void check_memory(const struct bytes *item)
{
    struct hr__decoder *decoder;
    struct hr_image_info info;
    struct hr__planar out;
    assert_int_equal(hr__decoder_create(&decoder, NULL), 0);
    assert_int_equal(hr__decoder_info(decoder, item->data, item->length, &info, NULL), 0);
    const struct hr_region whole = {0, 0, info.width, info.height};
    assert_int_equal(
        hr__decoder_region(decoder, item->data, item->length, &info, &whole, &out, NULL), 0);
    size_t pixels = 3 * (size_t)out.stride * (size_t)out.height;
    assert_true(hr__decoder_memory(decoder) < pixels + (9 << 18));
    hr__decoder_destroy(&decoder);
}

/* Large enough for several bands of the forms that the decoder cuts into bands itself. */
static void other_forms_are_shared(void **state)
{
    static const enum hr_form form[2] = {HR_FORM_COEFFICIENTS, HR_FORM_PLANES};
    struct indexed_fixture *f = *state;
    for (int n = 0; n < 6; n++) {
        struct jpeg_spec spec = random_spec(&f->random);
        struct hr_item item;
        spec.width = random_between(&f->random, 1100, 1300);
        spec.height = random_between(&f->random, 1100, 1300);
        spec.content = CONTENT_PICTURE;
        struct bytes file = make_jpeg(&spec);
        assert_int_equal(
            hr_converter_run(f->converter, form[n % 2], file.data, file.length, &item, NULL), 0);
        const struct bytes bytes = {(uint8_t *)item.bytes, item.length};
        for (int i = 0; i < 3; i++) {
            struct hr_region r = random_region(&f->random, spec.width, spec.height);
            if (!i)
                r = (struct hr_region){0, 0, spec.width, spec.height};
            check_shared(f, &bytes, &r);
        }
        free(file.data);
        check_memory(&bytes);
    }
}

/* The parts of a shared region do not fall back: an index that does not fit, or damage, makes the
 * one part fail that meets it. */
static void parts_fail_alone(void **state)
{
    struct indexed_fixture *f = *state;
    struct jpeg_spec spec = random_spec(&f->random);
    spec.width = spec.height = 512;
    spec.components = 1;
    spec.h[0] = spec.v[0] = 1;
    spec.restart = 0;
    struct bytes file = make_jpeg(&spec), item = make_item(f, &file);
    struct hr__indexed opened;
    struct hr__shared_region s = {
        .bytes = item.data, .length = item.length, .region = {0, 0, 512, 512}};
    struct hr__planar out;
    assert_int_equal(hr__indexed_open(&opened, item.data, item.length, NULL), 0);
    assert_int_equal(hr__decoder_info(f->items, item.data, item.length, &s.info, NULL), 0);
    s.out = make_planes(&s.region);
    /* the DC coefficient of the first point of the row of MCUs 40 */
    uint8_t *point = item.data + (opened.index.points - item.data) + 40 * 4 * HR__POINT_BYTES;
    point[4] ^= 1;
    assert_int_equal(hr__decoder_band(f->items, &s, 0, 312), 0);
    assert_int_equal(hr__decoder_band(f->items, &s, 320, 512), -EBADMSG);
    assert_int_equal(hr__decoder_band(f->items, &s, 328, 512), 0);
    struct rows_test t = {.random = &f->random, .end = 512};
    const struct hr__row_claims claims = {claim_rows, &t};
    assert_int_equal(hr__decoder_shared(f->items, &s, &claims), -EBADMSG);
    assert_int_equal(
        hr__decoder_region(f->items, item.data, item.length, &s.info, &s.region, &out, NULL), 0);
    free(s.out.plane[0]);
    free(file.data);
    free(item.data);
}

static void small_regions_and_files_are_not_shared(void **state)
{
    struct indexed_fixture *f = *state;
    struct hr__shared_region s;
    struct hr_image_info info = {.format = HR_IMAGE_JPEG, .width = 2048, .height = 2048};
    struct hr_region r = {0, 0, 2048, 2048};
    assert_false(hr__decoder_share(f->items, NULL, 0, &info, &r, &s));
    info.format = HR_IMAGE_PNG;
    assert_false(hr__decoder_share(f->items, NULL, 0, &info, &r, &s));
    info.format = HR_IMAGE_INDEXED;
    assert_true(hr__decoder_share(f->items, NULL, 0, &info, &r, &s));
    assert_memory_equal(&s.region, &r, sizeof r);
    assert_false(hr__decoder_share(f->files, NULL, 0, &info, &r, &s)); /* libjpeg-turbo alone */
    r.height = 511;
    assert_false(hr__decoder_share(f->items, NULL, 0, &info, &r, &s));
}

static void halved_images_are_exact(void **state)
{
    struct indexed_fixture *f = *state;
    int by_index = 0, rounds = test_rounds(90);
    for (int n = 0; n < rounds; n++) {
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
    assert_true(by_index > rounds / 2); /* the others have samplings that only libjpeg decodes */
}

/* Changes a bit of a point or of the headers. Without restart markers: they reset the DC
 * coefficients, so the next point does not reveal a wrong one; there only the container's checksum
 * detects it. */
static void wrong_points_are_found(void **state)
{
    struct indexed_fixture *f = *state;
    int refused = 0, rounds = test_rounds(40);
    for (int n = 0; n < rounds; n++) {
        struct jpeg_spec spec = random_spec(&f->random);
        spec.restart = 0;
        struct bytes file = make_jpeg(&spec), item = make_item(f, &file);
        size_t head = item.length - file.length - HR__ITEM_PAD;
        for (int i = 0; i < 40; i++) {
            struct hr_region r = random_region(&f->random, spec.width, spec.height);
            size_t bit = (size_t)next_random(&f->random) % (head * 8);
            if (bit / 8 == offsetof(struct hr__item_header, orientation))
                continue; /* changes no pixel here */
            item.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            refused += !check_region(f, &file, &item, &r);
            item.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        free(file.data);
        free(item.data);
    }
    assert_true(refused > rounds * 5 / 2);
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

/* Makes the points of a file, with streams that guess where at least `least` bytes are skipped.
 * Returns 0 if there are none; else the caller frees *points. */
static size_t make_points(struct indexed_fixture *f, const struct bytes *file, size_t least,
                          uint8_t **points)
{
    struct hr__encoded in = {.bytes = file->data, .length = file->length};
    struct hr__scan_grid grid;
    *points = NULL;
    hr__baseline_set_guess(f->baseline, least);
    if (setjmp(f->library.escape)) {
        jpeg_destroy_decompress(&f->library.cinfo);
        return 0;
    }
    hr__jpeg_read_header(&f->library, &in);
    assert_true(hr__baseline_grid(f->baseline, &f->library.cinfo, &grid));
    *points = calloc(grid.points, HR__POINT_BYTES);
    int made = hr__baseline_points(f->baseline, &f->library.cinfo, *points);
    jpeg_destroy_decompress(&f->library.cinfo);
    return made ? grid.points * HR__POINT_BYTES : 0;
}

/* Several streams that guess make the index that one makes, and refuse what it refuses. */
static void guesses_change_nothing(void **state)
{
    static const size_t least[3] = {0, 300, 5000};
    struct indexed_fixture *f = *state;
    int refused = 0, rounds = test_rounds(90);
    for (int n = 0; n < rounds; n++) {
        struct jpeg_spec spec = random_spec(&f->random);
        spec.width = random_between(&f->random, 1, 900);
        spec.height = random_between(&f->random, 1, 900);
        spec.quality = n % 3 ? random_between(&f->random, 5, 100) : 95;
        spec.restart *= n % 4 == 0;
        struct bytes file = make_jpeg(&spec);
        for (int damages = 0; damages < 4; damages++) {
            uint8_t *alone, *guessed;
            size_t bytes = make_points(f, &file, SIZE_MAX, &alone);
            refused += !bytes;
            for (int i = 0; i < 3; i++) {
                assert_int_equal(make_points(f, &file, least[i], &guessed), bytes);
                if (bytes)
                    assert_memory_equal(alone, guessed, bytes);
                free(guessed);
            }
            free(alone);
            file.data[random_between(&f->random, (int)file.length / 2, (int)file.length - 1)] ^=
                (uint8_t)random_between(&f->random, 1, 255);
        }
        free(file.data);
    }
    assert_in_range(refused, rounds / 3, 3 * rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_exact),
        cmocka_unit_test(guesses_change_nothing),
        cmocka_unit_test(halved_images_are_exact),
        cmocka_unit_test(shared_regions_are_exact),
        cmocka_unit_test(other_forms_are_shared),
        cmocka_unit_test(parts_fail_alone),
        cmocka_unit_test(small_regions_and_files_are_not_shared),
        cmocka_unit_test(wrong_points_are_found),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests_name("codec-indexed", tests, set_up, tear_down);
}
