/* Graphs of traces written by hand: what waits for what, computed on paper; and the rules that hold
 * for every replay. */
#include "traces.h"

#include "../test.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>

struct graph_world {
    struct trace_text t;
    struct hr__trace_data trace;
    struct hr__graph graph;
    struct hr__replay_schedule schedule;
};

static void close_world(struct graph_world *w)
{
    hr__schedule_clear(&w->schedule);
    hr__graph_clear(&w->graph);
    hr__trace_clear(&w->trace);
    assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
}

static void replay_again(struct graph_world *w)
{
    hr__schedule_clear(&w->schedule);
    assert_int_equal(hr__graph_replay(&w->schedule, &w->graph, NULL, NULL), 0);
}

/* Multiplies the tasks of one name: kernels, or operators. */
static void scale(struct graph_world *w, const char *name, double factor)
{
    for (size_t i = 0; i < w->graph.task_count; i++) {
        struct hr__graph_task *task = &w->graph.tasks[i];
        if ((hr__task_is_device(task) || !strncmp(name, "aten::", 6)) &&
            strstr(hr__graph_name(&w->graph, task), name))
            task->length_ns = (int64_t)((double)task->length_ns * factor);
    }
}

/* Two collectives of gloo: the main thread waits for the first one, the optimizer would wait for
 * the second one. */
static void gloo(void **state)
{
    static const struct {
        const char *name;
        double factor;
        int64_t us;
    } changes[] = {
        {"gloo:all_reduce", 0.5, 810},  /* it ends at 310, and the thread goes on until 330 */
        {"gloo:all_reduce", 0, 780},    /* the optimizer, ready at 500, waits for the other one */
        {"gloo:all_reduce", 2, 1380},   /* until 880 */
        {"gloo:all_gather", 2, 1165},   /* until 965 instead of 580: the optimizer was at 800 */
        {"gloo:all_gather", 0.5, 1000}, /* nothing waits */
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct graph_world *w = calloc(1, sizeof *w);
        trace_add(&w->t, "user_annotation", "ProfilerStep#1", "1", 0, 1000, "");
        trace_op(&w->t, "aten::mm", 10, 100);
        trace_op(&w->t, "c10d::allreduce_", 110, 20);
        trace_op(&w->t, "aten::mm", 140, 50);
        trace_op(&w->t, "c10d::allgather_", 190, 10);
        trace_add(&w->t, "user_annotation", "gloo:all_reduce", "2", 120, 380, "");
        trace_add(&w->t, "user_annotation", "gloo:all_gather", "3", 195, 385, "");
        trace_op(&w->t, "aten::copy_", 520, 30);
        trace_add(&w->t, "user_annotation", "Optimizer.step#SGD.step", "1", 800, 100, "");
        trace_op(&w->t, "aten::add_", 810, 80);
        trace_replay(&w->t, &w->trace, &w->graph, &w->schedule);
        assert_int_equal(w->schedule.length_ns, 1000000);
        assert_int_equal(w->graph.counts.collectives, 2);
        assert_int_equal(w->graph.counts.kernels, 0);
        for (size_t k = 0; k < w->graph.task_count; k++)
            assert_int_equal(w->schedule.begin_ns[k], w->graph.tasks[k].begin_ns);
        scale(w, changes[i].name, changes[i].factor);
        replay_again(w);
        assert_int_equal(w->schedule.length_ns, changes[i].us * 1000);
        close_world(w);
        free(w);
    }
}

static void a_step(void **state)
{
    struct graph_world *w = calloc(1, sizeof *w);
    trace_step(&w->t);
    trace_replay(&w->t, &w->trace, &w->graph, &w->schedule);
    assert_int_equal(w->graph.iterations, 1);
    assert_int_equal(w->graph.recorded_ns, 200000);
    assert_int_equal(w->schedule.length_ns, 200000);
    for (size_t i = 0; i < w->graph.task_count; i++)
        assert_int_equal(w->schedule.begin_ns[i], w->graph.tasks[i].begin_ns);
    /* The first kernel began 6 us after its launch. The second one follows it by 2 us. The CPU
     * waits for it until 180, and goes on until 200. */
    assert_int_equal(w->graph.launch_ns, 6000);
    assert_int_equal(w->graph.gap_ns, 2000);
    assert_int_equal(w->graph.counts.waits, 1);
    scale(w, "relu", 0.5);
    replay_again(w);
    assert_int_equal(w->schedule.length_ns, 150000);
    /* Now the second kernel begins when it is launched, 60 + 6, and the CPU waits until 66 + 50
     * + 2.
     */
    scale(w, "gemm", 0.1);
    replay_again(w);
    assert_int_equal(w->schedule.length_ns, 138000);
    /* Nothing to wait for: the CPU's own time, with 2 us of the synchronisation. */
    scale(w, "relu", 0.01);
    replay_again(w);
    assert_int_equal(w->schedule.length_ns, 112000);
    close_world(w);
    free(w);
}

