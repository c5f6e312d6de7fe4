/* The schedule with scripted times: its order, its index sets, and when and why it ends. */
#include "../../test.h"

#include <headrace/stalls.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define D (1 << HR_STALLS_DEVICE)
#define H (1 << HR_STALLS_HOST)
#define W (1 << HR_STALLS_WARM)
#define C (1 << HR_STALLS_COLD)

static const double steady[HR_STALLS_PHASES] = {1, 1.1, 1.7, 2, 1.3};

static struct hr_stalls_schedule *create(const struct hr_stalls_schedule_options *o)
{
    struct hr_stalls_schedule *s;
    struct hr_error error;
    assert_int_equal(hr_stalls_schedule_create(&s, o, &error), 0);
    return s;
}

static struct hr_stalls_schedule_options of(int phases)
{
    struct hr_stalls_schedule_options o;
    hr_stalls_schedule_options_default(&o);
    o.phases = phases;
    return o;
}

static struct hr_stalls_segment next(struct hr_stalls_schedule *s)
{
    struct hr_stalls_segment g = {.size = sizeof g};
    assert_int_equal(hr_stalls_schedule_next(s, &g), 1);
    return g;
}

/* Writes the segments to the end as text, "D0 H0 C0 W0"; lower case: preread. */
static void run(struct hr_stalls_schedule *s, const double *times, char *text, size_t capacity)
{
    struct hr_stalls_segment g = {.size = sizeof g};
    double before = 0;
    size_t used = 0;
    text[0] = 0;
    while (hr_stalls_schedule_next(s, &g)) {
        char letter = "DHWCA"[g.phase];
        used += (size_t)snprintf(text + used, capacity - used, "%c%d ",
                                 g.preread ? letter + 32 : letter,
                                 g.phase == HR_STALLS_ALONE ? g.rank : g.set);
        assert_true(used < capacity);
        assert_int_equal(hr_stalls_schedule_end(s), HR_STALLS_GOES_ON);
        hr_stalls_schedule_report(s, times[g.phase], times[g.phase] + 0.1);
        double progress = hr_stalls_schedule_progress(s);
        assert_true(progress >= before && progress < 1);
        before = progress;
    }
    assert_true(hr_stalls_schedule_progress(s) == 1);
    assert_int_equal(hr_stalls_schedule_next(s, &g), 0);
}

static void test_order(void **state)
{
    struct hr_stalls_schedule_options o = of(D | H | W | C);
    struct hr_stalls_schedule *s = create(&o);
    char text[512];
    assert_true(hr_stalls_schedule_progress(s) == 0);
    /* A second call returns the same. */
    struct hr_stalls_segment a = next(s), b = next(s);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(a.size, sizeof a);
    assert_int_equal(a.batches, 20);
    assert_int_equal(a.settle, 2);
    assert_int_equal(a.rank, -1);
    run(s, steady, text, sizeof text);
    assert_string_equal(text, "D0 H0 C0 W0 w1 C1 H1 D1 D2 H2 C2 W2 w3 C3 H3 D3 ");
    assert_int_equal(hr_stalls_schedule_end(s), HR_STALLS_PRECISE);
    hr_stalls_schedule_destroy(&s);
    assert_null(s);
    hr_stalls_schedule_destroy(&s);
    hr_stalls_schedule_destroy(NULL);

    /* Without cold, warm always reads its files first. */
    o = of(H | W);
    s = create(&o);
    run(s, steady, text, sizeof text);
    assert_string_equal(text, "H0 w0 w1 H1 H2 w2 w3 H3 ");
    hr_stalls_schedule_destroy(&s);

    /* One phase alone. */
    o = of(H);
    s = create(&o);
    run(s, steady, text, sizeof text);
    assert_string_equal(text, "H0 H1 H2 H3 ");
    assert_int_equal(hr_stalls_schedule_end(s), HR_STALLS_PRECISE);
    hr_stalls_schedule_destroy(&s);
}

/* An older program's smaller struct gets the members that fit. */
static void test_small_segment(void **state)
{
    struct hr_stalls_schedule_options o = of(D);
    struct hr_stalls_schedule *s = create(&o);
    struct hr_stalls_segment g;
    memset(&g, 0x55, sizeof g);
    g.size = offsetof(struct hr_stalls_segment, settle);
    assert_int_equal(hr_stalls_schedule_next(s, &g), 1);
    assert_int_equal(g.size, offsetof(struct hr_stalls_segment, settle));
    assert_int_equal(g.rank, -1);
    assert_true(g.settle == 0x5555555555555555u);
    hr_stalls_schedule_destroy(&s);
}

