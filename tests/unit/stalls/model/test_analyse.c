/* Rates, shares and intervals from records, compared with numbers computed by hand. */
#include "../../test.h"
#include "records.h"
#include "stalls/model/inside.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-6 * (1e-9 + fabs(b))))
        fail_msg("%.12g is not %.12g", a, b);
}

static struct hr_stalls *analyse(const struct records_plan *plan)
{
    struct hr_stalls *s;
    struct hr_error error = {0};
    if (plan_analyse(plan, &s, &error))
        fail_msg("%s", error.message);
    return s;
}

static struct hr_stalls_summary summary_of(const struct hr_stalls *s)
{
    struct hr_stalls_summary m = {.size = sizeof m};
    assert_int_equal(hr_stalls_get_summary(s, &m, NULL), 0);
    return m;
}

/* 640 samples a segment of ten batches; times without noise. */
static void test_one_rank(void **state)
{
    struct records_plan p = plan_default();
    struct hr_stalls *s = analyse(&p);
    struct hr_stalls_summary m = summary_of(s);
    assert_int_equal(m.ranks, 1);
    assert_int_equal(m.cores, 16);
    assert_int_equal(m.samples, 1500000);
    assert_int_equal(m.bytes, 150000000000);
    const double rates[] = {64 / .05, 64 / .055, 64 / .085, 64 / .1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(m.measured[i], 1);
        near(m.rate[i].value, rates[i]);
        near(m.rate[i].low, rates[i]);
        near(m.rate[i].high, rates[i]);
        near(s->step_s[i].value, p.seconds[i]);
    }
    assert_int_equal(m.measured[HR_STALLS_ALONE], 0);
    assert_true(isnan(m.rate[HR_STALLS_ALONE].value));
    near(m.device_rate.value, 64 / .05);
    const double share[] = {.5, .05, .3, .15};
    for (int i = 0; i < 4; i++)
        near(m.share[i].value, share[i]);
    assert_true(m.share[0].value + m.share[1].value + m.share[2].value + m.share[3].value == 1);
    near(m.warm_share[0].value, 50.0 / 85);
    near(m.warm_share[1].value, 5.0 / 85);
    near(m.warm_share[2].value, 30.0 / 85);
    assert_true(m.warm_share[0].value + m.warm_share[1].value + m.warm_share[2].value == 1);
    assert_true(isnan(m.prepare_rate.value) && isnan(m.fetch_rate.value));
    near(s->waiting[0].value, .3);
    near(s->training_cpu_s, .02);
    assert_true(isnan(s->prepare_cpu_s));
    assert_true(isnan(s->alone_s[0].value));
    assert_string_equal(s->command, "python 'train it.py'");
    assert_string_equal(s->hosts[0].recipe, "resize");
    hr_stalls_destroy(&s);
    assert_null(s);
}

/* Drift by round, the same factor for all phases: shares do not change, times do. Four rounds of
 * 100 ms x 0.9, 1, 1.1, 1.2: mean 105 ms, s = 12.910 ms, error 6.455 ms. */
static void test_intervals(void **state)
{
    struct records_plan p = plan_default();
    const double noise[] = {-.1, 0, .1, .2};
    memcpy(p.noise, noise, sizeof noise);
    struct hr_stalls *s = analyse(&p);
    struct hr_stalls_summary m = summary_of(s);
    near(m.share[3].value, .15);
    assert_true(m.share[3].high - m.share[3].low < 1e-6);
    near(s->step_s[HR_STALLS_COLD].value, .105);
    double relative = 3.182446 * sqrt(.05 / 3 / 4) / 1.05;
    near(s->step_s[HR_STALLS_COLD].low, .105 * exp(-relative));
    near(s->step_s[HR_STALLS_COLD].high, .105 * exp(relative));
    near(m.rate[HR_STALLS_COLD].high, 64 / (.105 * exp(-relative)));
    assert_true(m.rate[HR_STALLS_COLD].low < m.rate[HR_STALLS_COLD].value);
    hr_stalls_destroy(&s);
}

