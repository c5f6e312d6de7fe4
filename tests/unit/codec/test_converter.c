/*
 * The converter. Items of every accepted kind of file have libjpeg-turbo's pixels, whole and by
 * region, and become files with the same coefficients again. Every other kind is refused with a
 * reason, and the converter stays usable. Also limits, damage, failed allocations, and thousands of
 * changed files that run through the fuzz target.
 */
#include "../test.h"
#include "components.h"
#include "webp_images.h"

#include "base/memory.h"
#include "codec/converter.h"

#include <headrace/form.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const enum hr_form forms[] = {HR_FORM_COEFFICIENTS, HR_FORM_PLANES};

struct converter_fixture {
    struct hr_converter *converter;
    struct hr__decoder *decoder;
    uint64_t random;
};

static int set_up(void **state)
{
    struct converter_fixture *f = calloc(1, sizeof *f);
    *state = f;
    f->random = 11;
    return hr_converter_create(&f->converter, NULL, NULL) || hr__decoder_create(&f->decoder, NULL);
}

static int tear_down(void **state)
{
    struct converter_fixture *f = *state;
    hr_converter_destroy(&f->converter);
    hr__decoder_destroy(&f->decoder);
    free(f);
    return 0;
}

static int tear_down_all(void **state)
{
    return tear_down(state) || hr__allocated(HR__TAG_CODEC);
}

static struct bytes copy_of(const struct hr_item *item)
{
    struct bytes copy = {malloc(item->length), item->length};
    memcpy(copy.data, item->bytes, item->length);
    return copy;
}

/* Checks that `bytes` has the pixels of `reference`, whole and in `regions` regions. */
static void has_pixels(struct converter_fixture *f, const struct bytes *bytes,
                       const uint8_t *reference, int width, int height, int regions)
{
    struct hr_image_info info;
    struct hr__planar out;
    assert_int_equal(hr__decoder_info(f->decoder, bytes->data, bytes->length, &info, NULL), 0);
    assert_int_equal(info.width, width);
    assert_int_equal(info.height, height);
    for (int n = 0; n <= regions; n++) {
        struct hr_region r = {0, 0, width, height};
        if (n) {
            r.width = random_between(&f->random, 1, n < 3 && width > 4 ? 4 : width);
            r.height = random_between(&f->random, 1, n < 3 && height > 4 ? 4 : height);
            r.x = random_between(&f->random, 0, width - r.width);
            r.y = random_between(&f->random, 0, height - r.height);
        }
        assert_int_equal(
            hr__decoder_region(f->decoder, bytes->data, bytes->length, &info, &r, &out, NULL), 0);
        if (!planar_equals(&out, reference, width, &r))
            fail_msg("%dx%d, format %d: region %d,%d %dx%d differs", width, height, info.format,
                     r.x, r.y, r.width, r.height);
    }
}

/* Converts the file to `form`. The caller frees the item. */
static struct bytes convert(struct converter_fixture *f, enum hr_form form,
                            const struct bytes *file)
{
    struct hr_item item;
    struct hr_error error;
    if (hr_converter_run(f->converter, form, file->data, file->length, &item, &error))
        fail_msg("%s: %s", hr_form_name(form), error.message);
    assert_int_equal(item.form, form);
    assert_int_equal(hr_form_of(item.bytes, item.length), form);
    return copy_of(&item);
}

static struct bytes restore(struct converter_fixture *f, const struct bytes *item)
{
    struct hr_item file;
    struct hr_error error;
    if (hr_converter_restore(f->converter, item->data, item->length, &file, &error))
        fail_msg("%s", error.message);
    assert_int_equal(file.form, HR_FORM_ENCODED);
    return copy_of(&file);
}

