/*
 * Rewrites progressive files as baseline files. Coefficients and all metadata stay the same, for
 * all samplings and scans; files that cannot be rewritten are refused. Items of the form `indexed`
 * made this way have the pixels of the progressive file.
 */
#include "../test.h"
#include "components.h"

#include "base/memory.h"
#include "codec/jpeg_transcode.h"

#include <headrace/form.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct rewriting {
    struct hr__transcoder *transcoder;
    struct hr_converter *converter;
    struct hr__decoder *decoder;
    uint64_t random;
};

static int set_up(void **state)
{
    struct rewriting *f = calloc(1, sizeof *f);
    *state = f;
    return hr__transcoder_create(&f->transcoder, NULL) ||
           hr_converter_create(&f->converter, NULL, NULL) || hr__decoder_create(&f->decoder, NULL);
}

static int tear_down(void **state)
{
    struct rewriting *f = *state;
    hr__transcoder_destroy(&f->transcoder);
    hr_converter_destroy(&f->converter);
    hr__decoder_destroy(&f->decoder);
    free(f);
    return hr__allocated(HR__TAG_CODEC) != 0;
}

static struct bytes copy_of(const void *bytes, size_t length)
{
    struct bytes copy = {malloc(length), length};
    memcpy(copy.data, bytes, length);
    return copy;
}

static struct bytes rewrite(struct rewriting *f, const struct bytes *file)
{
    const struct hr__encoded in = {.bytes = file->data, .length = file->length};
    struct hr__transcoded out;
    struct hr_error error;
    if (hr__jpeg_to_baseline(f->transcoder, &in, 0, &out, &error))
        fail_msg("%s", error.message);
    assert_true(out.bytes != file->data);
    return copy_of(out.bytes, out.length);
}

static const struct jpeg_spec kinds[] = {
    {.components = 1},
    {.components = 1, .h = {2}, .v = {2}},
    {.components = 3},
    {.components = 3, .h = {2, 1, 1}, .v = {2, 1, 1}},
    {.components = 3, .h = {2, 1, 1}, .v = {1, 1, 1}},
    {.components = 3, .h = {1, 1, 1}, .v = {2, 1, 1}},
    {.components = 3, .h = {4, 1, 1}, .v = {1, 1, 1}},
    {.components = 3, .h = {2, 1, 1}, .v = {2, 2, 2}},
    {.components = 3, .h = {2, 2, 1}, .v = {2, 1, 2}},
    {.components = 3, .h = {1, 2, 2}, .v = {1, 2, 2}},
    {.components = 3, .rgb = 1},
    {.components = 3, .h = {2, 1, 1}, .v = {2, 1, 1}, .scans = SCANS_ALONE},
    {.components = 4},
    {.components = 4, .ycck = 1},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct jpeg_spec random_spec(struct rewriting *f, int kind, int largest)
{
    struct jpeg_spec spec = kinds[kind];
    if (spec.scans == SCANS_BASELINE)
        spec.scans = SCANS_PROGRESSIVE;
    spec.width = random_between(&f->random, 1, largest);
    spec.height = random_between(&f->random, 1, largest);
    spec.quality = random_between(&f->random, 5, 100);
    spec.restart = random_between(&f->random, 0, 1) ? 0 : random_between(&f->random, 1, 9);
    spec.content = (enum jpeg_content)random_between(&f->random, CONTENT_PICTURE, CONTENT_BINARY);
    spec.seed = next_random(&f->random);
    return spec;
}

static void coefficients_stay(void **state)
{
    struct rewriting *f = *state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int n = test_rounds(20); n > 0; n--) {
            struct jpeg_spec spec = random_spec(f, kind, n % 4 ? 60 : 300);
            struct bytes file = make_jpeg(&spec), made = rewrite(f, &file);
            assert_true(same_coefficients_as_progressive(&file, &made));
            int width, height, w, h;
            uint8_t *a = decode_plainly(&file, &width, &height), *b = decode_plainly(&made, &w, &h);
            assert_true(a && b && w == width && h == height);
            assert_memory_equal(a, b, 3 * (size_t)w * (size_t)h);
            free(a);
            free(b);
            free(made.data);
            free(file.data);
        }
}

/* Returns the APPn and COM segments, joined. */
static struct bytes metadata_of(const struct bytes *file)
{
    struct bytes all = {malloc(file->length), 0};
    for (size_t i = 2; file->data[i + 1] != 0xDA;) {
        size_t length = 2u + (size_t)(file->data[i + 2] << 8 | file->data[i + 3]);
        int marker = file->data[i + 1];
        if ((marker >= 0xE0 && marker <= 0xEF) || marker == 0xFE) {
            memcpy(all.data + all.length, file->data + i, length);
            all.length += length;
        }
        i += length;
    }
    return all;
}

