/* What traces of other devices, compilers and versions look like, written by hand after real ones:
 * CUDA graphs, AMD, Triton, synchronisations without records, and ranks in several files. Times are
 * microseconds, and results are computed on paper. */
#include "traces.h"

#include "../test.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct odd_world {
    struct trace_text t;
    struct hr__trace_data trace;
    struct hr__graph graph;
    struct hr__replay_schedule schedule;
};

static struct odd_world *begin(double end)
{
    struct odd_world *w = calloc(1, sizeof *w);
    trace_add(&w->t, "user_annotation", "ProfilerStep#0", "1", 0, end, "");
    return w;
}

/* Replays as recorded, which must take `recorded`, then with the work of the device half as long.
 */
static void halve(struct odd_world *w, int64_t recorded_ns, int64_t then_ns)
{
    trace_replay(&w->t, &w->trace, &w->graph, &w->schedule);
    assert_int_equal(w->schedule.length_ns, recorded_ns);
    for (size_t i = 0; i < w->graph.task_count; i++) {
        assert_int_equal(w->schedule.begin_ns[i], w->graph.tasks[i].begin_ns);
        if (hr__task_is_device(&w->graph.tasks[i]))
            w->graph.tasks[i].length_ns /= 2;
    }
    hr__schedule_clear(&w->schedule);
    assert_int_equal(hr__graph_replay(&w->schedule, &w->graph, NULL, NULL), 0);
    assert_int_equal(w->schedule.length_ns, then_ns);
}

static void end(struct odd_world *w)
{
    hr__schedule_clear(&w->schedule);
    hr__graph_clear(&w->graph);
    hr__trace_clear(&w->trace);
    free(w);
    assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
}

/* One call launches three kernels: the first one follows the call, the others their stream. */
static void a_graph_of_kernels(void **state)
{
    struct odd_world *w = begin(400);
    trace_call(&w->t, "cudaGraphLaunch", 1, 10, 20);
    trace_kernel(&w->t, "gemm", 1, 40, 100);
    trace_kernel(&w->t, "relu", 1, 142, 100);
    trace_kernel(&w->t, "gemm", 1, 244, 100);
    trace_call(&w->t, "cudaDeviceSynchronize", 2, 50, 300);
    halve(w, 400000, 250000);
    assert_int_equal(w->graph.counts.launches, 3);
    assert_int_equal(w->graph.counts.many, 2);
    assert_int_equal(w->graph.counts.unlaunched, 0);
    end(w);
}

/* Kernels of Triton are launched by the driver's calls. */
static void launches_by_the_driver(void **state)
{
    struct odd_world *w = begin(200);
    trace_add(&w->t, "cuda_driver", "cuLaunchKernelEx", "1", 10, 10, "\"correlation\": 1");
    trace_kernel(&w->t, "triton_poi_fused_add_relu_0", 1, 30, 100);
    trace_add(&w->t, "cuda_driver", "cuStreamSynchronize", "1", 40, 100, "\"correlation\": 2");
    halve(w, 200000, 150000);
    assert_int_equal(w->graph.counts.launches, 1);
    end(w);
}

/* AMD: calls are of HIP, in the category cuda_runtime; a copy that is not Async returns when it is
 * done; there is no record of what a call waited for. */
static void calls_of_hip(void **state)
{
    struct odd_world *w = begin(500);
    trace_call(&w->t, "hipExtModuleLaunchKernel", 1, 10, 10);
    trace_kernel(&w->t, "Cijk_Ailk_Bljk_SB_MT64x64x16", 1, 30, 100);
    trace_call(&w->t, "hipMemcpyWithStream", 2, 40, 200);
    trace_add(&w->t, "gpu_memcpy", "CopyDeviceToHost", "7", 132, 100,
              "\"device\": 0, \"stream\": 7, \"correlation\": 2, \"bytes\": 4096");
    trace_call(&w->t, "hipLaunchKernel", 3, 250, 10);
    trace_kernel(&w->t, "ncclDevKernel_Generic", 3, 270, 100);
    trace_call(&w->t, "hipDeviceSynchronize", 4, 280, 100);
    halve(w, 500000, 350000);
    assert_int_equal(w->graph.counts.waits, 2);
    assert_int_equal(w->graph.counts.collectives, 1);
    end(w);
}

/* The record of an event is unknown (always with CUDA 12.9), or synchronisations are not traced at
 * all: the call waits for the work that ended last before it returned, and the report can say so.
 */