/* Two ranks on two hosts: the slower one's time counts, and the samples of both. */
static void test_ranks(void **state)
{
    struct records_plan p = plan_default();
    p.world = 2;
    p.ranks_per_host = 1;
    p.phases |= 1 << HR_STALLS_ALONE;
    char *texts[2] = {plan_record(&p, 1, 1.2), plan_record(&p, 0, 1)};
    size_t lengths[2] = {strlen(texts[0]), strlen(texts[1])};
    struct hr_stalls *s;
    struct hr_error error;
    assert_int_equal(hr_stalls_analyse(&s, (const char *const *)texts, lengths, 2, &error), 0);
    assert_int_equal(s->rank_count, 2);
    assert_int_equal(s->ranks[0].rank, 0);
    assert_int_equal(s->host_count, 2);
    assert_string_equal(s->hosts[0].name, "host-0");
    struct hr_stalls_summary m = summary_of(s);
    near(s->step_s[HR_STALLS_HOST].value, .055 * 1.2);
    near(m.rate[HR_STALLS_HOST].value, 128 / (.055 * 1.2));
    near(m.share[2].value, .3);
    /* Alone: 70 ms x 1.2 against 55 ms x 1.2; without scatter the interval is a point. */
    assert_int_equal(m.measured[HR_STALLS_ALONE], 1);
    for (int i = 0; i < 2; i++) {
        near(s->alone_s[i].value, .015 * 1.2);
        near(s->alone_s[i].low, .015 * 1.2);
        assert_false(s->straggles[i]);
    }
    near(m.rate[HR_STALLS_ALONE].value, 128 / (.07 * 1.2));
    hr_stalls_destroy(&s);

    /* One of the two is missing: rates are still of both. */
    const char *one = texts[1];
    assert_int_equal(hr_stalls_analyse(&s, &one, &lengths[1], 1, &error), 0);
    m = summary_of(s);
    assert_int_equal(m.ranks, 2);
    near(m.rate[HR_STALLS_HOST].value, 128 / .055);
    assert_non_null(strstr(hr_stalls_sentence(s), "1 of 2 ranks"));
    hr_stalls_destroy(&s);
    free(texts[0]);
    free(texts[1]);
}

/* Welch's interval computed by hand: rank 0 alone takes 70 and 72 ms, replay 55 +- 1 ms. */
static void test_alone_interval(void **state)
{
    struct records_plan p = plan_default();
    p.world = 2;
    p.phases |= 1 << HR_STALLS_ALONE;
    struct hr_stalls *s = analyse(&p);
    /* Changes the record and derives again. */
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < s->ranks[i].segment_count; k++) {
            struct hr__segment_record *g = &s->ranks[i].segments[k];
            if (g->phase == HR_STALLS_ALONE)
                g->elapsed_s = g->round ? .72 : .70;
            if (g->phase == HR_STALLS_HOST)
                g->elapsed_s = g->round % 2 ? .56 : .54;
        }
    struct hr_error error;
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    /* Alone: squares of each rank 2e-6, pooled over two degrees: 2e-6, of the mean of two
     * 1e-6. Replay: squares 4e-6 over 3, of the mean of four 3.3333e-7. */
    double a = 1e-6, b = 4e-6 / 12, welch = (a + b) * (a + b) / (a * a / 2 + b * b / 3);
    near(welch, 3.310345);
    near(s->alone_s[0].value, .016);
    double t = 3.182446 * pow(2.776445 / 3.182446, (1 / 3.0 - 1 / welch) / (1 / 3.0 - 1 / 4.0));
    near(s->alone_s[0].low, .016 - t * sqrt(a + b));
    near(s->alone_s[1].high, .016 + t * sqrt(a + b));
    hr_stalls_destroy(&s);
}

static void test_stragglers(void **state)
{
    struct records_plan p = plan_default();
    p.world = 4;
    struct hr_stalls *s = analyse(&p);
    for (size_t k = 0; k < s->ranks[2].segment_count; k++)
        for (int b = 0; b < 10; b++)
            s->ranks[2].segments[k].wait_s[b] *= 1.5 + 0.01 * (double)(k % 3);
    struct hr_error error;
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(s->straggles[i], i == 2);
    assert_non_null(strstr(s->sentence, "Rank 2 waits longer for data than the others"));
    hr_stalls_destroy(&s);
}

