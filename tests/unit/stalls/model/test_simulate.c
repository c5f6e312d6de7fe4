/*
 * The simulation compared with closed forms: with constant times, the rate of a pipeline is known
 * exactly. Also tests properties of every system: more of a resource is never slower.
 */
#include "base/memory.h"
#include "base/random.h"
#include "stalls/model/model.h"

#include "close.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define ONE(value)                                                                                 \
    (struct hr__values)                                                                            \
    {                                                                                              \
        (const double[]){value}, 1                                                                 \
    }

/* 16 samples a batch, a step of 100 ms on a device, 2 workers, 8 cores. */
static struct hr__system plain(void)
{
    return (struct hr__system){
        .cores = 8,
        .ranks = 1,
        .loader = HR__LOADER_TORCH,
        .workers = 2,
        .batches_ahead = 4,
        .batch_size = 16,
    };
}

static struct hr__prediction simulated(const struct hr__system *system, int batches)
{
    struct hr__prediction outcome = {0};
    struct hr_error error = {0};
    if (hr__simulate(system, batches, 1, &outcome, &error))
        fail_msg("%s", error.message);
    double sum = outcome.step_s + outcome.copy_s + outcome.wait_prepare_s + outcome.wait_fetch_s;
    double batch_s = (double)system->batch_size * system->ranks / outcome.rate;
    assert_close(sum, batch_s, 1e-9 * batch_s);
    assert_true(outcome.core_share >= 0 && outcome.core_share <= 1 + 1e-9);
    return outcome;
}

/* Compares the rate within a relative error; prints a rate that differs. */
static void check_rate(const struct hr__system *system, double rate, double tolerance)
{
    struct hr__prediction o = simulated(system, 200);
    if (!(fabs(o.rate - rate) <= tolerance * rate))
        fail_msg("%g samples/s, and not %g", o.rate, rate);
}

static void test_bounded_by_step(void **state)
{
    struct hr__system s = plain();
    s.step_s = ONE(0.1);
    s.prepare_s = ONE(0.001);
    check_rate(&s, 160, 1e-9);
    struct hr__prediction o = simulated(&s, 50);
    assert_close(o.wait_prepare_s, 0, 1e-9);
    /* 16 ms of CPU in 100 ms of eight cores. */
    assert_close(o.core_share, 0.016 / 0.1 / 8, 1e-3);
}

static void test_bounded_by_workers(void **state)
{
    struct hr__system s = plain();
    s.step_s = ONE(0.1);
    s.prepare_s = ONE(0.02); /* 320 ms a batch, two at once */
    check_rate(&s, 100, 1e-9);
    struct hr__prediction o = simulated(&s, 100);
    assert_close(o.step_s, 0.1, 1e-9);
    assert_close(o.wait_prepare_s, 0.06, 1e-9);
    s.workers = 3; /* no power of anything, and not a divisor of 200 */
    s.batches_ahead = 6;
    check_rate(&s, 150, 1e-9);
    s.workers = 4;
    s.batches_ahead = 8;
    check_rate(&s, 160, 1e-9);
}

static void test_delays_need_no_core(void **state)
{
    struct hr__system s = plain();
    s.cores = 1;
    s.workers = 8;
    s.batches_ahead = 16;
    s.step_s = ONE(0.001);
    s.delay_s = 0.01;
    check_rate(&s, 800, 1e-9);
    s.prepare_s = ONE(0.0005);        /* the one core could do 2,000 */
    check_rate(&s, 8 / 0.0105, 1e-9); /* they take turns */
}

static void test_threads_on_fewer_cores(void **state)
{
    struct hr__system s = plain();
    s.workers = 6;
    s.batches_ahead = 12;
    s.step_s = ONE(0.001);
    s.prepare_s = ONE(0.01);
    for (int cores = 1; cores <= 6; cores++) {
        s.cores = cores;
        check_rate(&s, 100.0 * cores, 1e-9);
        assert_close(simulated(&s, 60).core_share, 1, 1e-9);
    }
    s.cores = 12;
    check_rate(&s, 600, 1e-9);
}

