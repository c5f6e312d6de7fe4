/*
 * The fused pass: the same bits from every instruction set, on images and outputs between guard
 * pages; its distance from the float resize and from the definition in double precision; casts;
 * failed allocations.
 *
 * With --time it prints microseconds per crop of each version instead.
 */
#include "fused_cases.h"

#include "base/memory.h"
#include "recipe/fused_kernels.h"
#include "recipe/store.h"

#include <errno.h>
#include <stdio.h>

static const enum hr_dtype dtypes[] = {HR_UINT8, HR_FLOAT16, HR_BFLOAT16, HR_FLOAT32};
static const char *const isa_names[] = {"portable", "avx2", "avx512"};

static size_t element_bytes(enum hr_dtype dtype)
{
    return dtype == HR_UINT8 ? 1 : dtype == HR_FLOAT32 ? 4 : 2;
}

/* A random job on a random image of crops up to `most` pixels a side. */
static struct hr__fused_job job_make(struct hr__random *r, int most, struct image *image)
{
    struct hr__fused_job job;
    int w, h;
    memset(&job, 0, sizeof job);
    do {
        job.interpolation = hr__random_below(r, 3) ? HR_BILINEAR : HR_BICUBIC;
        job.antialias = hr__random_below(r, 4) != 0;
        job.x = axis_make(r, most, &w, job.interpolation, job.antialias);
    } while (!hr__fused_fits(&job));
    job.y = axis_make(r, most, &h, job.interpolation, job.antialias);
    job.dtype = dtypes[hr__random_below(r, 4)];
    job.layout = hr__random_below(r, 3) ? HR_NCHW : HR_NHWC;
    for (int c = 0; c < 3; c++) {
        job.scale[c] = job.dtype == HR_UINT8 ? 1 : (float)hr__random_range(r, 0.003, 0.03);
        job.shift[c] = job.dtype == HR_UINT8 ? 0 : (float)hr__random_range(r, -3, 3);
    }
    *image = image_make(r, w, h);
    job.pixels = &image->planar;
    return job;
}

static size_t job_bytes(const struct hr__fused_job *job)
{
    return (size_t)job->x.count * (size_t)job->y.count * 3 * element_bytes(job->dtype);
}

static void every_isa_gives_the_same_bits(void **state)
{
    static const int sizes[] = {4, 12, 40, 40, 100, 100, 200, 700};
    struct hr__fused *fused[3] = {NULL};
    struct hr__random r;
    int isas = 0;
    hr__random_init(&r, 4, 0, 0, 0);
    for (int isa = HR__ISA_PORTABLE; isa <= HR__ISA_AVX512; isa++) {
        assert_int_equal(hr__fused_create(&fused[isas], NULL), 0);
        if (!hr__fused_use(fused[isas], (enum hr__isa)isa))
            isas++;
        else
            hr__fused_destroy(&fused[isas]);
    }
    print_message("%d versions\n", isas);
    for (int n = 0; n < test_rounds(3000); n++) {
        struct image image;
        /* Each image is used for two jobs, which differ only in the kind of output. */
        struct hr__fused_job job = job_make(&r, sizes[n % 8], &image);
        for (int again = 0; again < 2; again++) {
            size_t bytes = job_bytes(&job), element = element_bytes(job.dtype);
            size_t skew = hr__random_below(&r, 2) ? element * hr__random_below(&r, 64) : 0;
            struct guarded first = guarded_alloc(bytes, 1);
            job.out = first.at;
            assert_int_equal(hr__fused_run(fused[0], &job, NULL), 0);
            for (int i = 1; i < isas; i++) {
                struct guarded other = guarded_alloc(bytes + skew, n & 1);
                memset(other.at, 0x5a, bytes + skew);
                job.out = other.at + skew;
                job.cached = (n + i) % 3 == 0;
                assert_int_equal(hr__fused_run(fused[i], &job, NULL), 0);
                assert_memory_equal(first.at, other.at + skew, bytes);
                for (size_t k = 0; k < skew; k++)
                    assert_int_equal(other.at[k], 0x5a);
                guarded_free(&other);
            }
            guarded_free(&first);
            job.layout = job.layout == HR_NCHW ? HR_NHWC : HR_NCHW;
            if (job.dtype != HR_UINT8)
                job.dtype = dtypes[1 + hr__random_below(&r, 3)];
        }
        image_free(&image);
    }
    for (int i = 0; i < isas; i++)
        hr__fused_destroy(&fused[i]);
    assert_int_equal(hr__allocated(HR__TAG_RECIPE), 0);
}