/* Cold segments that were not verified: the figures stay, marked, with the reason. */
static void test_unverified(void **state)
{
    struct records_plan p = plan_default();
    p.verified[HR_STALLS_COLD] = 0;
    struct hr_stalls *s = analyse(&p);
    struct hr_stalls_summary m = summary_of(s);
    assert_int_equal(m.measured[HR_STALLS_COLD], 0);
    assert_int_equal(m.measured[HR_STALLS_WARM], 1);
    near(m.rate[HR_STALLS_COLD].value, 640);
    near(m.share[3].value, .15);
    assert_string_equal(s->phase_reason[HR_STALLS_COLD], "nothing was read");
    near(s->waiting[0].value, .3);

    /* If some rounds were verified, only those count, and the phase was measured. */
    for (size_t k = 0; k < s->ranks[0].segment_count; k++) {
        struct hr__segment_record *g = &s->ranks[0].segments[k];
        if (g->phase == HR_STALLS_COLD && g->round != 1)
            g->verified = 1;
        if (g->phase == HR_STALLS_COLD && g->round == 1)
            g->elapsed_s = 77;
    }
    struct hr_error error;
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    assert_int_equal(s->summary.measured[HR_STALLS_COLD], 1);
    assert_string_equal(s->phase_reason[HR_STALLS_COLD], "");
    near(s->step_s[HR_STALLS_COLD].value, .1);
    near(s->summary.share[3].value, .15);
    hr_stalls_destroy(&s);

    /* A reason without a failed round means not verified, too. */
    p.verified[HR_STALLS_COLD] = 1;
    p.why[HR_STALLS_COLD] = "a network file system";
    s = analyse(&p);
    assert_int_equal(s->summary.measured[HR_STALLS_COLD], 0);
    hr_stalls_destroy(&s);
}

/* If a phase is missing, a neighbour's share includes its part. */
static void test_missing_phases(void **state)
{
    struct records_plan p = plan_default();
    p.phases &= ~(1 << HR_STALLS_DEVICE);
    p.why[HR_STALLS_DEVICE] = "it failed";
    struct hr_stalls *s = analyse(&p);
    near(s->summary.device_rate.value, 64 / .055);
    near(s->summary.share[0].value, .55);
    assert_true(isnan(s->summary.share[1].value));
    near(s->summary.share[2].value, .3);
    hr_stalls_destroy(&s);

    p.device = "cpu";
    s = analyse(&p);
    assert_true(s->on_cpu);
    assert_true(s->summary.share[1].value == 0 && s->summary.warm_share[1].high == 0);
    near(s->summary.share[0].value, .55);
    hr_stalls_destroy(&s);

    p = plan_default();
    p.phases = 1 << HR_STALLS_DEVICE | 1 << HR_STALLS_WARM;
    p.verified[HR_STALLS_WARM] = 0;
    s = analyse(&p);
    assert_true(isnan(s->summary.share[0].value));
    near(s->summary.warm_share[0].value, 50.0 / 85);
    assert_true(isnan(s->summary.warm_share[1].value));
    near(s->summary.warm_share[2].value, 35.0 / 85);
    assert_int_equal(s->summary.measured[HR_STALLS_WARM], 0);
    hr_stalls_destroy(&s);

    p.phases = 1 << HR_STALLS_HOST | 1 << HR_STALLS_COLD;
    s = analyse(&p);
    near(s->summary.share[2].value, .45);
    assert_true(isnan(s->summary.share[3].value));
    hr_stalls_destroy(&s);
}

/* P: two ranks at 16 cores, 1000/2 + 1000/4 = 750 samples/s, and 800; fewer cores do not
 * count. F: depth 8 (two ranks of four workers), between 4 and 16 reads in flight straight
 * in the logarithm: 400 MB/s, of 100 kB each: 4000 samples/s. */
