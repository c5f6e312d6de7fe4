/* Scenarios: the primitives and what-ifs through the public functions, on a step computed on paper;
 * and reports. */
#include "traces.h"

#include "../test.h"

#include "base/memory.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/headrace-replay-XXXXXX";
static struct hr_replay *replay;

static int set_up(void **state)
{
    struct trace_text *t = calloc(1, sizeof *t);
    struct hr_error error = {0};
    const char *paths[] = {path};
    int fd = mkstemp(path);
    if (fd < 0 || !t)
        return 1;
    close(fd);
    trace_step(t);
    t->length += (size_t)snprintf(t->text + t->length, sizeof t->text - t->length, "]}");
    test_write(path, t->text, t->length);
    free(t);
    return hr_replay_open(&replay, paths, 1, NULL, &error);
}

static int tear_down(void **state)
{
    hr_replay_destroy(&replay);
    unlink(path);
    return hr__allocated(HR__TAG_REPLAY) != 0;
}

static struct hr_replay_scenario *make(void)
{
    struct hr_replay_scenario *s;
    assert_int_equal(hr_replay_scenario_create(&s, replay, NULL), 0);
    return s;
}

static double predict_us(struct hr_replay_scenario *s)
{
    struct hr_replay_prediction p = {.size = sizeof p};
    struct hr_error error = {0};
    if (hr_replay_predict(s, &p, &error))
        fail_msg("%s", error.message);
    double all = p.latency;
    for (int k = 0; k < HR_REPLAY_KINDS; k++)
        all += p.kind[k];
    assert_float_equal(all, 1, 1e-9);
    assert_float_equal(p.recorded_s * 1e6, 200, 1e-6);
    return p.iteration_s * 1e6;
}

/* Selects by name and kinds. */
static size_t find(struct hr_replay_scenario *s, const char *name, const char *within,
                   uint32_t kinds, const uint32_t **tasks)
{
    struct hr_replay_selector which;
    size_t count;
    hr_replay_selector_default(&which);
    which.name = name;
    which.within = within;
    which.kinds = kinds;
    assert_int_equal(hr_replay_select(s, &which, tasks, &count, NULL), 0);
    return count;
}

static void selections(void **state)
{
    struct hr_replay_scenario *s = make();
    const uint32_t *tasks;
    struct hr_replay_task task = {.size = sizeof task};
    struct hr_replay_selector which;
    size_t count;
    struct hr_error error = {0};
    assert_int_equal(find(s, "^gemm$", NULL, 0, &tasks), 1);
    assert_int_equal(hr_replay_task_get(s, tasks[0], &task), 0);
    assert_string_equal(task.name, "gemm");
    assert_int_equal(task.kind, HR_REPLAY_KERNEL);
    assert_int_equal(task.phase, HR_REPLAY_FORWARD);
    assert_int_equal(task.length_ns, 50000);
    /* within aten::mm: its own time in two parts, the launch, and the kernel */
    assert_int_equal(find(s, NULL, "aten::mm", 0, &tasks), 4);
    assert_int_equal(find(s, NULL, "aten::mm", 1u << HR_REPLAY_KERNEL, &tasks), 1);
    assert_int_equal(find(s, "nothing", NULL, 0, &tasks), 0);
    hr_replay_selector_default(&which);
    which.stream = 7;
    assert_int_equal(hr_replay_select(s, &which, &tasks, &count, &error), 0);
    assert_int_equal(count, 2);
    which.name = "(";
    assert_int_equal(hr_replay_select(s, &which, &tasks, &count, &error), -EINVAL);
    assert_non_null(strstr(error.message, "regular expression"));
    hr_replay_scenario_destroy(&s);
}