static void is_exact(struct converter_fixture *f, const struct jpeg_spec *spec)
{
    struct bytes file = make_jpeg(spec);
    int width, height, smoothed = spec->scans == SCANS_INCOMPLETE;
    uint8_t *reference = decode_plainly(&file, &width, &height);
    assert_non_null(reference);
    for (int i = smoothed; i < 2; i++) {
        struct hr_form_estimate estimate = {.size = sizeof estimate};
        struct bytes item = convert(f, forms[i], &file);
        has_pixels(f, &item, reference, width, height, 6);
        assert_int_equal(
            hr_converter_estimate(f->converter, forms[i], file.data, file.length, &estimate, NULL),
            0);
        assert_true(estimate.possible);
        if (forms[i] == HR_FORM_PLANES)
            assert_int_equal(estimate.bytes, item.length);
        struct bytes again = restore(f, &item);
        has_pixels(f, &again, reference, width, height, 0);
        if (forms[i] == HR_FORM_COEFFICIENTS) {
            assert_true(same_coefficients(&file, &again));
            struct bytes twice = convert(f, forms[i], &again);
            assert_int_equal(twice.length, item.length);
            assert_memory_equal(twice.data, item.data, item.length);
            free(twice.data);
        }
        free(again.data);
        free(item.data);
    }
    free(reference);
    free(file.data);
}

/* Returns a specification by the digits of sampled_spec, and also: 22: grey with the factors 2x2;
 * 2221: 4:4:4 with the factors 2x2 everywhere or 1x2 for luma; 2212: 4:2:2 as 2x2, 1x2. */
static struct jpeg_spec kind(struct converter_fixture *f, int sampling, int largest)
{
    struct jpeg_spec spec = sampled_spec(sampling == 22    ? 0
                                         : sampling > 1000 ? 111
                                                           : sampling,
                                         0, 0, 0);
    if (sampling == 22)
        spec.h[0] = spec.v[0] = 2;
    if (sampling > 1000) {
        spec.v[0] = spec.v[1] = spec.v[2] = 2;
        spec.h[0] = sampling == 2212 ? 2 : 1;
    }
    spec.width = random_between(&f->random, 1, largest);
    spec.height = random_between(&f->random, 1, largest);
    spec.quality = random_between(&f->random, 5, 100);
    spec.seed = next_random(&f->random);
    spec.content = (enum jpeg_content)random_between(&f->random, 0, 2);
    return spec;
}

static const int admitted[] = {0, 22, 111, 211, 121, 221, 411, 421, 141, 241, 311, 131, 2221, 2212};

static void sweep(struct converter_fixture *f, enum jpeg_scans scans, int images, int largest)
{
    for (size_t s = 0; s < sizeof admitted / sizeof *admitted; s++)
        for (int n = 0; n < test_rounds(images); n++) {
            struct jpeg_spec spec = kind(f, admitted[s], largest);
            if (scans == SCANS_INCOMPLETE && spec.components != 3)
                continue;
            spec.scans = scans;
            if (scans == SCANS_BASELINE && n % 3 == 2)
                spec.restart = random_between(&f->random, 1, 20);
            is_exact(f, &spec);
        }
}

static void baseline_is_exact(void **state)
{
    struct converter_fixture *f = *state;
    sweep(f, SCANS_BASELINE, 25, 40);
    sweep(f, SCANS_BASELINE, 5, 300);
}

static void qualities_are_exact(void **state)
{
    static const int qualities[] = {5, 10, 30, 50, 75, 90, 95, 98, 99, 100};
    struct converter_fixture *f = *state;
    for (size_t s = 0; s < sizeof admitted / sizeof *admitted; s++)
        for (size_t q = 0; q < sizeof qualities / sizeof *qualities; q++)
            for (int content = CONTENT_PICTURE; content <= CONTENT_BINARY; content++) {
                if (test_is_slow() && (int)(s + q) % 3 != content)
                    continue;
                struct jpeg_spec spec = kind(f, admitted[s], 60);
                spec.quality = qualities[q];
                spec.content = (enum jpeg_content)content;
                is_exact(f, &spec);
            }
}

