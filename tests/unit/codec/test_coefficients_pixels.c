/*
 * Items of the form `coefficients`, made from JPEG files of every kind: on every instruction set
 * the samples of components and the pixels of regions are libjpeg-turbo's. Damaged items, with
 * changes to every byte of header and index, run through the fuzz target: it reads and writes
 * nothing outside, and undamaged parts stay right.
 *
 * With --time FILES it prints microseconds instead; see coefficients_timing.h.
 */
#include "../test.h"
#include "components.h"
#include "version1.h"

#include "base/memory.h"
#include "codec/jpeg_transcode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int samplings[] = {0, 111, 211, 121, 221, 411, 241, 311};

enum { SAMPLINGS = sizeof samplings / sizeof samplings[0], CHOICE = 9 };

/* State that all images share. */
struct pixels_bench {
    struct hr__transcoder *transcoder;
    void *formats[HR__ISA_AVX512 + 1]; /* by instruction set, as far as the machine has it */
    uint64_t random;
};

static struct bytes make_item(struct hr__transcoder *transcoder, const struct bytes *file)
{
    struct hr__encoded in = {.bytes = file->data, .length = file->length};
    struct hr__transcoded item;
    struct hr_error error = {0};
    if (hr__transcode_coefficients(transcoder, &in, 0, &item, &error))
        fail_msg("%s", error.message);
    /* Allocate exactly its bytes, so that a sanitizer detects a read past them. */
    struct bytes out = {malloc(item.length), item.length};
    memcpy(out.data, item.bytes, item.length);
    return out;
}

#include "coefficients_timing.h"

/* Compares a component, unpacked with one instruction set, with libjpeg's plane. */
static int component_is_exact(const struct hr__coefficients *item, int c, enum hr__isa isa,
                              const struct components *want)
{
    size_t stride = ((size_t)item->blocks_x[c] + 3) * 8;
    uint8_t *out = malloc(8 * stride);
    struct hr__block_profiles profiles;
    struct hr__block_run run = {
        .profiles = hr__coefficients_profiles(item, &profiles),
        .end = item->data + item->data_bytes,
        .quant = item->quant[c],
        .blocks = item->blocks_x[c],
        .out = out,
        .stride = (ptrdiff_t)stride,
    };
    int equal = 1;
    for (int y = 0; y < want->height[c]; y++) {
        if (y % 8 == 0) {
            run.data = hr__coefficients_find(item, c, (uint32_t)y / 8, 0);
            assert_non_null(run.data);
            assert_int_equal(hr__block_kernels(isa)->unpack(&run), 0);
        }
        equal &=
            !memcmp(out + (size_t)(y % 8) * stride,
                    want->plane[c] + (size_t)y * (size_t)want->width[c], (size_t)want->width[c]);
    }
    free(out);
    return equal;
}

static int region_is_exact(void *format, const struct bytes *item, const uint8_t *reference,
                           const struct hr_region *region)
{
    struct hr__decode_job job = {.in = {item->data, item->length}, .region = *region};
    assert_int_equal(hr__format_coefficients.info(format, &job.in, &job.info, NULL), 0);
    job.out = (struct hr__planar){
        .stride = (region->width + 63) & ~63, .width = region->width, .height = region->height};
    for (int c = 0; c < 3; c++)
        job.out.plane[c] = aligned_alloc(64, (size_t)(job.out.stride * region->height));
    assert_int_equal(hr__format_coefficients.region(format, &job, NULL), 0);
    int equal = planar_equals(&job.out, reference, job.info.width, region);
    for (int c = 0; c < 3; c++)
        free(job.out.plane[c]);
    return equal;
}

/* Returns the same image as an item of version 1. */
static struct bytes make_version1(const struct bytes *item, int wide)
{
    struct hr__coefficients c;
    struct bytes made, out;
    assert_int_equal(hr__coefficients_open(&c, item->data, item->length, NULL), 0);
    made.data = version1_of(&c, wide, &made.length);
    out = (struct bytes){malloc(made.length), made.length};
    memcpy(out.data, made.data, made.length);
    free(made.data);
    return out;
}

