/*
 * Lifetimes: batches that outlive the ring or the loader, stopping at any moment, forks, signals,
 * options that are refused.
 */
#include "fixture.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 61

FIXTURE(SAMPLES)

/* A gate: workers wait while it is closed. */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opens = PTHREAD_COND_INITIALIZER;
static int gate_shut;
static int gate_waiting;

static void gate(uint64_t index)
{
    pthread_mutex_lock(&gate_lock);
    gate_waiting++;
    pthread_cond_broadcast(&gate_opens);
    while (gate_shut)
        pthread_cond_wait(&gate_opens, &gate_lock);
    gate_waiting--;
    pthread_mutex_unlock(&gate_lock);
}

static void set_gate(int shut)
{
    pthread_mutex_lock(&gate_lock);
    gate_shut = shut;
    pthread_cond_broadcast(&gate_opens);
    pthread_mutex_unlock(&gate_lock);
}

static void await_gate(int waiting)
{
    pthread_mutex_lock(&gate_lock);
    while (gate_waiting < waiting)
        pthread_cond_wait(&gate_opens, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
}

static atomic_int warnings;

static void count_warning(void *arg, enum hr_log_level level, const char *message)
{
    if (level == HR_LOG_WARNING && strstr(message, "ring grows"))
        atomic_fetch_add(&warnings, 1);
}

static uint64_t slots_of(const struct hr_loader *loader, uint64_t *grown)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    *grown = stats.grown_slots;
    return stats.slots;
}

/* A consumer that now and then holds one batch more than planned is not warned, however often the
 * ring grows for it. */
static void test_hold_one_more(void **state)
{
    enum { HELD = 4, TIMES = 3 };
    struct hr_loader_options options;
    struct hr_batch *held[HELD];
    struct hr_error error;
    uint64_t grown;
    fixture_options(&options);
    options.batch_size = 3;
    options.batches_ahead = 1;
    atomic_store(&warnings, 0);
    hr_log_set(count_warning, NULL);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    for (uint64_t epoch = 0; epoch < TIMES; epoch++) {
        assert_int_equal(hr_loader_start_epoch(loader, epoch, &error), 0);
        for (int i = 0; i < 21; i++) {
            held[i % HELD] = fixture_next(loader);
            if (i % HELD == HELD - 1 || i == 20)
                for (int k = 0; k <= i % HELD; k++)
                    hr_batch_release(&held[k]);
        }
    }
    slots_of(loader, &grown);
    assert_true(grown >= 3);
    assert_int_equal(atomic_load(&warnings), 0);
    hr_log_set(NULL, NULL);
    hr_loader_destroy(&loader);
}

/* list(loader): all batches are held, none is overwritten, one warning is logged, and the ring
 * shrinks again. */
static void test_hold_everything(void **state)
{
    struct hr_loader_options options;
    struct hr_batch *held[21];
    struct hr_error error;
    uint64_t grown;
    fixture_options(&options);
    options.batch_size = 3;
    atomic_store(&warnings, 0);
    hr_log_set(count_warning, NULL);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    for (int i = 0; i < 21; i++)
        held[i] = fixture_next(loader);
    assert_int_equal(hr_loader_next(loader, &(struct hr_batch *){NULL}, &error), 0);
    assert_int_equal(slots_of(loader, &grown), 21);
    assert_int_equal(grown, 17);
    assert_int_equal(atomic_load(&warnings), 1);
    for (int i = 0; i < 21; i++) {
        fixture_check(&fixture, held[i], 0, 0);
        hr_batch_release(&held[i]);
    }
    assert_int_equal(slots_of(loader, &grown), 4);
    hr_log_set(NULL, NULL);
    /* A consumer that holds two at a time needs no more than was planned. */
    assert_int_equal(hr_loader_start_epoch(loader, 1, &error), 0);
    struct hr_batch *last = fixture_next(loader);
    for (int i = 1; i < 21; i++) {
        struct hr_batch *batch = fixture_next(loader);
        hr_batch_release(&last);
        last = batch;
    }
    hr_batch_release(&last);
    assert_int_equal(slots_of(loader, &grown), 4);
    assert_int_equal(grown, 17);
    hr_loader_destroy(&loader);
}

/* A consumer that always holds three makes the ring grow by one slot, once. */
static void test_hold_three(void **state)
{
    struct hr_loader_options options;
    struct hr_batch *held[3] = {NULL};
    struct hr_error error;
    uint64_t grown;
    fixture_options(&options);
    options.batch_size = 3;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    for (uint64_t i = 0; i < 63; i++) {
        if (i % 21 == 0)
            assert_int_equal(hr_loader_start_epoch(loader, i / 21, &error), 0);
        hr_batch_release(&held[i % 3]);
        held[i % 3] = fixture_next(loader);
        test_pause_ms(1);
    }
    assert_in_range(slots_of(loader, &grown), 4, 5);
    assert_in_range(grown, 0, 2);
    for (int i = 0; i < 3; i++)
        hr_batch_release(&held[i]);
    hr_loader_destroy(&loader);
}

