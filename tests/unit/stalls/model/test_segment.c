/*
 * What a segment proves, as a table of cases: cold and warm segments, other load, pauses, notes;
 * and which segments run again.
 */
#include "../../test.h"

#include <headrace/stalls.h>

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define MB 1e6

/* ---- cold and warm ---- */

struct proof_case {
    const char *name;
    enum hr_stalls_phase phase;
    enum hr_stalls_reads reads;
    double read, expected, cold, dropped, resident;
    bool in_memory, network, unsettled;
    int verified;
    const char *reason; /* a part of it */
};

static const struct proof_case proofs[] = {
    {.name = "replay", .phase = HR_STALLS_HOST, .verified = -1},
    {.name = "cold", .phase = HR_STALLS_COLD, .read = 91 * MB, .expected = 100 * MB, .verified = 1},
    {.name = "too little",
     .phase = HR_STALLS_COLD,
     .read = 89 * MB,
     .expected = 100 * MB,
     .reason = "only 89.0 of 100.0 MB"},
    {.name = "little, of files known as a whole",
     .phase = HR_STALLS_COLD,
     .reads = HR_STALLS_READS_ESTIMATED,
     .read = 51 * MB,
     .expected = 100 * MB,
     .verified = 1},
    {.name = "less, of files known as a whole",
     .phase = HR_STALLS_COLD,
     .reads = HR_STALLS_READS_ESTIMATED,
     .read = 49 * MB,
     .expected = 100 * MB,
     .reason = "came from storage"},
    {.name = "over the network",
     .phase = HR_STALLS_COLD,
     .read = 0,
     .expected = 100 * MB,
     .network = true,
     .reason = "nfs is a network file system"},
    {.name = "over the network, counted",
     .phase = HR_STALLS_COLD,
     .read = 100 * MB,
     .expected = 100 * MB,
     .network = true,
     .verified = 1},
    {.name = "tmpfs",
     .phase = HR_STALLS_COLD,
     .read = 0,
     .expected = 0,
     .in_memory = true,
     .reason = "nothing is ever fetched"},
    {.name = "mapped by another",
     .phase = HR_STALLS_COLD,
     .read = 94 * MB,
     .expected = 100 * MB,
     .dropped = 100 * MB,
     .resident = 6 * MB,
     .reason = "6.0 of 100.0 MB stayed in memory"},
    {.name = "hardly anything stayed",
     .phase = HR_STALLS_COLD,
     .read = 96 * MB,
     .expected = 100 * MB,
     .dropped = 100 * MB,
     .resident = 4 * MB,
     .verified = 1},
    {.name = "no counters",
     .phase = HR_STALLS_COLD,
     .read = NAN,
     .expected = 100 * MB,
     .reason = "I/O counters"},
    {.name = "warm", .phase = HR_STALLS_WARM, .read = 4 * MB, .expected = 100 * MB, .verified = 1},
    {.name = "warm beside other reads",
     .phase = HR_STALLS_WARM,
     .read = 1 * MB,
     .expected = 1000,
     .verified = 1},
    {.name = "not warm",
     .phase = HR_STALLS_WARM,
     .read = 6 * MB,
     .expected = 100 * MB,
     .reason = "6.0 MB came from storage though the files, 100.0 MB"},
    {.name = "one rank loads",
     .phase = HR_STALLS_ALONE,
     .read = 6 * MB,
     .expected = 100 * MB,
     .reason = "had been read before"},
    {.name = "cold, bytes not known",
     .phase = HR_STALLS_COLD,
     .read = 1,
     .expected = NAN,
     .verified = 1},
    {.name = "nothing read, bytes not known",
     .phase = HR_STALLS_COLD,
     .read = 0,
     .expected = NAN,
     .reason = "0.0 MB"},
    {.name = "warm by the cold ones",
     .phase = HR_STALLS_WARM,
     .read = 4 * MB,
     .expected = NAN,
     .cold = 100 * MB,
     .verified = 1},
    {.name = "not warm by the cold ones",
     .phase = HR_STALLS_WARM,
     .read = 6 * MB,
     .expected = NAN,
     .cold = 100 * MB,
     .reason = "6.0 MB"},
    {.name = "files not known",
     .phase = HR_STALLS_WARM,
     .reads = HR_STALLS_READS_UNKNOWN,
     .reason = "see --data"},
    {.name = "perhaps the network",
     .phase = HR_STALLS_WARM,
     .reads = HR_STALLS_READS_UNKNOWN,
     .network = true,
     .reason = "perhaps come over the network"},
    {.name = "samples in memory",
     .phase = HR_STALLS_WARM,
     .reads = HR_STALLS_READS_NOTHING,
     .read = 1 * MB,
     .verified = 1},
    {.name = "in memory, but read",
     .phase = HR_STALLS_WARM,
     .reads = HR_STALLS_READS_NOTHING,
     .read = 2 * MB,
     .reason = "something unknown"},
    {.name = "not settled",
     .phase = HR_STALLS_COLD,
     .read = 100 * MB,
     .expected = 100 * MB,
     .unsettled = true,
     .reason = "prepared before"},
};