static void test_rates(void **state)
{
    struct records_plan p = plan_default();
    p.world = 2;
    p.depths = "[{\"depth\": 1, \"bytes_per_s\": 1e8, \"reads_per_s\": 1000},"
               "{\"depth\": 4, \"bytes_per_s\": 2e8, \"reads_per_s\": 2000},"
               "{\"depth\": 16, \"bytes_per_s\": 6e8, \"reads_per_s\": 6000}]";
    p.drains = "[{\"phase\": \"warm\", \"cores\": 16, \"samples\": 1000, \"elapsed_s\": 2,"
               " \"cpu_s\": 10, \"read_bytes\": 0},"
               "{\"phase\": \"warm\", \"cores\": 4, \"samples\": 1000, \"elapsed_s\": 8,"
               " \"cpu_s\": 14, \"read_bytes\": null}]";
    char *texts[2];
    texts[0] = plan_record(&p, 0, 1);
    p.depths = "[]";
    p.drains = "[{\"phase\": \"warm\", \"cores\": 16, \"samples\": 1000, \"elapsed_s\": 4}]";
    texts[1] = plan_record(&p, 1, 1);
    size_t lengths[2] = {strlen(texts[0]), strlen(texts[1])};
    struct hr_stalls *s;
    struct hr_error error = {0};
    assert_int_equal(hr_stalls_analyse(&s, (const char *const *)texts, lengths, 2, &error), 0);
    assert_int_equal(s->host_count, 1);
    near(s->summary.prepare_rate.value, 750);
    assert_true(isnan(s->summary.prepare_rate.low));
    near(s->summary.fetch_rate.value, 4000);
    near(s->prepare_cpu_s, 24 / 2000.0);
    hr_stalls_destroy(&s);
    free(texts[0]);
    free(texts[1]);

    /* Storage alone: intervals from the parts of this depth and of those that were as fast; a depth
     * with fewer reads and half the rate does not count. */
    p = plan_default();
    p.depths =
        "[{\"depth\": 1, \"bytes_per_s\": 1e8, \"reads_per_s\": 1e3, \"parts\": [3e8, 1]},"
        "{\"depth\": 4, \"bytes_per_s\": 2e8, \"reads_per_s\": 2e3, \"parts\": [1.9e8, 2.1e8]},"
        "{\"depth\": 16, \"bytes_per_s\": 2.1e8, \"reads_per_s\": 2e3, \"parts\": [2e8]}]";
    s = analyse(&p);
    near(s->summary.fetch_rate.value, 2000);
    near(s->summary.fetch_rate.low, 2000 * exp(-4.302653 * 0.1 / sqrt(3) / 2));
    near(s->summary.fetch_rate.high, 2000 * exp(4.302653 * 0.1 / sqrt(3) / 2));
    hr_stalls_destroy(&s);

    /* Three drains have an interval; CPU times that workers report take precedence over drains. */
    p = plan_default();
    p.drains = "[{\"phase\": \"warm\", \"cores\": 16, \"samples\": 90, \"elapsed_s\": 1},"
               "{\"phase\": \"warm\", \"cores\": 16, \"samples\": 100, \"elapsed_s\": 1},"
               "{\"phase\": \"warm\", \"cores\": 16, \"samples\": 110, \"elapsed_s\": 1}]";
    p.preparation = "[{\"phase\": \"warm\", \"samples\": 64, \"cpu_s\": 0.64, \"wall_s\": 0.7},"
                    "{\"phase\": \"cold\", \"samples\": 64, \"cpu_s\": 0.9, \"wall_s\": 0.9}]";
    s = analyse(&p);
    near(s->summary.prepare_rate.value, 100);
    near(s->summary.prepare_rate.low, 100 * exp(-4.302653 * 10 / sqrt(3) / 100));
    near(s->prepare_cpu_s, .01);
    hr_stalls_destroy(&s);

    /* A row with only a duration leaves the CPU time to the other rows, and to drains. */
    p.preparation = "[{\"phase\": \"warm\", \"samples\": 64, \"cpu_s\": null, \"wall_s\": 0.7},"
                    "{\"phase\": \"cold\", \"samples\": 64, \"cpu_s\": 0.96, \"wall_s\": 2}]";
    s = analyse(&p);
    near(s->prepare_cpu_s, .015);
    hr_stalls_destroy(&s);
    p.preparation = "[{\"phase\": \"warm\", \"samples\": 64, \"cpu_s\": null, \"wall_s\": 0.7}]";
    p.drains = "[{\"phase\": \"warm\", \"cores\": 16, \"samples\": 90, \"elapsed_s\": 1,"
               " \"cpu_s\": 1.8}]";
    s = analyse(&p);
    near(s->prepare_cpu_s, .02);
    hr_stalls_destroy(&s);
}

