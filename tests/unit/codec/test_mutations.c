/*
 * Runs thousands of damaged files of each format, the same in every run, through the fuzz target:
 * it does not crash, and regions of an image that still decodes have the pixels of the whole.
 */
#include "../test.h"
#include "webp_images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MUTATIONS = 250 };

static void add_exif(struct bytes *file)
{
    struct bytes exif = make_exif(6, 1);
    uint8_t segment[128] = {0xFF, 0xE1, 0, 0, 'E', 'x', 'i', 'f', 0, 0};
    segment[3] = (uint8_t)(8 + exif.length);
    memcpy(segment + 10, exif.data, exif.length);
    insert_segment(file, segment, 10 + exif.length);
    free(exif.data);
}

/* Makes one to four changes: bits, bytes, truncation, repeats. Appends eight random bytes, which
 * choose the region. */
static struct bytes mutate(const struct bytes *file, uint64_t *random)
{
    struct bytes out = {malloc(2 * file->length + 8), file->length};
    memcpy(out.data, file->data, file->length);
    for (int n = random_between(random, 1, 4); n; n--) {
        /* Headers are short, so half of the changes go there. */
        int last = (int)out.length - 1;
        int at = random_between(random, 0, last < 400 || next_random(random) % 2 ? last : 400);
        int length = random_between(random, 1, 40);
        if (length > (int)out.length - at)
            length = (int)out.length - at;
        switch (next_random(random) % 8) {
        case 0:
            out.length = (size_t)at + 1;
            break;
        case 1:
            memmove(out.data + at, out.data + at + length, out.length - (size_t)(at + length));
            out.length -= (size_t)length;
            break;
        case 2:
            if (out.length + (size_t)length <= 2 * file->length) {
                memmove(out.data + at + length, out.data + at, out.length - (size_t)at);
                out.length += (size_t)length;
            }
            break;
        case 3:
            out.data[at] = next_random(random) % 2 ? 0xFF : 0;
            break;
        case 4:
            out.data[at] = (uint8_t)next_random(random);
            break;
        default:
            out.data[at] ^= (uint8_t)(1u << next_random(random) % 8);
        }
        if (!out.length)
            out.length = 1;
    }
    uint64_t choice = next_random(random);
    memcpy(out.data + out.length, &choice, sizeof choice);
    out.length += sizeof choice;
    return out;
}

static void try_mutations(const struct bytes *file, uint64_t seed)
{
    for (int n = 0; n < MUTATIONS; n++) {
        struct bytes damaged = mutate(file, &seed);
        LLVMFuzzerTestOneInput(damaged.data, damaged.length);
        free(damaged.data);
    }
}

static void damaged_jpegs(void **state)
{
    static const struct jpeg_spec specs[] = {
        {.width = 40, .height = 33, .components = 3, .h = {2, 1, 1}, .v = {2, 1, 1}, .quality = 80},
        {.width = 61, .height = 25, .components = 3, .quality = 50, .restart = 3},
        {.width = 33, .height = 40, .components = 1, .quality = 90},
        {.width = 30, .height = 30, .components = 4, .quality = 70, .ycck = 1},
        {.width = 45,
         .height = 38,
         .components = 3,
         .h = {2, 1, 1},
         .v = {1, 1, 1},
         .quality = 60,
         .scans = SCANS_PROGRESSIVE},
        {.width = 38,
         .height = 45,
         .components = 3,
         .h = {1, 1, 1},
         .v = {2, 1, 1},
         .quality = 60,
         .scans = SCANS_SEPARATE},
        {.width = 44, .height = 45, .components = 3, .quality = 60, .scans = SCANS_ARITHMETIC},
        {.width = 54,
         .height = 45,
         .components = 3,
         .h = {2, 1, 1},
         .v = {2, 1, 1},
         .quality = 40,
         .scans = SCANS_INCOMPLETE},
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct bytes file = make_jpeg(&specs[i]);
        add_exif(&file);
        try_mutations(&file, 100 + i);
        free(file.data);
    }
}

static void damaged_pngs(void **state)
{
    static const struct png_spec specs[] = {
        {.width = 20, .height = 20, .depth = 8, .type = 2},
        {.width = 31, .height = 9, .depth = 4, .type = 3, .palette = 11, .interlaced = 1},
        {.width = 12, .height = 13, .depth = 16, .type = 6, .interlaced = 1},
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct bytes file = make_png(&specs[i], NULL);
        try_mutations(&file, 200 + i);
        free(file.data);
    }
}

static void damaged_webps(void **state)
{
    static const struct webp_spec specs[] = {
        {.width = 40, .height = 33, .quality = 60},
        {.width = 33, .height = 41, .quality = 30, .simple_filter = 1, .partitions = 2},
        {.width = 35, .height = 24, .quality = 70, .alpha = 1},
        {.width = 23, .height = 24, .quality = 70, .lossless = 1, .alpha = 1},
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct bytes file = make_webp(&specs[i]);
        struct bytes animation = make_webp_animation(&file, 60, 50, 4, 6);
        try_mutations(&file, 300 + i);
        try_mutations(&animation, 400 + i);
        free(animation.data);
        free(file.data);
    }
}

/* A file of tests/golden/codec. */
static struct bytes read_golden(const char *name)
{
    const char *root = getenv("HEADRACE_SOURCE_ROOT");
    struct bytes file = {malloc(65536), 0};
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/codec/%s", root ? root : ".", name);
    FILE *from = fopen(path, "rb");
    if (!from)
        fail_msg("cannot open %s", path);
    file.length = fread(file.data, 1, 65536, from);
    fclose(from);
    return file;
}

static void damaged_others(void **state)
{
    static const char *const names[] = {"palette1.bmp", "palette4.bmp", "palette8.bmp",
                                        "rgb565.bmp",   "rgb24.bmp",    "rgba32.bmp",
                                        "rle4.bmp",     "rle8.bmp",     "global.gif",
                                        "tones.pgm",    "rgb.ppm",      "local-interlaced.gif"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct bytes file = read_golden(names[i]);
        for (uint64_t seed = 0; seed < 4; seed++)
            try_mutations(&file, 500 + 4 * i + seed);
        free(file.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_others), cmocka_unit_test(damaged_jpegs),
        cmocka_unit_test(damaged_pngs), cmocka_unit_test(damaged_webps)};
    return cmocka_run_group_tests_name("codec-mutations", tests, NULL, NULL);
}