static void smallest_sizes_are_exact(void **state)
{
    struct converter_fixture *f = *state;
    for (size_t s = 0; s < sizeof admitted / sizeof *admitted; s++)
        for (int side = 1; side <= 18; side++) {
            if (test_is_slow() && (side + (int)s) % 3)
                continue;
            struct jpeg_spec spec = kind(f, admitted[s], 300);
            spec.width = side;
            is_exact(f, &spec);
            spec.height = side;
            is_exact(f, &spec);
            spec.width = random_between(&f->random, 1, 300);
            is_exact(f, &spec);
        }
}

static void other_scans_are_exact(void **state)
{
    struct converter_fixture *f = *state;
    sweep(f, SCANS_PROGRESSIVE, 8, 100);
    sweep(f, SCANS_SEPARATE, 5, 60);
    sweep(f, SCANS_INCOMPLETE, 4, 100); /* as planes */
}

/* Checks that converting to `form` fails with -ENOTSUP and `reason`, and changes nothing. */
static void is_refused(struct converter_fixture *f, enum hr_form form, const struct bytes *file,
                       const char *reason)
{
    struct hr_item item = {.length = 77};
    struct hr_error error = {0};
    int r = hr_converter_run(f->converter, form, file->data, file->length, &item, &error);
    if (r != -ENOTSUP || error.code != r || !strstr(error.message, reason))
        fail_msg("%s: %d, %s", reason, r, error.message);
    assert_int_equal(item.length, 77);
    assert_null(item.bytes);
}

static void check_refusal(struct converter_fixture *f, const struct bytes *file, const char *reason)
{
    struct hr_form_estimate estimate;
    for (int i = 0; i < 2; i++) {
        is_refused(f, forms[i], file, reason);
        estimate = (struct hr_form_estimate){.size = sizeof estimate, .possible = 1};
        assert_int_equal(hr_converter_estimate(f->converter, forms[i], file->data, file->length,
                                               &estimate, NULL),
                         0);
        assert_false(estimate.possible);
        assert_int_equal(estimate.bytes, file->length);
    }
}

static void other_kinds_are_refused(void **state)
{
    static const struct {
        const char *reason;
        struct jpeg_spec spec;
    } kinds[] = {
        {"sampling is 3x3,1x1,1x1",
         {.components = 3, .h = {3, 1, 1}, .v = {3, 1, 1}, .scans = SCANS_SEPARATE}},
        {"sampling is 4x4,1x1,1x1",
         {.components = 3, .h = {4, 1, 1}, .v = {4, 1, 1}, .scans = SCANS_SEPARATE}},
        {"sampling is 1x1,1x1,2x1", {.components = 3, .h = {1, 1, 2}, .v = {1, 1, 1}}},
        {"sampling is 2x2,2x1,1x2", {.components = 3, .h = {2, 2, 1}, .v = {2, 1, 2}}},
        {"sampling is 1x1,2x2,2x2", {.components = 3, .h = {1, 2, 2}, .v = {1, 2, 2}}},
        {"colours are RGB", {.components = 3, .rgb = 1}},
        {"colours are CMYK", {.components = 4}},
        {"colours are CMYK", {.components = 4, .ycck = 1}},
        {"arithmetic", {.components = 3, .scans = SCANS_ARITHMETIC}},
        {"arithmetic", {.components = 1, .scans = SCANS_ARITHMETIC}},
    };
    struct converter_fixture *f = *state;
    struct jpeg_spec good = sampled_spec(221, 61, 45, 3);
    struct bytes file = make_jpeg(&good), before = convert(f, HR_FORM_COEFFICIENTS, &file);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct jpeg_spec spec = kinds[i].spec;
        spec.width = 50;
        spec.height = 37;
        spec.quality = 80;
        struct bytes other = make_jpeg(&spec);
        check_refusal(f, &other, kinds[i].reason);
        free(other.data);
        struct bytes after = convert(f, HR_FORM_COEFFICIENTS, &file);
        assert_int_equal(after.length, before.length);
        assert_memory_equal(after.data, before.data, before.length);
        free(after.data);
    }
    free(before.data);
    free(file.data);
}

