/*
 * Bad samples: `raise` fails when the sample's batch is due; the stand-ins of `skip` do not depend
 * on threads; the list of skipped samples, and the share that stops the run. Also fails each
 * allocation.
 */
#include "fixture.h"

#include "base/memory.h"
#include "order/order.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 61

static struct fixture fixture;

static int setup(void **state)
{
    fixture_make(&fixture, SAMPLES);
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < SAMPLES; i++)
        fclose(fopen(fixture.paths[i], "ab"));
    fixture_remove(&fixture);
    return 0;
}

/* Returns the position of `index` in the epoch's order. */
static uint64_t position_of(uint64_t index, uint64_t epoch)
{
    struct hr__order *order = NULL;
    struct hr_error error;
    uint64_t position = 0;
    assert_int_equal(hr__order_create(&order, SAMPLES, 1, FIXTURE_SEED, epoch, &error), 0);
    while (hr__order_at(order, position) != index)
        position++;
    hr__order_destroy(&order);
    return position;
}

static void check_raise(size_t index, int code, const char *word, int threads, int direct)
{
    struct hr_loader_options options;
    struct hr_loader_state state;
    struct hr_skipped_sample failed;
    struct hr_error error;
    struct hr_batch *batch;
    fixture_options(&options);
    options.threads = threads;
    options.direct_io = direct;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    uint64_t at = position_of(index, 4) / 8;
    assert_int_equal(hr_loader_start_epoch(loader, 4, &error), 0);
    for (uint64_t b = 0; b < at; b++) {
        batch = fixture_next(loader);
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
    }
    assert_int_equal(hr_loader_failed_get(loader, &failed), -ENOENT);
    assert_int_equal(hr_loader_next(loader, &batch, &error), code);
    assert_null(batch);
    assert_int_equal(error.code, code);
    char start[256];
    snprintf(start, sizeof start, "sample %zu (%s): ", index, fixture.paths[index]);
    assert_memory_equal(error.message, start, strlen(start));
    if (!strstr(error.message, word))
        fail_msg("no \"%s\" in: %s", word, error.message);
    assert_int_equal(hr_loader_failed_get(loader, &failed), 0);
    assert_int_equal(failed.index, index);
    assert_int_equal(failed.epoch, 4);
    assert_string_equal(failed.path, fixture.paths[index]);
    assert_non_null(strstr(failed.reason, word));
    assert_int_equal(hr_loader_get_state(loader, &state, &error), 0);
    assert_int_equal(state.position, at * 8);
    assert_int_equal(hr_loader_next(loader, &batch, &error), 0);
    assert_int_equal(hr_loader_skipped_count(loader), 0);
    /* Another epoch fails at its own bad sample: the loader still works. */
    assert_int_equal(hr_loader_start_epoch(loader, 5, &error), 0);
    assert_int_equal(hr_loader_failed_get(loader, &failed), -ENOENT);
    hr_loader_destroy(&loader);
}

static void test_raise(void **state)
{
    fixture_spoil(&fixture, 17, "no picture at all");
    for (int threads = 1; threads <= 5; threads += 2)
        for (int direct = 0; direct < 2; direct++)
            check_raise(17, -ENOTSUP, "", threads, direct);
}

static void test_raise_empty_file(void **state)
{
    fixture_spoil(&fixture, 30, "");
    check_raise(30, -EBADMSG, "", 2, 0);
    check_raise(30, -EBADMSG, "", 2, 1);
}

static void test_raise_deleted_file(void **state)
{
    fixture_spoil(&fixture, 3, NULL);
    check_raise(3, -ENOENT, "No such file", 2, 0);
    check_raise(3, -ENOENT, "No such file", 2, 1);
}

/* Of several bad samples in a batch, the error names the one at the lowest place, whichever failed
 * first. */
static void test_raise_lowest(void **state)
{
    struct hr_loader_options options;
    struct hr_skipped_sample failed;
    struct hr_error error;
    struct hr_batch *batch;
    fixture_options(&options);
    options.batch_size = SAMPLES;
    options.shuffle = 0;
    options.threads = 5;
    fixture_before_prepare = fixture_delay;
    for (size_t i = 20; i < 40; i += 2)
        fixture_spoil(&fixture, i, "x");
    for (int i = 0; i < 10; i++) {
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
        assert_true(hr_loader_next(loader, &batch, &error) < 0);
        assert_int_equal(hr_loader_failed_get(loader, &failed), 0);
        assert_int_equal(failed.index, 20);
        hr_loader_destroy(&loader);
    }
}