static void scaling_and_removing(void **state)
{
    struct hr_replay_scenario *s = make();
    const uint32_t *tasks;
    struct hr_error error = {0};
    size_t count = find(s, NULL, NULL, 0, &tasks);
    assert_int_equal(hr_replay_scale(s, tasks, count, 1, &error), 0);
    assert_float_equal(predict_us(s), 200, 1e-6);
    count = find(s, "relu_kernel", NULL, 0, &tasks);
    assert_int_equal(hr_replay_scale(s, tasks, count, 0.5, &error), 0);
    assert_float_equal(predict_us(s), 150, 1e-6);
    /* Without the first kernel, the second begins 6 us after its launch. */
    count = find(s, "gemm", NULL, 0, &tasks);
    assert_int_equal(hr_replay_remove(s, tasks, count, &error), 0);
    assert_float_equal(predict_us(s), 138, 1e-6);
    assert_int_equal(hr_replay_scale(s, tasks, count, -1, &error), -EINVAL);
    const uint32_t none[] = {999};
    assert_int_equal(hr_replay_scale(s, none, 1, 1, &error), -EINVAL);
    hr_replay_scenario_destroy(&s);
    /* Without the operator, its launch and its kernel go as well: 200 - 30 - 52. */
    s = make();
    count = find(s, NULL, "aten::mm", 0, &tasks);
    assert_int_equal(hr_replay_remove(s, tasks, count, &error), 0);
    assert_float_equal(predict_us(s), 158, 1e-6);
    hr_replay_scenario_destroy(&s);
}

static void inserting(void **state)
{
    struct hr_replay_scenario *s = make();
    const uint32_t *tasks;
    uint32_t kernel, made, urgent;
    struct hr_error error = {0};
    assert_int_equal(find(s, "gemm", NULL, 0, &tasks), 1);
    kernel = tasks[0];
    struct hr_replay_insertion x = {
        .size = sizeof x, .length_ns = 30000, .after = &kernel, .after_count = 1};
    assert_int_equal(hr_replay_insert(s, &x, &made, &error), 0);
    assert_float_equal(predict_us(s), 230, 1e-6);
    hr_replay_scenario_destroy(&s);
    /* Two transfers on a channel that are ready at once: the urgent one runs first. */
    s = make();
    uint32_t sync;
    assert_int_equal(find(s, "relu_kernel", NULL, 0, &tasks), 1);
    sync = tasks[0];
    x.channel = "link";
    x.length_ns = 100000;
    assert_int_equal(hr_replay_insert(s, &x, &made, &error), 0);
    x.priority = 1;
    x.before = &sync;
    x.before_count = 1;
    assert_int_equal(hr_replay_insert(s, &x, &urgent, &error), 0);
    /* gemm ends at 76, the urgent one at 176; then relu 100, and 22 until the end */
    assert_float_equal(predict_us(s), 298, 1e-6);
    const int32_t priorities[] = {2};
    struct hr_replay_task task = {.size = sizeof task};
    assert_int_equal(hr_replay_task_get(s, made, &task), 0);
    assert_int_equal(hr_replay_reschedule(s, task.lane, &made, priorities, 1, &error), 0);
    assert_float_equal(predict_us(s), 398, 1e-6);
    assert_int_equal(hr_replay_reschedule(s, 999, &made, priorities, 1, &error), -EINVAL);
    x.after_count = 0;
    assert_int_equal(hr_replay_insert(s, &x, &made, &error), -EINVAL);
    hr_replay_scenario_destroy(&s);
}

static double with(const char *what_if)
{
    struct hr_replay_scenario *s = make();
    struct hr_error error = {0};
    if (hr_replay_apply(s, what_if, &error))
        fail_msg("%s: %s", what_if, error.message);
    double us = predict_us(s);
    hr_replay_scenario_destroy(&s);
    return us;
}

