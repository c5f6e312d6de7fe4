/*
 * Predictions from the measurements of a simulated system, compared with the changed system itself;
 * the unchanged system compared with its own phases; and the messages if something was not measured
 * or a change makes no sense.
 */
#include "measured.h"

#include "close.h"
#include "stalls/model/predict.h"

#include <math.h>
#include <string.h>

static const double step_100ms[] = {0.1}, step_10ms[] = {0.01};
static const double step_190ms[] = {0.19};
static const double cpu_10ms[] = {0.01}, cpu_4ms[] = {0.004}, cpu_1ms[] = {0.001};

/* ---- what was measured comes out again, and what was not is right ---- */

static void test_unchanged(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    /* Bounded by the step, by preparation, by storage. */
    const double steps[] = {0.4, 0.1, 0.01}, disks[] = {1e9, 1e9, 5e6};
    for (int i = 0; i < 3; i++) {
        measured_make(&m, 2, 2, &steps[i], cpu_10ms, disks[i]);
        struct hr__system truth = m.truth;
        change.cache_share = 1;
        check(&m, &change, &truth, 0.005);
        change.cache_share = 0;
        truth.missing = 1;
        check(&m, &change, &truth, 0.005);
        measured_clear(&m);
    }
}

static void test_cache_share(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_100ms, cpu_1ms, 10e6); /* 100 of 320 samples/s */
    for (int i = 0; i <= 10; i++) {
        struct hr__system truth = m.truth;
        change.cache_share = i / 10.0;
        truth.missing = 1 - change.cache_share;
        check(&m, &change, &truth, 0.01);
    }
    change.cache_share = 0.5;
    struct hr_stalls_prediction p = predicted(&m, &change);
    assert_close(p.rate, 200, 2);
    assert_close(p.reference_rate, 200, 4);
    assert_close(p.fetch_rate, 200, 4);
    assert_close(p.device_rate, 320, 1);
    assert_close(p.share[0], 200 / 320.0, 0.01);
    assert_close(p.share[3], 1 - 200 / 320.0, 0.01);
    /* The model's own 5 %, and little more: the measurements are precise. */
    assert_true(p.low <= 0.95 * p.rate && p.high >= 1.05 * p.rate && p.low > 0.93 * p.rate);
    assert_string_equal(p.why, "");
    /* The same share of the page cache misses 1.5 times as much. */
    change.page_cache = 1;
    assert_close(predicted(&m, &change).rate, 100 / 0.751, 2);
    change = no_change();
    change.cache_bytes = (uint64_t)5e9;
    assert_close(predicted(&m, &change).rate, 200, 2);
    measured_clear(&m);
}

static double page_cache_missing(double x, double dataset_bytes)
{
    double missing = NAN;
    assert_int_equal(hr__page_cache_missing(x, dataset_bytes, &missing), 0);
    return missing;
}

static void test_page_cache(void **state)
{
    /* Reads of shuffled epochs that were measured on Linux 6.18 over those of no eviction. */
    const double small = 445e6, large = 150e9;
    static const struct {
        double x, times;
    } measured[] = {{0.344, 1.35}, {0.484, 1.55}, {0.645, 1.83}, {0.795, 2.1}, {0.895, 2.67}};
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        double x = measured[i].x, expected = (1 - x) * measured[i].times;
        assert_close(page_cache_missing(x, small), expected, 0.06 * expected);
    }
    for (int is_large = 0; is_large < 2; is_large++) {
        double all = is_large ? large : small;
        assert_close(page_cache_missing(0, all), 1, 0);
        assert_close(page_cache_missing(1, all), 0, 0);
        for (double x = 0.05, before = 1; x < 1; x += 0.05) {
            double now = page_cache_missing(x, all);
            assert_true(now <= before && now > 1 - x - 1e-9);
            before = now;
        }
    }
    /* Of a page cache above a GiB the kernel lets more files become active. */
    assert_true(page_cache_missing(0.5, large) < 0.98 * page_cache_missing(0.5, small));
    assert_close(page_cache_missing(0.5, NAN), page_cache_missing(0.5, 1e13), 0);
    assert_close(page_cache_missing(0.5, 0), page_cache_missing(0.5, 1e13), 0);
}

