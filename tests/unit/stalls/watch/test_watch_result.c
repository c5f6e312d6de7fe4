/*
 * The result of a watched loop: rates and shares with steps and preparations of known duration, and
 * real photographs from storage to stalls.json and back.
 */
#include "../../loader/fixture.h"

#include "base/clock.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES     400
#define BATCH       8
#define PHOTOGRAPHS 240
#define BUSY        "a quieter machine"

FIXTURE(SAMPLES)

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* Eight milliseconds per sample, whatever else runs on the machine. */
static void slow(uint64_t index)
{
    sleep_us(8000);
}

/* Runs a loop with steps that sleep, like those of an accelerator, and returns its result. */
static struct hr_stalls *measure_once(struct hr_dataset *dataset, long step_us, double time_s)
{
    struct hr_loader_options options;
    struct hr_stalls_watch_options watch_options;
    struct hr_loader *loader;
    struct hr_stalls_watch *watch;
    struct hr_stalls *stalls;
    struct hr_batch *batch;
    struct hr_error error;
    int r;
    hr_loader_options_default(&options);
    options.batch_size = BATCH;
    options.threads = 2;
    options.external_order = 1;
    assert_int_equal(hr_loader_create(&loader, dataset, fixture.recipe, &options, &error), 0);
    hr_stalls_watch_options_default(&watch_options);
    watch_options.time_s = time_s;
    assert_int_equal(hr_stalls_watch_open(&watch, loader, &watch_options, &error), 0);
    while ((r = hr_stalls_watch_next(watch, &batch, &error)) == 1) {
        sleep_us(step_us);
        hr_batch_release(&batch);
    }
    if (r || hr_stalls_watch_result(watch, &stalls, &error))
        fail_msg("%s", error.message);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
    return stalls;
}

/* Measures for longer where others leave the loop too little of the machine: until each phase is
 * measured, and until the result is precise or the machine is known to be busy. */
static struct hr_stalls *measure(struct hr_dataset *dataset, long step_us, double time_s,
                                 int with_cold)
{
    for (;; time_s *= 2) {
        struct hr_stalls *stalls = measure_once(dataset, step_us, time_s);
        struct hr_stalls_summary summary = {.size = sizeof summary};
        struct hr_error error;
        assert_int_equal(hr_stalls_get_summary(stalls, &summary, &error), 0);
        int is_whole = summary.measured[HR_STALLS_HOST] && summary.measured[HR_STALLS_WARM] &&
                       (!with_cold || summary.measured[HR_STALLS_COLD]);
        if (is_whole && (time_s > 10 || !strstr(hr_stalls_sentence(stalls), BUSY)))
            return stalls;
        hr_stalls_destroy(&stalls);
    }
}

static struct hr_stalls_summary summary_of(const struct hr_stalls *stalls)
{
    struct hr_stalls_summary summary = {.size = sizeof summary};
    struct hr_error error;
    assert_int_equal(hr_stalls_get_summary(stalls, &summary, &error), 0);
    assert_int_equal(summary.ranks, 1);
    assert_true(summary.measured[HR_STALLS_HOST] && summary.measured[HR_STALLS_WARM]);
    double sum =
        summary.warm_share[0].value + summary.warm_share[1].value + summary.warm_share[2].value;
    assert_true(fabs(sum - 1) < 1e-9);
    return summary;
}

static void what_is_set_is_found(void **state)
{
    fixture_before_prepare = slow;
    struct hr_stalls *stalls = measure(fixture.dataset, 4000, 2, 0);
    struct hr_stalls_summary summary = summary_of(stalls);
    /* 8 samples in 4 ms; and 8 ms each with two workers, 32 ms a batch. A busy machine makes both
     * slower, never faster, and delays the four sleeps of a worker no less than the one of a step.
     */
    double device = summary.device_rate.value, prepare = summary.prepare_rate.value;
    assert_true(device <= 2000 * 1.01 && device > 0);
    assert_true(prepare <= 250 * 1.05 && prepare > 0);
    double batch_s = BATCH / summary.rate[HR_STALLS_WARM].value;
    double step_s = BATCH / summary.rate[HR_STALLS_HOST].value;
    assert_true(batch_s >= 0.0316 && step_s >= 0.004);
    assert_true(summary.warm_share[0].value > 0 && summary.warm_share[2].value > 0);
    assert_true(summary.warm_share[1].value == 0);
    if (!strstr(hr_stalls_sentence(stalls), "preparing") &&
        !strstr(hr_stalls_sentence(stalls), BUSY))
        fail_msg("%s", hr_stalls_sentence(stalls));
    hr_stalls_destroy(&stalls);
}