/* Warm at 1.7 +- a little: the interval of its share computed by hand. */
static void test_precision(void **state)
{
    /* Two phases, shares of warm: host / warm. With host 1 and warm 1.25 and 2 in turn,
     * the share is 0.8, 0.5, ...: mean 0.65, s = 0.15 sqrt(n/(n-1)), so half the interval
     * is t(n-1) 0.15 / sqrt(n-1): 4 rounds: 0.2756, 6: 0.1725, 8: 0.1341, 10: 0.1131. */
    const struct {
        double precision;
        int rounds;
    } cases[] = {{0.28, 4}, {0.27, 6}, {0.173, 6}, {0.172, 8}, {0.135, 8}, {0.133, 10}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hr_stalls_schedule_options o = of(H | W);
        o.precision = cases[i].precision;
        o.max_s = 0;
        struct hr_stalls_schedule *s = create(&o);
        struct hr_stalls_segment g = {.size = sizeof g};
        int n = 0;
        for (; hr_stalls_schedule_next(s, &g); n++)
            hr_stalls_schedule_report(s, g.phase == HR_STALLS_HOST ? 1 : g.round % 2 ? 2 : 1.25, 2);
        assert_int_equal(n, 2 * cases[i].rounds);
        assert_int_equal(hr_stalls_schedule_end(s), HR_STALLS_PRECISE);
        hr_stalls_schedule_destroy(&s);
    }
}

/* Noise that never narrows enough, so that limits end it. */
static int run_noisy(struct hr_stalls_schedule *s, double all_s)
{
    struct hr_stalls_segment g = {.size = sizeof g};
    int n = 0;
    for (; hr_stalls_schedule_next(s, &g); n++)
        hr_stalls_schedule_report(s, (n * 7919 % 13) + 1, all_s);
    return n;
}

static void test_limits(void **state)
{
    /* A round of four takes 8 s: pairs of rounds end at 16, 32, 48 s; four rounds always. */
    const struct {
        double max_s;
        int rounds;
    } times[] = {{100, 12}, {96, 12}, {95.9, 10}, {48, 6}, {47, 4}, {31, 4}, {16, 4}, {1, 4}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct hr_stalls_schedule_options o = of(D | H | W | C);
        o.max_s = times[i].max_s;
        o.precision = 1e-6;
        struct hr_stalls_schedule *s = create(&o);
        assert_int_equal(run_noisy(s, 2), 4 * times[i].rounds);
        assert_int_equal(hr_stalls_schedule_end(s), HR_STALLS_LIMIT);
        hr_stalls_schedule_destroy(&s);
    }
    /* Batches: 22 a segment, 88 a round. */
    const struct {
        uint64_t max_batches;
        int rounds;
    } batches[] = {{352, 4}, {527, 4}, {528, 6}, {1000, 10}};
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        struct hr_stalls_schedule_options o = of(D | H | W | C);
        o.max_batches = batches[i].max_batches;
        o.precision = 1e-6;
        struct hr_stalls_schedule *s = create(&o);
        assert_int_equal(run_noisy(s, 0.001), 4 * batches[i].rounds);
        assert_int_equal(hr_stalls_schedule_end(s), HR_STALLS_LIMIT);
        hr_stalls_schedule_destroy(&s);
    }
    /* No limit at all, and times without information: it still ends. */
    struct hr_stalls_schedule_options o = of(D | W);
    o.max_s = 0;
    struct hr_stalls_schedule *s = create(&o);
    struct hr_stalls_segment g = {.size = sizeof g};
    int n = 0;
    for (; hr_stalls_schedule_next(s, &g); n++)
        hr_stalls_schedule_report(s, NAN, n % 2 ? -1 : INFINITY);
    assert_int_equal(n, 2000);
    assert_int_equal(hr_stalls_schedule_end(s), HR_STALLS_LIMIT);
    hr_stalls_schedule_destroy(&s);
}