static void test_as_it_was(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_100ms, cpu_1ms, 10e6);
    /* 8 GiB of page cache for 10 GB: 0.859 of it. */
    double missing = page_cache_missing((double)((uint64_t)8 << 30) / 1e10, 1e10);
    assert_close(missing, 0.342, 0.01);
    assert_close(predicted(&m, &change).fetch_rate, 100 / missing, 10);
    assert_close(predicted(&m, &change).rate, fmin(320, 100 / missing), 4);
    assert_string_equal(predicted(&m, &change).why, "");
    m.stalls.hosts[0].page_generations = true;
    assert_non_null(strstr(predicted(&m, &change).why, "generations (MGLRU)"));
    m.stalls.hosts[0].page_generations = false;
    m.stalls.hosts[0].available_bytes = 0;
    struct hr_stalls_prediction p = predicted(&m, &change);
    assert_close(p.rate, 100, 1);
    assert_non_null(strstr(p.why, "how much of the dataset fits into memory is not known"));
    measured_clear(&m);
}

static void test_cores_and_workers(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_begin(&m, 4, 8, step_10ms, cpu_10ms, 1e9);
    m.truth.contention = 0.05;
    measured_take(&m);
    change.cache_share = 1;
    for (int cores = 1; cores <= 4; cores++) {
        struct hr__system truth = m.truth;
        truth.cores = change.cores = cores;
        check(&m, &change, &truth, 0.02);
    }
    assert_int_equal(predicted(&m, &change).extrapolated, 0);
    change.cores = 8;
    struct hr_stalls_prediction p = predicted(&m, &change);
    assert_int_equal(p.extrapolated, 1);
    assert_string_equal(p.why, "8 cores, where the machine has 4");
    assert_close(p.rate, 800 / 1.15, 8);
    change.cores = 0;
    for (int workers = 1; workers <= 4; workers++) {
        struct hr__system truth = m.truth;
        truth.workers = change.workers = workers;
        truth.batches_ahead = 2 * workers;
        check(&m, &change, &truth, 0.02);
    }
    measured_clear(&m);
}

static void test_delays(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    /* Samples that sleep 20 ms, like those of a remote service. */
    measured_begin(&m, 2, 4, step_10ms, cpu_1ms, 1e9);
    m.truth.delay_s = 0.02;
    measured_take(&m);
    change.cache_share = 1;
    struct hr__system truth = m.truth;
    check(&m, &change, &truth, 0.005);
    change.workers = truth.workers = 8;
    truth.batches_ahead = 16;
    check(&m, &change, &truth, 0.02);
    change.cores = truth.cores = 1;
    check(&m, &change, &truth, 0.03);
    measured_clear(&m);
}

/* Another process uses half of each core: CPU time explains half the work. Fewer cores are slower
 * all the same, which a fixed delay would contradict. */
static void test_stolen_cores(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_10ms, cpu_10ms, 1e9);
    for (size_t i = 0; i < m.stalls.ranks[0].drain_count; i++)
        m.stalls.ranks[0].drains[i].cpu_s /= 2;
    change.cache_share = 1;
    for (int cores = 1; cores <= 4; cores++) {
        struct hr__system truth = m.truth;
        truth.cores = change.cores = cores;
        check(&m, &change, &truth, 0.02);
    }
    measured_clear(&m);
}

/* One worker takes 10 ms for a sample, of which its CPU time explains 5. Either it waits, and two
 * cores suffice for four workers; or others used its core, and they do not. */