static void *release_later(void *arg)
{
    struct hr_batch *batch = arg;
    fixture_delay((uintptr_t)arg >> 6);
    hr_batch_release(&batch);
    return NULL;
}

/* Other threads release batches, some after the loader is gone. */
static void test_release_elsewhere(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    pthread_t threads[21];
    fixture_options(&options);
    options.batch_size = 3;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    for (int i = 0; i < 21; i++) {
        struct hr_batch *batch = fixture_next(loader);
        struct hr_batch *second = hr_batch_ref(batch);
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
        assert_int_equal(pthread_create(&threads[i], NULL, release_later, second), 0);
    }
    hr_loader_destroy(&loader);
    for (int i = 0; i < 21; i++)
        pthread_join(threads[i], NULL);
}

static void test_batch_outlives_loader(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    fixture_options(&options);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    struct hr_batch *a = fixture_next(loader), *b = fixture_next(loader);
    hr_loader_destroy(&loader);
    fixture_check(&fixture, a, 0, 0);
    fixture_check(&fixture, b, 0, 0);
    hr_batch_release(&a);
    hr_batch_release(&b);
    hr_batch_release(&b);
}

/* Destroys a loader that was not started, was just started, has given any number of batches, or is
 * at its end, and while workers work. */
static void test_destroy_anytime(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    struct hr_loader *none = NULL;
    hr_loader_destroy(&none);
    fixture_before_prepare = fixture_delay;
    for (int taken = -1; taken <= 8; taken++) {
        for (int direct = 0; direct < 2; direct++) {
            fixture_options(&options);
            options.direct_io = direct;
            options.threads = 3;
            struct hr_loader *loader = fixture_loader(&fixture, &options);
            if (taken >= 0)
                assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
            for (int i = 0; i < taken; i++) {
                struct hr_batch *batch = fixture_next(loader);
                hr_batch_release(&batch);
            }
            hr_loader_destroy(&loader);
        }
    }
}

/* Epochs restarted repeatedly, at every stage of preparation. */
static void test_start_over(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    uint64_t grown;
    fixture_before_prepare = fixture_delay;
    for (int direct = 0; direct < 2; direct++) {
        fixture_options(&options);
        options.direct_io = direct;
        options.threads = 3;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        for (uint64_t epoch = 0; epoch < 60; epoch++) {
            assert_int_equal(hr_loader_start_epoch(loader, epoch, &error), 0);
            for (uint64_t i = 0; i < epoch % 4; i++) {
                struct hr_batch *batch = fixture_next(loader);
                struct hr_batch_view view;
                hr_batch_get(batch, &view);
                assert_int_equal(view.epoch, epoch);
                assert_int_equal(view.number, i);
                fixture_check(&fixture, batch, 0, 0);
                hr_batch_release(&batch);
            }
        }
        assert_in_range(slots_of(loader, &grown), 1, 4);
        assert_int_equal(grown, 0);
        hr_loader_destroy(&loader);
    }
}

/* Workers still have samples of a dropped epoch: the next epoch waits for their slots instead of
 * making new ones. */
static void test_start_over_at_work(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    uint64_t grown;
    fixture_options(&options);
    fixture_before_prepare = gate;
    set_gate(1);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        assert_int_equal(hr_loader_start_epoch(loader, epoch, &error), 0);
        await_gate(2);
    }
    set_gate(0);
    struct hr_batch *batch = fixture_next(loader);
    fixture_check(&fixture, batch, 0, 0);
    hr_batch_release(&batch);
    assert_in_range(slots_of(loader, &grown), 1, 4);
    assert_int_equal(grown, 0);
    hr_loader_destroy(&loader);
}

/* An epoch ends before a thread has finished with a dropped one: when the consumer begins to wait,
 * that thread waits for a slot of the dropped epoch. */
