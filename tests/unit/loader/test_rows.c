/*
 * Rows and fields of batches: each sample has its own rows, whichever threads prepare it; so has a
 * stand-in, a resumed epoch, a rank, a view and a batch that outlives its loader.
 */
#include "fixture.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SAMPLES 37
#define ROWS    200 /* more than all samples have */

FIXTURE(SAMPLES)

static const struct hr_column columns[3] = {
    {.name = "class", .dtype = HR_INT32},
    {.name = "scores", .dtype = HR_FLOAT64, .dims = 2, .shape = {2, 3}},
    {.name = "flag", .dtype = HR_BOOL, .role = HR_COLUMN_SAMPLE},
};

static size_t rows_of(size_t index)
{
    return index * 7 % 6;
}

/* The value of a row of a sample. */
static int32_t value_of(size_t index, size_t row)
{
    return (int32_t)(1000 * index + row);
}

/* Returns the fixture's dataset with rows. with_labels: the first column is called "labels". */
static struct hr_dataset *dataset_with_rows(int with_labels)
{
    static int32_t classes[ROWS];
    static double scores[ROWS][6];
    static uint8_t flags[SAMPLES];
    uint64_t offsets[SAMPLES + 1] = {0};
    const void *data[3] = {classes, scores, flags};
    struct hr_column named[3] = {columns[0], columns[1], columns[2]};
    struct hr_dataset *dataset;
    struct hr_error error;
    if (with_labels)
        named[0].name = "labels";
    for (size_t i = 0; i < SAMPLES; i++) {
        flags[i] = i % 3 == 0;
        offsets[i + 1] = offsets[i] + rows_of(i);
        for (size_t row = 0; row < rows_of(i); row++) {
            classes[offsets[i] + row] = value_of(i, row);
            for (int k = 0; k < 6; k++)
                scores[offsets[i] + row][k] = value_of(i, row) + 0.125 * k;
        }
    }
    assert_true(offsets[SAMPLES] <= ROWS);
    if (hr_dataset_with_rows(&dataset, fixture.dataset, named, 3, offsets, data, &error))
        fail_msg("%s", error.message);
    return dataset;
}

static struct hr_loader *loader_of(struct hr_dataset *dataset, const struct hr_loader_options *o)
{
    struct hr_loader *loader;
    struct hr_error error;
    if (hr_loader_create(&loader, dataset, fixture.recipe, o, &error))
        fail_msg("%s", error.message);
    return loader;
}

static struct hr_field field_of(const struct hr_batch *batch, const char *name)
{
    struct hr_field field;
    for (size_t i = 0; !hr_batch_field(batch, i, &field); i++)
        if (!strcmp(field.name, name))
            return field;
    fail_msg("the batch has no field %s", name);
    return field;
}

/* Every sample has the rows of its index. */
static void check_rows(const struct hr_batch *batch)
{
    struct hr_batch_view view;
    hr_batch_get(batch, &view);
    struct hr_field class = field_of(batch, "class"), scores = field_of(batch, "scores"),
                    flag = field_of(batch, "flag");
    const int32_t *classes = class.data;
    const double *numbers = scores.data;
    assert_int_equal(class.offsets[0], 0);
    assert_ptr_equal(class.offsets, scores.offsets);
    assert_int_equal(class.dims, 1);
    assert_int_equal(class.shape[0], class.offsets[view.count]);
    assert_int_equal(scores.dims, 3);
    assert_int_equal(scores.shape[0], class.shape[0]);
    assert_int_equal(scores.shape[1], 2);
    assert_int_equal(scores.shape[2], 3);
    assert_int_equal(flag.shape[0], view.count);
    assert_null(flag.offsets);
    assert_null(flag.extents);
    for (size_t i = 0; i < view.count; i++) {
        size_t index = (size_t)view.indices[i], first = (size_t) class.offsets[i];
        assert_int_equal(class.offsets[i + 1] - class.offsets[i], rows_of(index));
        assert_int_equal(((const uint8_t *)flag.data)[i], index % 3 == 0);
        for (size_t row = 0; row < rows_of(index); row++) {
            assert_int_equal(classes[first + row], value_of(index, row));
            for (size_t k = 0; k < 6; k++)
                assert_true(numbers[6 * (first + row) + k] ==
                            value_of(index, row) + 0.125 * (double)k);
        }
    }
}