/* backward() on thread 1 waits for thread 2, which waited for it. */
static void two_threads(void **state)
{
    struct graph_world *w = calloc(1, sizeof *w);
    trace_add(&w->t, "user_annotation", "ProfilerStep#0", "1", 0, 1000, "");
    trace_op(&w->t, "aten::mul", 0, 100);
    trace_add(&w->t, "cpu_op", "autograd::engine::evaluate_function: MulBackward0", "2", 150, 700,
              "\"Sequence number\": 1");
    trace_op(&w->t, "aten::add_", 900, 50);
    trace_replay(&w->t, &w->trace, &w->graph, &w->schedule);
    assert_int_equal(w->schedule.length_ns, 1000000);
    for (size_t i = 0; i < w->graph.task_count; i++) {
        assert_int_equal(w->schedule.begin_ns[i], w->graph.tasks[i].begin_ns);
        if (strstr(hr__graph_name(&w->graph, &w->graph.tasks[i]), "Backward"))
            w->graph.tasks[i].length_ns = 200000;
    }
    replay_again(w);
    assert_int_equal(w->schedule.length_ns, 500000);
    close_world(w);
    free(w);
}

/* A stream waits for an event of another one. */
static void two_streams(void **state)
{
    struct graph_world *w = calloc(1, sizeof *w);
    struct trace_text *t = &w->t;
    trace_add(t, "user_annotation", "ProfilerStep#0", "1", 0, 500, "");
    trace_call(t, "cudaLaunchKernel", 1, 10, 10);
    trace_kernel(t, "first", 1, 30, 200);
    trace_call(t, "cudaEventRecord", 2, 22, 2);
    trace_call(t, "cudaStreamWaitEvent", 3, 25, 2);
    trace_add(t, "cuda_sync", "Stream Wait Event", "20", 25, 2,
              "\"cuda_sync_kind\": \"Stream Wait Event\", \"stream\": 20, \"device\": 0, "
              "\"correlation\": 3, \"wait_on_stream\": 7, "
              "\"wait_on_cuda_event_record_corr_id\": 2");
    trace_call(t, "cudaLaunchKernel", 4, 40, 10);
    trace_add(t, "kernel", "second", "20", 231, 100,
              "\"device\": 0, \"stream\": 20, \"correlation\": 4");
    trace_call(t, "cudaDeviceSynchronize", 5, 60, 280);
    trace_replay(t, &w->trace, &w->graph, &w->schedule);
    assert_int_equal(w->schedule.length_ns, 500000);
    scale(w, "first", 0.5);
    replay_again(w);
    assert_int_equal(w->schedule.length_ns, 400000);
    close_world(w);
    free(w);
}

static void polling_threads_are_left_out(void **state)
{
    struct graph_world *w = calloc(1, sizeof *w);
    trace_step(&w->t);
    trace_add(&w->t, "cuda_runtime", "cudaEventQuery", "9", 20, 1, "\"correlation\": 90");
    trace_add(&w->t, "cuda_runtime", "cudaEventQuery", "9", 180, 1, "\"correlation\": 91");
    trace_replay(&w->t, &w->trace, &w->graph, &w->schedule);
    assert_int_equal(w->graph.counts.polled, 1);
    scale(w, "relu", 0.5);
    replay_again(w);
    assert_int_equal(w->schedule.length_ns, 150000);
    close_world(w);
    free(w);
}

/* A thread that nothing waits for, and one that launches a kernel: only the second one belongs to
 * the iteration. */
static void threads_beside_the_iteration(void **state)
{
    for (int launches = 0; launches < 2; launches++) {
        struct graph_world *w = calloc(1, sizeof *w);
        trace_add(&w->t, "user_annotation", "ProfilerStep#0", "1", 0, 200, "");
        trace_op(&w->t, "aten::mm", 0, 200);
        trace_add(&w->t, "cpu_op", "aten::pin_memory", "5", 10, 180, "");
        if (launches) {
            trace_add(&w->t, "cuda_runtime", "cudaMemcpyAsync", "5", 150, 10, "\"correlation\": 1");
            trace_add(&w->t, "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", "7", 170, 10,
                      "\"device\": 0, \"stream\": 7, \"correlation\": 1");
        }
        trace_replay(&w->t, &w->trace, &w->graph, &w->schedule);
        assert_int_equal(w->graph.counts.apart, !launches);
        assert_int_equal(w->graph.counts.loose, launches);
        assert_int_equal(w->schedule.length_ns, 200000);
        scale(w, "aten::mm", 0.5);
        replay_again(w);
        assert_int_equal(w->schedule.length_ns, launches ? 190000 : 100000);
        close_world(w);
        free(w);
    }
}