static void test_one_worker(void **state)
{
    for (int taken = 0; taken < 2; taken++) {
        struct measured m;
        struct hr_stalls_change change = no_change();
        measured_make(&m, 4, 1, step_10ms, cpu_10ms, 1e9);
        for (size_t i = 0; i < m.stalls.ranks[0].drain_count; i++)
            m.stalls.ranks[0].drains[i].cpu_s /= 2;
        for (size_t i = 0; i < m.stalls.ranks[0].segment_count; i++)
            m.stalls.ranks[0].segments[i].others = taken ? 0.5 : 0;
        change.cache_share = 1;
        change.cores = 2;
        change.workers = 4;
        assert_close(predicted(&m, &change).rate, taken ? 200 : 400, 12);
        measured_clear(&m);
    }
}

/* Storage that is hidden behind the step is as fast as its depths show, not infinitely fast, even
 * if the cold phase was a little faster than the warm one. */
static void test_hidden_storage(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_100ms, cpu_1ms, 40e6);
    m.stalls.step_s[HR_STALLS_COLD].value *= 0.99;
    change.cache_share = 0;
    for (int i = 0; i < 3; i++) {
        struct hr__system truth = m.truth;
        change.storage_factor = 1.0 / (1 << i);
        truth.missing = 1;
        truth.storage_bytes_per_s *= change.storage_factor;
        truth.storage_latency_s /= change.storage_factor;
        check(&m, &change, &truth, 0.01);
    }
    measured_clear(&m);
}

/* Work hidden behind the step takes the time measured for it alone, however little the phases
 * differ: that of the loader, Headrace's or torch's, and of storage. */
static void test_hidden_loader(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    static const double fastest[] = {0.025};
    const enum hr__loader_kind loaders[] = {HR__LOADER_TORCH, HR__LOADER_HEADRACE};
    const double off[] = {0.985, 0.995, 1.005, 1.015};
    for (int i = 0; i < 8; i++) {
        measured_begin(&m, 2, 2, step_100ms, cpu_4ms, 80e6);
        m.truth.loader = loaders[i / 4];
        m.truth.storage_latency_s = 0.0001;
        measured_take(&m);
        m.stalls.step_s[HR_STALLS_WARM].value *= off[i % 4];
        m.stalls.step_s[HR_STALLS_COLD].value *= off[3 - i % 4];
        struct hr__system truth = m.truth;
        truth.step_s.values = fastest;
        change.cache_share = 1;
        change.device_speedup = 4;
        change.storage_factor = 1;
        check(&m, &change, &truth, 0.02);
        truth = m.truth;
        truth.missing = 1;
        truth.storage_bytes_per_s /= 8;
        truth.storage_latency_s *= 8;
        change.cache_share = 0;
        change.device_speedup = 1;
        change.storage_factor = 0.125;
        check(&m, &change, &truth, 0.02);
        measured_clear(&m);
    }
}

/* Eight workers on two cores were a little slower than their work explains, and on one core were
 * not. A delay that shows there would have to be long, and would dominate with few workers. */
static void test_hidden_delay(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 2, 8, step_10ms, cpu_10ms, 1e9);
    for (size_t i = 0; i < m.stalls.ranks[0].drain_count; i++)
        if (m.stalls.ranks[0].drains[i].cores == 2)
            m.stalls.ranks[0].drains[i].elapsed_s *= 1.05;
    m.stalls.step_s[HR_STALLS_WARM].value *= 1.05;
    change.cache_share = 1;
    change.workers = 2;
    struct hr__system truth = m.truth;
    truth.workers = 2;
    truth.batches_ahead = 4;
    check(&m, &change, &truth, 0.06);
    measured_clear(&m);
}

/* Workers with threads of their own use more CPU time than elapsed time. */
static void test_threads_of_workers(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 1, step_10ms, cpu_10ms, 1e9);
    for (size_t i = 0; i < m.stalls.ranks[0].drain_count; i++)
        m.stalls.ranks[0].drains[i].cpu_s *= 3;
    change.cache_share = 1;
    assert_close(predicted(&m, &change).prepare_rate, 100, 2);
    check(&m, &change, &m.truth, 0.02);
    measured_clear(&m);
}