static void copy_file(const char *from, const char *to)
{
    char bytes[65536];
    size_t n;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(bytes, 1, sizeof bytes, in)))
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* Some of the photographs that tools/make_samples.py makes: copies, because other programs
 * may use the originals at this moment. Returns their number. */
static size_t copy_photographs(const char *folder, char (*paths)[128])
{
    struct hr_dataset_options options;
    struct hr_dataset *dataset;
    struct hr_error error;
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    if (hr_dataset_open_folder(&dataset, folder, &options, &error))
        fail_msg("%s", error.message);
    size_t all = hr_dataset_count(dataset), count = all < PHOTOGRAPHS ? all : PHOTOGRAPHS;
    for (size_t i = 0; i < count; i++) {
        char path[4096];
        hr_dataset_path(dataset, i * all / count, path, sizeof path);
        snprintf(paths[i], sizeof paths[i], "%s/photograph-%zu", fixture.dir, i);
        copy_file(path, paths[i]);
    }
    hr_dataset_unref(&dataset);
    return count;
}

/* The result is the same after it was written and read again. */
static void check_file(const struct hr_stalls *stalls)
{
    struct hr_stalls *again;
    struct hr_error error;
    char path[128];
    snprintf(path, sizeof path, "%s/stalls.json", fixture.dir);
    if (hr_stalls_write(stalls, path, &error) || hr_stalls_read(&again, path, &error))
        fail_msg("%s", error.message);
    assert_string_equal(hr_stalls_sentence(again), hr_stalls_sentence(stalls));
    struct hr_stalls_summary a = summary_of(stalls), b = summary_of(again);
    assert_true(a.rate[HR_STALLS_HOST].value == b.rate[HR_STALLS_HOST].value);
    hr_stalls_destroy(&again);
    assert_int_equal(unlink(path), 0);
}

static void check_photographs(const struct hr_stalls *stalls, int in_memory)
{
    struct hr_stalls_summary summary = summary_of(stalls);
    assert_int_equal(summary.measured[HR_STALLS_COLD] != 0, !in_memory);
    assert_true(summary.samples > 0 && summary.bytes > summary.samples * 1000);
    assert_true(summary.prepare_rate.value > 0);
    if (in_memory)
        return;
    assert_true(summary.fetch_rate.value > 0);
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        assert_true(summary.share[i].value >= 0);
        sum += summary.share[i].value;
    }
    assert_true(fabs(sum - 1) < 1e-9);
}

static void photographs_are_measured(void **state)
{
    static char paths[PHOTOGRAPHS][128];
    const char *folder = getenv("HEADRACE_DATA"), *names[PHOTOGRAPHS];
    char path[4096];
    struct hr_dataset *dataset;
    struct hr_error error;
    snprintf(path, sizeof path, "%s/data/sample", getenv("HEADRACE_SOURCE_ROOT"));
    if (!folder)
        folder = path;
    if (access(folder, R_OK)) {
        print_message("no photographs: make samples makes some\n");
        skip();
    }
    size_t count = copy_photographs(folder, paths);
    for (size_t i = 0; i < count; i++)
        names[i] = paths[i];
    assert_int_equal(hr_dataset_from_paths(&dataset, names, NULL, count, &error), 0);
    struct hr_storage_residency residency = {.size = sizeof residency};
    assert_int_equal(hr_storage_check(names, 1, &residency, &error), 0);
    struct hr_stalls *stalls = measure(dataset, 5000, 3, !residency.in_memory);
    check_photographs(stalls, residency.in_memory);
    check_file(stalls);
    hr_stalls_destroy(&stalls);
    hr_dataset_unref(&dataset);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(unlink(paths[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_set_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(photographs_are_measured, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
