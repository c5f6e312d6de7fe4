/*
 * Loaders with a cache that evicts: batches are as without one, an order that repeats samples reads
 * less than where what came first stays, two loaders share one budget, and what cannot be is
 * refused by name.
 */
#include "fixture.h"

#include "../consumer.h"

#include "base/random.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 60, BATCH = 10, EPOCHS = 6 };

FIXTURE(SAMPLES)

static uint64_t file_bytes(size_t index)
{
    struct stat status;
    assert_int_equal(stat(fixture.paths[index], &status), 0);
    return (uint64_t)status.st_size;
}

static uint64_t all_bytes(void)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < SAMPLES; i++)
        bytes += file_bytes(i);
    return bytes;
}

static uint64_t bytes_read(const struct hr_loader *loader)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    return stats.bytes_read;
}

static void evicting_options(struct hr_loader_options *options, uint64_t bytes)
{
    static char text[32];
    fixture_options(options);
    snprintf(text, sizeof text, "%" PRIu64, bytes);
    options->cache = text;
    options->cache_form = HR_FORM_ENCODED;
    options->batch_size = BATCH;
    options->drop_last = 0;
    options->threads = 2;
}

/* Reads the pushed epoch and compares each sample with the preparer's. */
static void run_draws(struct hr_loader *loader, uint64_t epoch, const int64_t *draws, int known)
{
    struct hr_error error;
    assert_int_equal(hr_loader_start_epoch(loader, epoch, &error), 0);
    if (known)
        assert_int_equal(hr_loader_expect(loader, draws, (size_t)known * SAMPLES, SAMPLES, &error),
                         0);
    for (int i = 0; i < SAMPLES; i += BATCH)
        assert_int_equal(hr_loader_push(loader, draws + i, BATCH, &error), 0);
    assert_int_equal(hr_loader_push_end(loader, &error), 0);
    for (int i = 0; i < SAMPLES; i += BATCH) {
        struct hr_batch *batch = fixture_next(loader);
        fixture_check(&fixture, batch, 1, (uint64_t)i);
        hr_batch_release(&batch);
    }
}

static uint64_t read_draws(int evicts, int known)
{
    static int64_t draws[(EPOCHS + 2) * SAMPLES];
    struct hr_loader_options options;
    struct hr__random random;
    hr__random_init(&random, 1, HR__PURPOSE_MIX, 0, 0);
    for (int i = 0; i < (EPOCHS + 2) * SAMPLES; i++)
        draws[i] = (int64_t)hr__random_below(&random, SAMPLES);
    evicting_options(&options, all_bytes() / 2);
    options.external_order = 1;
    options.cache_evicts = evicts;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        run_draws(loader, (uint64_t)epoch, draws + epoch * SAMPLES, known);
    uint64_t read = bytes_read(loader);
    hr_loader_destroy(&loader);
    return read;
}

static void test_draws_with_replacement(void **state)
{
    uint64_t first_ones = read_draws(0, 1), pushed = read_draws(1, 0), next = read_draws(1, 3);
    assert_true(pushed < first_ones);
    assert_true(next < first_ones * 4 / 5);
}

static void run_epoch(struct hr_loader *loader, uint64_t epoch)
{
    struct hr_error error;
    assert_int_equal(hr_loader_start_epoch(loader, epoch, &error), 0);
    for (uint64_t b = 0; b < hr_loader_batches(loader); b++) {
        struct hr_batch *batch = fixture_next(loader);
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
    }
}

/* Two shuffled orders in one budget in turn. One that has ended leaves its room to the other. */
static void test_two_loaders(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    uint64_t bytes = all_bytes();
    evicting_options(&options, bytes);
    options.cache_evicts = 1;
    struct hr_loader *training = fixture_loader(&fixture, &options);
    options.cache_evicts = 0;
    options.cache = NULL;
    options.cache_of = training;
    struct hr_loader *validation = fixture_loader(&fixture, &options);
    run_epoch(training, 0);
    uint64_t before = bytes_read(training);
    run_epoch(training, 1);
    /* Nearly all of it fits as long as it is alone. */
    assert_true(bytes_read(training) - before < bytes / 2);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        run_epoch(validation, epoch);
        run_epoch(training, epoch + 2);
    }
    /* Half of both is in the cache, whichever it is. */
    struct hr_loader_stats one = {.size = sizeof one}, other = {.size = sizeof other};
    hr_loader_get_stats(training, &one);
    hr_loader_get_stats(validation, &other);
    assert_true(one.cache_bytes + other.cache_bytes <= bytes);
    assert_true(one.cache_hits + other.cache_hits > SAMPLES);
    hr_loader_destroy(&training);
    for (uint64_t epoch = 3; epoch < 6; epoch++)
        run_epoch(validation, epoch);
    before = bytes_read(validation);
    run_epoch(validation, 6);
    assert_true(bytes_read(validation) - before < bytes / 2);
    pid_t child = fork();
    if (!child) {
        struct hr_loader *mine = NULL;
        options.cache_of = validation;
        int r = hr_loader_start_epoch(validation, 7, &error);
        _exit(r == -ECHILD && !mine ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    hr_loader_destroy(&validation);
}

static void refuse(const struct hr_loader_options *options, const char *word)
{
    struct hr_loader *loader = NULL;
    struct hr_error error;
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, options, &error),
                     -EINVAL);
    assert_null(loader);
    if (!strstr(error.message, word))
        fail_msg("%s", error.message);
}

static void test_refusals(void **state)
{
    struct hr_loader_options options, plain;
    struct hr_error error;
    int64_t index = 0, outside = SAMPLES;
    evicting_options(&plain, 1 << 20);
    struct hr_loader *beside = fixture_loader(&fixture, &plain);
    options = plain;
    options.cache_of = beside;
    refuse(&options, "cache_of");
    options.cache = NULL;
    refuse(&options, "evicts nothing");
    options = plain;
    options.cache_evicts = 1;
    options.cache = "shm:birds?size=1MiB";
    refuse(&options, "private to one process");
    options.cache = "1MiB,disk:/var/tmp?size=1MiB";
    refuse(&options, "private to one process");
    options.cache = "1MiB";
    options.world_size = 2;
    refuse(&options, "private to one process");
    assert_int_equal(hr_loader_expect(beside, &index, 1, 1, &error), -EINVAL);
    hr_loader_destroy(&beside);
    plain.external_order = plain.cache_evicts = 1;
    beside = fixture_loader(&fixture, &plain);
    assert_int_equal(hr_loader_expect(beside, &index, 1, 1, &error), -EINVAL); /* no epoch */
    assert_int_equal(hr_loader_start_epoch(beside, 0, &error), 0);
    assert_int_equal(hr_loader_expect(beside, &index, 1, 2, &error), -EINVAL);
    assert_int_equal(hr_loader_expect(beside, &outside, 1, 1, &error), -ERANGE);
    assert_int_equal(hr_loader_expect(beside, &index, 1, 1, &error), 0);
    hr_loader_destroy(&beside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_draws_with_replacement, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_loaders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