/* F from cold drains. */
static void test_cold_drains(void **state)
{
    struct records_plan p = plan_default();
    const char *warm = "{\"phase\": \"warm\", \"cores\": 16, \"samples\": 1000, \"elapsed_s\": 1}";
    char drains[512];
    const char *depths = "[{\"depth\": 4, \"bytes_per_s\": 5e7, \"reads_per_s\": 500}]";
    /* 500 samples/s cold, 1000 warm; read in blocks, 101,034 2/3 bytes a sample. */
    snprintf(drains, sizeof drains,
             "[%s, {\"phase\": \"cold\", \"cores\": 16, \"samples\": 1000, \"elapsed_s\": 2, "
             "\"read_bytes\": 101034667}]",
             warm);
    p.drains = drains;
    struct hr_stalls *s = analyse(&p);
    near(s->summary.fetch_rate.value, 1 / (1 / 500.0 - 1 / 1000.0));
    hr_stalls_destroy(&s);
    p.kind = "headrace";
    s = analyse(&p);
    near(s->summary.fetch_rate.value, 500);
    hr_stalls_destroy(&s);
    p.kind = "torch";
    /* Storage alone gives 500, too: no cold drain is faster, so storage's rate stays. */
    p.depths = depths;
    s = analyse(&p);
    near(s->summary.fetch_rate.value, 500);
    hr_stalls_destroy(&s);
    /* A drain within the variation of storage alone does not count either: the larger of two
     * measurements of the same disk is only the luckier one. */
    p.depths = "[{\"depth\": 4, \"bytes_per_s\": 5e7, \"reads_per_s\": 500, "
               "\"parts\": [4.8e7, 5.2e7, 4.8e7, 5.2e7]}]";
    snprintf(drains, sizeof drains,
             "[%s, {\"phase\": \"cold\", \"cores\": 16, \"samples\": 1000, \"elapsed_s\": 1.92, "
             "\"read_bytes\": 101034667}]",
             warm);
    s = analyse(&p);
    near(s->summary.fetch_rate.value, 500);
    hr_stalls_destroy(&s);
    p.depths = depths;
    /* A drain that was faster and really read its bytes is better evidence; one that did not read
     * them is none. */
    snprintf(drains, sizeof drains,
             "[%s, {\"phase\": \"cold\", \"cores\": 16, \"samples\": 1000, \"elapsed_s\": 1.25, "
             "\"read_bytes\": 101034667}]",
             warm);
    s = analyse(&p);
    near(s->summary.fetch_rate.value, 800);
    hr_stalls_destroy(&s);
    snprintf(drains, sizeof drains,
             "[%s, {\"phase\": \"cold\", \"cores\": 16, \"samples\": 1000, \"elapsed_s\": 1.25, "
             "\"read_bytes\": 50000000}]",
             warm);
    s = analyse(&p);
    near(s->summary.fetch_rate.value, 500);
    hr_stalls_destroy(&s);
    p.depths = "[]";
    s = analyse(&p);
    assert_true(isnan(s->summary.fetch_rate.value));
    hr_stalls_destroy(&s);
}

/* Files that were learned, not named: bytes belong to all samples of the set, including those that
 * settle and are read ahead, not only to the timed ones. Without the number of samples, a sample's
 * bytes are unknown. */