/* A phase turns out to be impossible: the segment returned is then the next phase's. */
static void test_drop(void **state)
{
    struct hr_stalls_schedule_options o = of(D | H | W | C);
    struct hr_stalls_schedule *s = create(&o);
    char text[512];
    for (int i = 0; i < 2; i++) {
        enum hr_stalls_phase phase = next(s).phase;
        hr_stalls_schedule_report(s, steady[phase], 1);
    }
    struct hr_stalls_segment g = next(s);
    assert_int_equal(g.phase, HR_STALLS_COLD);
    hr_stalls_schedule_drop(s, HR_STALLS_COLD);
    /* A late report of the dropped segment changes nothing. */
    hr_stalls_schedule_report(s, 1, 1);
    g = next(s);
    assert_int_equal(g.phase, HR_STALLS_WARM);
    assert_int_equal(g.round, 0);
    assert_int_equal(g.preread, 1);
    run(s, steady, text, sizeof text);
    assert_string_equal(text, "w0 w1 H1 D1 D2 H2 w2 w3 H3 D3 ");
    hr_stalls_schedule_destroy(&s);

    /* Dropping another phase than the one returned: the segment stays. */
    s = create(&o);
    g = next(s);
    hr_stalls_schedule_drop(s, HR_STALLS_HOST);
    assert_int_equal(next(s).phase, g.phase);
    run(s, steady, text, sizeof text);
    assert_string_equal(text, "D0 C0 W0 w1 C1 D1 D2 C2 W2 w3 C3 D3 ");
    hr_stalls_schedule_destroy(&s);

    /* Nothing left. */
    o = of(D);
    s = create(&o);
    g = next(s);
    hr_stalls_schedule_drop(s, HR_STALLS_DEVICE);
    assert_int_equal(hr_stalls_schedule_next(s, &g), 0);
    assert_int_equal(hr_stalls_schedule_end(s), HR_STALLS_LIMIT);
    hr_stalls_schedule_destroy(&s);
}

static void test_alone(void **state)
{
    struct hr_stalls_schedule_options o = of(H | W);
    o.ranks = 3;
    struct hr_stalls_schedule *s = create(&o);
    char text[1024];
    run(s, steady, text, sizeof text);
    assert_string_equal(text, "H0 w0 w1 H1 H2 w2 w3 H3 a0 a1 a2 a2 a1 a0 ");
    assert_int_equal(hr_stalls_schedule_end(s), HR_STALLS_PRECISE);
    hr_stalls_schedule_destroy(&s);

    /* Index sets of their own, rounds 0 and 1. */
    s = create(&o);
    struct hr_stalls_segment g = {.size = sizeof g};
    int sets = 0, alone = 0;
    while (hr_stalls_schedule_next(s, &g)) {
        if (g.phase == HR_STALLS_ALONE) {
            assert_int_equal(g.set, 4 + alone);
            assert_int_equal(g.round, alone / 3);
            alone++;
        } else {
            assert_int_equal(g.rank, -1);
            sets = g.set;
        }
        hr_stalls_schedule_report(s, steady[g.phase], 1);
    }
    assert_int_equal(sets, 3);
    assert_int_equal(alone, 6);
    hr_stalls_schedule_destroy(&s);

    /* 16 of many ranks, the first and the last among them; the same in both passes. */
    o.ranks = 4096;
    s = create(&o);
    int ranks[64];
    alone = 0;
    while (hr_stalls_schedule_next(s, &g)) {
        if (g.phase == HR_STALLS_ALONE)
            ranks[alone++] = g.rank;
        hr_stalls_schedule_report(s, steady[g.phase], 1);
    }
    assert_int_equal(alone, 32);
    assert_int_equal(ranks[0], 0);
    assert_int_equal(ranks[15], 4095);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(ranks[i], i * 273);
        assert_int_equal(ranks[31 - i], ranks[i]);
    }
    hr_stalls_schedule_destroy(&s);

    /* If time is short, fewer ranks. Rounds take 2 x 2 s; half of the 32 s is kept for ALONE, so a
     * third pair of rounds does not fit: 4 rounds (16 s) leave 16 s, 8 segments. */
    o.ranks = 16;
    o.max_s = 32;
    o.precision = 1e-6;
    s = create(&o);
    int n = run_noisy(s, 2);
    assert_int_equal(n, 8 + 8);
    assert_int_equal(hr_stalls_schedule_end(s), HR_STALLS_LIMIT);
    hr_stalls_schedule_destroy(&s);

    /* Without phases that load there is nothing to measure alone; dropping a phase ends it. */
    o = of(D | H);
    o.ranks = 2;
    s = create(&o);
    run(s, steady, text, sizeof text);
    assert_null(strchr(text, 'a'));
    hr_stalls_schedule_destroy(&s);
    o = of(H | W);
    o.ranks = 2;
    s = create(&o);
    while (next(s).phase != HR_STALLS_ALONE)
        hr_stalls_schedule_report(s, 1, 1);
    hr_stalls_schedule_drop(s, HR_STALLS_ALONE);
    assert_int_equal(hr_stalls_schedule_next(s, &g), 0);
    hr_stalls_schedule_destroy(&s);
}

static void refused(struct hr_stalls_schedule_options o, const char *words)
{
    struct hr_stalls_schedule *s = (void *)1;
    struct hr_error error;
    assert_int_equal(hr_stalls_schedule_create(&s, &o, &error), -EINVAL);
    assert_null(s);
    assert_non_null(strstr(error.message, words));
}