static void test_empty_epoch_after_a_dropped_one(void **state)
{
    static const int64_t index[] = {1, 2, 3};
    struct hr_loader_options options;
    struct hr_error error;
    struct hr_batch *batch, *held[2];
    fixture_options(&options);
    options.external_order = 1;
    options.threads = 2;
    options.batches_ahead = 1;
    options.wait_ms = 600000; /* only makes a hang a failure */
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    for (uint64_t epoch = 0; epoch < 40; epoch += 4) {
        assert_int_equal(hr_loader_start_epoch(loader, epoch, &error), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(hr_loader_push(loader, index + i, 1, &error), 0);
            held[i] = fixture_next(loader);
        }
        fixture_before_prepare = gate;
        set_gate(1);
        assert_int_equal(hr_loader_push(loader, index + 2, 1, &error), 0);
        await_gate(1);
        assert_int_equal(hr_loader_start_epoch(loader, epoch + 1, &error), 0);
        assert_int_equal(hr_loader_push(loader, index, 1, &error), 0);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
        assert_int_equal(hr_loader_start_epoch(loader, epoch + 2, &error), 0);
        assert_int_equal(hr_loader_push_end(loader, &error), 0);
        int r = hr_loader_next(loader, &batch, &error);
        set_gate(0);
        assert_int_equal(r, 0);
        hr_batch_release(&held[0]);
        hr_batch_release(&held[1]);
    }
    hr_loader_destroy(&loader);
}

/* In the child every call returns a clear error, and destroy does not hang. */
static int child(struct hr_loader *loader, struct hr_batch *held)
{
    struct hr_error error;
    struct hr_batch *batch;
    struct hr_loader_state saved = {.version = 1, .samples = SAMPLES};
    struct hr_loader_stats stats = {.size = sizeof stats};
    struct hr_batch_view view;
    int64_t index = 0;
    hr_batch_get(held, &view);
    volatile char first = *(char *)view.images;
    (void)first;
    if (hr_loader_next(loader, &batch, &error) != -ECHILD || !strstr(error.message, "fork") ||
        hr_loader_start_epoch(loader, 1, &error) != -ECHILD ||
        hr_loader_restore(loader, &saved, &error) != -ECHILD ||
        hr_loader_get_state(loader, &saved, &error) != -ECHILD ||
        hr_loader_push(loader, &index, 1, &error) != -ECHILD ||
        hr_loader_push_end(loader, &error) != -ECHILD)
        return 1;
    hr_loader_get_stats(loader, &stats);
    struct hr_skipped_sample sample;
    if (hr_loader_skipped_count(loader) || !hr_loader_skipped_get(loader, 0, &sample) ||
        !hr_loader_failed_get(loader, &sample))
        return 2;
    struct hr_batch *again = hr_batch_ref(held);
    hr_batch_release(&held);
    hr_loader_destroy(&loader);
    hr_batch_release(&again);
    return 0;
}

static void expect_exit(pid_t pid, int code)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static void test_fork(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    fixture_options(&options);
    fixture_before_prepare = fixture_delay;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(hr_loader_start_epoch(loader, i, &error), 0);
        struct hr_batch *batch = fixture_next(loader);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            alarm(300);
            _exit(child(loader, batch));
        }
        expect_exit(pid, 0);
        /* The parent continues. */
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
        batch = fixture_next(loader);
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
    }
    hr_loader_destroy(&loader);
}

static int use_in_child(struct hr_loader *loader)
{
    struct hr_error error;
    struct hr_batch *batch;
    int batches = 0;
    if (hr_loader_start_epoch(loader, 0, &error))
        return 1;
    while (hr_loader_next(loader, &batch, &error) == 1) {
        batches++;
        hr_batch_release(&batch);
    }
    hr_loader_destroy(&loader);
    return batches == 8 ? 0 : 2;
}

/* Made before the fork and first used after it, by parent and child. */
static void test_fork_before_use(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    fixture_options(&options);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        alarm(300);
        _exit(use_in_child(loader));
    }
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    struct hr_batch *batch = fixture_next(loader);
    hr_batch_release(&batch);
    expect_exit(pid, 0);
    hr_loader_destroy(&loader);
}

static void on_signal(int signal)
{
}

/* The thread that receives the signals, and how many of its waits they have ended. */
struct lifetime_waiter {
    pthread_t thread;
    atomic_int interrupted;
};

/* Sends signals until they were noticed: a signal between two waits ends none. */
static void *send_signals(void *arg)
{
    struct lifetime_waiter *waiter = arg;
    await_gate(2);
    while (atomic_load(&waiter->interrupted) < 3) {
        test_pause_ms(1);
        pthread_kill(waiter->thread, SIGUSR1);
    }
    return NULL;
}

/* A handler that ran ends the wait, even with SA_RESTART; nothing is lost. */
static void test_signal_interrupts(void **state)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    struct hr_loader_options options;
    struct hr_error error;
    struct hr_batch *batch;
    struct lifetime_waiter self = {.thread = pthread_self()};
    pthread_t sender;
    sigaction(SIGUSR1, &action, &before);
    fixture_options(&options);
    fixture_before_prepare = gate;
    set_gate(1);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    assert_int_equal(pthread_create(&sender, NULL, send_signals, &self), 0);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(hr_loader_next(loader, &batch, &error), -EINTR);
        atomic_store(&self.interrupted, i);
    }
    pthread_join(sender, NULL);
    set_gate(0);
    batch = fixture_next(loader);
    struct hr_batch_view view;
    hr_batch_get(batch, &view);
    assert_int_equal(view.number, 0);
    fixture_check(&fixture, batch, 0, 0);
    hr_batch_release(&batch);
    hr_loader_destroy(&loader);
    sigaction(SIGUSR1, &before, NULL);
}