/* Finds the first marker 0xFF `marker` of the file. */
static uint8_t *find_marker(const struct bytes *file, int marker)
{
    for (size_t i = 2; i + 4 < file->length; i += 2u + (file->data[i + 2] << 8 | file->data[i + 3]))
        if (file->data[i + 1] == marker)
            return file->data + i;
    fail_msg("no marker %02x", marker);
    return NULL;
}

/* The converter compares the pixels; here, planes of every type of PNG. */
static void png_files_become_planes(void **state)
{
    static const int types[][2] = {{0, 1}, {0, 8}, {0, 16}, {2, 8}, {2, 16},
                                   {3, 4}, {3, 8}, {4, 8},  {6, 8}, {6, 16}};
    struct converter_fixture *f = *state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct png_spec spec = {.width = 71, .height = 130, .type = types[i][0]};
        spec.depth = types[i][1];
        spec.palette = spec.type == 3 ? 1 << spec.depth : 0;
        spec.interlaced = (int)i % 2;
        struct bytes file = make_png(&spec, NULL), item = convert(f, HR_FORM_PLANES, &file);
        size_t channels = spec.type == 0 || spec.type == 4 ? 1 : 3;
        assert_int_equal(item.length, 32 + 71 * 130 * channels + 64);
        assert_int_equal(hr_form_of(item.data, item.length), HR_FORM_PLANES);
        /* a flag or version of another kind of item is refused */
        struct hr_image_info info;
        assert_int_equal(hr__decoder_info(f->decoder, item.data, item.length, &info, NULL), 0);
        assert_int_equal(info.channels, (int)channels);
        item.data[4] ^= 3; /* version 1 or 2: the other one */
        assert_int_equal(hr__decoder_info(f->decoder, item.data, item.length, &info, NULL),
                         -EBADMSG);
        free(item.data);
        file.data[file.length - 20] ^= 0x40;
        assert_int_equal(
            hr_converter_run(f->converter, HR_FORM_PLANES, file.data, file.length, NULL, NULL),
            -EBADMSG);
        free(file.data);
    }
}

static void other_files_are_refused(void **state)
{
    struct converter_fixture *f = *state;
    struct jpeg_spec spec = sampled_spec(221, 40, 30, 2);
    struct bytes file = make_jpeg(&spec);
    uint8_t *frame = find_marker(&file, 0xC0);
    frame[4] = 12;
    check_refusal(f, &file, "precision");
    frame[4] = 8;
    frame[1] = 0xC3;
    check_refusal(f, &file, "lossless");
    frame[1] = 0xC0;
    free(file.data);
    spec.scans = SCANS_INCOMPLETE;
    file = make_jpeg(&spec);
    is_refused(f, HR_FORM_COEFFICIENTS, &file, "progressive");
    struct bytes item = convert(f, HR_FORM_PLANES, &file);
    check_refusal(f, &item, "item already");
    free(item.data);
    free(file.data);
    struct png_spec png = {.width = 9, .height = 8, .depth = 8, .type = 2};
    file = make_png(&png, NULL);
    is_refused(f, HR_FORM_COEFFICIENTS, &file, "it is a PNG; its only form is planes");
    is_refused(f, HR_FORM_INDEXED, &file, "it is a PNG");
    free(file.data);
    struct webp_spec webp = {.width = 9, .height = 8, .quality = 80};
    file = make_webp(&webp);
    check_refusal(f, &file, "it is a WebP");
    free(file.data);
}

/* Makes a grey 8x8 JPEG of one block with quantisers of 1, the given Huffman tables, and 16 bits of
 * scan data. */