static void test_learned_files(void **state)
{
    struct records_plan p = plan_default();
    struct hr_error error;
    p.depths = "[{\"depth\": 4, \"bytes_per_s\": 8e7, \"reads_per_s\": 1000}]";
    struct hr_stalls *s = analyse(&p);
    s->bytes = NAN;
    s->size_count = 0;
    for (size_t i = 0; i < s->ranks[0].segment_count; i++) {
        struct hr__segment_record *g = &s->ranks[0].segments[i];
        g->expected_bytes = g->phase == HR_STALLS_COLD ? 3 * 640 * 80e3 : NAN;
        g->expected_samples = 3 * 640;
    }
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    near(hr__mean_bytes(s), 80e3);
    near(hr__dataset_bytes(s), 1.5e6 * 80e3);
    near((double)s->summary.bytes, 1.5e6 * 80e3);
    near(s->summary.fetch_rate.value, 1000);
    for (size_t i = 0; i < s->ranks[0].segment_count; i++)
        s->ranks[0].segments[i].expected_samples = NAN;
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    assert_true(isnan(hr__mean_bytes(s)) && isnan(s->summary.fetch_rate.value));
    assert_int_equal(s->summary.bytes, 0);
    hr_stalls_destroy(&s);
}

/* Disturbed rounds count only if fewer than four others are left. */
static void test_disturbed(void **state)
{
    struct records_plan p = plan_default();
    struct hr_error error;
    p.rounds = 6;
    struct hr_stalls *s = analyse(&p);
    for (size_t k = 0; k < s->ranks[0].segment_count; k++) {
        struct hr__segment_record *g = &s->ranks[0].segments[k];
        if (g->phase == HR_STALLS_COLD && g->round >= 4) {
            g->disturbed = true;
            g->elapsed_s *= 10;
        }
    }
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    near(s->summary.share[0].value, .5);
    near(s->step_s[HR_STALLS_COLD].value, .1);
    for (size_t k = 0; k < s->ranks[0].segment_count; k++)
        if (s->ranks[0].segments[k].phase == HR_STALLS_COLD)
            s->ranks[0].segments[k].disturbed |= s->ranks[0].segments[k].round == 3;
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    near(s->step_s[HR_STALLS_COLD].value, (4 * .1 + 2 * 1) / 6);
    /* A round that was not verified is not one of the four. */
    for (size_t k = 0; k < s->ranks[0].segment_count; k++) {
        struct hr__segment_record *g = &s->ranks[0].segments[k];
        if (g->phase == HR_STALLS_COLD) {
            g->disturbed = g->round >= 4;
            g->verified = g->round != 0;
        }
    }
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    near(s->step_s[HR_STALLS_COLD].value, (3 * .1 + 2 * 1) / 5);
    hr_stalls_destroy(&s);
}

/* Cold was verified in one round and warm in another: what they have in common is used. */
static void test_rounds_apart(void **state)
{
    struct records_plan p = plan_default();
    p.rounds = 2;
    struct hr_stalls *s = analyse(&p);
    struct hr_error error;
    for (size_t k = 0; k < s->ranks[0].segment_count; k++) {
        struct hr__segment_record *g = &s->ranks[0].segments[k];
        if ((g->phase == HR_STALLS_COLD && g->round == 0) ||
            (g->phase == HR_STALLS_WARM && g->round == 1))
            g->verified = 0;
    }
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    near(s->summary.share[0].value, .5);
    near(s->summary.share[2].value, .45);
    assert_true(isnan(s->summary.share[3].value));
    near(s->summary.warm_share[2].value, 30.0 / 85);
    assert_non_null(strstr(s->sentence, "a share of the time that is not known yet"));
    /* No round in common. */
    for (size_t k = 0; k < s->ranks[0].segment_count; k++) {
        struct hr__segment_record *g = &s->ranks[0].segments[k];
        if (g->phase <= HR_STALLS_HOST)
            g->round = 7;
    }
    assert_int_equal(hr__stalls_derive(s, &error), -ENODATA);
    assert_non_null(strstr(error.message, "no round has both"));
    hr_stalls_destroy(&s);
}

static void refused(const struct records_plan *p, int code, const char *words)
{
    struct hr_stalls *s = (void *)1;
    struct hr_error error = {0};
    assert_int_equal(plan_analyse(p, &s, &error), code);
    assert_null(s);
    if (!strstr(error.message, words))
        fail_msg("%s", error.message);
}