static void what_ifs(void **state)
{
    assert_float_equal(with("kernels:relu x0.5"), 150, 1e-6);
    assert_float_equal(with("remove:gemm"), 188, 1e-6);
    assert_float_equal(with("remove:aten::mm"), 158, 1e-6);
    /* gemm ends at 51, relu runs from 66 to 116, the CPU goes on at 118 */
    assert_float_equal(with("gpu x2"), 138, 1e-6);
    assert_float_equal(with("gpu x1"), 200, 1e-6);
    static const struct {
        const char *text;
        int code;
        const char *words;
    } wrong[] = {
        {"warp", -EINVAL, "no what-if"},
        {"gpu", -EINVAL, "gpu x2"},
        {"gpu x0", -EINVAL, "factor"},
        {"kernels: x2", -EINVAL, "kernels:REGEX"},
        {"kernels:nothing x2", -ENODATA, "nothing"},
        {"amp x2", -EINVAL, "'amp'"},
        {"remove:(", -EINVAL, "regular expression"},
        {"data-ready", -ENODATA, "DataLoader"},
        {"fused-optimizer", -ENODATA, "optimizer"},
        {"batch-norm-fused", -ENODATA, "normal"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct hr_replay_scenario *s = make();
        struct hr_error error = {0};
        assert_int_equal(hr_replay_apply(s, wrong[i].text, &error), wrong[i].code);
        assert_non_null(strstr(error.message, wrong[i].words));
        hr_replay_scenario_destroy(&s);
    }
}

/* Each what-if says what it assumes and where that is from, and is tried by advice or says what a
 * user must give. */
static void sources(void **state)
{
    for (size_t i = 0; i < hr__what_if_count; i++) {
        const struct hr__what_if *w = &hr__what_ifs[i];
        if (!w->assumes || !w->source || strlen(w->assumes) < 20 || strlen(w->source) < 20)
            fail_msg("%s: what it assumes, or the source of that, is missing", w->name);
        assert_int_equal(w->assumes[strlen(w->assumes) - 1], '.');
        assert_true(!strncmp(w->example, w->name, strlen(w->name)));
        assert_int_equal(!w->tried[0], !!w->needs);
        for (int k = 0; k < 2 && w->tried[k]; k++)
            assert_ptr_equal(hr__what_if_find(w->tried[k], NULL), w);
    }
}

/* Without a what-if, each of the table is in the report: what it brings, or why it was not tried.
 */
static void advice_leaves_nothing_out(void **state)
{
    char *text;
    struct hr_error error = {0};
    assert_int_equal(hr_replay_report_json(replay, NULL, 0, &text, &error), 0);
    json_t *all = json_loads(text, 0, NULL);
    hr_replay_free(text);
    for (size_t i = 0; i < hr__what_if_count; i++) {
        size_t found = 0, k;
        const char *lists[] = {"what_ifs", "not_tried"};
        for (int l = 0; l < 2; l++) {
            json_t *one;
            json_array_foreach(json_object_get(all, lists[l]), k, one)
            {
                const char *what = json_string_value(json_object_get(one, "what"));
                const char *why = json_string_value(json_object_get(one, l ? "why" : "source"));
                assert_true(why && *why);
                found += hr__what_if_find(what, &error) == &hr__what_ifs[i];
            }
        }
        if (!found)
            fail_msg("%s is neither tried nor said to be left out", hr__what_ifs[i].name);
    }
    json_decref(all);
    assert_int_equal(hr_replay_report_text(replay, NULL, 0, 2000, &text, &error), 0);
    assert_non_null(strstr(text, "\nNot tried:\n"));
    assert_non_null(strstr(text, "kernels:REGEX x0.5, ops:REGEX x0.5, layer:REGEX x0.5, "));
    assert_non_null(strstr(text, "gpu x2: the critical path is then "));
    assert_non_null(strstr(text, " Source: definition: "));
    hr_replay_free(text);
}

static void reports(void **state)
{
    static const char *const two[] = {"kernels:relu x0.5", "remove:gemm"};
    char *text;
    struct hr_error error = {0};
    assert_int_equal(hr_replay_report_json(replay, two, 2, &text, &error), 0);
    json_t *all = json_loads(text, 0, NULL), *outcomes = json_object_get(all, "what_ifs");
    assert_int_equal(json_array_size(outcomes), 2);
    assert_float_equal(json_real_value(json_object_get(json_array_get(outcomes, 0), "iteration_s")),
                       150e-6, 1e-9);
    assert_float_equal(json_real_value(json_object_get(json_array_get(outcomes, 1), "iteration_s")),
                       138e-6, 1e-9);
    json_decref(all);
    hr_replay_free(text);
    assert_int_equal(hr_replay_report_text(replay, NULL, 0, 80, &text, &error), 0);
    assert_non_null(strstr(text, "An iteration takes 200 us: "));
    assert_non_null(strstr(text, "gpu x2"));
    assert_non_null(strstr(text, "The check is the replay"));
    assert_true(text == strstr(text, "Replay without a change: 200 us"));
    hr_replay_free(text);
    const char *const bad[] = {"warp"};
    assert_int_equal(hr_replay_report_text(replay, bad, 1, 80, &text, &error), -EINVAL);
    assert_null(text);
}

/* ---- traces of their own ---- */

/* Predicts an iteration, in microseconds, with what-ifs one upon the other. */
static double predicted(const struct hr_replay *of, const char *first, const char *second)
{
    return trace_predict_us(of, (const char *const[]){first, second, NULL});
}

/* The replay with the recorded latencies is exact, and that with the usual ones is not: one launch
 * took 300 us, the others 6. */
static void usual_latencies_are_the_check(void **state)
{
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        struct trace_text *t = calloc(1, sizeof *t);
        struct hr_replay_summary summary = {.size = sizeof summary};
        struct hr_replay_scenario *s;
        struct hr_error error = {0};
        char *text;
        trace_add(t, "user_annotation", "ProfilerStep#0", "1", 0, 1000, "");
        for (int i = 0; i < 3; i++) {
            trace_call(t, "cudaLaunchKernel", 2 * i + 1, 100 * i, 5);
            trace_kernel(t, i == 2 ? "slow_to_begin" : "quick", 2 * i + 1,
                         100 * i + (i == 2 ? 300 : 6), 20);
            trace_call(t, "cudaDeviceSynchronize", 2 * i + 2, 100 * i + 10, i == 2 ? 312 : 18);
        }
        struct hr_replay *own = trace_open(t, is_wide ? 0.5 : 0.05);
        hr_replay_summarise(own, &summary);
        assert_float_equal(summary.error, 0, 1e-9);
        assert_float_equal(summary.usual_error, -0.294, 1e-6);
        assert_int_equal(summary.is_trusted, is_wide);
        assert_true(summary.checked > 0);
        assert_int_equal(hr_replay_scenario_create(&s, own, &error), is_wide ? 0 : -ENOTSUP);
        if (!is_wide) {
            assert_non_null(strstr(error.message, "with the usual latencies is 29.4 % shorter"));
            assert_non_null(strstr(error.message, "slow_to_begin"));
        }
        hr_replay_scenario_destroy(&s);
        assert_int_equal(hr_replay_report_text(own, NULL, 0, 400, &text, &error), 0);
        assert_int_equal(strstr(text, "gpu x2") != NULL, is_wide);
        assert_int_equal(strstr(text, "differs too much") != NULL, !is_wide);
        hr_replay_free(text);
        hr_replay_destroy(&own);
    }
}