static struct bytes tiny_jpeg(const uint8_t *tables, size_t tables_bytes, uint16_t scan)
{
    static const uint8_t frame[] = {0xFF, 0xC0, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0};
    static const uint8_t start[] = {0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0};
    struct bytes file = {calloc(1, 256), 0};
    uint8_t *p = file.data;
    memcpy(p, "\xFF\xD8\xFF\xDB\0\x43\0", 7);
    memset(p + 7, 1, 64);
    p += 71;
    memcpy(p, frame, sizeof frame);
    p += sizeof frame;
    memcpy(p, tables, tables_bytes);
    p += tables_bytes;
    memcpy(p, start, sizeof start);
    p += sizeof start;
    *p++ = (uint8_t)(scan >> 8);
    *p++ = (uint8_t)scan;
    memcpy(p, "\xFF\xD9", 2);
    file.length = (size_t)(p + 2 - file.data);
    return file;
}

/* T.81 limits the coefficients of 8-bit images to less than 1024; larger ones could not be written
 * to a file again. Files with larger ones decode, but cannot become coefficients. */
static void large_coefficients_are_refused(void **state)
{
    /* DC: the code 0 is a difference of 11 bits; AC: the code 0 ends the block. */
    static const uint8_t dc[] = {0xFF, 0xC4, 0, 20, 0, 1, 0,  0,    0,    0, 0,  0,    0, 0, 0,
                                 0,    0,    0, 0,  0, 0, 11, 0xFF, 0xC4, 0, 20, 0x10, 1, 0, 0,
                                 0,    0,    0, 0,  0, 0, 0,  0,    0,    0, 0,  0,    0, 0};
    /* DC: the code 0 is no difference; AC: 00 is a value of 11 bits, 01 the end. */
    static const uint8_t ac[] = {0xFF, 0xC4, 0, 20, 0, 1, 0, 0,    0,    0, 0,  0,    0, 0,  0,
                                 0,    0,    0, 0,  0, 0, 0, 0xFF, 0xC4, 0, 21, 0x10, 0, 2,  0,
                                 0,    0,    0, 0,  0, 0, 0, 0,    0,    0, 0,  0,    0, 11, 0};
    static const struct {
        const uint8_t *tables;
        size_t bytes;
        uint16_t scan;
        int fits;
    } blocks[] = {
        {dc, sizeof dc, 0x5DC7, 0}, /* DC 1500 */
        {dc, sizeof dc, 0x4007, 0}, /* 1024 */
        {dc, sizeof dc, 0x3FF7, 1}, /* -1024: a black block */
        {dc, sizeof dc, 0x3FE7, 0}, /* -1025 */
        {ac, sizeof ac, 0x1001, 0}, /* AC 1024 */
        {ac, sizeof ac, 0x0FFD, 0}, /* -1024 */
    };
    struct converter_fixture *f = *state;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        struct bytes file = tiny_jpeg(blocks[i].tables, blocks[i].bytes, blocks[i].scan);
        int width, height;
        uint8_t *reference = decode_plainly(&file, &width, &height);
        assert_non_null(reference);
        if (blocks[i].fits) {
            struct bytes item = convert(f, HR_FORM_COEFFICIENTS, &file), again = restore(f, &item);
            has_pixels(f, &item, reference, 8, 8, 5);
            assert_true(same_coefficients(&file, &again));
            free(again.data);
            free(item.data);
        } else {
            is_refused(f, HR_FORM_COEFFICIENTS, &file, "larger than those of 8-bit pixels");
        }
        struct bytes item = convert(f, HR_FORM_PLANES, &file);
        has_pixels(f, &item, reference, 8, 8, 5);
        free(item.data);
        free(reference);
        free(file.data);
    }
}

/* Quantisers that no encoder chooses give values beyond 16 bits. */
static void large_values_are_refused(void **state)
{
    struct converter_fixture *f = *state;
    struct jpeg_spec spec = sampled_spec(111, 40, 30, 6);
    spec.content = CONTENT_BINARY;
    spec.quality = 100;
    struct bytes file = make_jpeg(&spec);
    memset(find_marker(&file, 0xDB) + 5, 255, 64);
    is_refused(f, HR_FORM_COEFFICIENTS, &file, "beyond those of 8-bit pixels");
    free(file.data);
}