/* The results of one epoch, for comparing runs. */
struct failures_epoch {
    int64_t indices[SAMPLES + 8];
    size_t count, replaced;
    uint64_t skipped[SAMPLES];
    uint64_t skipped_count;
    char reason[256];
};

static void read_skipping(int threads, int direct, struct failures_epoch *e)
{
    struct hr_loader_options options;
    struct hr_loader_stats stats = {.size = sizeof stats};
    struct hr_skipped_sample skipped;
    struct hr_error error;
    struct hr_batch *batch;
    int r;
    memset(e, 0, sizeof *e);
    fixture_options(&options);
    options.threads = threads;
    options.direct_io = direct;
    options.on_error = HR_ON_ERROR_SKIP;
    options.max_bad_share = 0.5;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 1, &error), 0);
    while ((r = hr_loader_next(loader, &batch, &error)) == 1) {
        struct hr_batch_view view;
        hr_batch_get(batch, &view);
        fixture_check(&fixture, batch, 0, 0);
        memcpy(e->indices + e->count, view.indices, view.count * sizeof *view.indices);
        e->count += view.count;
        e->replaced += view.replaced;
        hr_batch_release(&batch);
    }
    if (r)
        fail_msg("%s", error.message);
    e->skipped_count = hr_loader_skipped_count(loader);
    for (uint64_t i = 0; i < e->skipped_count; i++) {
        assert_int_equal(hr_loader_skipped_get(loader, i, &skipped), 0);
        assert_int_equal(skipped.epoch, 1);
        assert_string_equal(skipped.path, fixture.paths[skipped.index]);
        assert_true(strlen(skipped.reason) > 0);
        e->skipped[i] = skipped.index;
        memcpy(e->reason, skipped.reason, sizeof e->reason);
    }
    assert_int_equal(hr_loader_skipped_get(loader, e->skipped_count, &skipped), -ERANGE);
    hr_loader_get_stats(loader, &stats);
    assert_int_equal(stats.bad_samples, e->skipped_count);
    assert_int_equal(stats.samples, SAMPLES);
    hr_loader_destroy(&loader);
}

static void test_skip(void **state)
{
    struct failures_epoch first, other;
    for (size_t i = 0; i < SAMPLES; i += 4)
        fixture_spoil(&fixture, i, i % 8 ? "text" : NULL);
    fixture_before_prepare = fixture_delay;
    read_skipping(1, 0, &first);
    assert_int_equal(first.count, SAMPLES);
    assert_int_equal(first.replaced, 16);
    assert_int_equal(first.skipped_count, 16);
    for (int threads = 1; threads <= 5; threads += 2) {
        for (int direct = 0; direct < 2; direct++) {
            read_skipping(threads, direct, &other);
            assert_memory_equal(&first, &other, sizeof first);
        }
    }
    /* Good samples keep their places; bad ones are replaced by the order's stand-in. */
    struct hr__order *order = NULL;
    struct hr_error error;
    assert_int_equal(hr__order_create(&order, SAMPLES, 1, FIXTURE_SEED, 1, &error), 0);
    size_t listed = 0;
    for (uint64_t p = 0; p < SAMPLES; p++) {
        uint64_t index = hr__order_at(order, p);
        if (index % 4 == 0)
            assert_int_equal(first.skipped[listed++], index);
        for (uint32_t attempt = 0; index % 4 == 0; attempt++)
            index = hr__order_at(order, hr_order_replacement(SAMPLES, FIXTURE_SEED, 1, p, attempt));
        assert_int_equal(first.indices[p], index);
    }
    hr__order_destroy(&order);
}

static void test_skip_nothing_good(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    struct hr_batch *batch;
    for (size_t i = 0; i < SAMPLES; i++)
        fixture_spoil(&fixture, i, "text");
    fixture_options(&options);
    options.on_error = HR_ON_ERROR_SKIP;
    options.max_bad_share = 1;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    assert_int_equal(hr_loader_next(loader, &batch, &error), -ENOTSUP);
    assert_non_null(strstr(error.message, "no stand-in"));
    assert_int_equal(hr_loader_next(loader, &batch, &error), 0);
    hr_loader_destroy(&loader);
}