/* A step of an optimizer on the CPU: operators of 120 us, 80 us between them, 100 us of others. */
static struct hr_replay *optimizer_step(const char *name)
{
    static const struct {
        const char *name;
        double length_us;
    } ops[] = {
        {"aten::lerp_", 30}, {"aten::addcmul_", 30}, {"aten::sqrt", 20}, {"aten::addcdiv_", 40}};
    struct trace_text *t = calloc(1, sizeof *t);
    double at = 100;
    trace_add(t, "user_annotation", "ProfilerStep#0", "1", 0, 300, "");
    trace_op(t, "aten::mm", 0, 100);
    trace_add(t, "user_annotation", name, "1", 100, 200, "");
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        trace_op(t, ops[i].name, at, ops[i].length_us);
        at += ops[i].length_us + 20;
    }
    return trace_open(t, 0.05);
}

static void fused_on_the_cpu(void **state)
{
    struct hr_replay *own = optimizer_step("Optimizer.step#AdamW.step");
    struct hr_replay_summary summary = {.size = sizeof summary};
    struct hr_replay_scenario *s;
    struct hr_error error = {0};
    char *text;
    /* 7/10 of lerp_, addcmul_ and addcdiv_ */
    assert_float_equal(predicted(own, "fused-optimizer", NULL), 100 + 70, 0.01);
    /* a trace of the CPU alone cannot contradict its replay, and the report says so */
    hr_replay_summarise(own, &summary);
    assert_int_equal(summary.checked, 0);
    assert_int_equal(hr_replay_report_text(own, NULL, 0, 400, &text, &error), 0);
    assert_non_null(strstr(text, "This proves nothing"));
    hr_replay_free(text);
    hr_replay_destroy(&own);
    own = optimizer_step("Optimizer.step#RMSprop.step");
    assert_int_equal(hr_replay_scenario_create(&s, own, &error), 0);
    assert_int_equal(hr_replay_apply(s, "fused-optimizer", &error), -ENODATA);
    assert_non_null(strstr(error.message, "RMSprop"));
    hr_replay_scenario_destroy(&s);
    hr_replay_destroy(&own);
}