static void test_contention(void **state)
{
    struct hr__system s = plain();
    s.workers = 4;
    s.batches_ahead = 8;
    s.cores = 4;
    s.contention = 0.1;
    s.step_s = ONE(0.001);
    s.prepare_s = ONE(0.01);
    check_rate(&s, 400 / 1.3, 1e-9);
    s.contention_cores = 2;
    check_rate(&s, 400 / 1.1, 1e-9);
}

/* 50 ms of the loader's work in each batch slow that part of a step of 100 ms by a quarter. */
static void test_disturbance(void **state)
{
    struct hr__system s = plain();
    s.cores = 2;
    s.workers = 1;
    s.batches_ahead = 2;
    s.step_s = ONE(0.1);
    s.step_cpu_s = 0.1;
    s.prepare_s = ONE(0.05 / 16);
    s.disturbance = 0.25;
    check_rate(&s, 16 / (0.1 + 0.05 * 0.2), 1e-6);
    s.step_cpu_s = 0; /* work that takes no core is not slowed */
    check_rate(&s, 160, 1e-9);
}

static void test_bounded_by_storage(void **state)
{
    struct hr__system s = plain();
    s.step_s = ONE(0.001);
    s.prepare_s = ONE(0.0001);
    s.bytes = ONE(100000);
    s.missing = 1;
    s.storage_bytes_per_s = 10e6; /* 100 samples/s for any number of reads */
    s.workers = 4;
    s.batches_ahead = 8;
    check_rate(&s, 100, 1e-9);
    s.missing = 0.5;
    check_rate(&s, 200, 5e-3);
    s.missing = 1;
    s.storage_bytes_per_s = 1e12;
    s.storage_latency_s = 0.01; /* four workers, one read each at a time */
    check_rate(&s, 4 / 0.0101001, 1e-6);
    struct hr__prediction o = simulated(&s, 40);
    /* By difference: the time that fetching adds to an epoch from memory. */
    assert_close(o.wait_prepare_s, 0, 1e-9);
    assert_close(o.wait_fetch_s, 16 * 0.0101 / 4 - 0.001, 1e-6);
}

/* One worker that reads and prepares in turn: a read takes its latency and its transfer, which is
 * longer for a larger file; storage that saves up a burst while idle has transferred meanwhile. */
static void test_reads_one_by_one(void **state)
{
    struct hr__system s = plain();
    const double bytes[] = {20e3, 180e3};
    s.workers = 1;
    s.batches_ahead = 2;
    s.step_s = ONE(0.0001);
    s.prepare_s = ONE(0.004);
    s.bytes = (struct hr__values){bytes, 2};
    s.missing = 1;
    s.storage_bytes_per_s = 10e6; /* 10 ms a sample */
    check_rate(&s, 1 / 0.014, 1e-3);
    s.storage_latency_s = 0.002;
    check_rate(&s, 1 / 0.016, 1e-3);
    s.storage_latency_s = 0;
    s.bytes = ONE(100000);
    s.storage_saved_s = 0.010;
    check_rate(&s, 1 / 0.010, 1e-3);
    s.prepare_s = ONE(0.015);
    check_rate(&s, 1 / 0.015, 1e-3);
    s.storage_saved_s = 0.005;
    check_rate(&s, 1 / 0.020, 1e-3);
}

static void test_reads_ahead(void **state)
{
    struct hr__system s = plain();
    s.loader = HR__LOADER_HEADRACE;
    s.workers = 1;
    s.batches_ahead = 4;
    s.step_s = ONE(0.0001);
    s.prepare_s = ONE(0.0001);
    s.bytes = ONE(100000);
    s.missing = 1;
    s.storage_bytes_per_s = 1e12;
    s.storage_latency_s = 0.01;
    check_rate(&s, 1 / 0.0101001, 1e-6); /* the thread reads itself */
    s.fetches_ahead = 16;
    check_rate(&s, 1600, 0.01);
    s.storage_bytes_per_s = 50e6;
    check_rate(&s, 500, 0.01);
    s.missing = 0.25;
    check_rate(&s, 2000, 0.02);
}