static void item_is_exact(struct pixels_bench *b, const struct jpeg_spec *spec,
                          const struct bytes *file, const struct bytes *item)
{
    struct hr__coefficients c;
    struct components want;
    int w, h;
    uint8_t *reference = decode_plainly(file, &w, &h);
    components_of(file, &want);
    assert_int_equal(hr__coefficients_open(&c, item->data, item->length, NULL), 0);
    for (int i = 0; i < c.header.components; i++)
        for (int isa = 0; isa <= (int)hr__isa(); isa++)
            if (!component_is_exact(&c, i, (enum hr__isa)isa, &want))
                fail_msg("version %d, instruction set %d: component %d of %dx%d, quality %d, seed "
                         "%d differs",
                         c.header.version, isa, i, w, h, spec->quality, (int)spec->seed);
    for (int n = 0; n < test_rounds(8); n++) {
        struct hr_region region = {0, 0, w, h};
        if (n)
            region = random_region_often_small(&b->random, w, h);
        for (int isa = 0; isa <= (int)hr__isa(); isa++)
            if (!region_is_exact(b->formats[isa], item, reference, &region))
                fail_msg("version %d, instruction set %d: region %d,%d %dx%d of %dx%d, %d x %d, "
                         "quality %d, seed %d differs",
                         c.header.version, isa, region.x, region.y, region.width, region.height, w,
                         h, c.header.h, c.header.v, spec->quality, (int)spec->seed);
    }
    components_free(&want);
    free(reference);
}

/* Checks an image in both versions of the layout. */
static void image_is_exact(struct pixels_bench *b, const struct jpeg_spec *spec)
{
    struct bytes file = make_jpeg(spec), item = make_item(b->transcoder, &file);
    struct bytes before = make_version1(&item, spec->seed & 1);
    item_is_exact(b, spec, &file, &item);
    item_is_exact(b, spec, &file, &before);
    free(before.data);
    free(item.data);
    free(file.data);
}

static int set_up(void **state)
{
    struct pixels_bench *b = calloc(1, sizeof *b);
    b->random = 41;
    *state = b;
    int r = hr__transcoder_create(&b->transcoder, NULL);
    for (int isa = 0; !r && isa <= (int)hr__isa(); isa++)
        r = hr__coefficients_create(&b->formats[isa], (enum hr__isa)isa, NULL);
    return r;
}

static int tear_down(void **state)
{
    struct pixels_bench *b = *state;
    hr__transcoder_destroy(&b->transcoder);
    for (int isa = 0; isa <= (int)hr__isa(); isa++)
        hr__format_coefficients.destroy(&b->formats[isa]);
    free(b);
    return 0;
}

static void every_size_is_exact(void **state)
{
    struct pixels_bench *b = *state;
    for (int s = 0; s < SAMPLINGS; s++) {
        for (int n = 1; n <= 34; n++) {
            int other = random_between(&b->random, 1, 40);
            struct jpeg_spec wide = sampled_spec(samplings[s], n, other, next_random(&b->random));
            struct jpeg_spec high = sampled_spec(samplings[s], other, n, next_random(&b->random));
            image_is_exact(b, &wide);
            image_is_exact(b, &high);
        }
        for (int n = 0; n < 5; n++) {
            struct jpeg_spec spec =
                sampled_spec(samplings[s], random_between(&b->random, 1, 300),
                             random_between(&b->random, 1, 300), next_random(&b->random));
            image_is_exact(b, &spec);
        }
    }
}

static void every_quality_is_exact(void **state)
{
    static const int qualities[] = {5, 10, 20, 35, 50, 65, 80, 88, 93, 95, 97, 99, 100};
    struct pixels_bench *b = *state;
    for (size_t i = 0; i < sizeof qualities / sizeof qualities[0]; i++)
        for (int s = 0; s < SAMPLINGS; s++) {
            struct jpeg_spec spec = sampled_spec(samplings[s], 90, 70, next_random(&b->random));
            spec.quality = qualities[i];
            image_is_exact(b, &spec);
        }
}