static void every_sample_has_its_rows(void **state)
{
    struct hr_dataset *dataset = dataset_with_rows(0);
    struct hr_loader_options o;
    fixture_options(&o);
    for (int threads = 1; threads <= 4; threads += 3) {
        o.threads = threads;
        struct hr_loader *loader = loader_of(dataset, &o);
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            assert_int_equal(hr_loader_start_epoch(loader, epoch, NULL), 0);
            for (uint64_t b = 0; b < hr_loader_batches(loader); b++) {
                struct hr_batch *batch = fixture_next(loader);
                fixture_check(&fixture, batch, 0, 0);
                check_rows(batch);
                hr_batch_release(&batch);
            }
        }
        hr_loader_destroy(&loader);
    }
    hr_dataset_unref(&dataset);
}

static void fields_in_order(void **state)
{
    static const char *const plain[] = {"images", "labels", "indices", "class", "scores", "flag"};
    static const char *const named[] = {"images", "indices", "labels", "scores", "flag"};
    struct hr_loader_options o;
    fixture_options(&o);
    for (int with_labels = 0; with_labels < 2; with_labels++) {
        struct hr_dataset *dataset = dataset_with_rows(with_labels);
        struct hr_loader *loader = loader_of(dataset, &o);
        struct hr_field field;
        struct hr_batch_view view;
        assert_int_equal(hr_loader_start_epoch(loader, 0, NULL), 0);
        struct hr_batch *batch = fixture_next(loader);
        size_t count = with_labels ? 5 : 6;
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(hr_batch_field(batch, i, &field), 0);
            assert_string_equal(field.name, with_labels ? named[i] : plain[i]);
        }
        assert_int_equal(hr_batch_field(batch, count, &field), -ERANGE);
        hr_batch_get(batch, &view);
        field = field_of(batch, "images");
        assert_ptr_equal(field.data, view.images);
        assert_int_equal(field.dtype, view.spec.dtype);
        assert_int_equal(field.dims, 4);
        assert_int_equal(field.shape[0], view.count);
        assert_int_equal(field.shape[1] * field.shape[2] * field.shape[3],
                         view.spec.bytes / hr_dtype_bytes(view.spec.dtype));
        assert_ptr_equal(field_of(batch, "indices").data, view.indices);
        assert_int_equal(field_of(batch, "labels").dtype, with_labels ? HR_INT32 : HR_INT64);
        hr_batch_release(&batch);
        hr_loader_destroy(&loader);
        hr_dataset_unref(&dataset);
    }
    /* without rows */
    struct hr_loader *loader = loader_of(fixture.dataset, &o);
    struct hr_field field;
    assert_int_equal(hr_loader_start_epoch(loader, 0, NULL), 0);
    struct hr_batch *batch = fixture_next(loader);
    assert_int_equal(hr_batch_field(batch, 2, &field), 0);
    assert_int_equal(hr_batch_field(batch, 3, &field), -ERANGE);
    hr_batch_release(&batch);
    hr_loader_destroy(&loader);
}

static void stand_ins_have_their_own(void **state)
{
    struct hr_dataset *dataset = dataset_with_rows(0);
    struct hr_loader_options o;
    size_t replaced = 0;
    fixture_options(&o);
    o.on_error = HR_ON_ERROR_SKIP;
    o.max_bad_share = 1;
    for (size_t i = 0; i < SAMPLES; i += 3)
        fixture_spoil(&fixture, i, "no image");
    struct hr_loader *loader = loader_of(dataset, &o);
    assert_int_equal(hr_loader_start_epoch(loader, 0, NULL), 0);
    for (uint64_t b = 0; b < hr_loader_batches(loader); b++) {
        struct hr_batch *batch = fixture_next(loader);
        struct hr_batch_view view;
        hr_batch_get(batch, &view);
        for (size_t i = 0; i < view.count; i++)
            assert_true(view.indices[i] % 3 != 0);
        replaced += view.replaced;
        check_rows(batch);
        hr_batch_release(&batch);
    }
    assert_true(replaced >= SAMPLES / 3);
    hr_loader_destroy(&loader);
    hr_dataset_unref(&dataset);
}