static void test_headrace_bounded_by_threads(void **state)
{
    struct hr__system s = plain();
    s.loader = HR__LOADER_HEADRACE;
    s.workers = 3;
    s.batches_ahead = 2;
    s.step_s = ONE(0.001);
    s.prepare_s = ONE(0.01);
    check_rate(&s, 300, 0.01);
    s.step_s = ONE(0.2);
    check_rate(&s, 80, 1e-9);
    s.cores = 2;
    s.step_s = ONE(0.001);
    check_rate(&s, 200, 0.01);
}

static void test_no_workers(void **state)
{
    struct hr__system s = plain();
    s.workers = 0;
    s.batches_ahead = 0;
    s.step_s = ONE(0.1);
    s.prepare_s = ONE(0.01);
    check_rate(&s, 16 / (0.1 + 0.16), 1e-9);
    s.bytes = ONE(1e5);
    s.missing = 0.5;
    s.storage_bytes_per_s = 10e6; /* 10 ms a read */
    s.delay_s = 0.001;
    s.batch_cpu_s = 0.02;
    check_rate(&s, 16 / (0.1 + 0.16 + 0.08 + 0.016 + 0.02), 1e-9);
    s.loader = HR__LOADER_HEADRACE;
    check_rate(&s, 16 / (0.1 + 0.16 + 0.08 + 0.016 + 0.02), 1e-9);
}

/* A slow worker holds up batches that others have finished: one batch in two takes 1.6 s, so with
 * few batches ahead the others have to wait, too. */
static void test_delivery_in_order(void **state)
{
    struct hr__system s = plain();
    double prepare[32];
    s.batch_size = 1;
    s.step_s = ONE(0.0001);
    /* The pool is shuffled, so slow batches are not always one worker's: each worker takes its
     * turn, and W workers still do W batches in the time of their longest. */
    for (int i = 0; i < 32; i++)
        prepare[i] = i % 8 ? 0.01 : 0.1;
    s.prepare_s = (struct hr__values){prepare, 32};
    s.workers = s.batches_ahead = 4;
    double mean = 0.01 * 7 / 8 + 0.1 / 8, tight = simulated(&s, 800).rate;
    assert_true(tight < 0.9 * 4 / mean);
    s.batches_ahead = 40; /* room for the others to continue meanwhile */
    double roomy = simulated(&s, 800).rate;
    assert_true(roomy > 1.1 * tight && roomy <= 4 / mean * 1.001);
    /* Headrace's threads take samples from any batch of the window. */
    s.loader = HR__LOADER_HEADRACE;
    assert_true(simulated(&s, 800).rate > 0.97 * 4 / mean);
}

/* Training computes on the cores that preparation needs: all work is done, and no core is idle
 * while there is work. */
static void test_cores_are_shared(void **state)
{
    struct hr__system s = plain();
    s.cores = 2;
    s.step_s = ONE(0.1);
    s.step_cpu_s = 0.2;
    s.step_threads = 2;
    s.prepare_s = ONE(0.01); /* 0.16 s a batch, besides 0.2 s */
    check_rate(&s, 16 / ((0.2 + 0.16) / 2), 0.01);
    assert_close(simulated(&s, 100).core_share, 1, 0.02);
    s.cores = 4;
    check_rate(&s, 160, 1e-6);
    s.cores = 1; /* a step then takes twice as long, and so on */
    check_rate(&s, 16 / 0.36, 0.01);
    s.cores = 2;
    s.sharing = 0.5;
    double spun = simulated(&s, 100).rate;
    assert_true(spun < 16 / 0.18 && spun > 16 / ((0.3 + 0.16) / 2) * 0.99);
    s.sharing = 0;
    s.crowding = 0.5; /* while both want cores, everything takes that much longer */
    assert_close(simulated(&s, 100).rate, 16 / (1.5 * 0.18), 0.5);
    s.cores = 8; /* there are enough */
    check_rate(&s, 160, 1e-6);
}

static void test_receiving(void **state)
{
    struct hr__system s = plain();
    s.step_s = ONE(0.1);
    s.prepare_s = ONE(0.001);
    s.batch_cpu_s = 0.025;
    check_rate(&s, 16 / 0.125, 1e-9);
    assert_close(simulated(&s, 50).wait_prepare_s, 0.025, 1e-9);
}