/* Removes the file's first segment, which is JFIF's or Adobe's. */
static void cut_first_segment(struct bytes *file)
{
    size_t length = 2u + (size_t)(file->data[4] << 8 | file->data[5]);
    memmove(file->data + 2, file->data + 2 + length, file->length - 2 - length);
    file->length -= length;
}

static void insert_payload(struct bytes *file, int marker, const void *payload, size_t length)
{
    uint8_t *segment = malloc(length + 4);
    segment[0] = 0xFF;
    segment[1] = (uint8_t)marker;
    segment[2] = (uint8_t)((length + 2) >> 8);
    segment[3] = (uint8_t)(length + 2);
    if (length)
        memcpy(segment + 4, payload, length);
    insert_segment(file, segment, length + 4);
    free(segment);
}

static void metadata_stays(void **state)
{
    struct rewriting *f = *state;
    uint8_t *profile = malloc(65533);
    for (int n = 0; n < 40; n++) {
        struct jpeg_spec spec = random_spec(f, n % KINDS, 60);
        struct bytes file = make_jpeg(&spec);
        int orientation = 1 + n % 8;
        struct bytes exif = make_exif(orientation, n % 2), block = {malloc(exif.length + 6), 0};
        struct hr_image_info before, after;
        memcpy(block.data, "Exif\0\0", 6);
        memcpy(block.data + 6, exif.data, exif.length);
        memset(profile, n, 65533);
        memcpy(profile, "ICC_PROFILE\0\1\1", 14);
        if (n % 3 == 0) /* without JFIF, other segments determine the colours */
            cut_first_segment(&file);
        insert_payload(&file, 0xE2, profile, n % 4 ? 500 : 65533);
        insert_payload(&file, 0xFE, "a comment", 9);
        insert_payload(&file, 0xE1, "http://ns.adobe.com/xap/1.0/", 29);
        insert_payload(&file, 0xE1, block.data, exif.length + 6);
        insert_payload(&file, 0xED, NULL, 0);
        struct bytes made = rewrite(f, &file);
        struct bytes want = metadata_of(&file), got = metadata_of(&made);
        assert_int_equal(want.length, got.length);
        assert_memory_equal(want.data, got.data, want.length);
        assert_int_equal(hr__decoder_info(f->decoder, file.data, file.length, &before, NULL), 0);
        assert_int_equal(hr__decoder_info(f->decoder, made.data, made.length, &after, NULL), 0);
        assert_memory_equal(&before, &after, sizeof before);
        assert_int_equal(after.orientation, orientation);
        assert_true(same_coefficients_as_progressive(&file, &made));
        free(want.data);
        free(got.data);
        free(made.data);
        free(block.data);
        free(exif.data);
        free(file.data);
    }
    free(profile);
}

static void is_refused(struct rewriting *f, const struct bytes *file, size_t limit, int code,
                       const char *reason)
{
    const struct hr__encoded in = {.bytes = file->data, .length = file->length};
    struct hr__transcoded out;
    struct hr_error error = {0};
    int r = hr__jpeg_to_baseline(f->transcoder, &in, limit, &out, &error);
    if (r != code || error.code != code || !strstr(error.message, reason))
        fail_msg("%s: %d, %s", reason, r, error.message);
}

static void others_are_refused(void **state)
{
    struct rewriting *f = *state;
    struct jpeg_spec spec = {.width = 90, .height = 70, .components = 3, .quality = 80};
    struct bytes file = make_jpeg(&spec);
    const struct hr__encoded in = {.bytes = file.data, .length = file.length};
    struct hr__transcoded out;
    assert_int_equal(hr__jpeg_to_baseline(f->transcoder, &in, 0, &out, NULL), 0);
    assert_ptr_equal(out.bytes, file.data); /* baseline files are returned as they are */
    assert_int_equal(out.length, file.length);
    is_refused(f, &file, file.length - 1, -ENOSPC, "more than");
    free(file.data);
    spec.scans = SCANS_INCOMPLETE;
    file = make_jpeg(&spec);
    is_refused(f, &file, 0, -ENOTSUP, "not saved whole");
    free(file.data);
    spec.scans = SCANS_ALONE;
    spec.h[0] = spec.v[0] = 3; /* one scan of all components would have 11 blocks in an MCU */
    file = make_jpeg(&spec);
    is_refused(f, &file, 0, -ENOTSUP, "cannot be written");
    free(file.data);
    spec.scans = SCANS_PROGRESSIVE;
    spec.h[0] = spec.v[0] = 1;
    file = make_jpeg(&spec);
    struct bytes made = rewrite(f, &file);
    is_refused(f, &file, made.length - 1, -ENOSPC, "more than");
    for (size_t length = 2; length < file.length - 2; length += 1 + length / 16) {
        struct bytes part = copy_of(file.data, length);
        is_refused(f, &part, 0, -EBADMSG, "");
        free(part.data);
    }
    struct bytes again = rewrite(f, &file); /* the failures leave no trace */
    assert_int_equal(again.length, made.length);
    assert_memory_equal(again.data, made.data, made.length);
    free(again.data);
    free(made.data);
    free(file.data);
}

