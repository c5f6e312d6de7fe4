/*
 * Which segments of a watched loop count: with real processes beside it, with pauses, with a queue
 * that is full when a segment begins, and with figures that contradict each other.
 */
#include "../../loader/fixture.h"

#include "base/clock.h"
#include "stalls/watch/inside.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 400
#define BATCH   8

FIXTURE(SAMPLES)

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* A training step that keeps one core busy for this time. */
static void train(unsigned us)
{
    uint64_t until = hr__now_ns() + us * 1000u;
    while (hr__now_ns() < until) {
    }
}

static struct hr_loader *make_loader(void)
{
    struct hr_loader_options options;
    fixture_options(&options);
    options.external_order = 1;
    return fixture_loader(&fixture, &options);
}

static struct hr_stalls_watch *open_watch(struct hr_loader *loader,
                                          const struct hr_stalls_watch_options *options)
{
    struct hr_stalls_watch *watch;
    struct hr_error error;
    if (hr_stalls_watch_open(&watch, loader, options, &error))
        fail_msg("%s", error.message);
    return watch;
}

static struct hr_batch *next(struct hr_stalls_watch *watch)
{
    struct hr_batch *batch;
    struct hr_error error;
    if (hr_stalls_watch_next(watch, &batch, &error) < 0)
        fail_msg("%s", error.message);
    return batch;
}

static int has_note(const struct hr_stalls_watch *watch, const char *part)
{
    char *text = hr__watch_record(watch);
    assert_non_null(text);
    int found = strstr(text, part) != NULL;
    free(text);
    return found;
}

/* ---- others ---- */

static int is_disturbed(const struct hr_stalls_watch *watch)
{
    int found = 0;
    for (size_t i = 0; i < watch->segment_count; i++)
        found += watch->segments[i].proof.disturbed && watch->segments[i].proof.tries > 1;
    return found;
}

/* Starts a busy process that is not part of the run: its parent has ended. */
static pid_t start_stranger(void)
{
    int ends[2];
    pid_t stranger;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        stranger = fork();
        if (!stranger) {
            alarm(600); /* ends it, however the test ends */
            for (;;)
                train(1000000);
        }
        _exit(write(ends[1], &stranger, sizeof stranger) != sizeof stranger);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &stranger, sizeof stranger), sizeof stranger);
    close(ends[0]);
    close(ends[1]);
    assert_true(stranger > 0);
    return stranger;
}

static void others_are_seen(void **state)
{
    pid_t strangers[512];
    int count = 2 * hr_cores(), seen = 0, again = 0, disturbed = 0;
    count = count < 512 ? count : 512;
    for (int i = 0; i < count; i++)
        strangers[i] = start_stranger();
    struct hr_stalls_watch_options options;
    hr_stalls_watch_options_default(&options);
    options.time_s = 2;
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, &options);
    struct hr_batch *batch;
    while (!is_disturbed(watch) && (batch = next(watch))) {
        train(5000);
        hr_batch_release(&batch);
    }
    for (int i = 0; i < count; i++)
        kill(strangers[i], SIGKILL);
    for (size_t i = 0; i < watch->segment_count; i++) {
        const struct hr_stalls_evidence *e = &watch->segments[i].proof;
        assert_in_range(e->tries, 1, 3);
        assert_true(e->run_s > 0 && e->run_delay_s >= 0);
        seen += e->others > 0.1;
        again += e->tries > 1;
        disturbed += e->disturbed;
    }
    assert_true(seen > 0 && again > 0 && disturbed > 0);
    assert_true(has_note(watch, "other processes took up to"));
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

