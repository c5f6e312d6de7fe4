/*
 * Suggestions from the measurements of a simulated system: refusals, the messages if something was
 * not measured, and failed allocations.
 */
#include "measured.h"

#include "base/memory.h"
#include "close.h"
#include "stalls/model/predict.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const double step_100ms[] = {0.1}, cpu_1ms[] = {0.001};

/* ---- suggestions ---- */

static int suggested(const struct measured *m, struct hr_stalls_suggestion *found, int capacity)
{
    struct hr_error error = {0};
    found->size = sizeof *found;
    int count = hr_stalls_suggest(&m->stalls, 0.02, found, capacity, &error);
    if (count < 0)
        fail_msg("%s", error.message);
    for (int i = 0; i < count; i++) {
        const struct hr_stalls_prediction *p = &found[i].prediction;
        assert_true(p->share[2] + p->share[3] <= 0.02);
        assert_close(predicted(m, &found[i].change).rate, p->rate, 1e-9 * p->rate);
    }
    return count;
}

static void test_suggestions(void **state)
{
    struct measured m;
    struct hr_stalls_suggestion found[8];
    measured_known(&m, 4, 4, step_100ms, cpu_1ms, 1e9);
    m.stalls.hosts[0].available_bytes = (uint64_t)20e9;
    assert_int_equal(suggested(&m, found, 8), 1);
    assert_string_equal(found[0].text, "nothing");
    measured_clear(&m);

    /* Preparation: four cores take twice the time of a step, so eight are needed. Headrace's loader
     * suffices, too. */
    measured_known(&m, 4, 4, step_100ms, (const double[]){0.025}, 1e9);
    m.stalls.hosts[0].available_bytes = (uint64_t)20e9;
    assert_int_equal(suggested(&m, found, 8), 2);
    assert_string_equal(found[0].text, "Headrace's loader");
    assert_string_equal(found[1].text, "8 cores with 8 workers");
    assert_int_equal(suggested(&m, found, 1), 1);
    assert_int_equal(suggested(&m, found, 0), 0);
    measured_clear(&m);

    /* Storage: 100 of 320 samples/s, and memory for most of the dataset. */
    measured_known(&m, 4, 4, step_100ms, cpu_1ms, 10e6);
    m.stalls.hosts[0].available_bytes = (uint64_t)7.5e9;
    assert_int_equal(suggested(&m, found, 8), 2);
    assert_string_equal(found[0].text, "a cache of 6.4 GiB that never evicts");
    assert_string_equal(found[1].text, "storage 2 times as fast");
    measured_clear(&m);
}

static void test_two_at_once(void **state)
{
    struct measured m;
    struct hr_stalls_suggestion found[8];
    /* Neither the disk nor the cores alone, and hardly any memory. */
    measured_known(&m, 4, 4, step_100ms, (const double[]){0.04}, 10e6);
    m.stalls.hosts[0].available_bytes = (uint64_t)1e8;
    assert_int_equal(suggested(&m, found, 8), 2);
    assert_string_equal(found[0].text, "Headrace's loader and storage 4 times as fast");
    assert_string_equal(found[1].text, "14 cores with 14 workers and storage 4 times as fast");
    measured_clear(&m);
}

/* Headrace's loader alone leaves little waiting, for the disk: it comes before what ends all. */
static void test_relief(void **state)
{
    struct measured m;
    struct hr_stalls_suggestion found[8] = {{.size = sizeof *found}};
    struct hr_error error = {0};
    measured_known(&m, 4, 4, step_100ms, (const double[]){0.04}, 30e6);
    m.stalls.hosts[0].available_bytes = (uint64_t)1e8;
    int count = hr_stalls_suggest(&m.stalls, 0.02, found, 8, &error);
    assert_true(count >= 2);
    assert_string_equal(found[0].text, "Headrace's loader");
    double waits = found[0].prediction.share[2] + found[0].prediction.share[3];
    assert_true(waits > 0.02 && waits < 0.15);
    assert_string_equal(found[1].text, "Headrace's loader and storage 2 times as fast");
    waits = found[1].prediction.share[2] + found[1].prediction.share[3];
    assert_true(waits <= 0.02);
    measured_clear(&m);
}

/* The smallest change that suffices: only workers, if they wait for something other than a core; if
 * the loop loads by itself, cores with as many workers as needed, and not cores alone. */