static void check_regions(struct rewriting *f, const struct bytes *item, const struct bytes *file)
{
    struct hr_image_info info;
    int width, height;
    uint8_t *reference = decode_plainly(file, &width, &height);
    assert_non_null(reference);
    assert_int_equal(hr__decoder_info(f->decoder, item->data, item->length, &info, NULL), 0);
    assert_int_equal(info.format, HR_IMAGE_INDEXED);
    for (int n = 0; n < 8; n++) {
        struct hr_region r = {0, 0, width, height};
        struct hr__planar out;
        if (n) {
            r.width = random_between(&f->random, 1, width);
            r.height = random_between(&f->random, 1, height);
            r.x = random_between(&f->random, 0, width - r.width);
            r.y = random_between(&f->random, 0, height - r.height);
        }
        assert_int_equal(
            hr__decoder_region(f->decoder, item->data, item->length, &info, &r, &out, NULL), 0);
        if (!planar_equals(&out, reference, width, &r))
            fail_msg("%dx%d: region %d,%d %dx%d differs", width, height, r.x, r.y, r.width,
                     r.height);
    }
    free(reference);
}

/* Indexed items of all kinds of file, baseline and progressive. */
static void indexed_items_are_exact(void **state)
{
    struct rewriting *f = *state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int n = 0; n < 16; n++) {
            struct jpeg_spec spec = random_spec(f, kind, n % 3 ? 200 : 700);
            struct hr_form_estimate estimate = {.size = sizeof estimate};
            struct hr_item item, back;
            if (n % 2)
                spec.scans = SCANS_BASELINE;
            struct bytes file = make_jpeg(&spec);
            int r = hr_converter_run(f->converter, HR_FORM_INDEXED, file.data, file.length, &item,
                                     NULL);
            assert_int_equal(hr_converter_estimate(f->converter, HR_FORM_INDEXED, file.data,
                                                   file.length, &estimate, NULL),
                             0);
            assert_int_equal(estimate.possible, spec.components != 4);
            assert_int_equal(r, spec.components == 4 ? -ENOTSUP : 0);
            if (!r) {
                struct bytes copy = copy_of(item.bytes, item.length);
                check_regions(f, &copy, &file);
                assert_int_equal(
                    hr_converter_restore(f->converter, copy.data, copy.length, &back, NULL), 0);
                struct bytes restored = copy_of(back.bytes, back.length);
                if (n % 2) {
                    assert_int_equal(estimate.bytes, copy.length);
                    assert_int_equal(restored.length, file.length);
                    assert_memory_equal(restored.data, file.data, file.length);
                } else {
                    assert_true(same_coefficients_as_progressive(&restored, &file));
                }
                free(restored.data);
                free(copy.data);
            }
            free(file.data);
        }
}

static void no_memory_is_an_error(void **state)
{
    struct rewriting *f = *state;
    struct jpeg_spec spec = random_spec(f, 3, 200);
    spec.width = spec.height = 300; /* larger than the first buffer */
    spec.content = CONTENT_NOISE;
    spec.quality = 95;
    struct bytes file = make_jpeg(&spec);
    const struct hr__encoded in = {.bytes = file.data, .length = file.length};
    int failures = 0;
    for (int done = 0; !done; failures += !done) {
        struct hr__transcoder *t;
        struct hr__transcoded out;
        struct hr_error error = {0};
        hr__alloc_fail_at((uint64_t)failures + 1, 0);
        int r = hr__transcoder_create(&t, &error);
        if (!r)
            r = hr__transcode_indexed(t, &in, 0, &out, &error);
        hr__alloc_fail_at(0, 0);
        done = !r;
        assert_true(done || (r == -ENOMEM && error.code == -ENOMEM));
        hr__transcoder_destroy(&t);
    }
    assert_true(failures > 4);
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coefficients_stay),     cmocka_unit_test(metadata_stays),
        cmocka_unit_test(others_are_refused),    cmocka_unit_test(indexed_items_are_exact),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests_name("codec-to-baseline", tests, set_up, tear_down);
}