static void damaged_files_are_refused(void **state)
{
    struct converter_fixture *f = *state;
    for (int scans = SCANS_BASELINE; scans <= SCANS_PROGRESSIVE; scans++) {
        struct jpeg_spec spec = sampled_spec(221, 90, 70, 2);
        spec.scans = (enum jpeg_scans)scans;
        struct bytes file = make_jpeg(&spec), before = convert(f, HR_FORM_PLANES, &file);
        for (size_t length = 2; length < file.length - 2; length += 1 + length / 16)
            for (int i = 0; i < 2; i++) {
                struct hr_item item = {0};
                struct hr_error error = {0};
                uint8_t *part = malloc(length);
                memcpy(part, file.data, length);
                assert_int_equal(
                    hr_converter_run(f->converter, forms[i], part, length, &item, &error),
                    -EBADMSG);
                assert_int_equal(error.code, -EBADMSG);
                assert_null(item.bytes);
                free(part);
            }
        struct bytes after = convert(f, HR_FORM_PLANES, &file);
        assert_memory_equal(after.data, before.data, before.length);
        free(after.data);
        free(before.data);
        free(file.data);
    }
}

static void orientation_stays(void **state)
{
    struct converter_fixture *f = *state;
    for (int orientation = 1; orientation <= 8; orientation++)
        for (int i = 0; i < 2; i++) {
            struct jpeg_spec spec = sampled_spec(211, 30, 20, 1);
            struct bytes file = make_jpeg(&spec), exif = make_exif(orientation, orientation % 2);
            uint8_t segment[128] = {0xFF, 0xE1, 0, 0, 'E', 'x', 'i', 'f', 0, 0};
            struct hr_image_info info;
            segment[3] = (uint8_t)(8 + exif.length);
            memcpy(segment + 10, exif.data, exif.length);
            insert_segment(&file, segment, 10 + exif.length);
            struct bytes item = convert(f, forms[i], &file), again = restore(f, &item);
            assert_int_equal(hr__decoder_info(f->decoder, item.data, item.length, &info, NULL), 0);
            assert_int_equal(info.orientation, orientation);
            assert_int_equal(hr__decoder_info(f->decoder, again.data, again.length, &info, NULL),
                             0);
            assert_int_equal(info.orientation, orientation);
            assert_int_equal(info.format, i ? HR_IMAGE_PNG : HR_IMAGE_JPEG);
            assert_int_equal(info.channels, 3);
            free(again.data);
            free(item.data);
            free(exif.data);
            free(file.data);
        }
}

/* Verification finds an item whose pixels differ from its file's, wherever they differ. */
static void verification_finds_other_pixels(void **state)
{
    struct converter_fixture *f = *state;
    struct hr_error error;
    struct jpeg_spec spec = sampled_spec(221, 150, 170, 3), narrower = spec;
    narrower.width--;
    struct bytes file = make_jpeg(&spec), other = make_jpeg(&narrower);
    struct bytes item = convert(f, HR_FORM_PLANES, &file);
    struct hr__encoded in = {.bytes = file.data, .length = file.length};
    struct hr__encoded made = {.bytes = item.data, .length = item.length};
    assert_int_equal(hr__converter_verify(f->converter, &in, &made, NULL), 0);
    static const struct {
        size_t at;
        const char *rows;
    } samples[] = {{32, "rows 0 to 63"},
                   {32 + 150 * 100 + 149, "rows 64 to 127"},
                   {32 + 150 * 170 - 1, "rows 128 to 169"}};
    for (size_t i = 0; i < 3; i++) {
        item.data[samples[i].at] ^= 8;
        assert_int_equal(hr__converter_verify(f->converter, &in, &made, &error), -ENOTSUP);
        assert_non_null(strstr(error.message, samples[i].rows));
        item.data[samples[i].at] ^= 8;
    }
    in = (struct hr__encoded){.bytes = other.data, .length = other.length};
    assert_int_equal(hr__converter_verify(f->converter, &in, &made, &error), -ENOTSUP);
    free(item.data);
    free(other.data);
    free(file.data);
}