/* A cold drain shows the CPU time of reading. */
static void test_fetching_costs_cpu(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_begin(&m, 2, 2, step_10ms, cpu_1ms, 1e9);
    m.truth.missing_cpu_s = 0.0005;
    m.truth.storage_latency_s = 0.0001;
    measured_take(&m);
    for (int i = 0; i <= 4; i++) {
        struct hr__system truth = m.truth;
        change.cache_share = i / 4.0;
        truth.missing = 1 - change.cache_share;
        check(&m, &change, &truth, 0.01);
    }
    measured_clear(&m);
}

/* A depth measured while a throttle let a burst through, and a cold phase that cores slowed less
 * than simulated: the other measurements determine storage's rate. */
static void test_storage_rate_is_known(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_10ms, cpu_1ms, 20e6);
    m.stalls.hosts[0].depths[4].bytes_per_s *= 1.14;
    m.stalls.hosts[0].depths[4].reads_per_s *= 1.14;
    struct hr__system truth = m.truth;
    truth.missing = 1;
    change.cache_share = 0;
    check(&m, &change, &truth, 0.005);
    change.cache_share = truth.missing = 0.5;
    check(&m, &change, &truth, 0.01);
    measured_clear(&m);
    measured_make(&m, 2, 2, step_100ms, cpu_10ms, 20e6);
    m.stalls.step_s[HR_STALLS_COLD].value *= 0.95;
    change.cache_share = 0;
    change.loader = HR_STALLS_LOADER_HEADRACE;
    change.cores = 16;
    assert_close(predicted(&m, &change).fetch_rate, 200, 4);
    measured_clear(&m);
}

/* A cold phase with files partly in memory shows nothing about storage. */
static void test_unverified_cold(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_10ms, cpu_1ms, 20e6);
    struct hr__system truth = m.truth;
    truth.missing = 1;
    m.stalls.step_s[HR_STALLS_COLD].value = m.stalls.step_s[HR_STALLS_WARM].value;
    m.stalls.ranks[0].drain_count--; /* the cold one */
    strcpy(m.stalls.phase_reason[HR_STALLS_COLD], "only 0 bytes came from storage");
    change.cache_share = 0;
    check(&m, &change, &truth, 0.01);
    measured_clear(&m);
}

static void test_storage_speed(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_10ms, cpu_1ms, 20e6);
    change.cache_share = 0.5;
    for (int i = 0; i < 4; i++) {
        struct hr__system truth = m.truth;
        change.storage_factor = 0.5 * (1 << i);
        truth.missing = 0.5;
        truth.storage_bytes_per_s *= change.storage_factor;
        truth.storage_latency_s /= change.storage_factor;
        check(&m, &change, &truth, 0.02);
    }
    change.storage_factor = 0;
    change.storage_bytes_per_s = 40e6;
    struct hr__system truth = m.truth;
    truth.missing = 0.5;
    truth.storage_bytes_per_s = 40e6;
    check(&m, &change, &truth, 0.02);
    measured_clear(&m);
}

/* Fewer workers that read from a throttled disk: files of different sizes take different times, and
 * the burst saved while a worker prepares is delivered at once. */
static void test_fewer_workers(void **state)
{
    static const double sizes[] = {0.25 * MEASURED_BYTES, MEASURED_BYTES, 1.75 * MEASURED_BYTES};
    static const double cpu_8ms[] = {0.008};
    const double saved_s[] = {0, 0.01, 0.03, 0.3};
    for (int i = 0; i < 4; i++) {
        struct measured m;
        struct hr_stalls_change change = no_change();
        measured_begin(&m, 8, 4, step_10ms, cpu_8ms, MEASURED_BYTES / 0.03);
        m.truth.bytes = (struct hr__values){sizes, 3};
        m.truth.storage_saved_s = saved_s[i];
        m.stalls.sizes = (double *)sizes;
        m.stalls.size_count = 3;
        measured_take(&m);
        change.cache_share = 0;
        for (int workers = 1; workers <= 4; workers *= 2) {
            struct hr__system truth = m.truth;
            truth.missing = 1;
            truth.workers = change.workers = workers;
            truth.batches_ahead = 2 * workers;
            check(&m, &change, &truth, 0.01);
        }
        measured_clear(&m);
    }
}