static void cold_and_warm_are_proved(void **state)
{
    for (size_t i = 0; i < sizeof proofs / sizeof *proofs; i++) {
        const struct proof_case *c = &proofs[i];
        struct hr_stalls_evidence e;
        struct hr_error error;
        hr_stalls_evidence_default(&e);
        e.phase = c->phase;
        e.reads = (int)c->reads;
        e.read_bytes = c->read;
        e.expected_bytes = c->expected;
        e.cold_bytes = c->cold;
        e.bytes = c->dropped;
        e.resident_bytes = c->resident;
        e.in_memory = c->in_memory;
        e.network = c->network;
        e.unsettled = c->unsettled;
        strcpy(e.filesystem, "nfs");
        assert_int_equal(hr_stalls_judge(&e, &error), 0);
        if (e.verified != c->verified || (c->reason ? !strstr(e.reason, c->reason) : *e.reason))
            fail_msg("%s: %d, \"%s\"", c->name, e.verified, e.reason);
        assert_true(isnan(e.others) && !e.disturbed);
    }
}

static void another_version_is_judged(void **state)
{
    struct hr_stalls_evidence e;
    struct hr_error error;
    hr_stalls_evidence_default(&e);
    e.size = 1;
    assert_int_equal(hr_stalls_judge(&e, &error), -EINVAL);
    /* A program that does not know the conclusions yet. */
    hr_stalls_evidence_init(&e, offsetof(struct hr_stalls_evidence, verified));
    e.verified = 7;
    e.phase = HR_STALLS_COLD;
    assert_int_equal(hr_stalls_judge(&e, &error), 0);
    assert_int_equal(e.verified, 7);
}

/* ---- others ---- */

static const struct load_case {
    double load_s, busy, steal, run, delay;
    double others;
    int disturbed;
} loads[] = {
    {10, 9, 0, 9, 5, 0, 0},              /* the run itself wants more cores than it has */
    {10, 9, 0, 5, 5, 0.2, 1},            /* another process */
    {10, 9, 0, 5, 0.1, 0.2, 0},          /* on cores that the run does not need */
    {10, 9, 0, 5, NAN, 0.2, 1},          /* the kernel does not count delays */
    {10, 6, 0, 4.5, 5, 0.075, 0},        /* too little */
    {10, 5, 4, 5, 0.1, 0.2, 1},          /* the hypervisor: no thread waits for it */
    {10, NAN, NAN, 5, 5, NAN, 0},        /* the kernel does not report it */
    {10, 5, 0, 7, 0, 0, 0},              /* counted in different units */
    {0.05, 0.05, 0, 0.04, 0.05, NAN, 0}, /* too short for the kernel's clock */
    {0.05, 0.09, 0, 0.04, 0.05, 0.5, 1},
    {1, 40, 0, 1, 1, 1, 1}, /* never more than all of the time */
};

