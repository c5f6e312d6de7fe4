/*
 * Damage found in real image folders: each file is an error with the right code and message, or is
 * decoded exactly. Pixels are never guessed, and a header that declares a large image takes no
 * memory.
 */
#include "../test.h"
#include "images.h"

#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int set_up(void **state)
{
    return hr__decoder_create((struct hr__decoder **)state, NULL);
}

static int tear_down(void **state)
{
    hr__decoder_destroy((struct hr__decoder **)state);
    return 0;
}

static const struct jpeg_spec ordinary = {.width = 120,
                                          .height = 90,
                                          .components = 3,
                                          .h = {2, 1, 1},
                                          .v = {2, 1, 1},
                                          .quality = 85,
                                          .seed = 1};

static int decode(struct hr__decoder *decoder, const struct bytes *file,
                  const struct hr_region *region, struct hr__planar *out, struct hr_error *error)
{
    struct hr_image_info info;
    int rc = hr__decoder_info(decoder, file->data, file->length, &info, error);
    if (rc)
        return rc;
    struct hr_region whole = {0, 0, info.width, info.height};
    return hr__decoder_region(decoder, file->data, file->length, &info, region ? region : &whole,
                              out, error);
}

static void expect_failure(void **state, const struct bytes *file, int code, const char *words)
{
    struct hr__planar out;
    struct hr_error error = {0};
    int rc = decode(*state, file, NULL, &out, &error);
    if (rc != code || !strstr(error.message, words))
        fail_msg("expected %d with '%s', got %d '%s'", code, words, rc, error.message);
    assert_int_equal(error.code, code);
    assert_int_equal(decode(*state, file, NULL, &out, NULL), code);
}

static void expect_text(void **state, const char *bytes, size_t length, int code, const char *words)
{
    const struct bytes file = {(uint8_t *)(uintptr_t)bytes, length};
    expect_failure(state, &file, code, words);
}

static void expect_exact(void **state, const struct bytes *file, const struct bytes *same_as,
                         const struct hr_region *region)
{
    int width, height;
    uint8_t *reference = decode_plainly(same_as, &width, &height);
    struct hr_region whole = {0, 0, width, height};
    struct hr__planar out;
    struct hr_error error;
    if (decode(*state, file, region, &out, &error))
        fail_msg("%s", error.message);
    assert_true(planar_equals(&out, reference, width, region ? region : &whole));
    free(reference);
}

/* Returns the position of the frame header's marker. */
static size_t find_marker(const struct bytes *file, int low, int high)
{
    for (size_t i = 2; i + 4 < file->length;) {
        assert_int_equal(file->data[i], 0xFF);
        if (file->data[i + 1] >= low && file->data[i + 1] <= high)
            return i;
        i += 2 + (size_t)(file->data[i + 2] << 8 | file->data[i + 3]);
    }
    fail_msg("no marker");
    return 0;
}

static void other_formats_are_named(void **state)
{
#define EXPECT(bytes, code, words) expect_text(state, bytes, sizeof(bytes) - 1, code, words)
    EXPECT("", -EBADMSG, "empty (0 bytes)");
    EXPECT("\0\0\0\0\0", -EBADMSG, "zero bytes");
    EXPECT("RIFF\x10\0\0\0WEBPVP8 ", -EBADMSG, "damaged WebP: the file ends after 16 of 24");
    EXPECT("GIF89a\1\0\1\0", -EBADMSG, "damaged GIF: the file ends after 10 bytes");
    EXPECT("BM6\0\0\0\0\0", -EBADMSG, "damaged BMP: the file ends after 8 bytes");
    EXPECT("P6\n7 x", -EBADMSG, "damaged PPM: its header is incomplete");
    EXPECT("P5 1 1 65535 ab", -ENOTSUP, "unsupported PPM: more than 8 bits a sample");
    EXPECT("P3\n1 1 255 1 2 3", -ENOTSUP, "this is plain PPM; convert it");
    EXPECT("II*\0\10\0\0\0", -ENOTSUP, "this is TIFF");
    EXPECT("MM\0*\0\0\0\10", -ENOTSUP, "this is TIFF");
    EXPECT("\0\0\0\x1c"
           "ftypavif\0\0\0\0",
           -ENOTSUP, "this is AVIF");
    EXPECT("\0\0\0\x18"
           "ftypheic\0\0\0\0",
           -ENOTSUP, "this is HEIF");
    EXPECT("\0\0\0\x0cjP  \r\n\x87\n", -ENOTSUP, "this is JPEG 2000");
    EXPECT("\xFF\x0A\x10", -ENOTSUP, "this is JPEG XL");
    EXPECT("<!DOCTYPE html><html>404</html>", -ENOTSUP, "this is text");
    EXPECT("x", -ENOTSUP, "this is text");
    EXPECT("FORM letters", -ENOTSUP, "this is text");
    EXPECT("fLaC\0\0\0\x22", -ENOTSUP, "this is a sound");
    EXPECT("\x89PNG\r", -EBADMSG, "PNG ends after 5 bytes");
    EXPECT("\x01\x02\xFE", -ENOTSUP, "begins with 01 02 fe)");
    EXPECT("\xFF", -EBADMSG, "JPEG ends after 1 bytes");
    EXPECT("\xFF\xD8", -EBADMSG, "damaged JPEG");
    EXPECT("\xFF\xD8\xFF\xD9", -EBADMSG, "damaged JPEG");
    EXPECT("\x89PNG\r\n\x1a\n", -EBADMSG, "damaged PNG");
#undef EXPECT
}