/*
 * Returns the largest error that integer weights can cause: errors of T weights, each below one
 * unit and with sum 0, move at most T / 4 units from one pixel to another. The vertical pass of
 * bicubic amplifies that by its sum of absolute weights, below 1.5. The rest is float arithmetic.
 */
static double tolerance(const struct hr__fused_job *job)
{
    int taps = hr__taps_bound(&job->x, job->interpolation, job->antialias) + 1;
    if (job->interpolation == HR_BICUBIC)
        return 1.5 * taps / 4 * 255 / 8128 + 0.0002;
    return taps / 4.0 * 255 / 16256 + 0.0002;
}

static void float_results_are_near_the_definition(void **state)
{
    struct hr__fused *fused;
    struct hr__random r;
    double worst[2] = {0, 0};
    hr__random_init(&r, 5, 0, 0, 0);
    assert_int_equal(hr__fused_create(&fused, NULL), 0);
    for (int n = 0; n < 120; n++) {
        struct image image;
        struct hr__fused_job job = job_make(&r, n % 4 ? 120 : 400, &image);
        size_t size = 3 * (size_t)job.x.count * (size_t)job.y.count;
        float *out = malloc(size * sizeof *out);
        double *expected = direct_run(&job), most = 0;
        job.dtype = HR_FLOAT32;
        job.out = out;
        for (int c = 0; c < 3; c++) {
            job.scale[c] = 1;
            job.shift[c] = (float)c;
        }
        assert_int_equal(hr__fused_run(fused, &job, NULL), 0);
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < job.y.count; i++)
                for (int j = 0; j < job.x.count; j++) {
                    size_t at =
                        ((size_t)c * (size_t)job.y.count + (size_t)i) * (size_t)job.x.count +
                        (size_t)j;
                    double error = out[place_of(&job, c, i, j)] - c - expected[at];
                    most = fmax(most, fabs(error));
                }
        assert_true(most <= tolerance(&job));
        if (job.x.in <= 2 * job.x.out)
            worst[job.interpolation] = fmax(worst[job.interpolation], most);
        free(expected);
        free(out);
        image_free(&image);
    }
    /* Down to half the size. */
    print_message("worst error: bilinear %.4f/255, bicubic %.4f/255\n", worst[0], worst[1]);
    assert_true(worst[HR_BILINEAR] <= 0.02);
    assert_true(worst[HR_BICUBIC] <= 0.07);
    hr__fused_destroy(&fused);
}