static void test_too_little(void **state)
{
    struct records_plan p = plan_default();
    p.rounds = 0;
    p.ended = "script";
    refused(&p, -ENODATA, "the run ended: script");
    p = plan_default();
    p.phases = 1 << HR_STALLS_WARM;
    p.why[HR_STALLS_HOST] = "batches are on the device";
    refused(&p, -ENODATA, "host: batches are on the device");
    p = plan_default();
    p.phases = 3;
    refused(&p, -ENODATA, "no segment with loading");
    /* One round is little, but something. */
    p = plan_default();
    p.rounds = 1;
    struct hr_stalls *s = analyse(&p);
    near(s->summary.share[3].value, .15);
    assert_true(isnan(s->summary.share[3].low));
    assert_true(isnan(s->step_s[0].low));
    hr_stalls_destroy(&s);
}

/* Records of different runs. */
static void test_strangers(void **state)
{
    struct records_plan p = plan_default();
    struct hr_stalls *s;
    struct hr_error error;
    p.world = 3;
    char *a = plan_record(&p, 0, 1), *b = plan_record(&p, 1, 1);
    p.run = "run-2";
    char *other = plan_record(&p, 2, 1);
    p.run = "run-1";
    p.world = 4;
    char *wider = plan_record(&p, 3, 1);
    p.world = 3;
    p.phases = 13;
    char *apart = plan_record(&p, 2, 1);
    p.phases = 15;
    p.rounds = 2;
    char *shorter = plan_record(&p, 2, 1);
    const struct {
        const char *third;
        const char *words;
    } cases[] = {
        {b, "rank 1 is there twice, in record 2 and record 3"},
        {other, "record 3 is of run run-2, record 1 of run run-1"},
        {wider, "record 3 is of a run of 4 ranks"},
        {apart, "segment 1 was host of round 0 on rank 0 and cold of round 0 on rank 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *three[] = {a, b, cases[i].third};
        size_t lengths[] = {strlen(a), strlen(b), strlen(three[2])};
        assert_int_equal(hr_stalls_analyse(&s, three, lengths, 3, &error), -EINVAL);
        assert_null(s);
        if (!strstr(error.message, cases[i].words))
            fail_msg("%s", error.message);
    }
    /* One rank ended earlier: only segments of all ranks count. */
    const char *three[] = {a, b, shorter};
    size_t lengths[] = {strlen(a), strlen(b), strlen(shorter)};
    assert_int_equal(hr_stalls_analyse(&s, three, lengths, 3, &error), 0);
    near(s->summary.share[3].value, .15);
    hr_stalls_destroy(&s);
    assert_int_equal(hr_stalls_analyse(&s, three, lengths, 0, &error), -EINVAL);
    free(a), free(b), free(other), free(wider), free(apart), free(shorter);
}

/* The largest possible run. */
static void test_4096_ranks(void **state)
{
    struct records_plan p = plan_default();
    p.world = 4096;
    p.rounds = 2;
    p.batches = 2;
    /* So large that suggestions are not searched, which takes long. */
    p.batch_size = 1 << 17;
    p.notes = "[\"the same everywhere\"]";
    struct hr_stalls *s = analyse(&p);
    assert_int_equal(s->rank_count, 4096);
    assert_int_equal(s->host_count, 512);
    assert_int_equal(s->note_count, 1);
    near(s->summary.rate[HR_STALLS_COLD].value, 4096.0 * (1 << 17) / .1);
    near(s->waiting[4095].value, .3);
    hr_stalls_destroy(&s);
    p.world = 4097;
    refused(&p, -EINVAL, "1 to 4096");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),       cmocka_unit_test(test_intervals),
        cmocka_unit_test(test_ranks),          cmocka_unit_test(test_alone_interval),
        cmocka_unit_test(test_stragglers),     cmocka_unit_test(test_unverified),
        cmocka_unit_test(test_missing_phases), cmocka_unit_test(test_rates),
        cmocka_unit_test(test_cold_drains),    cmocka_unit_test(test_too_little),
        cmocka_unit_test(test_strangers),      cmocka_unit_test(test_learned_files),
        cmocka_unit_test(test_disturbed),      cmocka_unit_test(test_rounds_apart),
        cmocka_unit_test(test_4096_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
