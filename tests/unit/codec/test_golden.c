/*
 * The files of tests/golden/codec compared with Pillow's pixels: every PNG type, JPEG in the colour
 * spaces that need a conversion of our own, WebP, BMP, GIF and PPM, and items of version 1.
 */
#include "../test.h"
#include "images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t crc32_step(uint32_t crc, uint8_t byte)
{
    crc ^= byte;
    for (int k = 0; k < 8; k++)
        crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    return crc;
}

static FILE *open_golden(const char *name)
{
    char path[4096];
    const char *root = getenv("HEADRACE_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s/tests/golden/codec/%s", root ? root : ".", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    return file;
}

static uint32_t digest(struct hr__decoder *decoder, const char *name, int width, int height)
{
    static uint8_t bytes[65536];
    FILE *file = open_golden(name);
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    struct hr_image_info info;
    struct hr_region r = {0, 0, width, height};
    struct hr__planar out;
    struct hr_error error;
    if (hr__decoder_info(decoder, bytes, length, &info, &error) ||
        hr__decoder_region(decoder, bytes, length, &info, &r, &out, &error))
        fail_msg("%s: %s", name, error.message);
    assert_int_equal(info.width, width);
    assert_int_equal(info.height, height);
    uint32_t crc = ~0u;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                crc = crc32_step(crc, out.plane[c][y * out.stride + x]);
    return ~crc;
}

static void pixels_are_pillows(void **state)
{
    struct hr__decoder *decoder;
    FILE *list = open_golden("digests.txt");
    char name[64];
    int width, height, files = 0;
    uint32_t want;
    assert_int_equal(hr__decoder_create(&decoder, NULL), 0);
    while (fscanf(list, "%63s %d %d %x", name, &width, &height, &want) == 4) {
        uint32_t got = digest(decoder, name, width, height);
        if (got != want)
            fail_msg("%s: digest %08x, Pillow has %08x", name, got, want);
        files++;
    }
    assert_true(feof(list));
    assert_int_equal(files, 59);
    fclose(list);
    hr__decoder_destroy(&decoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pixels_are_pillows)};
    return cmocka_run_group_tests_name("codec-golden", tests, NULL, NULL);
}
