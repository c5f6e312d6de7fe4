/*
 * Several views of one image: every view of every sample equals the result of its recipe alone, for
 * files and for cached items of each form; the views draw differently.
 */
#include "fixture.h"

#include "recipe/recipe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 17
#define VIEWS   5

FIXTURE(SAMPLES)

static struct hr_recipe *crop(int size, enum hr_dtype dtype, double low, double high)
{
    struct hr_operation operations[3];
    struct hr_recipe *recipe;
    struct hr_error error;
    hr_operation_default(&operations[0], HR_RANDOM_RESIZED_CROP);
    operations[0].u.random_resized_crop.height = size;
    operations[0].u.random_resized_crop.width = size + 3;
    operations[0].u.random_resized_crop.scale[0] = low;
    operations[0].u.random_resized_crop.scale[1] = high;
    hr_operation_default(&operations[1], HR_RANDOM_HORIZONTAL_FLIP);
    hr_operation_default(&operations[2], HR_TO_DTYPE);
    operations[2].u.to_dtype.dtype = dtype;
    assert_int_equal(hr_recipe_create(&recipe, operations, 3, NULL, &error), 0);
    return recipe;
}

/* Two large crops and three small ones; small: the small ones alone, which lie far apart. */
static struct hr_recipe *views_of(int small)
{
    struct hr_recipe *global = crop(33, HR_FLOAT32, 0.4, 1),
                     *local = crop(15, HR_UINT8, 0.02, 0.05);
    struct hr_recipe *all[VIEWS] = {global, global, local, local, local}, *recipe;
    struct hr_error error;
    int first = small ? 2 : 0;
    if (hr_recipe_create_views(&recipe, all + first, (size_t)(VIEWS - first), &error))
        fail_msg("%s", error.message);
    hr_recipe_unref(&global);
    hr_recipe_unref(&local);
    return recipe;
}

static void check_sample(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                         const struct hr_batch *batch, size_t place)
{
    struct hr_batch_view view;
    struct hr_error error;
    void *alone = malloc(1 << 16), *images;
    hr_batch_get(batch, &view);
    const struct hr_draw_key key = {
        .seed = FIXTURE_SEED, .epoch = view.epoch, .index = (uint64_t)view.indices[place]};
    const char *path = fixture.paths[view.indices[place]];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *file = malloc(1 << 20);
    size_t length = fread(file, 1, 1 << 20, f);
    fclose(f);
    for (size_t v = 0; v < hr_recipe_views(recipe); v++) {
        struct hr_tensor_spec spec, expected;
        assert_int_equal(hr_batch_images(batch, v, &images, &spec), 0);
        hr_recipe_view_output(recipe, v, &expected);
        assert_memory_equal(&spec, &expected, sizeof spec);
        assert_int_equal((uintptr_t)images % 64, 0);
        assert_int_equal(hr_preparer_run(preparer, hr__recipe_view(recipe, v), file, length, &key,
                                         alone, &error),
                         0);
        if (memcmp((char *)images + place * spec.bytes, alone, spec.bytes))
            fail_msg("view %zu of sample %zu differs", v, place);
    }
    struct hr_tensor_spec spec;
    assert_int_equal(hr_batch_images(batch, hr_recipe_views(recipe), &images, &spec), -ERANGE);
    free(file);
    free(alone);
}

static void check_loader(int small, int form)
{
    struct hr_recipe *recipe = views_of(small);
    struct hr_loader_options o;
    struct hr_loader *loader;
    struct hr_preparer *preparer;
    struct hr_error error;
    fixture_options(&o);
    if (form != HR_FORM_ENCODED) {
        o.cache = "16MiB";
        o.cache_form = form;
        o.epochs = 9;
    }
    if (hr_loader_create(&loader, fixture.dataset, recipe, &o, &error))
        fail_msg("%s", error.message);
    assert_int_equal(hr_preparer_create(&preparer, &error), 0);
    for (uint64_t epoch = 0; epoch < (form == HR_FORM_ENCODED ? 1 : 4); epoch++) {
        assert_int_equal(hr_loader_start_epoch(loader, epoch, &error), 0);
        for (uint64_t b = 0; b < hr_loader_batches(loader); b++) {
            struct hr_batch *batch = fixture_next(loader);
            struct hr_batch_view view;
            hr_batch_get(batch, &view);
            for (size_t i = 0; i < view.count; i++)
                check_sample(preparer, recipe, batch, i);
            hr_batch_release(&batch);
        }
    }
    hr_preparer_destroy(&preparer);
    hr_loader_destroy(&loader);
    hr_recipe_unref(&recipe);
}