static void synchronisations_without_records(void **state)
{
    for (int has_sync = 0; has_sync < 2; has_sync++) {
        struct odd_world *w = begin(300);
        trace_call(&w->t, "cudaLaunchKernel", 1, 10, 10);
        trace_kernel(&w->t, "gemm", 1, 30, 100);
        trace_call(&w->t, "cudaEventRecord", 2, 22, 2);
        trace_call(&w->t, "cudaEventSynchronize", 3, 30, 102);
        if (has_sync)
            trace_add(&w->t, "cuda_sync", "Event Sync", "1000007", 30, 102,
                      "\"cuda_sync_kind\": \"Event Sync\", \"stream\": 7, \"device\": 0, "
                      "\"correlation\": 3, \"wait_on_stream\": 7, "
                      "\"wait_on_cuda_event_record_corr_id\": -1");
        halve(w, 300000, 250000);
        assert_int_equal(w->graph.counts.guessed, 1);
        end(w);
    }
}

/* A wait of a stream whose event is unknown is counted, and the kernel follows its own stream. */
static void a_stream_that_waits_for_an_unknown_event(void **state)
{
    struct odd_world *w = begin(300);
    trace_call(&w->t, "cudaLaunchKernel", 1, 10, 10);
    trace_kernel(&w->t, "gemm", 1, 30, 100);
    trace_call(&w->t, "cudaStreamWaitEvent", 3, 25, 2);
    trace_add(&w->t, "cuda_sync", "Stream Wait Event", "20", 25, 2,
              "\"cuda_sync_kind\": \"Stream Wait Event\", \"stream\": 20, \"device\": 0, "
              "\"correlation\": 3, \"wait_on_stream\": -1, "
              "\"wait_on_cuda_event_record_corr_id\": -1");
    trace_replay(&w->t, &w->trace, &w->graph, &w->schedule);
    assert_int_equal(w->graph.counts.unresolved, 1);
    assert_int_equal(w->schedule.length_ns, 300000);
    end(w);
}

/* ---- traces that lack something ---- */

/* Adds a step of 100 us: an operator, its kernel, and waiting for it. */
static void add_step(struct trace_text *t, int step, int is_annotated)
{
    double at = 100.0 * step;
    char name[32];
    snprintf(name, sizeof name, "ProfilerStep#%d", step);
    if (is_annotated)
        trace_add(t, "user_annotation", name, "1", at, 100, "");
    trace_op(t, "aten::mm", at, 20);
    trace_call(t, "cudaLaunchKernel", 2 * step + 1, at + 5, 10);
    trace_kernel(t, "gemm", 2 * step + 1, at + 20, 60);
    trace_call(t, "cudaDeviceSynchronize", 2 * step + 2, at + 30, 60);
    trace_op(t, "aten::relu", at + 90, 10);
}

/* Steps, with a half of their kernels: of one step and several, with and without annotations. */
static void one_iteration(void **state)
{
    for (int steps = 1; steps <= 3; steps += 2)
        for (int is_annotated = 0; is_annotated < 2; is_annotated++) {
            struct odd_world *w = calloc(1, sizeof *w);
            for (int i = 0; i < steps; i++)
                add_step(&w->t, i, is_annotated);
            halve(w, 100000 * steps, 70000 * steps);
            assert_int_equal(w->graph.iterations, is_annotated ? steps : 1);
            assert_int_equal(w->graph.is_whole, !is_annotated);
            assert_non_null(strstr(w->graph.window, is_annotated ? "steps of the profiler"
                                                                 : "it has no ProfilerStep#"));
            end(w);
        }
}

/* Slices are linked by their arguments: flows, also ones that end without having begun, change
 * nothing. Without correlations there is no link: the kernels stay where they were. */
static void without_flows(void **state)
{
    static const char flows[] =
        ",\n{\"ph\": \"s\", \"id\": 1, \"pid\": 1, \"tid\": 1, \"ts\": 5, \"cat\": \"ac2g\", "
        "\"name\": \"ac2g\"},\n{\"ph\": \"f\", \"id\": 9, \"pid\": 0, \"tid\": 7, \"ts\": 20, "
        "\"cat\": "
        "\"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"}";
    for (int has_flows = 0; has_flows < 2; has_flows++) {
        struct odd_world *w = calloc(1, sizeof *w);
        add_step(&w->t, 0, 1);
        if (has_flows)
            w->t.length += (size_t)snprintf(w->t.text + w->t.length, sizeof w->t.text - w->t.length,
                                            "%s", flows);
        halve(w, 100000, 70000);
        assert_int_equal(w->graph.counts.launches, 1);
        end(w);
    }
    struct odd_world *w = calloc(1, sizeof *w);
    trace_add(&w->t, "cpu_op", "aten::mm", "1", 0, 100, "");
    trace_add(&w->t, "kernel", "gemm", "7", 20, 60, "\"device\": 0, \"stream\": 7");
    halve(w, 100000, 100000);
    assert_int_equal(w->graph.counts.unlaunched, 1);
    end(w);
}

/* ---- ranks in files ---- */

/* Writes the trace of a rank into a folder: its times count from a base, and its collective takes
 * as long as it waits for the later rank, plus 50. info: more of distributedInfo; group: more of
 * the collective's arguments. */
