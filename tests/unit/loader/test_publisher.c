/*
 * Publishers: their samples equal those of an embedded loader, bit for bit, for any size of chunks
 * and number of threads, and whenever the ring gets room or the queue is restarted. Chunks are
 * published in order, and each acquired chunk is published or dropped exactly once.
 */
#include "yard.h"

#include "loader/inside.h"
#include "loader/schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLES 157

static struct fixture fixture;
static struct yard yard, other;

static int setup(void **state)
{
    (void)state;
    fixture_make(&fixture, SAMPLES);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_remove(&fixture);
    return 0;
}

static void publisher_options(struct hr_loader_options *o, int chunk_samples)
{
    fixture_options(o);
    o->batch_size = chunk_samples;
    o->batches_ahead = 4;
}

/* Compares the rest of an epoch with an embedded loader's. */
static void check_epoch(struct hr__crew *crew, const struct hr_loader_options *o, uint64_t epoch,
                        uint64_t position)
{
    struct hr_loader_options embedded;
    struct samples expected;
    embedded_options(&embedded, o);
    samples_make(&expected, &fixture, &embedded, epoch, position);
    yard_make(&yard, crew, &fixture, o);
    yard.refuse_every = 3;
    assert_int_equal(yard_start(&yard, epoch, position), expected.count);
    yard_wait(&yard, expected.count);
    samples_compare(&expected, &yard, 0, epoch);
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(yard.publisher, &stats);
    assert_int_equal(stats.samples, expected.count);
    assert_int_equal(stats.batches, yard.published);
    assert_int_equal(stats.padded_samples, expected.padding);
    assert_int_equal(stats.prepare.count, expected.count);
    assert_int_equal(stats.threads, hr__crew_threads(crew));
    yard_remove(&yard);
    samples_free(&expected);
}

static void test_samples_are_those_of_a_loader(void **state)
{
    (void)state;
    static const int sizes[] = {1, 3, 8, 13, 64, 200};
    static const int worlds[] = {1, 3};
    fixture_before_prepare = fixture_delay;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct hr__crew *crew = crew_make(1 + (int)i % 3);
        for (size_t w = 0; w < 2; w++) {
            struct hr_loader_options o;
            publisher_options(&o, sizes[i]);
            o.world_size = worlds[w];
            o.rank = worlds[w] - 1;
            o.drop_last = i % 2 && sizes[i] * worlds[w] <= SAMPLES;
            o.direct_io = i % 3 == 2; /* the fetchers read */
            struct hr_loader_options whole = o;
            whole.drop_last = 0;
            check_epoch(crew, &whole, 3, 0);
            check_epoch(crew, &whole, 4, 41);
            if (o.drop_last) {
                /* A publisher drops no sample. */
                yard_make(&yard, crew, &fixture, &o);
                uint64_t samples = yard_start(&yard, 0, 0);
                assert_int_equal(samples,
                                 (SAMPLES + (size_t)o.world_size - 1) / (size_t)o.world_size);
                yard_wait(&yard, samples);
                yard_remove(&yard);
            }
        }
        hr__crew_destroy(&crew);
        assert_null(crew);
    }
}

static void test_position_at_the_end(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr_error error;
    uint64_t samples = 9;
    struct hr__crew *crew = crew_make(1);
    publisher_options(&o, 8);
    yard_make(&yard, crew, &fixture, &o);
    assert_int_equal(yard_start(&yard, 0, SAMPLES), 0);
    assert_int_equal(
        hr__publisher_start(yard.publisher, 0, SAMPLES + 1, yard.next, &samples, &error), -EINVAL);
    assert_int_equal(yard_start(&yard, 1, SAMPLES - 1), 1);
    yard_wait(&yard, 1);
    yard_remove(&yard);
    hr__crew_destroy(&crew);
}

static unsigned step(unsigned *random)
{
    *random = *random * 1664525u + 1013904223u;
    return *random >> 8;
}

/* Restarts two publishers of one crew at random moments. */
static void check_restarts(int threads, int fetchers_read, unsigned random)
{
    struct hr_loader_options o, embedded;
    struct samples expected;
    struct yard *yards[] = {&yard, &other};
    struct hr__crew *crew = crew_make(threads);
    publisher_options(&o, 7);
    o.direct_io = fetchers_read;
    for (int i = 0; i < 2; i++) {
        yard_make(yards[i], crew, &fixture, &o);
        yards[i]->refuse_every = 4;
        yards[i]->publish_us = 300;
    }
    for (int i = 0; i < 40; i++) {
        struct yard *y = yards[step(&random) % 2];
        uint64_t samples = yard_start(y, (uint64_t)i, step(&random) % SAMPLES);
        if (step(&random) % 3 == 0)
            yard_wait(y, samples < 20 ? samples : 20);
        else
            nanosleep(&(struct timespec){.tv_nsec = (long)(step(&random) % 2000000)}, NULL);
    }
    for (int i = 0; i < 2; i++) {
        uint64_t first, samples = yard_start(yards[i], 50, 10);
        /* The first chunk since this start; none was dropped since. */
        yard_wait(yards[i], samples);
        first = yard_read(yards[i], &yards[i]->shown) - (samples + 6) / 7;
        embedded_options(&embedded, &o);
        samples_make(&expected, &fixture, &embedded, 50, 10);
        samples_compare(&expected, yards[i], first, 50);
        samples_free(&expected);
    }
    yard_remove(&yard);
    yard_remove(&other);
    hr__crew_destroy(&crew);
}

