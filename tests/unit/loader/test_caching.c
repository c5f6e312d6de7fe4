/*
 * A loader with a cache: its batches equal those of a loader without one, for every form, budget
 * and number of threads, and for every thread that reads; later epochs read exactly the samples
 * that are not cached; conversions run when they are allowed and end with the loader; bad samples
 * are never cached, and no sample is lost when an allocation fails.
 */
#include "fixture.h"

#include "../consumer.h"

#include "base/clock.h"
#include "base/memory.h"
#include "storage/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 61
#define PLENTY  (UINT64_C(1) << 30)

static struct fixture fixture;
static uint64_t cache_bytes; /* as last set by cache_options */

/* Counts the calls of the wrapped converter. */
static atomic_int conversions;
static int refuse_conversions;
static int conversion_ms;
static _Atomic uint64_t longest_conversion_ns;

/* Uses CPU time, in which costs are measured. */
static void spin(uint64_t ns)
{
    uint64_t until_ns = hr__thread_cpu_ns() + ns;
    while (hr__thread_cpu_ns() < until_ns)
        continue;
}

int __real_hr_converter_run(struct hr_converter *converter, enum hr_form form, const void *bytes,
                            size_t length, struct hr_item *item, struct hr_error *error);
int __wrap_hr_converter_run(struct hr_converter *converter, enum hr_form form, const void *bytes,
                            size_t length, struct hr_item *item, struct hr_error *error);

int __wrap_hr_converter_run(struct hr_converter *converter, enum hr_form form, const void *bytes,
                            size_t length, struct hr_item *item, struct hr_error *error)
{
    uint64_t start_ns = hr__thread_cpu_ns();
    atomic_fetch_add(&conversions, 1);
    spin((uint64_t)conversion_ms * 1000000);
    int r = -ENOTSUP;
    if (!refuse_conversions)
        r = __real_hr_converter_run(converter, form, bytes, length, item, error);
    uint64_t ns = hr__thread_cpu_ns() - start_ns;
    if (ns > longest_conversion_ns)
        longest_conversion_ns = ns;
    return r;
}

static int setup(void **state)
{
    fixture_make(&fixture, SAMPLES);
    conversions = 0;
    longest_conversion_ns = 0;
    refuse_conversions = conversion_ms = 0;
    return 0;
}

static int teardown(void **state)
{
    fixture_remove(&fixture);
    return 0;
}

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

static struct hr_loader_stats stats_of(const struct hr_loader *loader)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    return stats;
}

static void cache_options(struct hr_loader_options *options, uint64_t bytes, int form)
{
    static char text[32];
    fixture_options(options);
    cache_bytes = bytes;
    snprintf(text, sizeof text, "%" PRIu64, bytes);
    options->cache = text;
    options->cache_form = form;
    options->drop_last = 0;
    options->batch_size = SAMPLES / 4; /* one rank, so the last batch needs no padding */
}

/* Reads a whole epoch and compares each sample with the preparer's; returns the bytes read. */
static uint64_t run_epoch(struct hr_loader *loader, uint64_t epoch)
{
    uint64_t before = stats_of(loader).bytes_read;
    size_t seen = 0;
    start(loader, epoch);
    for (uint64_t b = 0; b < hr_loader_batches(loader); b++) {
        struct hr_batch *batch = fixture_next(loader);
        struct hr_batch_view view;
        hr_batch_get(batch, &view);
        seen += view.count;
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
    }
    assert_int_equal(seen, SAMPLES);
    return stats_of(loader).bytes_read - before;
}

/* Waits until every item has its final form, `converted` of them another one; the counters follow a
 * moment after the items. Gives up after minutes, so that a hang is a failure. */
static struct hr_loader_stats settled(const struct hr_loader *loader, uint64_t converted)
{
    struct hr_loader_stats stats = stats_of(loader);
    for (int i = 0; i < 200000 && (stats.cache_waiting || stats.converted < converted); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        stats = stats_of(loader);
    }
    assert_int_equal(stats.cache_waiting, 0);
    assert_int_equal(stats.converted, converted);
    return stats;
}