/* A file truncated anywhere is an error for the whole image, as in Pillow; complete rows can still
 * be decoded. */
static void truncation_is_found(void **state)
{
    for (int scans = SCANS_BASELINE; scans <= SCANS_SEPARATE; scans++) {
        struct jpeg_spec spec = ordinary;
        spec.scans = (enum jpeg_scans)scans;
        struct bytes file = make_jpeg(&spec);
        struct hr__planar out;
        struct hr_error error;
        for (size_t length = 0; length < file.length; length++) {
            const struct bytes part = {file.data, length};
            int rc = decode(*state, &part, NULL, &out, &error);
            if (rc != -EBADMSG)
                fail_msg("%zu of %zu bytes: %d", length, file.length, rc);
        }
        const struct bytes most = {file.data, file.length - file.length / 8};
        const struct hr_region top = {3, 5, 100, 40};
        if (scans == SCANS_BASELINE)
            expect_exact(state, &most, &file, &top);
        else
            assert_int_equal(decode(*state, &most, &top, &out, &error), -EBADMSG);
        free(file.data);
    }
}

/* Any change that libjpeg detects, and that could change a pixel, is an error. */
static void corrupt_entropy_data_is_found(void **state)
{
    struct bytes file = make_jpeg(&ordinary);
    /* libjpeg-turbo checks for wrong codes only in the last few KB; before them, they are detected
     * if the decoder runs into a marker. */
    uint8_t *scan = file.data + file.length - 2000;
    for (int i = 0; i < 40; i += 2) /* all ones is not a Huffman code */
        memcpy(scan + i, "\xFF\0", 2);
    expect_failure(state, &file, -EBADMSG, "damaged JPEG: Corrupt JPEG data: bad Huffman code");
    memcpy(file.data + find_marker(&file, 0xDA, 0xDA) + 500, "\xFF\xD9", 2);
    expect_failure(state, &file, -EBADMSG, "premature end of data segment");
    free(file.data);

    struct jpeg_spec spec = ordinary;
    spec.restart = 4;
    file = make_jpeg(&spec);
    size_t at = find_marker(&file, 0xDA, 0xDA);
    while (!(file.data[at] == 0xFF && file.data[at + 1] == 0xD1))
        at++;
    file.data[at + 1] = 0xD5;
    expect_failure(state, &file, -EBADMSG, "found marker 0xd5 instead of RST1");
    memmove(file.data + at, file.data + at + 2, file.length - at - 2);
    file.length -= 2;
    expect_failure(state, &file, -EBADMSG, "damaged JPEG");
    free(file.data);
}

/* Oddities of real files that do not affect pixels. */
static void harmless_oddities_are_decoded(void **state)
{
    struct bytes good = make_jpeg(&ordinary);
    struct bytes file = {malloc(good.length + 16), good.length};
    memcpy(file.data, good.data, good.length);
    memset(file.data + file.length, 0x5A, 16);
    file.length += 16; /* bytes after the end */
    expect_exact(state, &file, &good, NULL);

    memcpy(file.data + good.length - 2, "\0\0\0\xFF\xD9", 5);
    file.length = good.length + 3; /* bytes before the end marker */
    expect_exact(state, &file, &good, NULL);

    memcpy(file.data, good.data, good.length);
    file.length = good.length;
    file.data[find_marker(&file, 0xE0, 0xE0) + 9] = 7; /* JFIF 7.01 */
    expect_exact(state, &file, &good, NULL);

    memcpy(file.data, good.data, good.length);
    file.data[find_marker(&file, 0xDA, 0xDA) + 12] = 0; /* last coefficient 0: unused here */
    expect_exact(state, &file, &good, NULL);
    free(file.data);
    free(good.data);
}