/* Reads batches to the end or an error; returns the error. */
static int drain(struct hr_loader *loader, int *batches, struct hr_error *error)
{
    struct hr_batch *batch;
    int r;
    *batches = 0;
    while ((r = hr_loader_next(loader, &batch, error)) == 1) {
        ++*batches;
        hr_batch_release(&batch);
    }
    return r;
}

static void test_bad_share(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    int batches;
    fixture_options(&options);
    options.on_error = HR_ON_ERROR_SKIP;
    options.shuffle = 0;
    fixture_spoil(&fixture, 1, "text");
    fixture_spoil(&fixture, 9, NULL);
    /* Fewer than 100 samples: checked at the epoch's end. 2 of 61 are 3.3 %. */
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    assert_int_equal(drain(loader, &batches, &error), -EOVERFLOW);
    assert_int_equal(batches, 8);
    assert_non_null(strstr(error.message, "2 of 61"));
    assert_non_null(strstr(error.message, fixture.paths[1]));
    assert_non_null(strstr(error.message, "No such file"));
    assert_int_equal(drain(loader, &batches, &error), 0);
    hr_loader_destroy(&loader);
    options.max_bad_share = 2.0 / 61;
    loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    assert_int_equal(drain(loader, &batches, &error), 0);
    hr_loader_destroy(&loader);
}

/* From the 100th sample on the share is checked within the epoch. */
static void test_bad_share_midway(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    int64_t indices[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int batches;
    fixture_options(&options);
    options.on_error = HR_ON_ERROR_SKIP;
    options.external_order = 1;
    options.max_bad_share = 0.1; /* one in eight is more */
    fixture_spoil(&fixture, 4, "text");
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    for (int i = 0; i < 40; i++)
        assert_int_equal(hr_loader_push(loader, indices, 8, &error), 0);
    assert_int_equal(drain(loader, &batches, &error), -EOVERFLOW);
    assert_int_equal(batches, 12); /* the 13th holds the 100th sample */
    hr_loader_destroy(&loader);
}

/* Runs with each allocation failing in turn: the result is an error or the whole epoch, never a
 * hang, a leak or a wrong batch. */
static int run_failing(uint64_t n, int onwards)
{
    struct hr_loader_options options;
    struct hr_loader *loader = NULL;
    struct hr_error error = {0};
    struct hr_batch *batch;
    int batches = 0;
    fixture_options(&options);
    options.on_error = HR_ON_ERROR_SKIP;
    options.max_bad_share = 1;
    options.direct_io = n % 2;
    hr__alloc_fail_at(n, onwards);
    int r = hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error);
    if (!r)
        r = hr_loader_start_epoch(loader, 0, &error);
    if (!r) {
        while ((r = hr_loader_next(loader, &batch, &error)) == 1) {
            batches++;
            hr_batch_release(&batch);
        }
    }
    hr_loader_destroy(&loader);
    hr__alloc_fail_at(0, 0);
    if (r) {
        assert_int_equal(error.code, r);
        assert_true(strlen(error.message) > 0);
    } else {
        assert_int_equal(batches, 8);
    }
    return r;
}

static void test_allocation_failures(void **state)
{
    fixture_spoil(&fixture, 5, "text");
    run_failing(0, 0);
    uint64_t loader = hr__allocated(HR__TAG_LOADER), slots = hr__allocated(HR__TAG_SLOT),
             storage = hr__allocated(HR__TAG_STORAGE);
    int failures = 0;
    for (int onwards = 0; onwards < 2; onwards++)
        for (uint64_t n = 1; n < 200; n += n < 60 ? 1 : 7)
            failures += run_failing(n, onwards) != 0;
    assert_true(failures > 60);
    assert_int_equal(run_failing(0, 0), 0);
    assert_int_equal(hr__allocated(HR__TAG_LOADER), loader);
    assert_int_equal(hr__allocated(HR__TAG_SLOT), slots);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), storage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_raise, setup, teardown),
        cmocka_unit_test_setup_teardown(test_raise_empty_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_raise_deleted_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_raise_lowest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_skip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_skip_nothing_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_share, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_share_midway, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