static void bytes_are_the_rounded_floats(void **state)
{
    struct hr__fused *fused;
    struct hr__random r;
    hr__random_init(&r, 6, 0, 0, 0);
    assert_int_equal(hr__fused_create(&fused, NULL), 0);
    for (int n = 0; n < 60; n++) {
        struct image image;
        struct hr__fused_job job = job_make(&r, 150, &image);
        size_t size = 3 * (size_t)job.x.count * (size_t)job.y.count;
        float *floats = malloc(size * sizeof *floats);
        uint16_t *words = malloc(size * sizeof *words);
        uint8_t *bytes = malloc(size);
        for (int c = 0; c < 3; c++) {
            job.scale[c] = 1;
            job.shift[c] = 0;
        }
        job.dtype = HR_FLOAT32;
        job.out = floats;
        assert_int_equal(hr__fused_run(fused, &job, NULL), 0);
        job.dtype = HR_UINT8;
        job.out = bytes;
        assert_int_equal(hr__fused_run(fused, &job, NULL), 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(bytes[i], hr__store_uint8(floats[i]));
        job.dtype = HR_BFLOAT16;
        job.out = words;
        assert_int_equal(hr__fused_run(fused, &job, NULL), 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(words[i], hr__store_bfloat16(floats[i]));
        job.dtype = HR_FLOAT16;
        assert_int_equal(hr__fused_run(fused, &job, NULL), 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(words[i], hr__store_float16(floats[i]));
        free(floats);
        free(words);
        free(bytes);
        image_free(&image);
    }
    hr__fused_destroy(&fused);
}

static void same_size_passes_values_unchanged(void **state)
{
    struct hr__fused *fused;
    struct hr__random r;
    hr__random_init(&r, 7, 0, 0, 0);
    assert_int_equal(hr__fused_create(&fused, NULL), 0);
    for (int n = 0; n < 192; n++) {
        int w = 1 + (int)hr__random_below(&r, 200), h = 1 + (int)hr__random_below(&r, 60);
        struct image image = image_make(&r, w, h);
        int x0 = (int)hr__random_below(&r, (uint64_t)w),
            y0 = (int)hr__random_below(&r, (uint64_t)h);
        struct hr__fused_job job = {.pixels = &image.planar,
                                    .x = {w, w, x0, w - x0, 0, n & 1},
                                    .y = {h, h, y0, h - y0, 0, n >> 1 & 1},
                                    .layout = n & 32 ? HR_NHWC : HR_NCHW,
                                    .interpolation = n & 4 ? HR_BICUBIC : HR_BILINEAR,
                                    .antialias = n >> 3 & 1,
                                    .dtype = n & 16 ? HR_UINT8 : HR_FLOAT32};
        float *floats = malloc(sizeof *floats * 3 * (size_t)w * (size_t)h);
        uint8_t *bytes = (uint8_t *)floats;
        job.out = floats;
        for (int c = 0; c < 3; c++) {
            job.scale[c] = job.dtype == HR_UINT8 ? 1 : 0.0171247f;
            job.shift[c] = job.dtype == HR_UINT8 ? 0 : -2.117904f;
        }
        if (n / 64 <= (int)hr__isa())
            assert_int_equal(hr__fused_use(fused, (enum hr__isa)(n / 64)), 0);
        assert_int_equal(hr__fused_run(fused, &job, NULL), 0);
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < job.y.count; i++)
                for (int j = 0; j < job.x.count; j++) {
                    int y = job.y.flip ? h - 1 - i : y0 + i, x = job.x.flip ? w - 1 - j : x0 + j;
                    uint8_t v = image.planar.plane[c][y * image.planar.stride + x];
                    float scaled = v * job.scale[c];
                    if (job.dtype == HR_UINT8)
                        assert_int_equal(bytes[place_of(&job, c, i, j)], v);
                    else
                        assert_true(floats[place_of(&job, c, i, j)] == scaled + job.shift[c]);
                }
        free(floats);
        image_free(&image);
    }
    hr__fused_destroy(&fused);
}

/* Rounds to float16 by the rule: the nearer neighbour or, if both are equally near, the even
 * one. */
static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double v = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -v : v;
}

static void casts_round_to_nearest_even(void **state)
{
    /* All finite halves, the midpoints between neighbours, and values next to these. */
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        double low = half_value((uint16_t)bits), high = half_value((uint16_t)(bits + 1));
        float middle = (float)((low + high) / 2);
        assert_int_equal(hr__store_float16((float)low), bits);
        assert_int_equal(hr__store_float16((float)-high), (bits + 1) | 0x8000);
        assert_int_equal(hr__store_float16(middle), bits + (bits & 1));
        assert_int_equal(hr__store_float16(nextafterf(middle, -1)), bits);
        assert_int_equal(hr__store_float16(nextafterf(middle, 1e9f)), bits + 1);
    }
    assert_int_equal(hr__store_float16(65519.996f), 0x7bff);
    assert_int_equal(hr__store_float16(65520), 0x7c00);
    assert_int_equal(hr__store_float16(INFINITY), 0x7c00);
    assert_int_equal(hr__store_float16(-1e30f), 0xfc00);
    assert_int_equal(hr__store_float16(-1e-30f), 0x8000);
    assert_int_equal(hr__store_bfloat16(1.0f), 0x3f80);
    assert_int_equal(hr__store_bfloat16(1.00390625f), 0x3f80);
    assert_int_equal(hr__store_bfloat16(1.01171875f), 0x3f82);
    assert_int_equal(hr__store_bfloat16(-INFINITY), 0xff80);
    assert_int_equal(hr__store_uint8(-3), 0);
    assert_int_equal(hr__store_uint8(0.5f), 1);
    assert_int_equal(hr__store_uint8(254.49f), 254);
    assert_int_equal(hr__store_uint8(254.5f), 255);
    assert_int_equal(hr__store_uint8(1e20f), 255);
    assert_int_equal(hr__store_uint8(NAN), 0);
}

/* Compares one cast value with the cast of one float. */
static void check_cast(const uint8_t *out, size_t at, enum hr_dtype dtype, float v)
{
    uint16_t word;
    if (dtype == HR_UINT8) {
        assert_int_equal(out[at], hr__store_uint8(v));
    } else if (dtype == HR_FLOAT32) {
        assert_memory_equal(out + 4 * at, &v, sizeof v);
    } else {
        memcpy(&word, out + 2 * at, sizeof word);
        assert_int_equal(word, dtype == HR_FLOAT16 ? hr__store_float16(v) : hr__store_bfloat16(v));
    }
}

enum { ROW = 700 };

/* Fills a row with any floats, or with those of a tensor's range. */
static void fill_row(struct hr__random *r, float *values, int any)
{
    for (int i = 0; i < ROW; i++) {
        uint32_t bits = hr__random_u32(r);
        values[i] = (float)((int)(bits >> 8) - (1 << 22)) / 8192.0f;
        if (any)
            memcpy(&values[i], &bits, sizeof bits);
    }
}