static void test_restarts_at_random(void **state)
{
    (void)state;
    fixture_before_prepare = fixture_delay;
    check_restarts(1, 0, 1);
    check_restarts(3, 0, 2);
    check_restarts(3, 1, 3);
}

static void test_room_wakes_the_publisher(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr__crew *crew = crew_make(2);
    publisher_options(&o, 8);
    for (int fetchers_read = 0; fetchers_read < 2; fetchers_read++) {
        o.direct_io = fetchers_read;
        yard_make(&yard, crew, &fixture, &o);
        yard.limit = 0;
        uint64_t samples = yard_start(&yard, 0, 0);
        /* One chunk at a time, each published once. */
        for (uint64_t n = 1; n <= (samples + 7) / 8; n++) {
            yard_open(&yard, n);
            yard_wait(&yard, n * 8 < samples ? n * 8 : samples);
            assert_int_equal(yard_read(&yard, &yard.acquired), n);
        }
        assert_true(yard_read(&yard, &yard.refused) < 100);
        yard_remove(&yard);
    }
    hr__crew_destroy(&crew);
}

/* Room becomes free while a worker is being refused, and the others have seen it asking. */
static void test_room_comes_during_a_refusal(void **state)
{
    (void)state;
    struct hr_loader_options o;
    publisher_options(&o, 8);
    for (int fetchers_read = 0; fetchers_read < 2; fetchers_read++) {
        struct hr__crew *crew = crew_make(3);
        o.direct_io = fetchers_read;
        yard_make(&yard, crew, &fixture, &o);
        yard.limit = 0;
        yard.refuse_us = 1000;
        uint64_t samples = yard_start(&yard, 0, 0);
        for (uint64_t n = 1, refused = 0; n <= (samples + 7) / 8; n++) {
            while (yard_read(&yard, &yard.refused) == refused)
                nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
            /* A worker finds that a batch is being opened, and sleeps. */
            pthread_mutex_lock(&yard.publisher->lock);
            hr__wake_claimers_locked(yard.publisher);
            pthread_mutex_unlock(&yard.publisher->lock);
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
            refused = yard_read(&yard, &yard.refused);
            yard_open(&yard, n);
            yard_wait(&yard, n * 8 < samples ? n * 8 : samples);
            if (yard_read(&yard, &yard.refused) > refused)
                refused = yard_read(&yard, &yard.refused) - 1;
        }
        yard_remove(&yard);
        hr__crew_destroy(&crew);
    }
}

static void test_bad_samples_are_replaced(void **state)
{
    (void)state;
    struct hr_loader_options o, embedded;
    struct samples expected;
    struct hr_skipped_sample skipped;
    static const size_t spoiled[] = {3, 30, 31, 77, 156};
    for (size_t i = 0; i < 5; i++)
        fixture_spoil(&fixture, spoiled[i], i % 2 ? "no picture" : NULL);
    publisher_options(&o, 6);
    o.on_error = HR_ON_ERROR_SKIP;
    o.max_bad_share = 0; /* unused by publishers */
    embedded_options(&embedded, &o);
    samples_make(&expected, &fixture, &embedded, 2, 0);

    /* The order in which an embedded loader reports them. */
    struct hr_loader *loader = fixture_loader(&fixture, &embedded);
    struct hr_batch *batch;
    assert_int_equal(hr_loader_start_epoch(loader, 2, NULL), 0);
    while (hr_loader_next(loader, &batch, NULL) == 1)
        hr_batch_release(&batch);

    struct hr__crew *crew = crew_make(3);
    yard_make(&yard, crew, &fixture, &o);
    yard_wait(&yard, yard_start(&yard, 2, 0));
    assert_int_equal(yard.ended.code, 0);
    samples_compare(&expected, &yard, 0, 2);
    assert_int_equal(yard.bad, 5);
    assert_int_equal(hr_loader_skipped_count(loader), 5);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(hr_loader_skipped_get(loader, i, &skipped), 0);
        assert_int_equal(yard.bad_index[i], skipped.index);
    }
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(yard.publisher, &stats);
    assert_int_equal(stats.bad_samples, 5);
    yard_remove(&yard);
    hr__crew_destroy(&crew);
    hr_loader_destroy(&loader);
    samples_free(&expected);
}