static void every_scan_is_exact(void **state)
{
    struct pixels_bench *b = *state;
    for (int s = 0; s < SAMPLINGS; s++)
        for (int kind = SCANS_BASELINE; kind <= SCANS_SEPARATE; kind++)
            for (int restart = 0; restart <= 7; restart += 7) {
                struct jpeg_spec spec = sampled_spec(samplings[s], 77, 61, next_random(&b->random));
                spec.scans = (enum jpeg_scans)kind;
                spec.restart = restart;
                image_is_exact(b, &spec);
            }
}

/* Makes the fuzz target's input: which fields of the header it corrects, the region, the item. */
static struct bytes fuzz_input(const struct bytes *item, uint64_t *random)
{
    struct bytes input = {malloc(CHOICE + item->length), CHOICE + item->length};
    uint64_t choice = next_random(random);
    input.data[0] = 1;
    memcpy(input.data + 1, &choice, sizeof choice);
    memcpy(input.data + CHOICE, item->data, item->length);
    return input;
}

static struct bytes small_input(struct pixels_bench *b, int sampling, int quality, int version)
{
    struct jpeg_spec spec = sampled_spec(sampling, 37, 19, next_random(&b->random));
    spec.quality = quality;
    struct bytes file = make_jpeg(&spec), item = make_item(b->transcoder, &file);
    struct bytes before = make_version1(&item, 0);
    struct bytes input = fuzz_input(version == 1 ? &before : &item, &b->random);
    free(before.data);
    free(item.data);
    free(file.data);
    return input;
}

/* Six kinds of damage to each byte of the header and the index, which say where the rest lies; to
 * the others, by far the most, two of them in turn; where it is slow, to one in sixteen of these.
 */
static void damaged_items_are_safe(void **state)
{
    struct pixels_bench *b = *state;
    struct hr__coefficients c;
    for (int n = 0; n < 2 * SAMPLINGS; n++) {
        int s = n / 2;
        struct bytes input = small_input(b, samplings[s], 20 + 15 * s, 1 + n % 2);
        LLVMFuzzerTestOneInput(input.data, input.length);
        assert_int_equal(
            hr__coefficients_open(&c, input.data + CHOICE, input.length - CHOICE, NULL), 0);
        size_t tables = CHOICE + sizeof c.header, index = (size_t)(c.rows - input.data),
               blocks = (size_t)(c.data - input.data);
        for (size_t i = CHOICE; i < input.length; i++) {
            uint8_t was = input.data[i];
            const uint8_t damage[] = {0, 0xFF, was ^ 1, was ^ 0x80, was + 1, was ^ 0x40};
            int all = i < tables || (i >= index && i < blocks);
            if (!all && i % 16 && test_is_slow())
                continue;
            for (size_t k = all ? 0 : i % 3; k < sizeof damage; k += all ? 1 : 3) {
                input.data[i] = damage[k];
                LLVMFuzzerTestOneInput(input.data, input.length);
            }
            input.data[i] = was;
        }
        free(input.data);
    }
}

static void cut_item_is_safe(struct pixels_bench *b, int version)
{
    struct hr__coefficients c;
    struct bytes input = small_input(b, 221, 75, version);
    struct bytes item = {input.data + CHOICE, input.length - CHOICE};
    for (size_t length = 0; length < item.length; length++) {
        /* Once as it is, and once with the length in the header corrected. */
        uint8_t *cut = malloc(length + 1);
        memcpy(cut, item.data, length);
        assert_int_equal(hr__coefficients_open(&c, cut, length, NULL), -EBADMSG);
        free(cut);
        LLVMFuzzerTestOneInput(input.data, CHOICE + length);
    }
    free(input.data);
}

static void cut_items_are_safe(void **state)
{
    cut_item_is_safe(*state, 1);
    cut_item_is_safe(*state, 2);
}

static struct bytes read_golden(const char *name)
{
    char path[4096];
    const char *root = getenv("HEADRACE_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s/tests/golden/codec/%s", root ? root : ".", name);
    return read_file(path);
}