static void every_isa_casts_and_interleaves(void **state)
{
    static float values[3][ROW];
    static uint8_t cast[3][ROW * 4 + 64];
    static _Alignas(64) uint8_t out[3 * ROW * 4 + 64];
    struct hr__random r;
    hr__random_init(&r, 12, 0, 0, 0);
    for (int n = 0; n < 600; n++) {
        enum hr_dtype dtype = dtypes[n & 3];
        const struct hr__fused_kernels *kernels = hr__fused_kernels((enum hr__isa)(n % 3));
        size_t bytes = element_bytes(dtype), skew = bytes * hr__random_below(&r, 16);
        size_t width = 1 + (size_t)hr__random_below(&r, ROW);
        if ((enum hr__isa)(n % 3) > hr__isa())
            continue;
        memset(cast, 0x77, sizeof cast);
        memset(out, 0x77, sizeof out);
        for (int c = 0; c < 3; c++) {
            fill_row(&r, values[c], n & 8);
            kernels->cast(values[c], width, dtype, cast[c]);
            for (size_t i = 0; i < width; i++)
                check_cast(cast[c], i, dtype, values[c][i]);
            assert_int_equal(cast[c][width * bytes], 0x77);
        }
        const void *const in[3] = {cast[0], cast[1], cast[2]};
        /* Streaming stores are used for whole, aligned cache lines. */
        if (n & 16) {
            width = (width + 63) / 64 * 64 < ROW ? (width + 63) / 64 * 64 : 64;
            skew = 0;
            for (int c = 0; c < 3; c++)
                kernels->cast(values[c], width, dtype, cast[c]);
        }
        kernels->interleave(in, width, bytes, n & 16, out + skew);
        for (int c = 0; c < 3; c++)
            for (size_t i = 0; i < width; i++)
                check_cast(out + skew, 3 * i + (size_t)c, dtype, values[c][i]);
        assert_int_equal(out[skew + 3 * width * bytes], 0x77);
        assert_true(!skew || out[skew - 1] == 0x77);
    }
}

static void rows_find_their_place(void **state)
{
    static float values[3][ROW];
    static uint8_t out[3 * ROW * 4 * 2];
    const float *const channel[3] = {values[0], values[1], values[2]};
    struct hr__random r;
    hr__random_init(&r, 8, 0, 0, 0);
    for (int n = 0; n < 100; n++) {
        int width = 1 + (int)hr__random_below(&r, ROW), row = n >> 3 & 1;
        enum hr_dtype dtype = dtypes[n & 3];
        struct hr__sample_store store = {out, width, width, 2, dtype, n & 4 ? HR_NHWC : HR_NCHW};
        struct hr__fused_job job = {.layout = store.layout};
        job.x.count = width;
        job.y.count = 2;
        for (int c = 0; c < 3; c++)
            fill_row(&r, values[c], 0);
        hr__store_row(&store, row, channel);
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < width; i++)
                check_cast(out, place_of(&job, c, row, i), dtype, values[c][i]);
    }
}

static void wide_filters_do_not_fit(void **state)
{
    struct hr__fused_job job = {.x = {14000, 224, 0, 224, 0, 0}, .antialias = 1};
    assert_true(hr__fused_fits(&job));
    job.x.in = 14500;
    assert_false(hr__fused_fits(&job));
    job.antialias = 0;
    assert_true(hr__fused_fits(&job));
    job.antialias = 1;
    job.interpolation = HR_BICUBIC;
    job.x.in = 7000;
    assert_true(hr__fused_fits(&job));
    job.x.in = 7300;
    assert_false(hr__fused_fits(&job));
}

/* Puts a part of its own somewhere on the image, of which all else becomes fill. */
static struct hr__surround surround_make(struct hr__random *r, struct image *image,
                                         struct image *part)
{
    struct hr__planar *whole = &image->planar;
    int width = 1 + (int)hr__random_below(r, 2 * (uint64_t)whole->width);
    int height = 1 + (int)hr__random_below(r, 2 * (uint64_t)whole->height);
    struct hr__surround around = {
        .x = (int)hr__random_below(r, (uint64_t)(whole->width + width + 1)) - width,
        .y = (int)hr__random_below(r, (uint64_t)(whole->height + height + 1)) - height,
        .width = whole->width,
        .height = whole->height};
    *part = image_make(r, width, height);
    for (int c = 0; c < 3; c++) {
        around.fill[c] = (uint8_t)hr__random_u32(r);
        for (int y = 0; y < whole->height; y++) {
            for (int x = 0; x < whole->width; x++) {
                int px = x - around.x, py = y - around.y;
                whole->plane[c][y * whole->stride + x] =
                    px >= 0 && px < width && py >= 0 && py < height
                        ? part->planar.plane[c][py * part->planar.stride + px]
                        : around.fill[c];
            }
        }
    }
    return around;
}

