/*
 * Photographs as cameras and programs write them: own quantisation tables, qualities from 30 to
 * 100, standard and optimised Huffman tables, all usual samplings, grey, restart markers,
 * progressive files, up to 12 megapixels. In all forms, whole images and random regions have
 * libjpeg-turbo's pixels.
 *
 * The test encodes photographs of the sample set in these ways. With --long it makes more files,
 * and images of 4000x3000 from many photographs, each with 12 regions.
 */
#include "../test.h"
#include "images.h"

#include <headrace/form.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

enum { LARGE_WIDTH = 4000, LARGE_HEIGHT = 3000, STEP = 300, MOST_PATHS = 8000 };

static const enum hr_form forms[] = {HR_FORM_ENCODED, HR_FORM_INDEXED, HR_FORM_COEFFICIENTS,
                                     HR_FORM_PLANES};

/* A camera or program. */
static const struct camera {
    const char *name;
    int components, h, v; /* luma's sampling factors */
    int quality;          /* 0: own quantisation tables */
    int optimised;
    int restart; /* MCUs between restart markers; 0: none; -1: a row of MCUs */
    enum jpeg_scans scans;
} cameras[] = {
    {"4:2:0, quality 85", 3, 2, 2, 85, 0, 0, SCANS_BASELINE},
    {"4:2:2, own tables", 3, 2, 1, 0, 0, 0, SCANS_BASELINE},
    {"4:2:2, quality 96, a restart marker a row", 3, 2, 1, 96, 0, -1, SCANS_BASELINE},
    {"4:4:4, quality 100, optimised", 3, 1, 1, 100, 1, 0, SCANS_BASELINE},
    {"4:4:4, own tables, optimised", 3, 1, 1, 0, 1, 0, SCANS_BASELINE},
    {"4:4:0, own tables (a rotated 4:2:2)", 3, 1, 2, 0, 1, 0, SCANS_BASELINE},
    {"4:1:1, quality 75", 3, 4, 1, 75, 0, 0, SCANS_BASELINE},
    {"4:1:1, own tables, restart every 4", 3, 4, 1, 0, 0, 4, SCANS_BASELINE},
    {"grey, quality 60", 1, 1, 1, 60, 0, 0, SCANS_BASELINE},
    {"grey, own tables, optimised", 1, 1, 1, 0, 1, 16, SCANS_BASELINE},
    {"4:2:0, quality 30, optimised", 3, 2, 2, 30, 1, 0, SCANS_BASELINE},
    {"4:2:0, own tables, restart every 8", 3, 2, 2, 0, 0, 8, SCANS_BASELINE},
    {"4:2:0, quality 50, progressive", 3, 2, 2, 50, 1, 0, SCANS_PROGRESSIVE},
    {"4:4:4, own tables, progressive", 3, 1, 1, 0, 1, 0, SCANS_PROGRESSIVE},
};

enum { CAMERAS = sizeof cameras / sizeof cameras[0] };

struct darkroom {
    char **paths; /* photographs of the sample set, sorted */
    size_t count;
    struct hr_converter *converter;
    struct hr__decoder *decoder;
    uint64_t random;
};

static int is_long;

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the files of a folder, without hidden ones. */
static void list_folder(const char *folder, char **paths, size_t *count)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) && *count < MOST_PATHS)
        if (entry->d_name[0] != '.') {
            size_t length = strlen(folder) + strlen(entry->d_name) + 2;
            paths[*count] = malloc(length);
            snprintf(paths[(*count)++], length, "%s/%s", folder, entry->d_name);
        }
    if (dir)
        closedir(dir);
}

static int set_up(void **state)
{
    struct darkroom *f = calloc(1, sizeof *f);
    const char *data = getenv("HEADRACE_DATA"), *root = getenv("HEADRACE_SOURCE_ROOT");
    char folder[4096], **classes = calloc(MOST_PATHS, sizeof *classes);
    size_t class_count = 0;
    *state = f;
    f->paths = calloc(MOST_PATHS, sizeof *f->paths);
    snprintf(folder, sizeof folder, "%s%s",
             data   ? data
             : root ? root
                    : ".",
             data ? "" : "/data/sample");
    list_folder(folder, classes, &class_count);
    for (size_t i = 0; i < class_count; i++) {
        list_folder(classes[i], f->paths, &f->count);
        free(classes[i]);
    }
    free(classes);
    qsort(f->paths, f->count, sizeof *f->paths, compare_paths);
    return hr_converter_create(&f->converter, NULL, NULL) || hr__decoder_create(&f->decoder, NULL);
}

static int tear_down(void **state)
{
    struct darkroom *f = *state;
    for (size_t i = 0; i < f->count; i++)
        free(f->paths[i]);
    free(f->paths);
    hr_converter_destroy(&f->converter);
    hr__decoder_destroy(&f->decoder);
    free(f);
    return 0;
}

/* Decodes photograph number `n` as interleaved RGB; the caller frees it. */
static uint8_t *photograph(struct darkroom *f, size_t n, int *width, int *height)
{
    const char *path = f->paths[n % f->count];
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    struct bytes file = {.length = (size_t)ftell(in)};
    file.data = malloc(file.length);
    rewind(in);
    assert_int_equal(fread(file.data, 1, file.length, in), file.length);
    fclose(in);
    uint8_t *pixels = decode_plainly(&file, width, height);
    if (!pixels)
        fail_msg("%s cannot be decoded", path);
    free(file.data);
    return pixels;
}