static void test_files(void **state)
{
    check_loader(0, HR_FORM_ENCODED);
    check_loader(1, HR_FORM_ENCODED);
}

static void test_cached_forms(void **state)
{
    const int forms[] = {HR_FORM_INDEXED, HR_FORM_COEFFICIENTS, HR_FORM_PLANES};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        check_loader(0, forms[i]);
        check_loader(1, forms[i]);
    }
}

static void test_views_draw_differently(void **state)
{
    struct hr_recipe *recipe = views_of(0);
    struct hr_loader_options o;
    struct hr_error error;
    void *one, *other;
    struct hr_tensor_spec spec;
    fixture_options(&o);
    struct hr_loader *loader;
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, recipe, &o, &error), 0);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    struct hr_batch *batch = fixture_next(loader);
    assert_int_equal(hr_batch_images(batch, 0, &one, &spec), 0);
    assert_int_equal(hr_batch_images(batch, 1, &other, &spec), 0);
    assert_memory_not_equal(one, other, spec.bytes);
    hr_batch_release(&batch);
    hr_loader_destroy(&loader);
    hr_recipe_unref(&recipe);
}

static void refused(struct hr_recipe *const *views, size_t count, const char *part)
{
    struct hr_recipe *recipe;
    struct hr_error error;
    assert_int_equal(hr_recipe_create_views(&recipe, views, count, &error), -EINVAL);
    assert_null(recipe);
    if (!strstr(error.message, part))
        fail_msg("%s", error.message);
}

static void test_refusals(void **state)
{
    struct hr_operation o;
    struct hr_recipe_options options;
    struct hr_error error;
    hr_operation_default(&o, HR_RANDOM_RESIZED_CROP);
    o.u.random_resized_crop.height = o.u.random_resized_crop.width = 8;
    hr_recipe_options_default(&options);
    options.inexact = 1;
    struct hr_recipe *plain = crop(8, HR_UINT8, 0.1, 1), *views = views_of(0), *inexact, *nhwc;
    assert_int_equal(hr_recipe_create(&inexact, &o, 1, &options, &error), 0);
    options.inexact = 0;
    options.layout = HR_NHWC;
    assert_int_equal(hr_recipe_create(&nhwc, &o, 1, &options, &error), 0);
    refused(NULL, 0, "0 views are not possible");
    refused((struct hr_recipe *[]){plain, views}, 2, "view 1 has views itself");
    refused((struct hr_recipe *[]){inexact}, 1, "leave out exact=False");
    refused((struct hr_recipe *[]){plain, nhwc}, 2, "view 1 has other options than view 0");
    struct hr_loader_options lo;
    struct hr_loader *loader;
    fixture_options(&lo);
    lo.mixup_alpha = 1;
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, views, &lo, &error), -EINVAL);
    assert_non_null(strstr(error.message, "the recipe has 5 views"));
    char out[8];
    struct hr_preparer *preparer;
    const struct hr_draw_key key = {0};
    assert_int_equal(hr_preparer_create(&preparer, &error), 0);
    assert_int_equal(hr_preparer_run(preparer, views, "x", 1, &key, out, &error), -EINVAL);
    assert_non_null(strstr(error.message, "use hr_preparer_run_views"));
    hr_preparer_destroy(&preparer);
    hr_recipe_unref(&plain);
    hr_recipe_unref(&views);
    hr_recipe_unref(&inexact);
    hr_recipe_unref(&nhwc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cached_forms, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views_draw_differently, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