static void test_least_that_does(void **state)
{
    struct measured m;
    struct hr_stalls_suggestion found[8];
    measured_known(&m, 2, 0, step_100ms, (const double[]){0.06}, 1e9);
    m.stalls.hosts[0].available_bytes = (uint64_t)20e9;
    m.stalls.hosts[0].form_count = 0;
    assert_int_equal(suggested(&m, found, 8), 1);
    assert_string_equal(found[0].text, "19 cores with 19 workers");
    found[0].change.workers = 0; /* cores alone have no effect */
    assert_close(predicted(&m, &found[0].change).rate, 32 / (0.1 + 32 * 0.06), 0.5);
    measured_clear(&m);

    /* Samples that sleep 20 ms: 640 ms a batch, of 100. */
    measured_begin(&m, 2, 1, step_100ms, (const double[]){0.0005}, 1e9);
    m.truth.delay_s = 0.02;
    measured_take(&m);
    measured_shares(&m);
    m.stalls.hosts[0].available_bytes = (uint64_t)20e9;
    m.stalls.hosts[0].form_count = 0;
    assert_int_equal(suggested(&m, found, 8), 1);
    assert_string_equal(found[0].text, "7 workers");
    measured_clear(&m);
}

/* Nothing is suggested for a wait that may not exist. */
static void test_no_change_without_knowledge(void **state)
{
    struct measured m;
    struct hr_error error = {0};
    struct hr_stalls_suggestion found[8] = {{.size = sizeof *found}};
    measured_known(&m, 4, 4, step_100ms, (const double[]){0.025}, 5e6);
    m.stalls.hosts[0].available_bytes = (uint64_t)7.5e9;
    m.stalls.summary.share[3].low = 0; /* the disk, perhaps; the CPU certainly */
    int count = hr_stalls_suggest(&m.stalls, 0.02, found, 8, &error);
    for (int i = 0; i < count; i++)
        assert_true(!strstr(found[i].text, "storage") && !strstr(found[i].text, "cache"));
    m.stalls.summary.share[2].low = m.stalls.summary.warm_share[2].low = 0;
    assert_int_equal(hr_stalls_suggest(&m.stalls, 0.02, found, 8, &error), -ENODATA);
    assert_string_equal(error.message,
                        "not known: whether training waits for data at all (the intervals of what "
                        "it waits for include 0): measure for longer (--time), or on a quieter "
                        "machine");
    measured_clear(&m);
}

/* ---- refusals ---- */

static void refused(const struct measured *m, const struct hr_stalls_change *change, int code,
                    const char *message)
{
    struct hr_error error = {0};
    struct hr_stalls_prediction p = {.size = sizeof p};
    assert_int_equal(hr_stalls_predict(&m->stalls, change, &p, &error), code);
    assert_string_equal(error.message, message);
}

static void test_refused(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_100ms, cpu_1ms, 1e9);
    change.cache_share = 1.1;
    refused(&m, &change, -EINVAL, "a cache's share of the dataset must be from 0 to 1");
    change.cache_share = 0.5;
    change.cache_bytes = 5;
    refused(&m, &change, -EINVAL, "a cache is given by its share or by its bytes, not by both");
    change = no_change();
    change.cores = -1;
    refused(&m, &change, -EINVAL, "cores, ranks and workers must be from 1 to 65536");
    change = no_change();
    change.storage_factor = NAN;
    refused(&m, &change, -EINVAL, "speeds of storage and device must be positive numbers");
    change.storage_factor = change.storage_bytes_per_s = 1;
    refused(&m, &change, -EINVAL, "storage is given by its bytes/s or by a factor, not by both");
    change = no_change();
    change.loader = HR_STALLS_LOADER_HEADRACE;
    change.form = 7;
    refused(
        &m, &change, -EINVAL,
        "there is no such form: encoded, indexed, coefficients, planes, waveform, waveform16 or "
        "auto");
    change.form = HR_FORM_PLANES;
    change.page_cache = 1;
    refused(&m, &change, -EINVAL,
            "the page cache holds files as they are: other forms need a cache of Headrace's, or a "
            "pack");
    measured_clear(&m);
}