/* Fills `out` with photographs side by side, beginning with number `n`. They overlap. */
static void compose(struct darkroom *f, size_t n, uint8_t *out)
{
    for (int y = 0; y < LARGE_HEIGHT; y += STEP)
        for (int x = 0; x < LARGE_WIDTH; x += STEP) {
            int width, height;
            uint8_t *part = photograph(f, n++, &width, &height);
            int columns = width < LARGE_WIDTH - x ? width : LARGE_WIDTH - x;
            for (int i = 0; i < height && y + i < LARGE_HEIGHT; i++)
                memcpy(out + 3 * ((size_t)(y + i) * LARGE_WIDTH + (size_t)x),
                       part + 3 * (size_t)i * (size_t)width, 3 * (size_t)columns);
            free(part);
        }
}

/* Makes quantisation tables that grow with the frequency and belong to no quality of an encoder. */
static void make_tables(uint64_t *random, unsigned tables[2][64])
{
    for (int t = 0; t < 2; t++) {
        double least = random_between(random, 10, 60) / 10.0;
        double slope = random_between(random, 1, 300) / 100.0 * (t + 1);
        double power = random_between(random, 80, 160) / 100.0;
        for (int i = 0; i < 64; i++) {
            double v = least + slope * pow(i / 8 + i % 8, power);
            tables[t][i] = v > 255 ? 255 : (unsigned)lround(v);
        }
    }
}

static struct bytes take(struct darkroom *f, const struct camera *camera, const uint8_t *rgb,
                         int width, int height)
{
    unsigned tables[2][64];
    struct jpeg_spec spec = {.width = width,
                             .height = height,
                             .components = camera->components,
                             .h = {camera->h, 1, 1},
                             .v = {camera->v, 1, 1},
                             .quality = camera->quality ? camera->quality : 90,
                             .optimised = camera->optimised,
                             .scans = camera->scans,
                             .picture = rgb};
    size_t pixels = (size_t)width * (size_t)height;
    uint8_t *grey = NULL;
    spec.restart =
        camera->restart < 0 ? (width + 8 * camera->h - 1) / (8 * camera->h) : camera->restart;
    if (!camera->quality) {
        make_tables(&f->random, tables);
        spec.quant = tables;
    }
    if (camera->components == 1) {
        spec.picture = grey = malloc(pixels);
        for (size_t i = 0; i < pixels; i++)
            grey[i] = rgb[3 * i + 1];
    }
    struct bytes file = make_jpeg(&spec);
    free(grey);
    return file;
}

static struct hr_region numbered_region(uint64_t *random, int n, int width, int height)
{
    struct hr_region r = {0, 0, width, height};
    if (!n)
        return r;
    int small = n % 3 == 0; /* the others are of any size */
    r.width = random_between(random, 1, small ? (width + 7) / 8 : width);
    r.height = random_between(random, 1, small ? (height + 7) / 8 : height);
    r.x = random_between(random, 0, width - r.width);
    r.y = random_between(random, 0, height - r.height);
    return r;
}

/* Checks that all forms of the file have libjpeg-turbo's pixels, whole and in `regions` regions. */
static void check_forms(struct darkroom *f, const struct bytes *file, const char *name, int regions)
{
    int width, height;
    uint8_t *reference = decode_plainly(file, &width, &height);
    assert_non_null(reference);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct hr_item item;
        struct hr_image_info info;
        struct hr__planar out;
        struct hr_error error;
        if (hr_converter_run(f->converter, forms[i], file->data, file->length, &item, &error) ||
            hr__decoder_info(f->decoder, item.bytes, item.length, &info, &error))
            fail_msg("%s as %s: %s", name, hr_form_name(forms[i]), error.message);
        for (int n = 0; n <= regions; n++) {
            struct hr_region r = numbered_region(&f->random, n, width, height);
            if (hr__decoder_region(f->decoder, item.bytes, item.length, &info, &r, &out, &error))
                fail_msg("%s as %s: %s", name, hr_form_name(forms[i]), error.message);
            if (!planar_equals(&out, reference, width, &r))
                fail_msg("%s as %s, %dx%d: region %d,%d %dx%d differs", name,
                         hr_form_name(forms[i]), width, height, r.x, r.y, r.width, r.height);
        }
    }
    free(reference);
}

static void photographs_are_exact(void **state)
{
    struct darkroom *f = *state;
    int photographs = (is_long ? 10 : 4) * CAMERAS, regions = is_long ? 25 : 12;
    if (!f->count)
        skip();
    for (int n = 0; n < photographs; n++) {
        struct camera camera = cameras[n % CAMERAS];
        int width, height;
        uint8_t *rgb = photograph(f, (size_t)n * 37, &width, &height);
        if (camera.quality && n >= CAMERAS)
            camera.quality = random_between(&f->random, 30, 100);
        struct bytes file = take(f, &camera, rgb, width, height);
        check_forms(f, &file, camera.name, regions);
        free(file.data);
        free(rgb);
    }
}

static void large_photographs_are_exact(void **state)
{
    struct darkroom *f = *state;
    if (!f->count)
        skip();
    uint8_t *rgb = calloc(3, (size_t)LARGE_WIDTH * LARGE_HEIGHT);
    for (int n = 0; n < CAMERAS; n++) {
        compose(f, (size_t)n * 60, rgb);
        struct bytes file = take(f, &cameras[n], rgb, LARGE_WIDTH, LARGE_HEIGHT);
        check_forms(f, &file, cameras[n].name, 12);
        free(file.data);
    }
    free(rgb);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(photographs_are_exact),
        cmocka_unit_test(large_photographs_are_exact),
    };
    is_long = argc > 1 && !strcmp(argv[1], "--long");
    return _cmocka_run_group_tests("codec-cameras", tests, is_long ? 2 : 1, set_up, tear_down);
}