static void unsupported_kinds_are_named(void **state)
{
    struct bytes file = make_jpeg(&ordinary);
    size_t sof = find_marker(&file, 0xC0, 0xC2);
    file.data[sof + 4] = 12;
    expect_failure(state, &file, -ENOTSUP, "unsupported JPEG: Unsupported JPEG data precision 12");
    file.data[sof + 4] = 8;
    file.data[sof + 1] = 0xC3;
    expect_failure(state, &file, -ENOTSUP, "lossless or hierarchical coding (SOF3)");
    free(file.data);

    /* There is no colour space with two components. */
    struct jpeg_spec spec = {.width = 9, .height = 9, .components = 1, .quality = 50};
    file = make_jpeg(&spec);
    sof = find_marker(&file, 0xC0, 0xC2);
    uint8_t *data = malloc(file.length + 3);
    memcpy(data, file.data, sof + 13);
    memcpy(data + sof + 13, "\2\x11\0", 3);
    memcpy(data + sof + 16, file.data + sof + 13, file.length - sof - 13);
    data[sof + 3] = 14;
    data[sof + 9] = 2;
    free(file.data);
    file = (struct bytes){data, file.length + 3};
    expect_failure(state, &file, -ENOTSUP, "2 colour components");
    free(file.data);
}

/* The size in a header takes no memory: only the region's pixels are allocated. */
static void huge_dimensions_take_no_memory(void **state)
{
    struct bytes file = make_jpeg(&ordinary);
    size_t sof = find_marker(&file, 0xC0, 0xC2);
    for (int i = 0; i < 2; i++) {
        file.data[sof + 5 + 2 * i] = 60000 >> 8;
        file.data[sof + 6 + 2 * i] = 60000 & 255;
    }
    struct hr__decoder *decoder;
    struct hr_image_info info;
    struct hr_error error;
    struct hr__planar out;
    const struct hr_region corner = {59000, 100, 64, 64};
    assert_int_equal(hr__decoder_create(&decoder, NULL), 0);
    assert_int_equal(hr__decoder_info(decoder, file.data, file.length, &info, &error), 0);
    assert_int_equal(info.width, 60000);
    assert_int_equal(info.height, 60000);
    assert_int_equal(
        hr__decoder_region(decoder, file.data, file.length, &info, &corner, &out, &error),
        -EBADMSG);
    assert_true(hr__decoder_memory(decoder) < 1 << 20);
    hr__decoder_destroy(&decoder);
    free(file.data);
}

/* Each scan takes a pass over the image, so their number is limited. */
static void too_many_scans_are_refused(void **state)
{
    struct jpeg_spec spec = ordinary;
    spec.scans = SCANS_SEPARATE;
    struct bytes file = make_jpeg(&spec);
    size_t last = file.length - 2;
    while (!(file.data[last] == 0xFF && file.data[last + 1] == 0xDA))
        last--;
    size_t scan = file.length - 2 - last;
    struct bytes bomb = {malloc(file.length + 1000 * scan), file.length - 2};
    memcpy(bomb.data, file.data, bomb.length);
    for (int n = 0; n < 1000; n++, bomb.length += scan)
        memcpy(bomb.data + bomb.length, file.data + last, scan);
    bomb.data[bomb.length++] = 0xFF;
    bomb.data[bomb.length++] = 0xD9;
    expect_failure(state, &bomb, -EBADMSG, "more than 500 scans");
    free(bomb.data);
    free(file.data);
}

static void regions_are_checked(void **state)
{
    static const struct hr_region outside[] = {
        {0, 0, 0, 1},    {0, 0, 1, 0},   {-1, 0, 5, 5},       {0, -1, 5, 5},
        {0, 0, 121, 90}, {1, 0, 120, 5}, {0, 0, 120, 91},     {0, 1, 5, 90},
        {120, 0, 1, 1},  {0, 90, 1, 1},  {INT_MAX, 0, 10, 5}, {5, 5, INT_MAX, INT_MAX},
        {0, 0, -5, -5},
    };
    struct bytes file = make_jpeg(&ordinary);
    struct hr__planar out;
    struct hr_error error;
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        assert_int_equal(decode(*state, &file, &outside[i], &out, &error), -ERANGE);
        assert_non_null(strstr(error.message, "120x90"));
    }
    struct hr_image_info info;
    assert_int_equal(hr__decoder_info(*state, file.data, file.length, &info, &error), 0);
    info.height = 91;
    const struct hr_region r = {0, 0, 10, 10};
    assert_int_equal(hr__decoder_region(*state, file.data, file.length, &info, &r, &out, &error),
                     -EINVAL);
    free(file.data);
}