/* Resumed in the middle, on another number of ranks, of a subset. */
static void resumed_on_ranks(void **state)
{
    struct hr_dataset *all = dataset_with_rows(0), *dataset;
    int64_t every[SAMPLES];
    for (int64_t i = 0; i < SAMPLES; i++)
        every[i] = i;
    assert_int_equal(hr_dataset_subset(&dataset, all, every, SAMPLES, NULL), 0);
    hr_dataset_unref(&all);
    struct hr_loader_options o;
    struct hr_loader_state where;
    fixture_options(&o);
    struct hr_loader *loader = loader_of(dataset, &o);
    assert_int_equal(hr_loader_start_epoch(loader, 3, NULL), 0);
    struct hr_batch *batch = fixture_next(loader);
    assert_int_equal(hr_loader_get_state(loader, &where, NULL), 0);
    hr_loader_destroy(&loader);
    check_rows(batch); /* it outlives its loader */
    hr_batch_release(&batch);
    o.world_size = 2;
    o.rank = 1;
    loader = loader_of(dataset, &o);
    assert_int_equal(hr_loader_restore(loader, &where, NULL), 0);
    hr_dataset_unref(&dataset);
    batch = fixture_next(loader);
    fixture_check(&fixture, batch, 0, 0);
    check_rows(batch);
    hr_loader_destroy(&loader);
    check_rows(batch);
    hr_batch_release(&batch);
}

static void views_share_rows(void **state)
{
    struct hr_dataset *dataset = dataset_with_rows(0);
    struct hr_recipe *two[2] = {fixture.recipe, fixture.recipe}, *recipe;
    struct hr_loader_options o;
    struct hr_loader *loader;
    struct hr_field field;
    fixture_options(&o);
    assert_int_equal(hr_recipe_create_views(&recipe, two, 2, NULL), 0);
    assert_int_equal(hr_loader_create(&loader, dataset, recipe, &o, NULL), 0);
    assert_int_equal(hr_loader_start_epoch(loader, 0, NULL), 0);
    struct hr_batch *batch = fixture_next(loader);
    check_rows(batch);
    assert_int_equal(hr_batch_field(batch, 1, &field), 0);
    assert_string_equal(field.name, "images_1");
    hr_batch_release(&batch);
    hr_loader_destroy(&loader);
    hr_recipe_unref(&recipe);
    hr_dataset_unref(&dataset);
}

static void mixing_is_refused(void **state)
{
    struct hr_dataset *dataset = dataset_with_rows(0);
    struct hr_loader_options o;
    struct hr_loader *loader;
    struct hr_error error;
    fixture_options(&o);
    o.cutmix_alpha = 1;
    assert_int_equal(hr_loader_create(&loader, dataset, fixture.recipe, &o, &error), -EINVAL);
    assert_non_null(strstr(error.message, "the dataset has rows"));
    hr_dataset_unref(&dataset);
}

/* Without memory for the rows, the epoch ends with an error, and nothing is lost. */
static void out_of_memory(void **state)
{
    struct hr_dataset *dataset = dataset_with_rows(0);
    struct hr_loader_options o;
    fixture_options(&o);
    o.threads = 1;
    int failed = 0, went_well = 0;
    for (uint64_t n = 1; n < 400 && !went_well; n++) {
        struct hr_loader *loader;
        struct hr_batch *batch = NULL;
        hr__alloc_fail_at(n, 0);
        int r = hr_loader_create(&loader, dataset, fixture.recipe, &o, NULL);
        if (!r)
            r = hr_loader_start_epoch(loader, 0, NULL);
        if (!r)
            r = hr_loader_next(loader, &batch, NULL);
        went_well = r == 1;
        failed += !went_well;
        if (went_well)
            check_rows(batch);
        hr__alloc_fail_at(0, 0);
        hr_batch_release(&batch);
        hr_loader_destroy(&loader);
    }
    assert_true(failed > 0 && went_well);
    hr_dataset_unref(&dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_sample_has_its_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(fields_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(stand_ins_have_their_own, setup, teardown),
        cmocka_unit_test_setup_teardown(resumed_on_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(views_share_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(mixing_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(out_of_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
