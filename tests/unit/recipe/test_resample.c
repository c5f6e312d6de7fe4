/* Compares the filters and the float resize with the definition in double precision. */
#include "fused_cases.h"

#include "base/memory.h"

#include <errno.h>

static const enum hr_interpolation kinds[] = {HR_BILINEAR, HR_BICUBIC};

static void sources_are_what_has_weight(void **state)
{
    struct hr__random r;
    static double weight[1000];
    hr__random_init(&r, 1, 0, 0, 0);
    for (int n = 0; n < 4000; n++) {
        int pixels, begin, end, antialias = n & 1;
        enum hr_interpolation kind = kinds[n >> 1 & 1];
        struct hr__axis a = axis_make(&r, 1000, &pixels, kind, antialias);
        hr__axis_source(&a, kind, antialias, &begin, &end);
        int edges[] = {0, a.count - 1, (int)hr__random_below(&r, (uint64_t)a.count)};
        for (int e = 0; e < 3; e++) {
            direct_axis(&a, edges[e], kind, antialias, weight);
            for (int p = 0; p < hr__axis_pixels(&a); p++)
                if (fabs(weight[p]) > 1e-9)
                    assert_true(p >= begin && p < end);
        }
        assert_true(end - begin <= hr__axis_pixels(&a));
    }
}

static void tables_are_the_definition(void **state)
{
    struct hr__random r;
    struct hr__taps taps = {0};
    static double weight[2000];
    hr__random_init(&r, 2, 0, 0, 0);
    for (int n = 0; n < 400; n++) {
        int pixels, antialias = n & 1;
        enum hr_interpolation kind = kinds[n >> 1 & 1];
        struct hr__axis a = axis_make(&r, 2000, &pixels, kind, antialias);
        assert_int_equal(hr__taps_build(&taps, &a, kind, antialias, NULL), 0);
        assert_int_equal(taps.count, a.count);
        assert_true(taps.taps <= hr__taps_bound(&a, kind, antialias) + 1);
        for (int j = 0; j < a.count; j += 1 + a.count / 9) {
            double sum = 0;
            direct_axis(&a, j, kind, antialias, weight);
            for (int t = 0; t < taps.taps; t++) {
                double w = taps.weight[(size_t)t * taps.stride + (size_t)j];
                int p = taps.begin[j] + t;
                sum += w;
                if (p >= hr__axis_pixels(&a))
                    assert_true(w == 0);
                else
                    assert_true(fabs(w - weight[p]) < 1e-9);
            }
            assert_true(fabs(sum - 1) < 1e-12);
        }
    }
    hr__taps_free(&taps);
}

static void float_resize_is_the_definition(void **state)
{
    struct hr__random r;
    double worst = 0;
    hr__random_init(&r, 3, 0, 0, 0);
    for (int n = 0; n < 60; n++) {
        struct hr__fused_job job = {.interpolation = kinds[n & 1], .antialias = n >> 1 & 1};
        int w, h;
        job.x = axis_make(&r, 300, &w, job.interpolation, job.antialias);
        job.y = axis_make(&r, 200, &h, job.interpolation, job.antialias);
        struct image image = image_make(&r, w, h);
        job.pixels = &image.planar;
        double *expected = direct_run(&job);
        size_t in_bytes = sizeof(float) * (size_t)w * (size_t)h;
        size_t out_bytes = sizeof(float) * (size_t)job.x.count * (size_t)job.y.count;
        struct guarded in_memory = guarded_alloc(in_bytes, n >> 2 & 1);
        struct guarded out_memory = guarded_alloc(out_bytes, n >> 2 & 1);
        struct hr__plane_f32 in = {(float *)(void *)in_memory.at, w, h, w};
        struct hr__plane_f32 out = {(float *)(void *)out_memory.at, job.x.count, job.y.count,
                                    job.x.count};
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++)
                in.at[y * in.stride + x] = image.planar.plane[1][y * image.planar.stride + x];
        assert_int_equal(
            hr__resample_f32(&in, &job.x, &job.y, job.interpolation, job.antialias, &out, NULL), 0);
        size_t size = (size_t)job.x.count * (size_t)job.y.count;
        for (size_t i = 0; i < size; i++)
            worst = fmax(worst, fabs(out.at[i] - expected[size + i]));
        free(expected);
        guarded_free(&in_memory);
        guarded_free(&out_memory);
        image_free(&image);
    }
    assert_true(worst < 2e-4);
}

static void same_size_changes_nothing(void **state)
{
    float in[7 * 5], out[7 * 5];
    for (int i = 0; i < 35; i++)
        in[i] = (float)(i * 7) + 0.25f;
    struct hr__plane_f32 from = {in, 7, 5, 7}, to = {out, 7, 5, 7};
    struct hr__axis x = {.in = 7, .out = 7, .count = 7}, y = {.in = 5, .out = 5, .count = 5};
    for (int n = 0; n < 4; n++) {
        assert_int_equal(hr__resample_f32(&from, &x, &y, kinds[n & 1], n >> 1, &to, NULL), 0);
        assert_memory_equal(in, out, sizeof in);
    }
    x.flip = y.flip = 1;
    assert_int_equal(hr__resample_f32(&from, &x, &y, HR_BILINEAR, 1, &to, NULL), 0);
    for (int i = 0; i < 35; i++)
        assert_true(out[i] == in[34 - i]);
}

static void no_memory_is_an_error(void **state)
{
    float in[100] = {0}, out[100];
    struct hr__plane_f32 from = {in, 10, 10, 10}, to = {out, 10, 10, 10};
    struct hr__axis x = {.in = 10, .out = 10, .count = 10};
    uint64_t before = hr__allocated(HR__TAG_RECIPE);
    int result = -ENOMEM, failures = 0;
    for (uint64_t n = 1; result < 0; n++) {
        hr__alloc_fail_at(n, 0);
        result = hr__resample_f32(&from, &x, &x, HR_BILINEAR, 1, &to, NULL);
        hr__alloc_fail_at(0, 0);
        assert_true(result == 0 || result == -ENOMEM);
        failures += result < 0;
        assert_int_equal(hr__allocated(HR__TAG_RECIPE), before);
    }
    assert_int_equal(failures, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_are_what_has_weight),
        cmocka_unit_test(tables_are_the_definition),
        cmocka_unit_test(float_resize_is_the_definition),
        cmocka_unit_test(same_size_changes_nothing),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