static void limits_hold(void **state)
{
    struct converter_fixture *f = *state;
    struct hr_converter_options options;
    struct hr_converter *c;
    struct hr_item item = {0};
    struct hr_error error;
    struct jpeg_spec spec = sampled_spec(221, 160, 120, 2);
    struct bytes file = make_jpeg(&spec);
    hr_converter_options_default(&options);
    struct bytes sure[2], large[2];
    for (int i = 0; i < 2; i++)
        large[i] = convert(f, forms[i], &file);
    for (int i = 0; i < 2; i++) {
        options.trust = 1;
        options.max_growth = ((double)large[i].length + 0.5) / (double)file.length;
        assert_int_equal(hr_converter_create(&c, &options, NULL), 0);
        assert_int_equal(hr_converter_run(c, forms[i], file.data, file.length, &item, NULL), 0);
        sure[i] = copy_of(&item);
        assert_int_equal(sure[i].length, large[i].length); /* without verification: the same item */
        assert_memory_equal(sure[i].data, large[i].data, large[i].length);
        hr_converter_destroy(&c);
        options.max_growth = ((double)large[i].length - 0.5) / (double)file.length;
        assert_int_equal(hr_converter_create(&c, &options, NULL), 0);
        assert_int_equal(hr_converter_run(c, forms[i], file.data, file.length, &item, &error),
                         -ENOSPC);
        assert_int_equal(error.code, -ENOSPC);
        hr_converter_destroy(&c);
        free(sure[i].data);
    }
    options.max_growth = 0;
    options.max_pixels = 160 * 120 - 1;
    assert_int_equal(hr_converter_create(&c, &options, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hr_converter_run(c, forms[i], file.data, file.length, &item, NULL),
                         -EFBIG);
        assert_int_equal(hr_converter_restore(c, large[i].data, large[i].length, &item, &error),
                         -EFBIG);
        free(large[i].data);
    }
    hr_converter_destroy(&c);
    options.max_growth = -1;
    assert_int_equal(hr_converter_create(&c, &options, &error), -EINVAL);
    assert_null(c);
    free(file.data);
}

static void encoded_bytes_are_themselves(void **state)
{
    struct converter_fixture *f = *state;
    struct hr_item item = {0};
    assert_int_equal(hr_converter_run(f->converter, HR_FORM_ENCODED, "any", 3, &item, NULL), 0);
    assert_string_equal(item.bytes, "any");
    assert_int_equal(item.form, HR_FORM_ENCODED);
    item.bytes = NULL;
    assert_int_equal(hr_converter_restore(f->converter, "any", 3, &item, NULL), 0);
    assert_string_equal(item.bytes, "any");
    assert_int_equal(item.length, 3);
    assert_int_equal(hr_converter_run(f->converter, (enum hr_form)9, "any", 3, &item, NULL),
                     -EINVAL);
}

/* The estimate of an item's size is within a quarter for pictures of usual quality. */
static void estimates_are_near(void **state)
{
    static const int qualities[] = {75, 85, 90, 95};
    struct converter_fixture *f = *state;
    for (int q = 0; q < 4; q++)
        for (int sampling = 111; sampling <= 221; sampling += 110) {
            struct jpeg_spec spec = sampled_spec(sampling, 300, 200, (uint64_t)q);
            struct hr_form_estimate estimate = {.size = sizeof estimate};
            spec.quality = qualities[q];
            struct bytes file = make_jpeg(&spec), item = convert(f, HR_FORM_COEFFICIENTS, &file);
            assert_int_equal(hr_converter_estimate(f->converter, HR_FORM_COEFFICIENTS, file.data,
                                                   file.length, &estimate, NULL),
                             0);
            double ratio = (double)estimate.bytes / (double)item.length;
            if (ratio < 0.75 || ratio > 1.25)
                fail_msg("sampling %d, quality %d: expected %.2f of the item", sampling,
                         qualities[q], ratio);
            free(item.data);
            free(file.data);
        }
}

