/*
 * MixUp and CutMix: mixed batches follow from the unmixed ones by the definition, for any type,
 * layout, number of threads and place in the epoch at which a loader resumes.
 */
#include "fixture.h"

#include "loader/mix.h"
#include "recipe/store.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 29
#define BATCH   8

FIXTURE(SAMPLES)

static struct hr_recipe *recipe_of(enum hr_dtype dtype, enum hr_layout layout)
{
    struct hr_operation operations[2];
    struct hr_recipe_options options;
    struct hr_recipe *recipe;
    struct hr_error error;
    hr_operation_default(&operations[0], HR_RANDOM_RESIZED_CROP);
    operations[0].u.random_resized_crop.height = 37;
    operations[0].u.random_resized_crop.width = 41;
    hr_operation_default(&operations[1], HR_TO_DTYPE);
    operations[1].u.to_dtype.dtype = dtype;
    operations[1].u.to_dtype.scale = 1;
    hr_recipe_options_default(&options);
    options.layout = layout;
    assert_int_equal(hr_recipe_create(&recipe, operations, 2, &options, &error), 0);
    return recipe;
}

static struct hr_loader *loader_of(struct hr_recipe *recipe, const struct hr_loader_options *o)
{
    struct hr_loader *loader;
    struct hr_error error;
    if (hr_loader_create(&loader, fixture.dataset, recipe, o, &error))
        fail_msg("%s", error.message);
    return loader;
}

/* Element i of an array of the type, as a float. */
static float element(const void *at, enum hr_dtype dtype, size_t i)
{
    uint32_t bits;
    float value;
    if (dtype == HR_UINT8)
        return ((const uint8_t *)at)[i];
    if (dtype == HR_FLOAT32)
        return ((const float *)at)[i];
    uint32_t half = ((const uint16_t *)at)[i];
    if (dtype == HR_FLOAT16) {
        int exponent = half >> 10 & 31, mantissa = half & 1023;
        value = exponent ? ldexpf((float)(1024 + mantissa), exponent - 25)
                         : ldexpf((float)mantissa, -24);
        return half & 0x8000 ? -value : value;
    }
    bits = half << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float rounded(enum hr_dtype dtype, float value)
{
    uint16_t half = dtype == HR_FLOAT16 ? hr__store_float16(value) : hr__store_bfloat16(value);
    return dtype == HR_FLOAT32 ? value : element(&half, dtype, 0);
}

/* Returns non-zero if element i of a sample lies in the box of CutMix. */
static int in_box(const struct hr__mix *mix, const struct hr_tensor_spec *spec, size_t i)
{
    size_t width = (size_t)spec->width, height = (size_t)spec->height;
    size_t pixel = spec->layout == HR_NCHW ? i % (width * height) : i / 3;
    int x = (int)(pixel % width), y = (int)(pixel / width);
    return x >= mix->x1 && x < mix->x2 && y >= mix->y1 && y < mix->y2;
}

static float expected(const struct hr__mix *mix, const struct hr_tensor_spec *spec, float self,
                      float partner, size_t i)
{
    if (mix->is_cut)
        return in_box(mix, spec, i) ? partner : self;
    float a = rounded(spec->dtype, partner * (float)(1.0 - mix->own));
    float b = rounded(spec->dtype, self * (float)mix->own);
    return rounded(spec->dtype, a + b);
}

static void check_batch(const struct hr_loader_options *o, struct hr_batch *plain,
                        struct hr_batch *mixed, uint64_t position)
{
    struct hr_batch_view a, b;
    struct hr__mix mix;
    hr_batch_get(plain, &a);
    hr_batch_get(mixed, &b);
    hr__mix_draw(o, &a.spec, o->seed, a.epoch, position, &mix);
    assert_true(hr_batch_mix(plain) == 1);
    assert_true(hr_batch_mix(mixed) == mix.own);
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.labels, b.labels, a.count * sizeof *a.labels);
    size_t elements = a.spec.bytes / hr_dtype_bytes(a.spec.dtype);
    for (size_t s = 0; s < a.count; s++) {
        size_t before = s ? s - 1 : a.count - 1;
        for (size_t i = 0; i < elements; i++) {
            float self = element(a.images, a.spec.dtype, s * elements + i);
            float partner = element(a.images, a.spec.dtype, before * elements + i);
            float want = mix.own == 1 ? self : expected(&mix, &a.spec, self, partner, i);
            float is = element(b.images, b.spec.dtype, s * elements + i);
            if (is != want)
                fail_msg("sample %zu element %zu: %g, not %g", s, i, (double)is, (double)want);
        }
    }
}

static void check_epoch(struct hr_loader_options *o, enum hr_dtype dtype, enum hr_layout layout)
{
    struct hr_recipe *recipe = recipe_of(dtype, layout);
    struct hr_loader_options unmixed = *o;
    struct hr_error error;
    unmixed.mixup_alpha = unmixed.cutmix_alpha = 0;
    struct hr_loader *plain = loader_of(recipe, &unmixed), *mixed = loader_of(recipe, o);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(hr_loader_start_epoch(plain, epoch, &error), 0);
        assert_int_equal(hr_loader_start_epoch(mixed, epoch, &error), 0);
        for (uint64_t b = 0; b < hr_loader_batches(plain); b++) {
            struct hr_batch *one = fixture_next(plain), *other = fixture_next(mixed);
            check_batch(o, one, other, b * BATCH * (uint64_t)o->world_size + (uint64_t)o->rank);
            hr_batch_release(&one);
            hr_batch_release(&other);
        }
    }
    hr_loader_destroy(&plain);
    hr_loader_destroy(&mixed);
    hr_recipe_unref(&recipe);
}