static void test_ranks_step_together(void **state)
{
    struct hr__system s = plain();
    double steps[] = {0.05, 0.1, 0.15};
    s.ranks = 4;
    s.step_s = (struct hr__values){steps, 3};
    s.copy_s = 0.01;
    s.prepare_s = ONE(0.0001);
    s.cores = 16;
    check_rate(&s, 640, 1e-9);
    struct hr__prediction o = simulated(&s, 60);
    assert_close(o.copy_s, 0.01, 1e-12);
    assert_close(o.step_s, 0.09, 1e-9);
    /* Eight workers of four ranks on two cores. */
    s.cores = 2;
    s.prepare_s = ONE(0.01);
    check_rate(&s, 200, 0.005);
}

/* ---- what holds of any system ---- */

#define N 1000

struct any {
    struct hr__system system;
    double prepare[16], bytes[16], step[8];
};

static void make_any(struct any *any, uint64_t seed)
{
    struct hr__random r;
    hr__random_init(&r, seed, 99, 0, 0);
    for (int i = 0; i < 16; i++) {
        any->prepare[i] = hr__random_range(&r, 0.001, 0.02);
        any->bytes[i] = hr__random_range(&r, 1e4, 2e5);
    }
    for (int i = 0; i < 8; i++)
        any->step[i] = hr__random_range(&r, 0.05, 0.08);
    bool on_cpu = hr__random_below(&r, 3) == 0;
    int workers = (int)hr__random_below(&r, 6), ranks = 1 + (int)hr__random_below(&r, 3);
    any->system = (struct hr__system){
        .cores = 1 + (int)hr__random_below(&r, 8),
        .storage_bytes_per_s = hr__random_range(&r, 5e6, 2e8),
        .storage_latency_s = hr__random_range(&r, 0, 0.004),
        .storage_saved_s = hr__random_range(&r, 0, 0.004),
        .ranks = ranks,
        .step_s = {any->step, 8},
        .step_cpu_s = on_cpu ? 0.08 : 0.002,
        .step_threads = on_cpu ? 2 : 1,
        .loader = hr__random_below(&r, 2) ? HR__LOADER_TORCH : HR__LOADER_HEADRACE,
        .workers = workers,
        .batches_ahead = 2 * workers,
        .batch_size = 8,
        .prepare_s = {any->prepare, 16},
        .batch_cpu_s = hr__random_range(&r, 0, 0.002),
        .bytes = {any->bytes, 16},
        .missing = hr__random_unit(&r),
        .fetches_ahead = hr__random_below(&r, 2) ? 16 : 0,
    };
}

static void never_slower(const struct hr__system *before, const struct hr__system *after,
                         const char *what, uint64_t seed)
{
    double was = simulated(before, N).rate, is = simulated(after, N).rate;
    int threads = before->ranks * (before->workers + before->step_threads);
    /* If threads share cores, loaders that wait less take more of them from a step that has enough
     * batches: fair scheduling really does that. */
    double tolerance = threads > before->cores ? 0.03 : 0.005;
    if (is < was * (1 - tolerance))
        fail_msg("seed %d: %s: %g samples/s became %g", (int)seed, what, was, is);
}

static void test_more_is_never_slower(void **state)
{
    for (uint64_t seed = 0; seed < (uint64_t)test_rounds(150); seed++) {
        struct any any;
        make_any(&any, seed);
        struct hr__system s = any.system;
        s.cores += 1 + (int)(seed % 3);
        never_slower(&any.system, &s, "more cores", seed);
        s = any.system;
        s.missing *= 0.7;
        never_slower(&any.system, &s, "more cache", seed);
        s = any.system;
        s.storage_bytes_per_s *= 1.5;
        s.storage_latency_s /= 1.5;
        never_slower(&any.system, &s, "a faster disk", seed);
        s = any.system;
        double step[8];
        for (int i = 0; i < 8; i++)
            step[i] = any.step[i] / 2;
        s.step_s.values = step;
        s.step_cpu_s /= 2;
        never_slower(&any.system, &s, "a faster device", seed);
    }
}

/* The rate is never above the limit of any resource, nor far below the smallest of them if that one
 * is by far the scarcest. */