static void test_device_speed(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    static const double fast[] = {0.05}, fastest[] = {0.025}, slow[] = {0.2};
    const double *steps[] = {fast, fastest, slow}, speedups[] = {2, 4, 0.5};
    measured_make(&m, 2, 2, step_100ms, cpu_10ms, 1e9);
    change.cache_share = 1;
    for (int i = 0; i < 3; i++) {
        struct hr__system truth = m.truth;
        truth.step_s.values = steps[i];
        change.device_speedup = speedups[i];
        check(&m, &change, &truth, 0.01);
    }
    measured_clear(&m);
}

/* Training on the CPU: its two threads and two workers on two cores. On one core there is one
 * thread, which does the work of both: 180 ms beside the 10 ms that a step waits. */
static void test_shared_cores(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_begin(&m, 2, 2, step_100ms, cpu_1ms, 1e9);
    m.truth.step_cpu_s = 0.18;
    m.truth.step_threads = 2;
    m.truth.sharing = 0.3;
    measured_take(&m);
    change.cache_share = 1;
    struct hr__system truth = m.truth;
    check(&m, &change, &truth, 0.005);
    change.cores = truth.cores = 1;
    truth.step_threads = 1;
    truth.step_s.values = step_190ms;
    truth.sharing = 0;
    check(&m, &change, &truth, 0.005);
    /* Workers have filled the queue when the step waits. */
    assert_close(predicted(&m, &change).rate, MEASURED_BATCH / (0.19 + 0.032), 1);
    measured_clear(&m);
}

/* One training thread and two workers take turns on the cores, which costs all of them more than
 * the CPU time of each alone explains, and as much on one core. */
static void test_crowded_cores(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_begin(&m, 2, 2, step_100ms, cpu_4ms, 1e9);
    m.truth.step_cpu_s = 0.1;
    m.truth.crowding = 0.06;
    measured_take(&m);
    change.cache_share = 1;
    struct hr__system truth = m.truth;
    check(&m, &change, &truth, 0.005);
    change.cores = truth.cores = 1;
    check(&m, &change, &truth, 0.01);
    assert_close(predicted(&m, &change).rate, MEASURED_BATCH / (1.06 * 0.228), 2);
    measured_clear(&m);
}

/* A step of one thread is slower while a worker works beside it, and receiving a batch takes time:
 * both are separated, and apply to other loaders and other amounts of work. */
static void test_disturbed_step(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_begin(&m, 2, 1, step_100ms, cpu_1ms, 1e9);
    m.truth.step_cpu_s = 0.1;
    m.truth.batch_cpu_s = 0.004;
    m.truth.disturbance = 0.25;
    measured_take(&m);
    change.cache_share = 1;
    struct hr__system truth = m.truth;
    check(&m, &change, &truth, 0.005);
    change.cores = truth.cores = 1;
    check(&m, &change, &truth, 0.01);
    change.cores = 0;
    /* Headrace's loader: 64 ms of work per batch, done when the batch is requested. */
    change.loader = HR_STALLS_LOADER_HEADRACE;
    change.form = HR_FORM_ENCODED;
    assert_close(predicted(&m, &change).rate, MEASURED_BATCH / (0.1 + 0.064 * 0.2), 2);
    measured_clear(&m);
}

/* Calibration uses the median round: one disturbed round of eight changes the mean, and no
 * prediction. */
static void test_middle_round(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 2, 2, step_100ms, cpu_1ms, 1e9);
    change.cache_share = 1;
    struct hr__system truth = m.truth;
    double *warm_s = &m.stalls.step_s[HR_STALLS_WARM].value;
    m.stalls.middle_s[HR_STALLS_WARM] = *warm_s;
    *warm_s *= 1.04;
    check(&m, &change, &truth, 0.005);
    m.stalls.middle_s[HR_STALLS_WARM] = 0;
    assert_close(predicted(&m, &change).rate, measured_rate(&truth) / 1.04, 1);
    measured_clear(&m);
}