static void test_not_measured(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_100ms, cpu_1ms, 1e9);
    m.stalls.hosts[0].form_count = 0;
    change.loader = HR_STALLS_LOADER_HEADRACE;
    refused(&m, &change, -ENODATA, "what Headrace's loader costs on these files was not measured");
    strcpy(m.stalls.hosts[0].no_forms, "the dataset has a __getitem__ of its own");
    refused(&m, &change, -ENODATA,
            "Headrace's loader cannot take the place of this one: the dataset has a __getitem__ of "
            "its own");
    change = no_change();
    m.stalls.bytes = NAN;
    change.cache_bytes = 1 << 30;
    refused(&m, &change, -ENODATA,
            "how large the dataset is was not measured, so a cache is no share of it: give the "
            "share (--cache-share), or measure with --data DIR");
    change.cache_bytes = 0;
    change.cache_share = 0.5;
    m.stalls.hosts[0].depth_count = 0;
    m.stalls.step_s[HR_STALLS_COLD] = (struct hr_interval){NAN, NAN, NAN};
    refused(&m, &change, -ENODATA,
            "not known: how fast storage is was not measured: measure again where the files can be "
            "dropped "
            "from memory (not tmpfs), with --data DIR where the loader does not name its files");
    change.cache_share = 1; /* needs none */
    assert_close(predicted(&m, &change).rate, 320, 1);
    m.stalls.step_s[HR_STALLS_HOST].value = NAN;
    refused(&m, &change, -ENODATA,
            "training without its loader was not measured, and nothing can be predicted without "
            "it: measure again, for longer (--time)");
    m.stalls.step_s[HR_STALLS_HOST].value = 0.1;
    /* Only the phases and one drain: still a prediction. */
    m.stalls.ranks[0].segment_count = m.stalls.ranks[0].drain_count = 0;
    m.stalls.prepare_cpu_s = 0.001;
    m.stalls.training_cpu_s = NAN;
    assert_close(predicted(&m, &change).rate, 320, 1);
    measured_clear(&m);
}

static void widen(struct hr_interval *interval, double factor)
{
    interval->low = interval->value / factor;
    interval->high = interval->value * factor;
}

/* Uncertain figures are no basis for a prediction, and the message says so; a figure without an
 * interval gives a prediction without one. */
static void test_hardly_known(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    struct hr_stalls_suggestion found[8] = {{.size = sizeof *found}};
    measured_make(&m, 4, 4, step_100ms, (const double[]){0.025}, 1e9);
    change.cores = 8;
    change.workers = 8;
    change.cache_share = 1;
    struct hr_interval step = m.stalls.step_s[HR_STALLS_HOST];
    widen(&m.stalls.step_s[HR_STALLS_HOST], 1000);
    refused(&m, &change, -ENODATA,
            "not known: how long a step takes was measured to no better than +-1000 %: measure for "
            "longer (--time), or on a quieter machine");
    assert_int_equal(hr_stalls_suggest(&m.stalls, 0.02, found, 8, NULL), -ENODATA);
    m.stalls.step_s[HR_STALLS_HOST] = step;
    widen(&m.stalls.summary.prepare_rate, 2);
    refused(&m, &change, -ENODATA,
            "not known: how fast the loader is was measured to no better than +-75 %: measure for "
            "longer (--time), or on a quieter machine");
    change.loader = HR_STALLS_LOADER_HEADRACE; /* does not depend on it */
    change.workers = 0;
    assert_true(predicted(&m, &change).rate > 0);
    change.loader = HR_STALLS_LOADER_SAME;
    m.stalls.summary.prepare_rate.low = m.stalls.summary.prepare_rate.high = NAN;
    struct hr_stalls_prediction p = predicted(&m, &change);
    assert_true(p.rate > 0 && isnan(p.low) && isnan(p.high));
    m.stalls.summary.prepare_rate = (struct hr_interval){160, 158, 162};
    assert_true(predicted(&m, &change).low > 0);
    widen(&m.stalls.summary.fetch_rate, 3);
    assert_true(predicted(&m, &change).low > 0); /* nothing is fetched */
    change.cache_share = 0.5;
    refused(&m, &change, -ENODATA,
            "not known: how fast storage is was measured to no better than +-133 %: measure for "
            "longer (--time), or on a quieter machine");
    measured_clear(&m);
}

/* A model that does not reproduce the measurements says so, and predicts nothing if it is far off:
 * of 320 samples/s, 260 were measured without any reason; then 143. */
static void test_misfit(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    change.cache_share = 1;
    measured_make(&m, 4, 4, step_100ms, cpu_1ms, 1e9);
    m.stalls.step_s[HR_STALLS_WARM].value = 32 / 143.0;
    refused(&m, &change, -ENODATA,
            "not known: with files in memory a batch took 0.224 s, of which the step, the loader "
            "and the cores that they share explain 0.1 s: something else slowed it. Please measure "
            "for longer (--time), or on a quieter machine");
    m.stalls.step_s[HR_STALLS_WARM].value = 32 / 350.0;
    struct hr_stalls_prediction p = predicted(&m, &change);
    assert_string_equal(p.why, "with files in memory the model gives 320 samples/s where 350 were "
                               "measured");
    m.stalls.step_s[HR_STALLS_WARM].value = 32 / 400.0;
    refused(
        &m, &change, -ENODATA,
        "not known: with files in memory the model gives 320 samples/s where 400 were measured: "
        "measure for longer (--time), or on a quieter machine");
    measured_clear(&m);
}