static void test_types_and_layouts(void **state)
{
    struct hr_loader_options o;
    fixture_options(&o);
    for (int layout = HR_NCHW; layout <= HR_NHWC; layout++) {
        for (int dtype = HR_UINT8; dtype <= HR_FLOAT32; dtype++) {
            o.mixup_alpha = dtype == HR_UINT8 ? 0 : 0.8;
            o.cutmix_alpha = 1;
            o.mix_share = 0.8;
            o.threads = 1 + dtype % 2 * 2;
            check_epoch(&o, (enum hr_dtype)dtype, (enum hr_layout)layout);
        }
    }
}

static void test_ranks(void **state)
{
    struct hr_loader_options o;
    fixture_options(&o);
    o.mixup_alpha = 0.3;
    o.world_size = 2;
    for (o.rank = 0; o.rank < 2; o.rank++)
        check_epoch(&o, HR_FLOAT32, HR_NCHW);
}

/* A loader that resumes mixes the rest of the epoch like one that did not stop. */
static void test_resume(void **state)
{
    struct hr_loader_options o;
    struct hr_error error;
    struct hr_loader_state place;
    fixture_options(&o);
    o.mixup_alpha = o.cutmix_alpha = 1;
    struct hr_loader *loader = fixture_loader(&fixture, &o);
    struct hr_loader *later = fixture_loader(&fixture, &o);
    assert_int_equal(hr_loader_start_epoch(loader, 3, &error), 0);
    struct hr_batch *batch = fixture_next(loader);
    hr_batch_release(&batch);
    assert_int_equal(hr_loader_get_state(loader, &place, &error), 0);
    assert_int_equal(hr_loader_restore(later, &place, &error), 0);
    for (uint64_t b = 1; b < hr_loader_batches(loader); b++) {
        struct hr_batch *one = fixture_next(loader), *other = fixture_next(later);
        struct hr_batch_view a, c;
        hr_batch_get(one, &a);
        hr_batch_get(other, &c);
        assert_true(hr_batch_mix(one) == hr_batch_mix(other));
        assert_memory_equal(a.images, c.images, a.count * a.spec.bytes);
        hr_batch_release(&one);
        hr_batch_release(&other);
    }
    hr_loader_destroy(&loader);
    hr_loader_destroy(&later);
}

/* The share of CutMix and of unmixed batches, and the box's centre, over many draws. */
static void test_draws(void **state)
{
    enum { DRAWS = 20000 };
    struct hr_loader_options o;
    struct hr_tensor_spec spec = {.dtype = HR_FLOAT32, .width = 64, .height = 32, .channels = 3};
    int cut = 0, none = 0;
    double own = 0;
    fixture_options(&o);
    o.mixup_alpha = o.cutmix_alpha = 1;
    o.mix_share = 0.75;
    o.cutmix_share = 0.25;
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct hr__mix mix;
        hr__mix_draw(&o, &spec, 9, 1, i, &mix);
        assert_true(mix.own >= 0 && mix.own <= 1);
        assert_true(0 <= mix.x1 && mix.x1 <= mix.x2 && mix.x2 <= spec.width);
        assert_true(0 <= mix.y1 && mix.y1 <= mix.y2 && mix.y2 <= spec.height);
        if (mix.is_cut) {
            cut++;
            double box = (double)(mix.x2 - mix.x1) * (mix.y2 - mix.y1);
            assert_true(mix.own == 1 - box / (64.0 * 32.0));
        } else if (mix.own == 1) {
            none++;
        } else {
            own += mix.own;
        }
    }
    int mixup = DRAWS - cut - none;
    assert_true(fabs(none / (double)DRAWS - 0.25) < 6 * sqrt(0.25 * 0.75 / DRAWS));
    assert_true(fabs(cut / (0.75 * DRAWS) - 0.25) < 6 * sqrt(0.25 * 0.75 / (0.75 * DRAWS)));
    assert_true(fabs(own / mixup - 0.5) < 6 * sqrt(1.0 / 12 / mixup));
}

static void refused(const struct hr_loader_options *o, const char *part)
{
    struct hr_loader *loader;
    struct hr_error error;
    struct hr_recipe *recipe = recipe_of(HR_UINT8, HR_NCHW);
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, recipe, o, &error), -EINVAL);
    if (!strstr(error.message, part))
        fail_msg("%s", error.message);
    hr_recipe_unref(&recipe);
}

static void test_refusals(void **state)
{
    struct hr_loader_options o;
    fixture_options(&o);
    o.mixup_alpha = 1;
    refused(&o, "add a ToDtype");
    o.mixup_alpha = NAN;
    refused(&o, "mixup_alpha = nan: must be from 0 to 1e+06");
    o.mixup_alpha = 0;
    o.cutmix_alpha = INFINITY;
    refused(&o, "cutmix_alpha = inf");
    o.cutmix_alpha = 1;
    o.mix_share = 1.5;
    refused(&o, "mix_share = 1.5: must be from 0 to 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_types_and_layouts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_draws, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
