/* The simulation of pipelines against what the schedules are known to give: times of a forward pass
 * of 1 and a backward pass of 2 on each stage, unless a test says otherwise. */
#include "../test.h"
#include "replay/pipeline.h"

#include <errno.h>
#include <math.h>

enum { MOST = 16 };

struct pipeline_case {
    struct hr__pipeline_stage stages[MOST];
    struct hr__pipeline_spec spec;
    struct hr__pipeline_run run;
};

static void make(struct pipeline_case *m, enum hr_plan_schedule schedule, int devices,
                 int microbatches, int batches)
{
    *m = (struct pipeline_case){.spec = {.schedule = schedule,
                                         .devices = devices,
                                         .chunks = 1,
                                         .microbatches = microbatches,
                                         .batches = batches}};
    for (int i = 0; i < MOST; i++)
        m->stages[i] = (struct hr__pipeline_stage){1, 2, 0, 10, 5};
    m->spec.stages = m->stages;
}

static void run(struct pipeline_case *m)
{
    struct hr_error error = {0};
    m->spec.stages = m->stages;
    if (hr__pipeline_simulate(&m->run, &m->spec, &error))
        fail_msg("%s", error.message);
}

static const struct hr__pipeline_task *task(const struct pipeline_case *m, int device, size_t i)
{
    assert_true(i < m->run.device_tasks);
    return &m->run.tasks[(size_t)device * m->run.device_tasks + i];
}

/* What must hold of every run: each pass once, in the order of its device, after what it needs. */
static void check(const struct pipeline_case *m)
{
    int stages = m->spec.devices * m->spec.chunks;
    int total = m->spec.microbatches * m->spec.batches;
    static double ends[2][4096];
    for (int i = 0; i < 2 * 4096; i++)
        ends[i / 4096][i % 4096] = NAN;
    assert_true(total * stages <= 4096);
    for (int d = 0; d < m->spec.devices; d++)
        for (size_t i = 0; i < m->run.device_tasks; i++) {
            const struct hr__pipeline_task *t = task(m, d, i);
            assert_int_equal(t->stage % m->spec.devices, d);
            if (i)
                assert_true(t->begin_s >= task(m, d, i - 1)->end_s);
            if (t->kind == HR__PIPELINE_UPDATE)
                continue;
            assert_true(isnan(ends[t->kind][t->microbatch * stages + t->stage]));
            ends[t->kind][t->microbatch * stages + t->stage] = t->end_s;
        }
    for (int d = 0; d < m->spec.devices; d++)
        for (size_t i = 0; i < m->run.device_tasks; i++) {
            const struct hr__pipeline_task *t = task(m, d, i);
            int at = t->microbatch * stages + t->stage;
            if (t->kind == HR__PIPELINE_FORWARD && t->stage)
                assert_true(t->begin_s >= ends[0][at - 1]);
            if (t->kind == HR__PIPELINE_BACKWARD)
                assert_true(t->begin_s >= (t->stage < stages - 1 ? ends[1][at + 1] : ends[0][at]));
        }
    for (int i = 0; i < 2 * total * stages; i++)
        assert_false(isnan(ends[i % 2][i / 2]));
}

/* ---- the oracles ---- */

static void test_flushes_idle_by_their_bubble(void **state)
{
    static const struct {
        int devices, microbatches;
    } cases[] = {{4, 4}, {4, 16}, {8, 8}, {1, 3}, {3, 1}};
    for (int schedule = HR_PLAN_GPIPE; schedule <= HR_PLAN_1F1B; schedule++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            int d = cases[i].devices, n = cases[i].microbatches;
            struct pipeline_case m;
            make(&m, (enum hr_plan_schedule)schedule, d, n, 1);
            run(&m);
            check(&m);
            assert_true(fabs(m.run.utilisation - n / (n + d - 1.0)) < 1e-12);
            assert_true(m.run.makespan_s == 3.0 * (n + d - 1));
            assert_true(hr__pipeline_period_s(&m.run, &m.spec) == 3.0 * (n + d - 1));
            hr__pipeline_clear(&m.run);
        }
}

static void test_flushes_give_the_published_shares(void **state)
{
    struct pipeline_case m;
    make(&m, HR_PLAN_1F1B, 4, 4, 1);
    run(&m);
    assert_true(fabs(m.run.utilisation - 0.571) < 0.0005);
    hr__pipeline_clear(&m.run);
    make(&m, HR_PLAN_GPIPE, 4, 16, 1);
    run(&m);
    assert_true(fabs(m.run.utilisation - 0.842) < 0.0005);
    hr__pipeline_clear(&m.run);
    make(&m, HR_PLAN_GPIPE, 8, 8, 1);
    run(&m);
    assert_true(fabs(m.run.utilisation - 0.533) < 0.0005);
    hr__pipeline_clear(&m.run);
}

static void test_2bw_fills_the_pipeline_once(void **state)
{
    struct pipeline_case m;
    make(&m, HR_PLAN_2BW, 4, 4, 20);
    run(&m);
    check(&m);
    assert_true(m.run.makespan_s == 249);
    assert_true(hr__pipeline_period_s(&m.run, &m.spec) == 12);
    hr__pipeline_clear(&m.run);
    for (int d = 1; d <= 8; d++) {
        make(&m, HR_PLAN_2BW, d, 8, 6);
        run(&m);
        check(&m);
        assert_true(m.run.makespan_s == 3.0 * (48 + d - 1));
        assert_true(hr__pipeline_period_s(&m.run, &m.spec) == 24);
        hr__pipeline_clear(&m.run);
    }
}