static void amp_of_tensor_cores(void **state)
{
    struct trace_text *t = calloc(1, sizeof *t);
    trace_add(t, "user_annotation", "ProfilerStep#0", "1", 0, 400, "");
    trace_call(t, "cudaLaunchKernel", 1, 0, 5);
    trace_kernel(t, "sm80_xmma_gemm_f32f32_tf32f32_f32", 1, 10, 300);
    trace_call(t, "cudaDeviceSynchronize", 2, 10, 302);
    struct hr_replay *own = trace_open(t, 0.05);
    assert_float_equal(predicted(own, "amp", NULL), 250, 1e-6);
    hr_replay_destroy(&own);
}

/* Removing what waits for a device removes the wait; removed work no longer keeps its place. */
static void removed_waits(void **state)
{
    assert_float_equal(with("remove:cudaDeviceSynchronize"), 178, 1e-6);
    assert_float_equal(predicted(replay, "remove:aten::mm", "python x1000"), 118, 0.1);
}

/* The sentence and the table agree on the time that goes into data. */
static void waiting_for_data(void **state)
{
    struct trace_text *t = calloc(1, sizeof *t);
    struct hr_error error = {0};
    char *text;
    trace_add(t, "user_annotation", "ProfilerStep#0", "1", 0, 400, "");
    trace_add(t, "user_annotation", "enumerate(DataLoader)#_SingleProcess", "1", 0, 100, "");
    trace_op(t, "aten::stack", 0, 100);
    trace_op(t, "aten::mm", 100, 300);
    struct hr_replay *own = trace_open(t, 0.05);
    assert_int_equal(hr_replay_report_text(own, NULL, 0, 400, &text, &error), 0);
    assert_non_null(strstr(text, "operators on the CPU 75.0 %, waiting for data 25.0 %."));
    const char *table = strstr(text, "critical path  ");
    assert_non_null(table);
    assert_non_null(strstr(table, "waiting for data"));
    assert_non_null(strstr(table, "75.0 %"));
    assert_null(strstr(table, "100 %"));
    hr_replay_free(text);
    hr_replay_destroy(&own);
}

/* A wait outside operators leaves the operators' share as it is, and is named as a wait; the same
 * operator elsewhere is not. */