/* For a loader that could not be measured alone, the effect of cores is unknown. Missing
 * measurements of storage alone do not prevent a prediction. */
static void test_loader_not_measured(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    struct hr_stalls_suggestion found[8] = {{.size = sizeof *found}};
    measured_make(&m, 4, 1, step_100ms, (const double[]){0.006}, 1e9);
    struct hr_interval none = {NAN, NAN, NAN};
    m.stalls.loader = HR__LOADER_OTHER;
    m.stalls.ranks[0].drain_count = 0;
    m.stalls.prepare_cpu_s = NAN;
    m.stalls.hosts[0].form_count = m.stalls.hosts[0].depth_count = 0;
    measured_shares(&m);
    m.stalls.summary.measured[HR_STALLS_COLD] = 0;
    m.stalls.step_s[HR_STALLS_COLD] = none;
    m.stalls.summary.prepare_rate = m.stalls.summary.fetch_rate = none;
    const char *message = "not known: how fast the loader prepares was not measured (P), because "
                          "it was not run by itself; what other cores, workers or devices would "
                          "change depends on it";
    change.cores = 8;
    refused(&m, &change, -ENODATA, message);
    change.cores = 0;
    change.device_speedup = 2;
    refused(&m, &change, -ENODATA, message);
    change.device_speedup = 0;
    struct hr_stalls_prediction p = predicted(&m, &change);
    assert_close(p.rate, 32 / m.stalls.step_s[HR_STALLS_WARM].value, 2);
    assert_string_equal(p.why, "storage was not measured: all files are taken to be in memory");
    assert_int_equal(hr_stalls_suggest(&m.stalls, 0.02, found, 8, NULL), 0);
    /* Once drained, it is a loader like any other. */
    m.stalls.ranks[0].drain_count = 1;
    m.stalls.summary.prepare_rate = (struct hr_interval){166, 165, 167};
    change.workers = 2;
    assert_close(predicted(&m, &change).rate, 320, 4);
    measured_clear(&m);
}

/* Cold segments without depths: the epoch shows the speed of storage. */
static void test_storage_from_epoch(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    measured_make(&m, 4, 4, step_100ms, cpu_1ms, 10e6);
    m.stalls.hosts[0].depth_count = 0;
    change.cache_share = 0.5;
    struct hr_stalls_prediction p = predicted(&m, &change);
    assert_close(p.rate, 200, 3);
    assert_string_equal(p.why, "storage is as fast as the cold epoch shows, at least");
    measured_clear(&m);
}

static void test_versions(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    struct hr_stalls_prediction p = {.size = offsetof(struct hr_stalls_prediction, low)};
    measured_make(&m, 4, 4, step_100ms, cpu_1ms, 1e9);
    change.cache_share = 1;
    p.low = 77;
    assert_int_equal(hr_stalls_predict(&m.stalls, &change, &p, NULL), 0);
    assert_close(p.rate, 320, 1);
    assert_close(p.low, 77, 0);
    change.size = 2;
    assert_int_equal(hr_stalls_predict(&m.stalls, &change, &p, NULL), -EINVAL);
    p.size = sizeof p;
    assert_int_equal(hr_stalls_predict(&m.stalls, NULL, &p, NULL), 0);
    measured_clear(&m);
}

static void test_memory_runs_out(void **state)
{
    struct measured m;
    struct hr_stalls_change change = no_change();
    struct hr_stalls_prediction p = {.size = sizeof p};
    int r = -ENOMEM;
    measured_make(&m, 2, 1, step_100ms, cpu_1ms, 10e6);
    change.cache_share = 0.5;
    uint64_t before = hr__allocated(HR__TAG_STALLS);
    for (uint64_t n = 1; r; n += 1 + n / 3) {
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 0);
        r = hr_stalls_predict(&m.stalls, &change, &p, &error);
        hr__alloc_fail_at(0, 0);
        assert_true(r == 0 || (r == -ENOMEM && error.message[0]));
        assert_int_equal(hr__allocated(HR__TAG_STALLS), before);
    }
    measured_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suggestions),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_relief),
        cmocka_unit_test(test_least_that_does),
        cmocka_unit_test(test_no_change_without_knowledge),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_measured),
        cmocka_unit_test(test_hardly_known),
        cmocka_unit_test(test_misfit),
        cmocka_unit_test(test_loader_not_measured),
        cmocka_unit_test(test_storage_from_epoch),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