/* A change of nothing is not a prediction: rates and shares are the measured ones, whatever the
 * model gives. */
static void test_nothing_changes(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_known(&m, 2, 2, step_10ms, cpu_1ms, 20e6);
    struct hr_stalls_summary *s = &m.stalls.summary;
    s->rate[HR_STALLS_WARM] = (struct hr_interval){1777, 1700, 1800};
    s->prepare_rate = (struct hr_interval){1888, 1850, 1900};
    s->fetch_rate = (struct hr_interval){222, 220, 224};
    s->device_rate.value = 3333;
    change.page_cache = 1;
    change.cache_share = 1;
    struct hr_stalls_prediction p = predicted(&m, &change);
    assert_int_equal(p.measured, 1);
    assert_true(p.rate == 1777 && p.low == 1700 && p.high == 1800);
    assert_close(p.share[0], s->warm_share[0].value, 0);
    assert_close(p.prepare_rate, 1888, 1e-6);
    assert_close(p.device_rate, 3333, 1e-6);
    change.page_cache = 0;
    change.cache_share = 0;
    p = predicted(&m, &change);
    assert_true(p.measured && p.rate == s->rate[HR_STALLS_COLD].value);
    assert_close(p.share[3], s->share[3].value, 0);
    assert_close(p.fetch_rate, 222, 1e-6);
    change.storage_factor = 2;
    p = predicted(&m, &change);
    assert_int_equal(p.measured, 0);
    assert_close(p.fetch_rate, 444, 10);
    change.storage_factor = 0;
    change.cache_share = 0.5;
    assert_int_equal(predicted(&m, &change).measured, 0);
    s->measured[HR_STALLS_COLD] = 0;
    change.cache_share = 0;
    assert_int_equal(predicted(&m, &change).measured, 0);
    measured_clear(&m);
}

static void test_ranks(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_begin(&m, 8, 2, step_100ms, cpu_10ms, 1e9);
    m.truth.ranks = 2;
    measured_take(&m);
    change.cache_share = 1;
    struct hr__system truth = m.truth;
    check(&m, &change, &truth, 0.005);
    change.ranks = truth.ranks = 4;
    check(&m, &change, &truth, 0.02);
    assert_int_equal(predicted(&m, &change).extrapolated, 1);
    change.ranks = truth.ranks = 1;
    check(&m, &change, &truth, 0.02);
    assert_int_equal(predicted(&m, &change).extrapolated, 0);
    measured_clear(&m);
}

/* Of two equal hosts the first is simulated; rates are those of both. */
static void test_hosts(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_begin(&m, 4, 2, step_100ms, cpu_10ms, 10e6);
    m.truth.ranks = 2;
    measured_take(&m);
    m.stalls.world_size = 4; /* the other host's records may be missing */
    change.cache_share = 1;
    assert_close(predicted(&m, &change).rate, 2 * measured_rate(&m.truth), 4);
    change.cache_share = 0;
    struct hr__system truth = m.truth;
    truth.missing = 1; /* each host has a disk of its own */
    assert_close(predicted(&m, &change).rate, 2 * measured_rate(&truth), 4);
    change.cache_share = 1;
    change.ranks = 8;
    truth.missing = 0;
    truth.ranks = 4;
    struct hr_stalls_prediction p = predicted(&m, &change);
    assert_close(p.rate, 2 * measured_rate(&truth), 8);
    assert_string_equal(p.why, "8 ranks, where 4 were measured: each as fast as now, whatever they "
                               "exchange");
    change.ranks = 1;
    truth.ranks = 1;
    assert_close(predicted(&m, &change).rate, measured_rate(&truth), 2);
    measured_clear(&m);
}

static void test_no_workers(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 0, step_100ms, cpu_1ms, 1e9);
    change.cache_share = 1;
    struct hr__system truth = m.truth;
    check(&m, &change, &truth, 0.005);
    change.workers = truth.workers = 2;
    truth.batches_ahead = 4;
    check(&m, &change, &truth, 0.01);
    measured_clear(&m);
}