/* Work of a device with damaged times is left out, whatever it is. */
static void damaged_times(void **state)
{
    struct graph_world *w = calloc(1, sizeof *w);
    trace_step(&w->t);
    trace_kernel(&w->t, "endless", 2, 79, 2e15);
    trace_replay(&w->t, &w->trace, &w->graph, &w->schedule);
    assert_int_equal(w->graph.counts.far, 1);
    assert_int_equal(w->schedule.length_ns, 200000);
    close_world(w);
    free(w);
}

static void windows(void **state)
{
    struct trace_text *t = calloc(1, sizeof *t);
    struct hr__trace_data trace;
    struct hr__graph graph;
    struct hr_error error = {0};
    struct hr__trace_window window = {.name = "part", .instance = 1};
    trace_add(t, "user_annotation", "part one", "1", 0, 100, "");
    trace_op(t, "aten::mm", 10, 30);
    trace_add(t, "user_annotation", "part two", "1", 200, 50, "");
    trace_op(t, "aten::mm", 210, 30);
    trace_parse(t, &trace);
    assert_int_equal(hr__graph_build(&graph, &trace, 1, &window, &error), 0);
    assert_int_equal(graph.recorded_ns, 50000);
    hr__graph_clear(&graph);
    window.instance = -1;
    assert_int_equal(hr__graph_build(&graph, &trace, 1, &window, &error), 0);
    assert_int_equal(graph.recorded_ns, 250000);
    assert_int_equal(graph.iterations, 2);
    hr__graph_clear(&graph);
    window.instance = 2;
    assert_int_equal(hr__graph_build(&graph, &trace, 1, &window, &error), -ENODATA);
    assert_non_null(strstr(error.message, "2 annotations contain 'part'"));
    hr__graph_clear(&graph);
    assert_int_equal(hr__graph_build(&graph, &trace, 1, NULL, &error), 0);
    assert_int_equal(graph.recorded_ns, 230000);
    assert_true(graph.is_whole);
    hr__graph_clear(&graph);
    hr__trace_clear(&trace);
    free(t);
}

/* Two ranks with a collective each: the transfer begins when the later one has arrived. */
static void two_ranks(void **state)
{
    struct trace_text *t[2];
    struct hr__trace_data traces[2];
    struct hr__graph graph;
    struct hr__replay_schedule schedule;
    struct hr_error error = {0};
    for (int i = 0; i < 2; i++) {
        t[i] = calloc(1, sizeof *t[i]);
        /* rank 1's clock is 5,000 ahead, and it arrives 100 later */
        double clock = i * 5000.0, late = i * 100.0;
        trace_add(t[i], "user_annotation", "ProfilerStep#0", "1", clock, 500, "");
        trace_call(t[i], "cudaLaunchKernel", 1, clock + 10 + late, 10);
        trace_kernel(t[i], "ncclDevKernel_AllReduce", 1, clock + 30 + late, 250 - late);
        trace_call(t[i], "cudaDeviceSynchronize", 2, clock + 60 + late, 240 - late);
        trace_parse(t[i], &traces[i]);
        traces[i].rank = i;
    }
    if (hr__graph_build(&graph, traces, 2, NULL, &error) ||
        hr__graph_replay(&schedule, &graph, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(graph.counts.joined, 2);
    assert_int_equal(graph.ranks[1].shift_ns, 5000000);
    assert_int_equal(schedule.length_ns, 500000);
    /* the transfer takes 150, the rest was waiting */
    for (size_t i = 0; i < graph.task_count; i++)
        if (graph.tasks[i].kind == HR__TASK_COLLECTIVE)
            graph.tasks[i].length_ns /= 3;
    hr__schedule_clear(&schedule);
    assert_int_equal(hr__graph_replay(&schedule, &graph, NULL, &error), 0);
    assert_int_equal(schedule.length_ns, 400000);
    hr__schedule_clear(&schedule);
    hr__graph_clear(&graph);
    for (int i = 0; i < 2; i++) {
        hr__trace_clear(&traces[i]);
        free(t[i]);
    }
    assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step),
        cmocka_unit_test(gloo),
        cmocka_unit_test(two_threads),
        cmocka_unit_test(two_streams),
        cmocka_unit_test(polling_threads_are_left_out),
        cmocka_unit_test(threads_beside_the_iteration),
        cmocka_unit_test(damaged_times),
        cmocka_unit_test(windows),
        cmocka_unit_test(two_ranks),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