static void waiting_outside_operators(void **state)
{
    struct trace_text *t = calloc(1, sizeof *t);
    struct hr_error error = {0};
    char *text;
    trace_add(t, "user_annotation", "ProfilerStep#0", "1", 0, 400, "");
    trace_add(t, "user_annotation", "enumerate(DataLoader)#_SingleProcess", "1", 0, 200, "");
    trace_op(t, "aten::stack", 160, 40);
    trace_op(t, "aten::stack", 200, 60);
    trace_op(t, "aten::mm", 260, 100);
    struct hr_replay *own = trace_open(t, 0.05);
    assert_int_equal(hr_replay_report_text(own, NULL, 0, 400, &text, &error), 0);
    assert_non_null(strstr(text, "waiting for data 50.0 %, operators on the CPU 40.0 %, Python "
                                 "(outside operators) 10.0 %."));
    hr_replay_free(text);
    assert_int_equal(hr_replay_report_json(own, NULL, 0, &text, &error), 0);
    json_t *all = json_loads(text, 0, NULL);
    json_t *names = json_object_get(all, "critical_path_names"), *one;
    const char *kinds[3] = {"", "", ""};
    size_t i, stacks = 0;
    json_array_foreach(names, i, one)
    {
        if (!strcmp(json_string_value(json_object_get(one, "name")), "aten::stack") && stacks < 3)
            kinds[stacks++] = json_string_value(json_object_get(one, "kind"));
    }
    assert_int_equal(stacks, 2);
    assert_string_equal(kinds[0], "operators");
    assert_string_equal(kinds[1], "data");
    one = json_object_get(all, "bottleneck");
    assert_string_equal(json_string_value(json_object_get(one, "kind")), "data");
    assert_non_null(strstr(json_string_value(json_object_get(one, "name")), "DataLoader"));
    json_decref(all);
    hr_replay_free(text);
    hr_replay_destroy(&own);
}

/* Iterations that differ are said to do so. */
static void uneven_iterations(void **state)
{
    for (int longest = 120; longest <= 150; longest += 30) {
        struct trace_text *t = calloc(1, sizeof *t);
        struct hr_error error = {0};
        char *text;
        trace_add(t, "user_annotation", "ProfilerStep#0", "1", 0, 100, "");
        trace_op(t, "aten::mm", 0, 100);
        trace_add(t, "user_annotation", "ProfilerStep#1", "1", 100, longest, "");
        trace_op(t, "aten::mm", 100, longest);
        struct hr_replay *own = trace_open(t, 0.05);
        assert_int_equal(hr_replay_report_text(own, NULL, 0, 400, &text, &error), 0);
        assert_int_equal(!strstr(text, "The iterations take from 100 us to 150 us: "),
                         longest == 120);
        hr_replay_free(text);
        hr_replay_destroy(&own);
    }
}

static void times_without_bounds(void **state)
{
    struct hr_replay_scenario *s = make();
    struct hr_replay_prediction p = {.size = sizeof p};
    struct hr_error error = {0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(hr_replay_apply(s, "kernels:. x1000000", &error), 0);
    assert_int_equal(hr_replay_predict(s, &p, &error), -ERANGE);
    hr_replay_scenario_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selections),
        cmocka_unit_test(scaling_and_removing),
        cmocka_unit_test(inserting),
        cmocka_unit_test(what_ifs),
        cmocka_unit_test(sources),
        cmocka_unit_test(advice_leaves_nothing_out),
        cmocka_unit_test(reports),
        cmocka_unit_test(usual_latencies_are_the_check),
        cmocka_unit_test(fused_on_the_cpu),
        cmocka_unit_test(amp_of_tensor_cores),
        cmocka_unit_test(waiting_for_data),
        cmocka_unit_test(waiting_outside_operators),
        cmocka_unit_test(uneven_iterations),
        cmocka_unit_test(removed_waits),
        cmocka_unit_test(times_without_bounds),
    };
    return cmocka_run_group_tests_name("scenario", tests, set_up, tear_down);
}