static uint64_t all_items(const struct hr_loader_stats *stats)
{
    return stats->cache_encoded + stats->cache_indexed + stats->cache_coefficients +
           stats->cache_planes;
}

/* Everything fits: the second epoch reads nothing, and all forms, threads and readers give the same
 * batches. */
static void test_everything_cached(void **state)
{
    static const int threads[] = {1, 2, 5};
    uint64_t bytes = all_bytes();
    for (int form = HR_FORM_AUTO; form < IMAGE_FORMS; form++) {
        for (int t = 0; t < 6; t++) {
            struct hr_loader_options options;
            cache_options(&options, PLENTY, form);
            options.threads = threads[t % 3];
            options.direct_io = t / 3;
            options.epochs = (uint64_t)(t % 2) * 4;
            struct hr_loader *loader = fixture_loader(&fixture, &options);
            assert_int_equal(run_epoch(loader, 0), bytes);
            assert_int_equal(stats_of(loader).cache_hits, 0);
            for (uint64_t epoch = 1; epoch < 4; epoch++) {
                assert_int_equal(run_epoch(loader, epoch), 0);
                struct hr_loader_stats stats = stats_of(loader);
                assert_int_equal(stats.cache_hits, epoch * SAMPLES);
                assert_int_equal(stats.cache_source_bytes, bytes);
                assert_int_equal(all_items(&stats), SAMPLES);
                if (form == HR_FORM_ENCODED)
                    assert_int_equal(stats.cache_encoded, SAMPLES);
            }
            hr_loader_destroy(&loader);
        }
    }
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
}

/* Only a part fits: an epoch reads exactly the bytes that were not cached when it began, and the
 * cache never exceeds its budget. */
static void test_part_cached(void **state)
{
    uint64_t bytes = all_bytes();
    for (int form = HR_FORM_AUTO; form < IMAGE_FORMS; form++) {
        for (unsigned tenths = 1; tenths < 12; tenths += 3) {
            struct hr_loader_options options;
            cache_options(&options, bytes * tenths / 10, form);
            options.direct_io = tenths % 2;
            options.epochs = tenths % 4 ? 5 : 0;
            struct hr_loader *loader = fixture_loader(&fixture, &options);
            uint64_t cached = 0;
            for (uint64_t epoch = 0; epoch < 5; epoch++) {
                assert_int_equal(run_epoch(loader, epoch), bytes - cached);
                struct hr_loader_stats stats = stats_of(loader);
                assert_true(stats.cache_source_bytes >= cached);
                assert_true(stats.cache_bytes <= cache_bytes);
                cached = stats.cache_source_bytes;
            }
            if (form == HR_FORM_ENCODED) {
                /* The rest of the budget is smaller than any file that is not cached, plus rounding
                 * to 64 bytes. */
                assert_true(cached <= cache_bytes);
                assert_true(cached + SAMPLES * 64 + 8192 >= cache_bytes || cached == bytes);
            }
            hr_loader_destroy(&loader);
        }
    }
}

/* With a sanitizer our decoders are slower than libjpeg, which is not instrumented. */
static void slow_when_encoded(const void *bytes, size_t length)
{
    if (hr_form_of(bytes, length) == HR_FORM_ENCODED)
        spin(3000000);
}

/* Idle workers convert everything, between epochs, too. */
static void test_idle_workers_convert(void **state)
{
    for (int form = HR_FORM_COEFFICIENTS; form < IMAGE_FORMS; form++) {
        struct hr_loader_options options;
        cache_options(&options, PLENTY, form);
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        conversions = 0;
        fixture_before_bytes = slow_when_encoded;
        run_epoch(loader, 0);
        struct hr_loader_stats stats = settled(loader, SAMPLES);
        const uint64_t items[HR_FORMS] = {stats.cache_encoded, stats.cache_coefficients,
                                          stats.cache_planes, stats.cache_indexed};
        assert_int_equal(items[form], SAMPLES);
        /* Most indexes are made while the files are prepared. */
        if (form == HR_FORM_INDEXED)
            assert_in_range(conversions, 16, SAMPLES / 2);
        else
            assert_int_equal(conversions, SAMPLES);
        assert_true(stats.conversion_ns > 0);
        assert_int_equal(run_epoch(loader, 1), 0);
        hr_loader_destroy(&loader);
    }
}