static void test_wait_limit(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    struct hr_batch *batch;
    fixture_options(&options);
    options.wait_ms = 30;
    fixture_before_prepare = gate;
    set_gate(1);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    uint64_t start = hr__now_ns();
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EINTR);
    assert_true(hr__now_ns() - start >= 30000000);
    set_gate(0);
    int r;
    while ((r = hr_loader_next(loader, &batch, &error)) == -EINTR)
        ;
    assert_int_equal(r, 1);
    hr_batch_release(&batch);
    hr_loader_destroy(&loader);
}

/* Returns the CPU time of the whole process during 200 ms in which the caller sleeps. */
static int64_t used_asleep_ns(void)
{
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    test_pause_ms(200);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    return (after.tv_sec - before.tv_sec) * INT64_C(1000000000) + after.tv_nsec - before.tv_nsec;
}

/* Idle threads use no CPU time once they have finished their work: threads that poll would never
 * let this end. */
static void test_idle_costs_nothing(void **state)
{
    struct hr_loader_options options;
    struct hr_error error;
    for (int direct = 0; direct < 2; direct++) {
        fixture_options(&options);
        options.threads = 4;
        options.direct_io = direct;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
        struct hr_batch *batch = fixture_next(loader);
        struct hr_loader_stats stats = {.size = sizeof stats};
        do {
            test_pause_ms(20);
            hr_loader_get_stats(loader, &stats);
        } while (stats.ready_batches < 2);
        while (used_asleep_ns() > 2000000)
            ;
        hr_batch_release(&batch);
        hr_loader_destroy(&loader);
    }
}

static void refuse(void (*change)(struct hr_loader_options *), int code, const char *word)
{
    struct hr_loader_options options;
    struct hr_loader *loader;
    struct hr_error error;
    fixture_options(&options);
    change(&options);
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error),
                     code);
    assert_null(loader);
    if (!strstr(error.message, word))
        fail_msg("no \"%s\" in: %s", word, error.message);
}

static void no_batch(struct hr_loader_options *o)
{
    o->batch_size = 0;
}

static void bad_rank(struct hr_loader_options *o)
{
    o->rank = 1;
}

static void bad_share(struct hr_loader_options *o)
{
    o->max_bad_share = 1.5;
}

static void bad_size(struct hr_loader_options *o)
{
    o->size = 3;
}

static void no_ahead(struct hr_loader_options *o)
{
    o->batches_ahead = -1;
}

static void too_large_a_batch(struct hr_loader_options *o)
{
    o->batch_size = 62;
    o->drop_last = 1;
}

static void no_driver(struct hr_loader_options *o)
{
    o->pinned = 1;
}

static void test_refusals(void **state)
{
    refuse(no_batch, -EINVAL, "batch_size");
    refuse(bad_rank, -EINVAL, "rank");
    refuse(bad_share, -EINVAL, "max_bad_share");
    refuse(bad_size, -EINVAL, "hr_loader_options_default");
    refuse(no_ahead, -EINVAL, "batches_ahead");
    refuse(too_large_a_batch, -ENODATA, "drop_last");
    setenv("HEADRACE_CUDA_LIBRARY", "/nonexistent/libcuda.so", 1);
    refuse(no_driver, -ENOTSUP, "no CUDA driver");
    unsetenv("HEADRACE_CUDA_LIBRARY");
    struct hr_error error;
    struct hr_batch *batch;
    struct hr_loader *loader = NULL;
    /* an older program, whose struct ends after batch_size */
    struct hr_loader_options old;
    memset(&old, 0x55, sizeof old);
    hr_loader_options_init(&old, offsetof(struct hr_loader_options, shuffle));
    assert_int_equal(old.shuffle, 0x55555555);
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &old, &error), 0);
    hr_loader_destroy(&loader);
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, NULL, &error), 0);
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EINVAL);
    assert_int_equal(hr_loader_batches(loader), SAMPLES);
    hr_loader_destroy(&loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hold_one_more, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hold_everything, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hold_three, setup, teardown),
        cmocka_unit_test_setup_teardown(test_release_elsewhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_batch_outlives_loader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_destroy_anytime, setup, teardown),
        cmocka_unit_test_setup_teardown(test_start_over, setup, teardown),
        cmocka_unit_test_setup_teardown(test_start_over_at_work, setup, teardown),
        cmocka_unit_test_setup_teardown(test_empty_epoch_after_a_dropped_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork_before_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signal_interrupts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wait_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idle_costs_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