static void write_rank_of(const char *folder, int rank, int ranks, const char *file,
                          const char *collective, const char *info, const char *group)
{
    char path[256], text[2048];
    int late = rank > 0 ? 100 : 0;
    int n = snprintf(
        text, sizeof text,
        "{\"schemaVersion\": 1, \"baseTimeNanoseconds\": 17254%d2000000000000, "
        "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": %d, \"world_size\": %d%s}, "
        "\"traceEvents\": [\n"
        "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#5\", "
        "\"pid\": 1, \"tid\": 1, \"ts\": %d.250, \"dur\": 400},\n"
        "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernelExC\", "
        "\"pid\": 1, \"tid\": 1, \"ts\": %d.250, \"dur\": 10, \"args\": {\"correlation\": "
        "1}},\n"
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_%s_Sum_f32"
        "_RING_LL\", \"pid\": 0, \"tid\": 20, \"ts\": %d.250, \"dur\": %d, \"args\": "
        "{\"device\": 0, \"stream\": 20, \"correlation\": 1, %s"
        "\"In msg nelems\": 1024, \"dtype\": \"BFloat16\"}}]}",
        rank, rank, ranks, info, 7000 * rank, 7000 * rank + 10 + late, collective,
        7000 * rank + 30 + late, 150 - late, group);
    assert_in_range(n, 1, sizeof text - 1);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    test_write(path, text, (size_t)n);
}

static void write_rank_with(const char *folder, int rank, int ranks, const char *file,
                            const char *collective)
{
    write_rank_of(folder, rank, ranks, file, collective, "", "\"Group size\": 2, ");
}

static void write_rank(const char *folder, int rank, int ranks, const char *file)
{
    write_rank_with(folder, rank, ranks, file, "AllReduce");
}