/* In the last epoch nothing is converted, because nothing will be used again. */
static void test_last_epoch(void **state)
{
    struct hr_loader_options options;
    cache_options(&options, PLENTY, HR_FORM_COEFFICIENTS);
    options.epochs = 1;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    run_epoch(loader, 0);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    run_epoch(loader, 3);
    struct hr_loader_stats stats = stats_of(loader);
    assert_int_equal(conversions, 0);
    assert_int_equal(stats.cache_waiting, 0);
    assert_int_equal(stats.cache_encoded, SAMPLES);
    hr_loader_destroy(&loader);
}

/* Images without another form stay encoded, and are tried only once. */
static void test_refused_conversions(void **state)
{
    struct hr_loader_options options;
    refuse_conversions = 1;
    cache_options(&options, PLENTY, HR_FORM_COEFFICIENTS);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    run_epoch(loader, 0);
    struct hr_loader_stats stats = settled(loader, 0);
    assert_int_equal(conversions, SAMPLES);
    assert_int_equal(stats.converted, 0);
    assert_int_equal(stats.cache_encoded, SAMPLES);
    assert_int_equal(run_epoch(loader, 1), 0);
    assert_int_equal(conversions, SAMPLES);
    hr_loader_destroy(&loader);
}

/* Items that wait for a form of the loader's choice have an index meanwhile. */
static void test_items_wait_with_an_index(void **state)
{
    struct hr_loader_options options;
    refuse_conversions = 1;
    fixture_before_bytes = slow_when_encoded;
    cache_options(&options, PLENTY, HR_FORM_AUTO);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    run_epoch(loader, 0);
    struct hr_loader_stats stats = settled(loader, 0);
    assert_true(stats.cache_indexed >= SAMPLES / 2);
    assert_int_equal(stats.cache_indexed + stats.cache_encoded, SAMPLES);
    assert_int_equal(stats.cache_source_bytes, all_bytes());
    assert_int_equal(run_epoch(loader, 1), 0);
    hr_loader_destroy(&loader);
    /* Without refusals they all become what was chosen. */
    refuse_conversions = 0;
    loader = fixture_loader(&fixture, &options);
    run_epoch(loader, 0);
    stats = settled(loader, SAMPLES);
    assert_int_equal(stats.cache_planes + stats.cache_coefficients, SAMPLES);
    assert_int_equal(run_epoch(loader, 1), 0);
    hr_loader_destroy(&loader);
}

/* Slow conversions end with the loader, and a new epoch does not wait for them. */
static void test_slow_conversions(void **state)
{
    struct hr_loader_options options;
    conversion_ms = 5;
    for (int epochs = 0; epochs < 4; epochs++) {
        cache_options(&options, PLENTY, HR_FORM_COEFFICIENTS);
        options.threads = 3;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        for (int epoch = 0; epoch < epochs; epoch++) {
            start(loader, (uint64_t)epoch);
            struct hr_batch *batch = fixture_next(loader);
            fixture_check(&fixture, batch, 0, 0);
            hr_batch_release(&batch);
        }
        run_epoch(loader, 7);
        hr_loader_destroy(&loader);
    }
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
}

static void work_a_little(uint64_t index)
{
    spin(300000);
}

/* Workers that always have work spend a tenth of their time on conversions, and at most one
 * conversion more, while the consumer waits for each batch. The limit allows twice the last
 * conversion, because some of its work is outside the time measured here; the clock on the right
 * side runs at least as long as the loader's. */