static void what_the_kernel_counts(void **state)
{
    struct hr_stalls_load before = {.size = sizeof before}, now = {.size = sizeof now};
    hr_stalls_load_read(&before, getpid());
    do {
        train(10000);
        hr_stalls_load_read(&now, getpid());
    } while (now.run_s < before.run_s + 0.2);
    assert_true(now.at_s > before.at_s && now.run_delay_s >= before.run_delay_s);
    assert_true(now.busy_s > before.busy_s + 0.1 && now.steal_s >= before.steal_s);
    assert_true(now.cores >= hr_cores());
    /* A child's time counts, while it lives and afterwards. */
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        for (;;)
            train(1000000);
    double begin_s = now.run_s;
    do {
        sleep_us(20000);
        hr_stalls_load_read(&now, getpid());
    } while (now.run_s < begin_s + 0.1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    hr_stalls_load_read(&now, getpid());
    assert_true(now.run_s > begin_s + 0.05);
    /* A process that does not exist. */
    hr_stalls_load_read(&now, 0x7fffffff);
    assert_true(isnan(now.run_delay_s));
}

/* ---- pauses ---- */

static void pauses_are_left_out(void **state)
{
    struct hr_stalls_watch_options options;
    hr_stalls_watch_options_default(&options);
    options.time_s = 1.5;
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, &options);
    struct hr_batch *batch;
    int steps = 0, paused = 0;
    while ((batch = next(watch))) {
        train(1000);
        if (++steps % 11 == 0)
            sleep_us(80000);
        hr_batch_release(&batch);
    }
    for (size_t i = 0; i < watch->segment_count; i++) {
        const struct hr__watch_segment *s = &watch->segments[i];
        double sum = 0;
        for (uint64_t k = 0; k < s->what.batches; k++)
            sum += s->batch_s[k];
        assert_true(fabs(sum - s->proof.elapsed_s) < 1e-6);
        double whole = (double)(s->end.ns - s->begin.ns) * 1e-9;
        assert_true(fabs(s->proof.elapsed_s + s->proof.paused_s - whole) < 1e-6);
        paused += s->proof.pauses > 0 && s->proof.paused_s > 0.05 * s->proof.pauses;
    }
    assert_true(paused > 0);
    assert_true(has_note(watch, "the loop paused"));
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

/* ---- the queue ---- */

static void a_loop_that_hardly_waits_begins_with_a_full_queue(void **state)
{
    struct hr_stalls_watch_options options;
    hr_stalls_watch_options_default(&options);
    options.time_s = test_is_slow() ? 6 : 1.5;
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, &options);
    struct hr_batch *batch;
    int full = 0;
    while ((batch = next(watch))) {
        full += watch->stage == HR__WATCH_RUN && watch->chosen.full;
        sleep_us(test_is_slow() ? 80000 : 10000);
        hr_batch_release(&batch);
    }
    assert_true(full > 0);
    for (size_t i = 0; i < watch->segment_count; i++) {
        const struct hr__watch_segment *s = &watch->segments[i];
        bool loads = hr__watch_loads(&s->what);
        assert_true(loads ? s->queue_begin >= 0 : isnan(s->queue_begin));
        assert_true(s->proof.queue_ahead == (loads ? loader->options.batches_ahead : 0));
    }
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

/* ---- contradictions ---- */

static atomic_int is_slow;

static void slow(uint64_t index)
{
    if (atomic_load(&is_slow))
        sleep_us(12000);
}

struct timed {
    struct hr_stalls_watch *watch;
    int calls;
};

/* Called at the beginning and the end of a segment's timed part. In the first measurement the
 * loader is slow between these parts, and after the loop. */
static void begin_or_end(void *arg)
{
    struct timed *timed = arg;
    atomic_store(&is_slow, ++timed->calls % 2 == 0 && !timed->watch->is_longer);
}

static void contradictions_are_measured_again(void **state)
{
    struct timed timed = {NULL, 0};
    struct hr_stalls_watch_options options;
    hr_stalls_watch_options_default(&options);
    options.time_s = 2;
    options.synchronize = begin_or_end;
    options.arg = &timed;
    fixture_before_prepare = slow;
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = timed.watch = open_watch(loader, &options);
    struct hr_batch *batch;
    uint64_t batches = 0;
    while ((batch = next(watch))) {
        if (!watch->is_longer)
            batches = watch->batches;
        train(4000);
        hr_batch_release(&batch);
    }
    atomic_store(&is_slow, 0);
    assert_true(watch->is_longer);
    assert_int_equal(watch->batches, 2 * batches);
    assert_true(watch->segment_count >= 8);
    for (size_t i = 0; i < watch->segment_count; i++)
        assert_int_equal(watch->segments[i].what.batches, 2 * batches);
    int warm = 0;
    for (int i = 0; i < watch->drain_count; i++)
        warm += !watch->drains[i].cold;
    assert_true(warm >= HR__WATCH_ALL_DRAINS && warm <= HR__WATCH_ALL_DRAINS + HR__WATCH_CORES);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_kernel_counts),
        cmocka_unit_test_setup_teardown(others_are_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(pauses_are_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(a_loop_that_hardly_waits_begins_with_a_full_queue, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(contradictions_are_measured_again, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