/* The items in tests/golden/codec come from the code that once wrote version 1. version1.c writes
 * the same bytes, so the tests that use it read real items of version 1. */
static void version_1_is_what_it_was(void **state)
{
    static const char *const names[][2] = {{"420.jpg", "420.item"},
                                           {"422.jpg", "422.item"},
                                           {"444-progressive.jpg", "444-progressive.item"},
                                           {"grey.jpg", "grey.item"}};
    struct pixels_bench *b = *state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct bytes file = read_golden(names[i][0]), want = read_golden(names[i][1]);
        struct bytes item = make_item(b->transcoder, &file), got = make_version1(&item, 0);
        assert_int_equal(got.length, want.length);
        assert_memory_equal(got.data, want.data, want.length);
        free(file.data);
        free(want.data);
        free(item.data);
        free(got.data);
    }
}

/* Info comes from the header of the item. */
static void info_is_the_headers(void **state)
{
    struct pixels_bench *b = *state;
    struct jpeg_spec spec = sampled_spec(211, 31, 17, 5);
    struct bytes file = make_jpeg(&spec), item = make_item(b->transcoder, &file);
    struct hr__decode_job job = {.in = {item.data, item.length}};
    struct hr_error error = {0};
    void *format = b->formats[hr__isa()];
    item.data[offsetof(struct hr__item_header, orientation)] = 6;
    assert_int_equal(hr__format_coefficients.info(format, &job.in, &job.info, &error), 0);
    assert_int_equal(job.info.width, 31);
    assert_int_equal(job.info.height, 17);
    assert_int_equal(job.info.channels, 3);
    assert_int_equal(job.info.orientation, 6);
    job.info.width = 30; /* info of another image */
    job.region = (struct hr_region){0, 0, 30, 17};
    assert_int_equal(hr__format_coefficients.region(format, &job, &error), -EINVAL);
    assert_int_equal(error.code, -EINVAL);
    assert_true(hr__format_coefficients.memory(format) > 0);
    free(item.data);
    free(file.data);
}

static void no_memory_is_an_error(void **state)
{
    struct pixels_bench *b = *state;
    struct jpeg_spec spec = sampled_spec(221, 200, 150, 8);
    struct bytes file = make_jpeg(&spec), item = make_item(b->transcoder, &file);
    static uint8_t planes[3][192 * 150 + HR__PIXEL_SLACK] __attribute__((aligned(64)));
    struct hr__decode_job job = {.in = {item.data, item.length},
                                 .region = {3, 1, 190, 149},
                                 .out = {{planes[0], planes[1], planes[2]}, 192, 190, 149}};
    int r = -ENOMEM;
    uint64_t held = hr__allocated(HR__TAG_CODEC);
    for (uint64_t n = 1; r == -ENOMEM; n++) {
        void *format = NULL;
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 0);
        r = hr__format_coefficients.create(&format, &error);
        if (!r)
            r = hr__format_coefficients.info(format, &job.in, &job.info, &error);
        if (!r)
            r = hr__format_coefficients.region(format, &job, &error);
        hr__alloc_fail_at(0, 0);
        assert_true(r == 0 || (r == -ENOMEM && error.code == -ENOMEM));
        assert_true(n > 1 || r);
        hr__format_coefficients.destroy(&format);
        assert_int_equal(hr__allocated(HR__TAG_CODEC), held);
    }
    assert_int_equal(r, 0);
    free(item.data);
    free(file.data);
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "--time"))
        return time_versions(argc - 2, argv + 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_exact),   cmocka_unit_test(every_quality_is_exact),
        cmocka_unit_test(every_scan_is_exact),   cmocka_unit_test(damaged_items_are_safe),
        cmocka_unit_test(cut_items_are_safe),    cmocka_unit_test(info_is_the_headers),
        cmocka_unit_test(no_memory_is_an_error), cmocka_unit_test(version_1_is_what_it_was),
    };
    return cmocka_run_group_tests_name("codec-coefficients-pixels", tests, set_up, tear_down);
}