/* Does everything that a converter can do. */
static int use_all(const struct bytes *file, struct hr_error *error)
{
    struct hr_converter *c;
    struct hr_item item;
    int r = hr_converter_create(&c, NULL, error);
    for (int i = 0; !r && i < 2; i++) {
        r = hr_converter_run(c, forms[i], file->data, file->length, &item, error);
        if (r)
            break;
        struct bytes copy = copy_of(&item);
        r = hr_converter_restore(c, copy.data, copy.length, &item, error);
        free(copy.data);
    }
    hr_converter_destroy(&c);
    assert_null(c);
    return r;
}

static void no_memory_is_an_error(void **state)
{
    struct jpeg_spec spec = sampled_spec(221, 300, 200, 0);
    spec.content = CONTENT_NOISE;
    struct bytes file = make_jpeg(&spec);
    uint64_t before = hr__allocated(HR__TAG_CODEC);
    int failures = 0;
    for (int done = 0; !done; failures += !done) {
        struct hr_error error = {0};
        hr__alloc_fail_at((uint64_t)failures + 1, 0);
        int r = use_all(&file, &error);
        hr__alloc_fail_at(0, 0);
        done = !r;
        assert_true(done || (r == -ENOMEM && error.code == -ENOMEM));
        assert_int_equal(hr__allocated(HR__TAG_CODEC), before);
    }
    assert_true(failures > 15);
    free(file.data);
}

static void change(uint8_t *data, size_t length, uint64_t *random)
{
    for (int n = random_between(random, 0, 3); n; n--) {
        int last = (int)length - 1;
        int at = random_between(random, 0, last < 600 || next_random(random) % 2 ? last : 600);
        if (next_random(random) % 2)
            data[at] = (uint8_t)next_random(random);
        else
            data[at] ^= (uint8_t)(1u << next_random(random) % 8);
    }
}

/* Changed files and items, the same in every run. */
static void changed_files_are_safe(void **state)
{
    struct converter_fixture *f = *state;
    uint64_t random = 4;
    for (int n = 0; n < test_rounds(40); n++) {
        struct jpeg_spec spec =
            kind(f, admitted[n % (int)(sizeof admitted / sizeof *admitted)], 48);
        spec.scans = n % 4 == 3 ? SCANS_PROGRESSIVE : SCANS_BASELINE;
        struct bytes file = make_jpeg(&spec);
        struct bytes item = convert(f, HR_FORM_COEFFICIENTS, &file);
        for (int k = 0; k < 60; k++) {
            const struct bytes *of = k % 5 == 4 ? &item : &file;
            size_t length = of->length + 9;
            uint8_t *input = malloc(length);
            memcpy(input, of->data, of->length);
            change(input, of->length, &random);
            for (int i = 0; i < 9; i++)
                input[of->length + (size_t)i] = (uint8_t)next_random(&random);
            assert_int_equal(LLVMFuzzerTestOneInput(input, length), 0);
            free(input);
        }
        free(item.data);
        free(file.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(baseline_is_exact),
        cmocka_unit_test(qualities_are_exact),
        cmocka_unit_test(smallest_sizes_are_exact),
        cmocka_unit_test(other_scans_are_exact),
        cmocka_unit_test(other_kinds_are_refused),
        cmocka_unit_test(png_files_become_planes),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(large_coefficients_are_refused),
        cmocka_unit_test(large_values_are_refused),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(orientation_stays),
        cmocka_unit_test(verification_finds_other_pixels),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(encoded_bytes_are_themselves),
        cmocka_unit_test(estimates_are_near),
        cmocka_unit_test(no_memory_is_an_error),
    };
    /* The fuzz target keeps its memory, so it runs after the tests that count allocations. */
    const struct CMUnitTest last[] = {cmocka_unit_test(changed_files_are_safe)};
    int failed = cmocka_run_group_tests_name("codec-converter", tests, set_up, tear_down_all);
    return failed + cmocka_run_group_tests_name("codec-converter-changed", last, set_up, tear_down);
}