static void a_surround_gives_the_bits_of_its_image(void **state)
{
    struct hr__random r;
    hr__random_init(&r, 12, 0, 0, 0);
    for (int n = 0; n < test_rounds(1200); n++) {
        struct image image, part;
        struct hr__fused *fused;
        struct hr__fused_job job = job_make(&r, n % 4 ? 60 : 300, &image);
        if (n % 5 == 0) { /* only converts */
            job.x = (struct hr__axis){job.x.in, job.x.in, 0, job.x.in, 0, n % 2, 0, 0};
            job.y = (struct hr__axis){job.y.in, job.y.in, 0, job.y.in, 0, n % 3 == 0, 0, 0};
            image_free(&image);
            image = image_make(&r, job.x.in, job.y.in);
        }
        struct hr__surround around = surround_make(&r, &image, &part);
        struct guarded whole = guarded_alloc(job_bytes(&job), 1);
        struct guarded placed = guarded_alloc(job_bytes(&job), 1);
        for (int isa = HR__ISA_PORTABLE; isa <= HR__ISA_AVX512; isa++) {
            assert_int_equal(hr__fused_create(&fused, NULL), 0);
            if (!hr__fused_use(fused, (enum hr__isa)isa)) {
                job.pixels = &image.planar;
                job.around = NULL;
                job.out = whole.at;
                assert_int_equal(hr__fused_run(fused, &job, NULL), 0);
                job.pixels = &part.planar;
                job.around = &around;
                job.out = placed.at;
                assert_int_equal(hr__fused_run(fused, &job, NULL), 0);
                assert_memory_equal(whole.at, placed.at, job_bytes(&job));
            }
            hr__fused_destroy(&fused);
        }
        guarded_free(&whole);
        guarded_free(&placed);
        image_free(&image);
        image_free(&part);
    }
    assert_int_equal(hr__allocated(HR__TAG_RECIPE), 0);
}

static void no_memory_is_an_error(void **state)
{
    struct hr__random r;
    struct image image;
    hr__random_init(&r, 9, 0, 0, 0);
    struct hr__fused_job job = job_make(&r, 40, &image);
    job.layout = HR_NHWC;
    uint8_t *expected = malloc(job_bytes(&job)), *out = malloc(job_bytes(&job));
    struct hr__fused *fused;
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr__fused_create(&fused, NULL), -ENOMEM);
    assert_int_equal(hr__fused_create(&fused, NULL), 0);
    job.out = expected;
    assert_int_equal(hr__fused_run(fused, &job, NULL), 0);
    assert_int_equal(hr__fused_memory(fused), hr__allocated(HR__TAG_RECIPE));
    hr__fused_destroy(&fused);
    hr__fused_destroy(&fused);
    job.out = out;
    int result = -ENOMEM, failures = 0;
    for (uint64_t n = 1; result < 0; n++) {
        struct hr_error error = {0};
        assert_int_equal(hr__fused_create(&fused, NULL), 0);
        hr__alloc_fail_at(n, 0);
        result = hr__fused_run(fused, &job, &error);
        hr__alloc_fail_at(0, 0);
        if (result < 0) {
            assert_int_equal(error.code, -ENOMEM);
            failures++;
            /* The object can be used again. */
            assert_int_equal(hr__fused_run(fused, &job, NULL), 0);
        }
        assert_memory_equal(out, expected, job_bytes(&job));
        hr__fused_destroy(&fused);
        assert_int_equal(hr__allocated(HR__TAG_RECIPE), 0);
    }
    assert_true(failures >= 8);
    free(expected);
    free(out);
    image_free(&image);
}

#include "fused_timing.h"

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--time"))
        return time_versions();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_isa_gives_the_same_bits),
        cmocka_unit_test(float_results_are_near_the_definition),
        cmocka_unit_test(bytes_are_the_rounded_floats),
        cmocka_unit_test(same_size_passes_values_unchanged),
        cmocka_unit_test(casts_round_to_nearest_even),
        cmocka_unit_test(every_isa_casts_and_interleaves),
        cmocka_unit_test(rows_find_their_place),
        cmocka_unit_test(wide_filters_do_not_fit),
        cmocka_unit_test(a_surround_gives_the_bits_of_its_image),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