static void check_share_of_busy_workers(uint64_t epochs)
{
    enum { BATCHES = 500 };
    struct hr_loader_options options;
    struct hr_error error;
    cache_options(&options, PLENTY, HR_FORM_COEFFICIENTS);
    options.threads = 1;
    options.batch_size = 1;
    options.external_order = 1;
    options.batches_ahead = BATCHES; /* the loader is never idle */
    options.epochs = epochs;
    conversion_ms = 2;
    fixture_before_prepare = work_a_little;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    uint64_t start_ns = hr__now_ns();
    start(loader, 0);
    for (int64_t i = 0; i < BATCHES; i++) {
        int64_t index = i % SAMPLES;
        assert_int_equal(hr_loader_push(loader, &index, 1, &error), 0);
    }
    for (uint64_t b = 0; b < BATCHES; b++) {
        struct hr_loader_stats stats = stats_of(loader);
        if (stats.samples < BATCHES)
            assert_true(stats.conversion_ns <=
                        (hr__now_ns() - start_ns) / 10 + 2 * longest_conversion_ns);
        struct hr_batch *batch = fixture_next(loader);
        fixture_check(&fixture, batch, 1, b);
        hr_batch_release(&batch);
        if (b == BATCHES / 2)
            assert_true(stats.converted > 0);
    }
    hr_loader_destroy(&loader);
}

static void test_share_of_busy_workers(void **state)
{
    check_share_of_busy_workers(1000000); /* a conversion always pays off */
    check_share_of_busy_workers(0);       /* unknown: it does for a form that was asked for */
}

static void expect_same(struct hr_loader *a, struct hr_loader *b)
{
    for (uint64_t i = 0; i < hr_loader_batches(a); i++) {
        struct hr_batch *of_a = fixture_next(a), *of_b = fixture_next(b);
        struct hr_batch_view view_a, view_b;
        hr_batch_get(of_a, &view_a);
        hr_batch_get(of_b, &view_b);
        assert_int_equal(view_a.count, view_b.count);
        assert_int_equal(view_a.replaced, view_b.replaced);
        assert_memory_equal(view_a.images, view_b.images, view_a.count * view_a.spec.bytes);
        assert_memory_equal(view_a.indices, view_b.indices, view_a.count * 8);
        assert_memory_equal(view_a.labels, view_b.labels, view_a.count * 8);
        hr_batch_release(&of_a);
        hr_batch_release(&of_b);
    }
}

/* Truncates a file to a part of its bytes. */
static void cut(size_t index, unsigned percent)
{
    assert_int_equal(truncate(fixture.paths[index], (off_t)(file_bytes(index) * percent / 100)), 0);
}

/* Bad samples are not cached, and their stand-ins are the same. A truncated file is good as long as
 * no crop needs its end: it is then cached, and bad later, as without a cache. */
static void test_bad_samples(void **state)
{
    fixture_spoil(&fixture, 3, "no image");
    fixture_spoil(&fixture, 17, "");
    fixture_spoil(&fixture, 40, NULL);
    for (size_t i = 50; i < 56; i++)
        cut(i, 60);
    for (int form = HR_FORM_AUTO; form < IMAGE_FORMS; form++) {
        struct hr_loader_options options;
        cache_options(&options, PLENTY, form);
        options.on_error = HR_ON_ERROR_SKIP;
        options.max_bad_share = 1;
        struct hr_loader *cached = fixture_loader(&fixture, &options);
        options.cache = NULL;
        struct hr_loader *plain = fixture_loader(&fixture, &options);
        for (uint64_t epoch = 0; epoch < 6; epoch++) {
            start(cached, epoch);
            start(plain, epoch);
            expect_same(cached, plain);
        }
        struct hr_loader_stats with = stats_of(cached), without = stats_of(plain);
        assert_int_equal(with.bad_samples, without.bad_samples);
        assert_true(with.bad_samples >= 18);
        assert_true(all_items(&with) <= SAMPLES - 3);
        hr_loader_destroy(&cached);
        hr_loader_destroy(&plain);
    }
}

/* Writes the bytes of another picture to a file, in place or by a rename, with the old modification
 * time. */