static void others_disturb(void **state)
{
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        const struct load_case *c = &loads[i];
        struct hr_stalls_evidence e;
        struct hr_error error;
        hr_stalls_evidence_default(&e);
        e.phase = HR_STALLS_HOST;
        e.cores = 2;
        e.load_s = c->load_s;
        e.busy_s = c->busy;
        e.steal_s = c->steal;
        e.run_s = c->run;
        e.run_delay_s = c->delay;
        assert_int_equal(hr_stalls_judge(&e, &error), 0);
        bool same = isnan(c->others) ? isnan(e.others) : fabs(e.others - c->others) < 1e-9;
        if (!same || e.disturbed != c->disturbed)
            fail_msg("case %zu: %g, %d", i, e.others, e.disturbed);
    }
}

/* ---- pauses ---- */

#define STEPS 40

static void pauses_are_found(void **state)
{
    double wait[STEPS] = {0}, batch[STEPS], pause[STEPS];
    for (int i = 0; i < STEPS; i++)
        batch[i] = 0.05;
    assert_int_equal(hr_stalls_pauses(wait, batch, STEPS, 0.05, pause), 0);
    batch[19] += 3;
    batch[39] += 3;
    assert_int_equal(hr_stalls_pauses(wait, batch, STEPS, 0.05, pause), 2);
    for (int i = 0; i < STEPS; i++)
        assert_true(fabs(pause[i] - (i == 19 || i == 39 ? 3 : 0)) < 1e-9);
    /* Time blocked in next() is not a pause. */
    wait[19] = wait[39] = 3;
    assert_int_equal(hr_stalls_pauses(wait, batch, STEPS, 0.05, pause), 0);
    /* The host runs ahead of its accelerator and waits for it at every tenth step. */
    for (int i = 0; i < STEPS; i++) {
        wait[i] = 0;
        batch[i] = i % 10 == 9 ? 1 : 0.011;
    }
    assert_int_equal(hr_stalls_pauses(wait, batch, STEPS, 0.1, pause), 0);
    /* Work at every third step belongs to the steps. */
    for (int i = 0; i < STEPS; i++)
        batch[i] = i % 3 ? 0.05 : 1;
    assert_int_equal(hr_stalls_pauses(wait, batch, STEPS, 0.05, pause), 0);
    for (int i = 0; i < STEPS; i++)
        assert_true(pause[i] == 0);
    assert_int_equal(hr_stalls_pauses(wait, batch, 0, 0.05, pause), 0);
}

/* ---- notes ---- */

static void notes_tell_of_all_segments(void **state)
{
    struct hr_stalls_evidence e[4];
    char notes[HR_STALLS_NOTES][400];
    for (int i = 0; i < 4; i++) {
        hr_stalls_evidence_default(&e[i]);
        e[i].phase = HR_STALLS_WARM;
        e[i].elapsed_s = 10;
        e[i].expected_bytes = 100 * MB;
        e[i].read_bytes = 1000;
    }
    assert_int_equal(hr_stalls_segment_notes(e, 4, "", notes), 0);
    assert_int_equal(hr_stalls_segment_notes(e, 0, "", notes), 0);
    e[0].disturbed = 1;
    e[0].others = 0.62;
    e[0].tries = 3;
    e[1].read_bytes = 3 * MB;
    e[2].throttled_s = 6;
    e[3].pauses = 2;
    e[3].paused_s = 1;
    assert_int_equal(hr_stalls_segment_notes(e, 4, "; and why", notes), 4);
    assert_non_null(strstr(notes[0], "1 of 4 segments with data in memory read up to 3.0 MB"));
    assert_non_null(strstr(notes[0], "meanwhile; and why"));
    assert_non_null(strstr(notes[1], "took up to 62% of the cores' time: 1 of 4"));
    assert_non_null(strstr(notes[1], "though 1 were run again"));
    assert_non_null(strstr(notes[2], "held the run back for 6.0 of 40.0 s"));
    assert_non_null(strstr(notes[3], "paused 2 times between steps, 0.5 s on average"));
}

/* ---- again ---- */