static void orientation_is_read(void **state)
{
    for (int orientation = 0; orientation <= 9; orientation++)
        for (int big = 0; big < 2; big++) {
            struct bytes exif = make_exif(orientation, big), file = make_jpeg(&ordinary);
            uint8_t segment[128] = {0xFF, 0xE1, 0, 0, 'E', 'x', 'i', 'f', 0, 0};
            struct hr_image_info info;
            segment[3] = (uint8_t)(8 + exif.length);
            memcpy(segment + 10, exif.data, exif.length);
            /* After another APP1 segment, because XMP may come first. */
            insert_segment(&file, segment, 10 + exif.length);
            insert_segment(&file, "\xFF\xE1\0\x08http:/", 10);
            assert_int_equal(hr__decoder_info(*state, file.data, file.length, &info, NULL), 0);
            assert_int_equal(info.orientation,
                             orientation >= 1 && orientation <= 8 ? orientation : 1);
            free(file.data);
            free(exif.data);
        }
}

static void remove_segments(struct bytes *file, int marker)
{
    for (size_t i = 2; file->data[i + 1] != 0xDA;) {
        size_t length = 2 + (size_t)(file->data[i + 2] << 8 | file->data[i + 3]);
        if (file->data[i + 1] == marker) {
            memmove(file->data + i, file->data + i + length, file->length - i - length);
            file->length -= length;
        } else {
            i += length;
        }
    }
}

/* A file without tables is not decoded with the tables of the previous file. */
static void tables_do_not_leak_between_files(void **state)
{
    struct jpeg_spec other = ordinary;
    other.scans = SCANS_PROGRESSIVE; /* it has Huffman tables of its own */
    other.quality = 20;
    struct bytes before = make_jpeg(&other), good = make_jpeg(&ordinary);
    struct bytes file = make_jpeg(&ordinary);
    expect_exact(state, &before, &before, NULL);
    /* Motion JPEG omits the Huffman tables; the standard's tables apply. */
    remove_segments(&file, 0xC4);
    expect_exact(state, &file, &good, NULL);
    expect_exact(state, &before, &before, NULL);
    remove_segments(&file, 0xDB);
    expect_failure(state, &file, -EBADMSG, "Quantization table 0x00 was not defined");
    free(before.data);
    free(good.data);
    free(file.data);
}

/* After the first image of a size nothing more is allocated, not even for damaged images. */
static void nothing_is_allocated_when_warm(void **state)
{
    struct bytes file = make_jpeg(&ordinary);
    const struct bytes part = {file.data, file.length / 2};
    struct hr__planar out;
    struct hr_error error;
    assert_int_equal(decode(*state, &file, NULL, &out, &error), 0);
    size_t memory = hr__decoder_memory(*state);
    hr__alloc_fail_at(1, 1);
    int rc = decode(*state, &file, NULL, &out, &error);
    int damaged = decode(*state, &part, NULL, &out, &error);
    int again = decode(*state, &file, NULL, &out, &error);
    hr__alloc_fail_at(0, 0);
    assert_int_equal(rc, 0);
    assert_int_equal(damaged, -EBADMSG);
    assert_int_equal(again, 0);
    assert_int_equal(hr__decoder_memory(*state), memory);
    free(file.data);
}

static void failing_allocations_are_reported(void **state)
{
    struct bytes file = make_jpeg(&ordinary);
    uint64_t before = hr__allocated(HR__TAG_CODEC);
    int rc = -ENOMEM, failures = 0;
    for (uint64_t n = 1; rc; n++) {
        struct hr__decoder *decoder = NULL;
        struct hr__planar out;
        struct hr_error error = {0};
        void *holder;
        hr__alloc_fail_at(n, 0);
        rc = hr__decoder_create(&decoder, &error);
        holder = decoder;
        if (!rc)
            rc = decode(holder, &file, NULL, &out, &error);
        hr__alloc_fail_at(0, 0);
        hr__decoder_destroy(&decoder);
        assert_int_equal(hr__allocated(HR__TAG_CODEC), before);
        assert_true(rc == 0 || (rc == -ENOMEM && error.code == -ENOMEM));
        failures += rc != 0;
    }
    /* decoder, JPEG state, our own decoder, its colour conversion; planes, samples, chroma rows */
    assert_int_equal(failures, 7);
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(truncation_is_found),
        cmocka_unit_test(corrupt_entropy_data_is_found),
        cmocka_unit_test(harmless_oddities_are_decoded),
        cmocka_unit_test(unsupported_kinds_are_named),
        cmocka_unit_test(huge_dimensions_take_no_memory),
        cmocka_unit_test(too_many_scans_are_refused),
        cmocka_unit_test(regions_are_checked),
        cmocka_unit_test(orientation_is_read),
        cmocka_unit_test(tables_do_not_leak_between_files),
        cmocka_unit_test(nothing_is_allocated_when_warm),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests_name("codec-damage", tests, set_up, tear_down);
}