static void test_bounds(void **state)
{
    for (uint64_t seed = 200; seed < 200 + (uint64_t)test_rounds(150); seed++) {
        struct any any;
        make_any(&any, seed);
        const struct hr__system *s = &any.system;
        double prepare = 0, bytes = 0, step = 0;
        for (int i = 0; i < 16; i++) {
            prepare += any.prepare[i] / 16;
            bytes += any.bytes[i] / 16;
        }
        for (int i = 0; i < 8; i++)
            step += any.step[i] / 8;
        double batch = s->batch_size, all = batch * s->ranks;
        double work = all * prepare + s->ranks * (s->batch_cpu_s + s->step_cpu_s);
        /* The missing samples are drawn at random: their files are a little larger or smaller. */
        double read_s = 0.97 * all * s->missing * bytes / s->storage_bytes_per_s;
        double least = fmax(fmax(step + s->batch_cpu_s, work / s->cores), read_s);
        if (s->workers)
            least = fmax(least, batch * prepare / s->workers);
        struct hr__prediction o = simulated(s, N);
        if (all / o.rate < least * 0.995)
            fail_msg("seed %d: %g s a batch, less than %g", (int)seed, all / o.rate, least);
    }
}

static void test_deterministic(void **state)
{
    struct any any;
    make_any(&any, 7);
    struct hr__prediction a = simulated(&any.system, 100), b = simulated(&any.system, 100);
    assert_memory_equal(&a, &b, sizeof a);
}

static void test_nothing_takes_time(void **state)
{
    struct hr__system s = plain();
    struct hr__prediction o;
    assert_int_equal(hr__simulate(&s, 10, 1, &o, NULL), 0);
    assert_true(isinf(o.rate));
}

static void test_refused(void **state)
{
    struct hr_error error = {0};
    struct hr__prediction o;
    struct hr__system s = plain();
    s.cores = 0;
    assert_int_equal(hr__simulate(&s, 10, 1, &o, &error), -EINVAL);
    assert_string_equal(error.message, "a simulated system cannot have cores: 0");
    s = plain();
    s.missing = 1.5;
    assert_int_equal(hr__simulate(&s, 10, 1, &o, NULL), -EINVAL);
    s.missing = 0.5;
    assert_int_equal(hr__simulate(&s, 10, 1, &o, NULL), -EINVAL); /* no storage */
    s = plain();
    s.prepare_s = ONE(NAN);
    assert_int_equal(hr__simulate(&s, 10, 1, &o, NULL), -EINVAL);
    s = plain();
    s.batches_ahead = 0;
    assert_int_equal(hr__simulate(&s, 10, 1, &o, NULL), -EINVAL);
    s = plain();
    s.batch_size = s.batches_ahead = 60000;
    assert_int_equal(hr__simulate(&s, 10, 1, &o, NULL), -EINVAL);
    assert_int_equal(hr__simulate(&s, 0, 1, &o, NULL), -EINVAL);
}

static void test_memory_runs_out(void **state)
{
    struct any any;
    struct hr__prediction o;
    int r = -ENOMEM;
    make_any(&any, 3);
    uint64_t before = hr__allocated(HR__TAG_STALLS);
    for (uint64_t n = 1; r; n++) {
        hr__alloc_fail_at(n, 0);
        r = hr__simulate(&any.system, 10, 1, &o, NULL);
        hr__alloc_fail_at(0, 0);
        assert_true(r == 0 || r == -ENOMEM);
        assert_int_equal(hr__allocated(HR__TAG_STALLS), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounded_by_step),
        cmocka_unit_test(test_bounded_by_workers),
        cmocka_unit_test(test_delays_need_no_core),
        cmocka_unit_test(test_threads_on_fewer_cores),
        cmocka_unit_test(test_contention),
        cmocka_unit_test(test_disturbance),
        cmocka_unit_test(test_bounded_by_storage),
        cmocka_unit_test(test_reads_one_by_one),
        cmocka_unit_test(test_reads_ahead),
        cmocka_unit_test(test_headrace_bounded_by_threads),
        cmocka_unit_test(test_no_workers),
        cmocka_unit_test(test_delivery_in_order),
        cmocka_unit_test(test_cores_are_shared),
        cmocka_unit_test(test_receiving),
        cmocka_unit_test(test_ranks_step_together),
        cmocka_unit_test(test_more_is_never_slower),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_nothing_takes_time),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