static void test_refused(void **state)
{
    struct hr_stalls_schedule_options o;
    refused(of(0), "phases");
    refused(of(W | C), "phases");
    refused(of(D | 64), "phases");
    o = of(D);
    o.ranks = 0;
    refused(o, "ranks");
    o = of(D);
    o.batches = 0;
    refused(o, "batches");
    o = of(D);
    o.settle = UINT64_MAX;
    refused(o, "settle");
    o = of(D);
    o.max_s = NAN;
    refused(o, "max_s");
    o = of(D);
    o.precision = 0;
    refused(o, "precision");
    o = of(D | H | W | C);
    o.max_batches = 351;
    refused(o, "352 batches");
    o = of(D);
    o.size = 3;
    refused(o, "size");
}

static void test_names(void **state)
{
    assert_string_equal(hr_stalls_phase_name(HR_STALLS_ALONE), "alone");
    assert_string_equal(hr_stalls_phase_title(HR_STALLS_DEVICE), "batches on the device");
    assert_string_equal(hr_stalls_phase_title(HR_STALLS_ALONE), "one rank loading");
    assert_null(hr_stalls_phase_title(HR_STALLS_PHASES));
    assert_string_equal(hr_stalls_share_name(0), "compute");
    assert_string_equal(hr_stalls_share_name(3), "fetch");
    assert_null(hr_stalls_share_name(4));
    assert_null(hr_stalls_share_name(-1));
}

/* Lengths of the segments for so many seconds and batches at most. */
static void fits(const struct hr_stalls_pace *pace, double max_s, uint64_t max_batches,
                 uint64_t settle, uint64_t batches)
{
    struct hr_stalls_schedule_options o = of(D | H | W | C);
    o.max_s = max_s;
    o.max_batches = max_batches;
    assert_int_equal(hr_stalls_schedule_fit(&o, pace, NULL), 0);
    assert_int_equal(o.settle, settle);
    assert_int_equal(o.batches, batches);
}

static void test_fit(void **state)
{
    struct hr_stalls_schedule_options o = of(D | H | W | C);
    struct hr_stalls_pace p;
    struct hr_error error;
    hr_stalls_pace_default(&p);
    p.step_s = 0.1;
    p.load_s = 0.2;
    fits(&p, 0, 0, 2, 30);     /* 3 s of replay */
    fits(&p, 150, 0, 2, 30);   /* six rounds of 25 s */
    fits(&p, 60, 0, 2, 13);    /* 10 s: 1.2 s to settle, 0.7 s for each batch of four segments */
    fits(&p, 10, 0, 2, 8);     /* at least 8 */
    fits(&p, 150, 320, 2, 18); /* four rounds of four segments */
    fits(&p, 150, 3, 2, 2);    /* too few in any case: the schedule refuses them */
    p.batches = 40;
    fits(&p, 0, 0, 2, 40);
    p.batches = 8;
    p.segment_s = 0.3;
    fits(&p, 150, 0, 2, 8);
    /* Three times what is ahead, or once if the time is short; in whole units. */
    p.ahead = 10;
    fits(&p, 150, 0, 10, 30);
    fits(&p, 20, 0, 10, 10);
    p.unit = 4;
    fits(&p, 150, 0, 10, 32);
    /* One epoch: 50 batches less those that settle and are ahead, in whole units. */
    p.epoch_batches = 50;
    fits(&p, 150, 0, 10, 28);
    p.epoch_batches = 5;
    fits(&p, 150, 0, 10, 8);
    /* A loop without a device waits for one replay less. */
    hr_stalls_pace_default(&p);
    p.step_s = p.load_s = 1;
    o.phases = H | W | C;
    o.max_s = 300;
    p.segment_s = 100;
    assert_int_equal(hr_stalls_schedule_fit(&o, &p, &error), 0);
    assert_int_equal(o.batches, 13); /* (50 - 2 * 2 - 2) / 3.5, rounded up */

    p.unit = 0;
    assert_int_equal(hr_stalls_schedule_fit(&o, &p, &error), -EINVAL);
    assert_non_null(strstr(error.message, "unit"));
    p.unit = 1;
    p.load_s = NAN;
    assert_int_equal(hr_stalls_schedule_fit(&o, &p, &error), -EINVAL);
    assert_non_null(strstr(error.message, "times"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),     cmocka_unit_test(test_fit),
        cmocka_unit_test(test_order),     cmocka_unit_test(test_small_segment),
        cmocka_unit_test(test_precision), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_drop),      cmocka_unit_test(test_alone),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