/* ---- Headrace's loader ---- */

static void test_headrace(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_10ms, cpu_10ms, 1e9);
    change.loader = HR_STALLS_LOADER_HEADRACE;
    change.form = HR_FORM_ENCODED;
    change.cache_share = 1;
    assert_close(predicted(&m, &change).rate, 1500, 15); /* three threads, 2 ms */
    change.page_cache = 1;                               /* and 20 us to read it */
    assert_close(predicted(&m, &change).rate, 3 / 0.00202, 15);
    change.page_cache = 0;
    change.form = HR_FORM_COEFFICIENTS;
    assert_close(predicted(&m, &change).rate, 3200, 1); /* the step */
    change.form = HR_FORM_AUTO;
    assert_close(predicted(&m, &change).rate, 3200, 1);
    change.cores = 2; /* one thread */
    assert_close(predicted(&m, &change).rate, 3200, 1);
    change.form = HR_FORM_COEFFICIENTS;
    assert_close(predicted(&m, &change).rate, 2500, 25);
    /* Half is missing: 0.4 ms and 2 ms in turn. */
    change.cache_share = 0.5;
    assert_close(predicted(&m, &change).rate, 1 / 0.00121, 10);
    /* Planes are 3.5 times as large: with little memory, coefficients are better. */
    change = no_change();
    change.loader = HR_STALLS_LOADER_HEADRACE;
    change.cores = 2;
    change.cache_bytes = (uint64_t)13.5e9;
    double rate = predicted(&m, &change).rate;
    assert_close(rate, 2500, 25);
    change.form = HR_FORM_PLANES;
    assert_true(predicted(&m, &change).rate < rate);
    measured_clear(&m);
}

static void test_headrace_measured(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_begin(&m, 2, 1, step_10ms, cpu_1ms, 20e6);
    m.truth.loader = HR__LOADER_HEADRACE;
    m.truth.batches_ahead = 2;
    m.truth.fetches_ahead = 64; /* of files */
    measured_take(&m);
    /* Samples in the loader's own cache are not read, not even from the page cache: 100 kB at 5
     * GB/s. */
    static const double cached_s[] = {0.00098};
    for (int i = 1; i <= 4; i++) {
        struct hr__system truth = m.truth;
        change.cache_share = i / 4.0;
        truth.missing = 1 - change.cache_share;
        truth.prepare_s.values = cached_s;
        truth.missing_cpu_s = 0.00002;
        check(&m, &change, &truth, 0.01);
    }
    m.stalls.loader_cache_bytes = 5e9;
    change.cache_share = -1;
    struct hr__system truth = m.truth;
    truth.missing = 0.5;
    check(&m, &change, &truth, 0.01);
    measured_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unchanged),
        cmocka_unit_test(test_cache_share),
        cmocka_unit_test(test_page_cache),
        cmocka_unit_test(test_as_it_was),
        cmocka_unit_test(test_cores_and_workers),
        cmocka_unit_test(test_delays),
        cmocka_unit_test(test_stolen_cores),
        cmocka_unit_test(test_one_worker),
        cmocka_unit_test(test_hidden_storage),
        cmocka_unit_test(test_hidden_loader),
        cmocka_unit_test(test_hidden_delay),
        cmocka_unit_test(test_threads_of_workers),
        cmocka_unit_test(test_fetching_costs_cpu),
        cmocka_unit_test(test_storage_rate_is_known),
        cmocka_unit_test(test_unverified_cold),
        cmocka_unit_test(test_storage_speed),
        cmocka_unit_test(test_fewer_workers),
        cmocka_unit_test(test_device_speed),
        cmocka_unit_test(test_shared_cores),
        cmocka_unit_test(test_crowded_cores),
        cmocka_unit_test(test_disturbed_step),
        cmocka_unit_test(test_middle_round),
        cmocka_unit_test(test_nothing_changes),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_no_workers),
        cmocka_unit_test(test_headrace),
        cmocka_unit_test(test_headrace_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