static void change_file(size_t index, size_t by, int in_place)
{
    struct stat before;
    char command[600];
    const char *path = fixture.paths[index];
    assert_int_equal(stat(path, &before), 0);
    if (in_place)
        snprintf(command, sizeof command, "cat %s > %s", fixture.paths[by], path);
    else
        snprintf(command, sizeof command, "cp %s %s.new && mv %s.new %s", fixture.paths[by], path,
                 path, path);
    assert_int_equal(system(command), 0);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Compares the epoch's batches with those of a loader without a cache. */
static void compare_epoch(struct hr_loader *cached, struct hr_loader *plain, uint64_t epoch)
{
    start(cached, epoch);
    start(plain, epoch);
    for (uint64_t b = 0; b < hr_loader_batches(plain); b++) {
        struct hr_batch *batch = fixture_next(cached), *other = fixture_next(plain);
        struct hr_batch_view view, expected;
        hr_batch_get(batch, &view);
        hr_batch_get(other, &expected);
        assert_memory_equal(view.images, expected.images, view.count * view.spec.bytes);
        hr_batch_release(&batch);
        hr_batch_release(&other);
    }
}

/* Changed files are read again in the next epoch and cached again, also if they change between two
 * listings of their directory, and whatever their times are. */
static void test_files_that_change(void **state)
{
    static const int forms[] = {HR_FORM_ENCODED, HR_FORM_COEFFICIENTS};
    for (int way = 0; way < 4; way++) {
        struct hr_loader_options options;
        cache_options(&options, PLENTY, forms[way / 2]);
        struct hr_loader *cached = fixture_loader(&fixture, &options);
        options.cache = NULL;
        struct hr_loader *plain = fixture_loader(&fixture, &options);
        compare_epoch(cached, plain, 0);
        for (size_t i = 0; i < SAMPLES; i += 3)
            change_file(i, (i + 1 + (size_t)way) % SAMPLES, way % 2);
        fixture_settle();
        /* Read again, cached again, found. */
        for (uint64_t epoch = 1; epoch < 4; epoch++)
            compare_epoch(cached, plain, epoch);
        struct hr_loader_stats before = stats_of(cached);
        compare_epoch(cached, plain, 4);
        struct hr_loader_stats after = stats_of(cached);
        /* Items that waited for a conversion when their files changed may be read for longer. */
        if (forms[way / 2] == HR_FORM_ENCODED)
            assert_int_equal(after.cache_hits - before.cache_hits, SAMPLES);
        hr_loader_destroy(&cached);
        hr_loader_destroy(&plain);
    }
}

/* A deleted file is an error that names it, cached or not. */
static void test_files_that_go(void **state)
{
    struct hr_loader_options options;
    struct hr_error error = {0, ""};
    cache_options(&options, PLENTY, HR_FORM_ENCODED);
    struct hr_loader *cached = fixture_loader(&fixture, &options);
    run_epoch(cached, 0);
    fixture_spoil(&fixture, 7, NULL);
    start(cached, 1);
    int r = 1;
    while (r > 0) {
        struct hr_batch *batch = NULL;
        r = hr_loader_next(cached, &batch, &error);
        hr_batch_release(&batch);
    }
    assert_int_equal(r, -ENOENT);
    assert_non_null(strstr(error.message, fixture.paths[7]));
    hr_loader_destroy(&cached);
}

/* An external order with repeats, and one that is restarted halfway. */
static void test_external_order(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    cache_options(&options, PLENTY, HR_FORM_COEFFICIENTS);
    options.external_order = 1;
    options.batch_size = 5;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    for (int round = 0; round < 3; round++) {
        start(loader, 0);
        for (int64_t b = 0; b < 20; b++) {
            int64_t indices[5] = {b, b, 60 - b, 7, (b * 13 + round) % SAMPLES};
            assert_int_equal(hr_loader_push(loader, indices, 5, &error), 0);
        }
        for (uint64_t b = 0; b < 15; b++) {
            struct hr_batch *batch = fixture_next(loader);
            fixture_check(&fixture, batch, 1, b * 5);
            hr_batch_release(&batch);
        }
    }
    assert_true(stats_of(loader).cache_hits > 100);
    hr_loader_destroy(&loader);
}

static int in_child(struct hr_loader *loader)
{
    struct hr_batch *batch = NULL;
    struct hr_error error;
    struct hr_loader_stats stats = stats_of(loader);
    if (hr_loader_next(loader, &batch, &error) != -ECHILD || stats.cache_bytes)
        return 1;
    hr_loader_destroy(&loader);
/* Sanitizers' runtimes do not survive a fork while other threads allocate. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    struct hr_loader_options options;
    cache_options(&options, PLENTY, HR_FORM_COEFFICIENTS);
    loader = fixture_loader(&fixture, &options);
    run_epoch(loader, 0);
    if (run_epoch(loader, 1))
        return 2;
    hr_loader_destroy(&loader);
#endif
    return 0;
}

/* A child of a process with a cache has none of it, and may open its own. */
static void test_fork(void **state)
{
    struct hr_loader_options options;
    conversion_ms = 2;
    cache_options(&options, PLENTY, HR_FORM_COEFFICIENTS);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    run_epoch(loader, 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        _exit(in_child(loader));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(run_epoch(loader, 1), 0);
    hr_loader_destroy(&loader);
}

static int run_failing(uint64_t n, int onwards)
{
    struct hr_loader_options options;
    struct hr_loader *loader = NULL;
    struct hr_batch *batch = NULL;
    struct hr_error error = {0};
    cache_options(&options, n % 3 ? PLENTY : 50000, HR_FORM_COEFFICIENTS);
    hr__alloc_fail_at(n, onwards);
    int r = hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error);
    for (uint64_t epoch = 0; !r && epoch < 2; epoch++) {
        r = hr_loader_start_epoch(loader, epoch, &error);
        while (!r && (r = hr_loader_next(loader, &batch, &error)) == 1) {
            hr_batch_release(&batch);
            r = 0;
            if (hr_loader_batches(loader) * (epoch + 1) == stats_of(loader).batches)
                break;
        }
    }
    hr_loader_destroy(&loader);
    hr__alloc_fail_at(0, 0);
    if (r)
        assert_true(r == -ENOMEM && error.code == r && strlen(error.message) > 0);
    return r;
}

static void test_allocation_failures(void **state)
{
    run_failing(0, 0);
    uint64_t loader = hr__allocated(HR__TAG_LOADER), codec = hr__allocated(HR__TAG_CODEC);
    int failures = 0;
    for (int onwards = 0; onwards < 2; onwards++)
        for (uint64_t n = 1; n < 300; n += n < 80 ? 1 : 7)
            failures += run_failing(n, onwards) != 0;
    assert_true(failures > 60);
    assert_int_equal(run_failing(0, 0), 0);
    assert_int_equal(hr__allocated(HR__TAG_LOADER), loader);
    assert_int_equal(hr__allocated(HR__TAG_CODEC), codec);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
}

static void test_refused_options(void **state)
{
    struct hr_loader_options options;
    struct hr_loader *loader = NULL;
    struct hr_error error;
    cache_options(&options, PLENTY, HR_FORMS);
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error),
                     -EINVAL);
    assert_non_null(strstr(error.message, "cache_form"));
    cache_options(&options, UINT64_C(1) << 49, HR_FORM_ENCODED);
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error),
                     -ENOMEM);
    assert_non_null(strstr(error.message, "smaller"));
    assert_null(loader);
    cache_options(&options, PLENTY, HR_FORM_AUTO);
    options.cache = "a lot";
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error),
                     -EINVAL);
    assert_non_null(strstr(error.message, "a lot"));
    options.cache = "shm:name?size=1MiB&form=planes";
    options.cache_form = HR_FORM_ENCODED;
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error),
                     -EINVAL);
    assert_non_null(strstr(error.message, "form=planes, and cache_form says encoded"));
    options.cache = "";
    loader = fixture_loader(&fixture, &options);
    assert_int_equal(stats_of(loader).cache_bytes, 0);
    hr_loader_destroy(&loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_everything_cached, setup, teardown),
        cmocka_unit_test_setup_teardown(test_part_cached, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idle_workers_convert, setup, teardown),
        cmocka_unit_test_setup_teardown(test_last_epoch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_conversions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_items_wait_with_an_index, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_conversions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_share_of_busy_workers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_samples, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_that_change, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_that_go, setup, teardown),
        cmocka_unit_test_setup_teardown(test_external_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_options, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