static void test_2bw_uses_the_weights_of_the_batch_before(void **state)
{
    static const int versions[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
    struct pipeline_case m;
    make(&m, HR_PLAN_2BW, 4, 4, 4);
    run(&m);
    for (int k = 0; k < 16; k++)
        assert_int_equal(hr__pipeline_version(&m.spec, k), versions[k]);
    for (int d = 0; d < 4; d++) {
        int made = 0;
        for (size_t i = 0; i < m.run.device_tasks; i++) {
            const struct hr__pipeline_task *t = task(&m, d, i);
            if (t->kind == HR__PIPELINE_UPDATE)
                assert_int_equal(t->version, ++made);
            else
                assert_int_equal(t->version, versions[t->microbatch]);
            /* Two versions are enough: the newest, and the one before it. */
            if (t->kind != HR__PIPELINE_UPDATE)
                assert_in_range(made - t->version, 0, 1);
        }
        assert_int_equal(made, 4);
    }
    hr__pipeline_clear(&m.run);
}

static void test_stashes_are_those_of_the_schedules(void **state)
{
    for (int d = 1; d <= 8; d++)
        for (int s = 0; s < HR_PLAN_SCHEDULES; s++) {
            struct pipeline_case m;
            if (s == HR_PLAN_INTERLEAVED)
                continue;
            make(&m, (enum hr_plan_schedule)s, d, 8, s == HR_PLAN_2BW ? 3 : 2);
            run(&m);
            for (int i = 0; i < d; i++) {
                int held = s == HR_PLAN_GPIPE ? 8 : d - i;
                assert_int_equal(m.run.devices[i].peak_microbatches, held);
                assert_true(m.run.devices[i].peak_bytes == 10.0 * held + 5);
            }
            hr__pipeline_clear(&m.run);
        }
}

/* ---- interleaved ---- */

static void test_interleaved_divides_the_bubble_by_its_chunks(void **state)
{
    for (int chunks = 1; chunks <= 4; chunks++) {
        struct pipeline_case m;
        make(&m, HR_PLAN_INTERLEAVED, 4, 8, 1);
        m.spec.chunks = chunks;
        for (int i = 0; i < MOST; i++)
            m.stages[i] = (struct hr__pipeline_stage){1.0 / chunks, 2.0 / chunks, 0, 10, 0};
        run(&m);
        check(&m);
        /* (d - 1) / v of the time of one microbatch (Narayanan and others, SC'21). */
        assert_true(fabs(m.run.makespan_s - 3 * (8 + 3.0 / chunks)) < 1e-9);
        hr__pipeline_clear(&m.run);
    }
}

/* ---- stages that differ ---- */

static void test_the_slowest_stage_sets_the_pace(void **state)
{
    struct pipeline_case m;
    make(&m, HR_PLAN_2BW, 3, 4, 8);
    m.stages[1] = (struct hr__pipeline_stage){2, 5, 0.5, 0, 0};
    run(&m);
    check(&m);
    assert_true(fabs(hr__pipeline_period_s(&m.run, &m.spec) - (4 * 7 + 0.5)) < 1e-9);
    hr__pipeline_clear(&m.run);
    make(&m, HR_PLAN_GPIPE, 2, 2, 1);
    m.stages[1] = (struct hr__pipeline_stage){3, 1, 4, 0, 0};
    run(&m);
    check(&m);
    /* Forward on stage 1 ends at 4 and 7, backward at 8 and 9; stage 0 follows at 10 and 12. */
    assert_true(m.run.makespan_s == 13);
    assert_true(task(&m, 0, 3)->end_s == 12);
    assert_true(task(&m, 1, 4)->end_s == 13);
    assert_true(hr__pipeline_period_s(&m.run, &m.spec) == 13);
    hr__pipeline_clear(&m.run);
}

/* ---- refusals ---- */

static void refuse(struct pipeline_case *m, int code, const char *part)
{
    struct hr_error error = {0};
    m->spec.stages = m->stages;
    assert_int_equal(hr__pipeline_simulate(&m->run, &m->spec, &error), code);
    assert_null(m->run.tasks);
    if (!strstr(error.message, part))
        fail_msg("%s", error.message);
}

static void test_what_a_schedule_cannot_do_is_refused(void **state)
{
    struct pipeline_case m;
    make(&m, HR_PLAN_2BW, 4, 3, 1);
    refuse(&m, -EINVAL, "3 for 4 stages");
    make(&m, HR_PLAN_INTERLEAVED, 4, 6, 1);
    refuse(&m, -EINVAL, "multiple of its 4 stages, not 6");
    make(&m, HR_PLAN_1F1B, 4, 4, 1);
    m.spec.chunks = 2;
    refuse(&m, -EINVAL, "only interleaved");
    make(&m, HR_PLAN_1F1B, 4, 0, 1);
    refuse(&m, -EINVAL, "at least one");
    make(&m, (enum hr_plan_schedule)9, 4, 4, 1);
    refuse(&m, -EINVAL, "schedule");
    make(&m, HR_PLAN_GPIPE, 4, 1 << 30, 1 << 30);
    refuse(&m, -E2BIG, "too many");
    make(&m, HR_PLAN_GPIPE, 4, 4, 1);
    m.stages[2].backward_s = NAN;
    refuse(&m, -EINVAL, "stage 2");
    m.stages[2].backward_s = -1;
    refuse(&m, -EINVAL, "stage 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flushes_idle_by_their_bubble),
        cmocka_unit_test(test_flushes_give_the_published_shares),
        cmocka_unit_test(test_2bw_fills_the_pipeline_once),
        cmocka_unit_test(test_2bw_uses_the_weights_of_the_batch_before),
        cmocka_unit_test(test_stashes_are_those_of_the_schedules),
        cmocka_unit_test(test_interleaved_divides_the_bubble_by_its_chunks),
        cmocka_unit_test(test_the_slowest_stage_sets_the_pace),
        cmocka_unit_test(test_what_a_schedule_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