/* Returns the error of an embedded loader for the first bad sample of the epoch, and how many
 * samples come before it, one at a time. */
static uint64_t embedded_failure(const struct hr_loader_options *publisher, struct hr_error *error,
                                 struct hr_skipped_sample *failed)
{
    struct hr_loader_options o;
    struct hr_batch *batch;
    uint64_t before = 0;
    int r;
    embedded_options(&o, publisher);
    o.batch_size = 1;
    struct hr_loader *loader = fixture_loader(&fixture, &o);
    assert_int_equal(hr_loader_start_epoch(loader, 5, error), 0);
    while ((r = hr_loader_next(loader, &batch, error)) == 1) {
        hr_batch_release(&batch);
        before++;
    }
    assert_true(r < 0);
    assert_int_equal(hr_loader_failed_get(loader, failed), 0);
    hr_loader_destroy(&loader);
    return before;
}

static void test_failure_ends_the_publisher_at_its_place(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr_error error;
    struct hr_skipped_sample failed;
    fixture_before_prepare = fixture_delay;
    static const size_t spoiled[] = {11, 12, 88, 90, 91, 120};
    for (size_t i = 0; i < 6; i++)
        fixture_spoil(&fixture, spoiled[i], i % 2 ? "no picture" : NULL);
    for (int threads = 1; threads < 4; threads++) {
        struct hr__crew *crew = crew_make(threads);
        publisher_options(&o, threads == 2 ? 64 : 6);
        uint64_t before = embedded_failure(&o, &error, &failed);
        yard_make(&yard, crew, &fixture, &o);
        for (int again = 0; again < 3; again++) {
            uint64_t first = yard_read(&yard, &yard.next);
            yard_start(&yard, 5, 0);
            yard_wait(&yard, UINT64_MAX);
            assert_int_equal(yard_read(&yard, &yard.samples), before);
            assert_int_equal(yard_read(&yard, &yard.shown) - first,
                             before / (uint64_t)o.batch_size + 1);
            assert_int_equal(yard.ended.code, error.code);
            assert_string_equal(yard.ended.message, error.message);
            assert_int_equal(yard.ended_index, failed.index);
            assert_string_equal(yard.ended_path, failed.path);
            assert_string_equal(yard.ended_reason, failed.reason);
            hr__publisher_room(yard.publisher);
        }
        yard_remove(&yard);
        hr__crew_destroy(&crew);
    }
}

static void test_no_memory_ends_the_publisher(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr__crew *crew = crew_make(2);
    publisher_options(&o, 8);
    for (int fetchers_read = 0; fetchers_read < 2; fetchers_read++) {
        o.direct_io = fetchers_read;
        yard_make(&yard, crew, &fixture, &o);
        yard.broken_from = 5;
        yard_start(&yard, 0, 0);
        yard_wait(&yard, UINT64_MAX);
        assert_int_equal(yard_read(&yard, &yard.samples), 40);
        assert_int_equal(yard_read(&yard, &yard.shown), 5);
        assert_int_equal(yard.ended.code, -ENOSPC);
        assert_string_equal(yard.ended_path, "");
        yard.broken_from = UINT64_MAX;
        yard_wait(&yard, yard_start(&yard, 0, 0));
        assert_int_equal(yard.ended.code, 0);
        yard_remove(&yard);
    }
    hr__crew_destroy(&crew);
}

static void test_options_of_a_publisher(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr_loader *publisher;
    struct hr_error error;
    struct hr__crew *crew = crew_make(1);
    publisher_options(&o, 0);
    assert_int_equal(hr__publisher_create(&publisher, crew, fixture.dataset, fixture.recipe, &o,
                                          NULL, NULL, &error),
                     -EINVAL);
    publisher_options(&o, 8);
    o.cache = "size=what";
    assert_int_equal(hr__publisher_create(&publisher, crew, fixture.dataset, fixture.recipe, &o,
                                          NULL, NULL, &error),
                     -EINVAL);
    assert_null(publisher);
    hr__crew_destroy(&crew);
    hr__crew_destroy(&crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_samples_are_those_of_a_loader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_position_at_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_restarts_at_random, setup, teardown),
        cmocka_unit_test_setup_teardown(test_room_wakes_the_publisher, setup, teardown),
        cmocka_unit_test_setup_teardown(test_room_comes_during_a_refusal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_samples_are_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failure_ends_the_publisher_at_its_place, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_no_memory_ends_the_publisher, setup, teardown),
        cmocka_unit_test_setup_teardown(test_options_of_a_publisher, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