static void remove_all(const char *folder, const char *const *files)
{
    char path[256];
    for (; *files; files++) {
        snprintf(path, sizeof path, "%s/%s", folder, *files);
        unlink(path);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* With the traces of all ranks, waiting and transfer are told apart. */
static void a_folder_of_ranks(void **state)
{
    static const char *const files[] = {"b.rank1.json", "a.rank0.json", "notes.txt", NULL};
    char folder[] = "/tmp/headrace-ranks-XXXXXX";
    struct hr_replay *replay;
    struct hr_error error = {0};
    assert_non_null(mkdtemp(folder));
    const char *paths[] = {folder};
    write_rank(folder, 1, 2, files[0]);
    write_rank(folder, 0, 2, files[1]);
    write_rank(folder, 0, 2, files[2]);
    if (hr_replay_open(&replay, paths, 1, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(replay->graph.counts.joined, 2);
    for (size_t i = 0; i < replay->graph.task_count; i++) {
        const struct hr__graph_task *task = &replay->graph.tasks[i];
        if (task->kind == HR__TASK_COLLECTIVE) /* arrivals have no length */
            assert_true(!task->length_ns || task->length_ns == 50000);
    }
    hr_replay_destroy(&replay);
    remove_all(folder, files);
}

static void ranks_that_do_not_belong_together(void **state)
{
    static const char *const files[] = {"a.json", "b.json", NULL};
    static const struct {
        int rank, ranks;
        const char *collective, *words;
    } cases[] = {
        {0, 2, "AllReduce", "two traces are of rank 0: give one trace of each rank"},
        {1, 4, "AllReduce", "rank 0 is of a run of 2 ranks, and rank 1 of one of 4"},
        {-1, 2, "AllReduce", "does not say its rank"},
        {1, 2, "ReduceScatter",
         "trace 2 has 'ncclDevKernel_ReduceScatter_Sum_f32_RING_LL' in its window where the first "
         "one has 'ncclDevKernel_AllReduce_Sum_f32_RING_LL': give traces of the same steps of one "
         "run"},
    };
    char folder[] = "/tmp/headrace-ranks-XXXXXX";
    assert_non_null(mkdtemp(folder));
    const char *paths[] = {folder};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr_replay *replay;
        struct hr_error error = {0};
        write_rank(folder, 0, 2, files[0]);
        write_rank_with(folder, cases[i].rank, cases[i].ranks, files[1], cases[i].collective);
        assert_int_equal(hr_replay_open(&replay, paths, 1, NULL, &error), -EINVAL);
        if (!strstr(error.message, cases[i].words))
            fail_msg("%s", error.message);
    }
    remove_all(folder, files);
}

/* Collectives of groups of two among three ranks: which belong together is not known. */
static void ranks_of_several_groups(void **state)
{
    static const char *const files[] = {"a.json", "b.json", "c.json", NULL};
    char folder[] = "/tmp/headrace-ranks-XXXXXX";
    struct hr_replay *replay;
    struct hr_error error = {0};
    assert_non_null(mkdtemp(folder));
    const char *paths[] = {folder};
    for (int rank = 0; rank < 3; rank++)
        write_rank(folder, rank, 3, files[rank]);
    assert_int_equal(hr_replay_open(&replay, paths, 1, NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "is of a group with 2 ranks, and there are 3 traces"));
    remove_all(folder, files);
}

#define PAIR                                                                                       \
    "\"Process Group Name\": \"1\", \"Process Group Description\": \"tp\", "                       \
    "\"Process Group Ranks\": \"[0, 1]\", \"Group size\": 2, "
#define WORLD "\"Process Group Name\": \"0\", \"Process Group Ranks\": \"[0, 1, 2]\", "
#define CONFIG                                                                                     \
    ", \"pg_count\": 2, \"pg_config\": [{\"pg_name\": \"0\", \"pg_desc\": \"default_pg\", "        \
    "\"backend_config\": \"cuda:nccl\", \"pg_size\": 3, \"ranks\": [0, 1, 2]}, 7, {\"pg_name\": "  \
    "\"1\", \"pg_desc\": \"tp\", \"pg_size\": 2, \"ranks\": [0, 1]}]"

/* Groups have the names that Kineto writes, in distributedInfo and with each collective; ranks that
 * are in several are refused, and what is known is said. */
static void groups_by_name(void **state)
{
    static const char *const files[] = {"a.json", "b.json", "c.json", NULL};
    static const struct {
        const char *info, *first, *others, *words;
    } cases[] = {
        {CONFIG, WORLD, WORLD, NULL},
        {"", WORLD, WORLD, NULL},
        {CONFIG, PAIR, PAIR, "which is of group 'tp' (ranks [0, 1]) with 2 ranks, and there are 3"},
        {"", PAIR, PAIR, "which is of group 'tp' (ranks [0, 1]) with 2 ranks, and there are 3"},
        {"", WORLD, "\"Process Group Name\": \"7\", ",
         "of group '7' in its window where the first one has "
         "'ncclDevKernel_AllReduce_Sum_f32_RING_LL' of group '0' (ranks [0, 1, 2])"},
        /* collectives that do not say their group, as gloo's never do */
        {CONFIG, "", "",
         "does not say its process group, and the run has group 'tp' (ranks [0, "
         "1]) with 2 ranks"},
    };
    char folder[] = "/tmp/headrace-ranks-XXXXXX";
    assert_non_null(mkdtemp(folder));
    const char *paths[] = {folder};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr_replay *replay;
        struct hr_error error = {0};
        for (int rank = 0; rank < 3; rank++)
            write_rank_of(folder, rank, 3, files[rank], "AllReduce", cases[i].info,
                          rank ? cases[i].others : cases[i].first);
        int code = hr_replay_open(&replay, paths, 1, NULL, &error);
        if (code != (cases[i].words ? -EINVAL : 0))
            fail_msg("case %zu: %s", i, error.message);
        if (cases[i].words && !strstr(error.message, cases[i].words))
            fail_msg("%s", error.message);
        if (!code)
            assert_int_equal(replay->graph.counts.joined, 3);
        hr_replay_destroy(&replay);
    }
    remove_all(folder, files);
    assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
}

/* Two ranks of a run of four: what was transfer still holds waiting, and the report says so. */
static void some_of_the_ranks(void **state)
{
    static const char *const files[] = {"a.json", "b.json", NULL};
    char folder[] = "/tmp/headrace-ranks-XXXXXX", *text;
    struct hr_replay *replay;
    struct hr_error error = {0};
    assert_non_null(mkdtemp(folder));
    const char *paths[] = {folder};
    write_rank(folder, 0, 4, files[0]);
    write_rank(folder, 1, 4, files[1]);
    if (hr_replay_open(&replay, paths, 1, NULL, &error) ||
        hr_replay_report_text(replay, NULL, 0, 400, &text, &error))
        fail_msg("%s", error.message);
    assert_non_null(strstr(text, "2 of 4 ranks were given"));
    hr_replay_free(text);
    hr_replay_destroy(&replay);
    remove_all(folder, files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_of_kernels),
        cmocka_unit_test(launches_by_the_driver),
        cmocka_unit_test(calls_of_hip),
        cmocka_unit_test(synchronisations_without_records),
        cmocka_unit_test(a_stream_that_waits_for_an_unknown_event),
        cmocka_unit_test(one_iteration),
        cmocka_unit_test(without_flows),
        cmocka_unit_test(a_folder_of_ranks),
        cmocka_unit_test(ranks_that_do_not_belong_together),
        cmocka_unit_test(groups_by_name),
        cmocka_unit_test(ranks_of_several_groups),
        cmocka_unit_test(some_of_the_ranks),
    };
    return cmocka_run_group_tests_name("oddities", tests, NULL, NULL);
}