static struct hr_stalls_schedule *schedule_of(int phases, double max_s)
{
    struct hr_stalls_schedule_options o;
    struct hr_stalls_schedule *s;
    struct hr_error error;
    hr_stalls_schedule_options_default(&o);
    o.phases = phases;
    o.max_s = max_s;
    assert_int_equal(hr_stalls_schedule_create(&s, &o, &error), 0);
    return s;
}

static struct hr_stalls_segment next(struct hr_stalls_schedule *s)
{
    struct hr_stalls_segment g = {.size = sizeof g};
    assert_int_equal(hr_stalls_schedule_next(s, &g), 1);
    return g;
}

static void disturbed_segments_run_again(void **state)
{
    struct hr_stalls_schedule *s = schedule_of(1 << HR_STALLS_HOST, 100);
    struct hr_stalls_evidence e;
    hr_stalls_evidence_default(&e);
    e.all_s = 1;
    /* Nothing to run again yet. */
    e.disturbed = 1;
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_COUNTS);
    next(s);
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_DISTURBED);
    assert_int_equal(next(s).round, 0);
    e.disturbed = 0;
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_COUNTS);
    hr_stalls_schedule_report(s, 1, 1);
    e.disturbed = 1;
    int tries = 0;
    for (next(s); hr_stalls_schedule_again(s, &e) == HR_STALLS_DISTURBED; next(s))
        tries++;
    assert_int_equal(tries, 2);
    hr_stalls_schedule_report(s, 1, 1);
    /* Repetitions have a limit: of 30 s, 3 were used. */
    e.all_s = 28;
    next(s);
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_DISTURBED);
    next(s);
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_COUNTS);
    hr_stalls_schedule_destroy(&s);
}

/* Runs the schedule until it returns a warm segment. */
static struct hr_stalls_segment next_warm(struct hr_stalls_schedule *s)
{
    struct hr_stalls_segment g = next(s);
    while (g.phase != HR_STALLS_WARM) {
        hr_stalls_schedule_report(s, 1, 1);
        g = next(s);
    }
    return g;
}

static void segments_begin_as_an_epoch_goes_on(void **state)
{
    int phases = 1 << HR_STALLS_HOST | 1 << HR_STALLS_WARM;
    struct hr_stalls_schedule *s = schedule_of(phases, 100);
    struct hr_stalls_evidence e;
    hr_stalls_evidence_default(&e);
    e.elapsed_s = 10;
    e.queue_ahead = 4;
    /* The first one hardly waits: it runs again with a full queue, and so do all others. */
    e.waited_s = 0.7;
    e.queue_end = 4;
    assert_int_equal(next_warm(s).full, 0);
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_UNSETTLED);
    assert_int_equal(next(s).full, 1);
    e.queue_end = 2;
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_COUNTS);
    hr_stalls_schedule_report(s, 1, 1);
    assert_int_equal(next_warm(s).full, 1);
    /* The loader does not keep its queue filled. */
    e.queue_end = 1;
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_NONE_SETTLED);
    assert_int_equal(next(s).full, 0);
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_COUNTS);
    hr_stalls_schedule_destroy(&s);

    /* Training waits: segments begin with an empty queue, and that is not checked again. */
    s = schedule_of(phases, 100);
    e.waited_s = 0.9;
    next_warm(s);
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_COUNTS);
    hr_stalls_schedule_report(s, 1, 1);
    e.waited_s = 0;
    assert_int_equal(next_warm(s).full, 0);
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_COUNTS);
    hr_stalls_schedule_destroy(&s);

    /* A loader that prepares nothing ahead. */
    s = schedule_of(phases, 100);
    e.queue_ahead = 0;
    next_warm(s);
    assert_int_equal(hr_stalls_schedule_again(s, &e), HR_STALLS_COUNTS);
    hr_stalls_schedule_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cold_and_warm_are_proved),
        cmocka_unit_test(another_version_is_judged),
        cmocka_unit_test(others_disturb),
        cmocka_unit_test(pauses_are_found),
        cmocka_unit_test(notes_tell_of_all_segments),
        cmocka_unit_test(disturbed_segments_run_again),
        cmocka_unit_test(segments_begin_as_an_epoch_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
