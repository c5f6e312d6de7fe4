/*
 * Real traces that HolisticTraceAnalysis publishes, with the answers of its own tests: which launch
 * delay, which gap between kernels and which synchronisations hold work back. Skipped where the
 * traces are absent (HEADRACE_SHARED_DATA).
 */
#include "../test.h"

#include "replay/path.h"
#include "replay/scenario.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

struct published {
    struct hr__trace_data trace;
    struct hr__graph graph;
    struct hr__replay_schedule schedule;
    struct hr__replay_identity identity;
};

static void open_trace(struct published *p, const char *name, const struct hr__trace_window *window)
{
    char path[512];
    struct hr_error error = {0};
    const char *data = getenv("HEADRACE_SHARED_DATA"), *root = getenv("HEADRACE_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s%s/kineto/%s.json.gz", data ? data : root,
             data ? "" : "/../shared/data", name);
    if (access(path, R_OK))
        skip();
    if (hr__trace_read(&p->trace, path, &error) ||
        hr__graph_build(&p->graph, &p->trace, 1, window, &error) ||
        hr__graph_replay(&p->schedule, &p->graph, NULL, &error) ||
        hr__identity_find(&p->identity, &p->graph, &p->schedule, &error))
        fail_msg("%s: %s", name, error.message);
}

static void close_trace(struct published *p)
{
    hr__schedule_clear(&p->schedule);
    hr__graph_clear(&p->graph);
    hr__trace_clear(&p->trace);
}

static const struct hr__trace_window second_forward = {.name = "|measure|forward]", .instance = 1};

/* Returns the work of the device with this correlation. */
static uint32_t work(const struct published *p, int64_t correlation)
{
    uint32_t event = hr__rank_events_find(&p->graph.ranks[0], HR__LINK_DEVICE, correlation);
    assert_int_not_equal(event, HR__NO_EVENT);
    assert_int_not_equal(p->graph.ranks[0].task[event], HR__NO_TASK);
    return p->graph.ranks[0].task[event];
}

/* Returns the edge of a kind to a task; from: HR__NO_TASK: any. */
static const struct hr__edge *edge_to(const struct published *p, enum hr__edge_kind kind,
                                      uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < p->graph.edge_count; i++) {
        const struct hr__edge *e = &p->graph.edges[i];
        if (e->kind == kind && e->to == to && (from == HR__NO_TASK || e->from == from))
            return e;
    }
    return NULL;
}

/* Returns the name of the work that the n-th return of a call waits for; NULL: none. */
static const char *awaited(const struct published *p, const char *call, int n)
{
    for (uint32_t i = 0; i < p->graph.task_count; i++) {
        const struct hr__graph_task *task = &p->graph.tasks[i];
        if (task->kind != HR__TASK_RETURN || strcmp(hr__graph_name(&p->graph, task), call) || n--)
            continue;
        const struct hr__edge *e = edge_to(p, HR__EDGE_SYNC, HR__NO_TASK, i);
        return e ? hr__graph_name(&p->graph, &p->graph.tasks[e->from]) : NULL;
    }
    return NULL;
}

static void replays_are_identical(void **state)
{
    static const struct hr__trace_window outer = {.name = "|measure|forward]", .instance = 0};
    static const struct {
        const char *name;
        const struct hr__trace_window *window;
    } cases[] = {{"simple_add", NULL},      {"simple_add", &second_forward},
                 {"alexnet_forward", NULL}, {"alexnet_forward", &outer},
                 {"event_sync", NULL},      {"event_sync_multi_stream", NULL},
                 {"ddp_ns_rank0", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct published p;
        open_trace(&p, cases[i].name, cases[i].window);
        assert_true(fabs(p.identity.error) <= 0.01);
        assert_true(p.identity.start_median <= 0.01);
        assert_true(fabs(p.identity.usual_error) <= 0.01);
        close_trace(&p);
    }
}

static void simple_add(void **state)
{
    struct published p;
    open_trace(&p, "simple_add", &second_forward);
    const struct hr__edge *launch = edge_to(&p, HR__EDGE_LAUNCH, HR__NO_TASK, work(&p, 5597));
    assert_non_null(launch);
    assert_int_equal(launch->lag_ns, 27000);
    assert_true(launch->from_begin);
    const struct hr__edge *gap = edge_to(&p, HR__EDGE_STREAM, work(&p, 5597), work(&p, 5604));
    assert_non_null(gap);
    assert_int_equal(gap->lag_ns, 7000);
    const char *last = awaited(&p, "cudaDeviceSynchronize", 1);
    assert_non_null(last);
    assert_non_null(strstr(last, "epilogue::impl::globalKernel"));
    close_trace(&p);
}

/* Counts the ends of events on a critical path as HolisticTraceAnalysis counts its nodes: both ends
 * of operators, calls and work of the device, without calls of length 0. The path leaves the CPU at
 * the begin of a launch, within calls and operators that end later. */
static int count_nodes(const struct published *p)
{
    int64_t leaves_ns = INT64_MAX;
    int nodes = 0;
    uint8_t *seen = calloc(p->trace.event_count, 1);
    for (struct hr__path_walk w = {.is_begun = 0}; hr__path_back(&w, &p->graph, &p->schedule);) {
        const struct hr__graph_task *task = &p->graph.tasks[w.task];
        if (task->event == HR__NO_EVENT || task->kind == HR__TASK_RETURN || seen[task->event])
            continue;
        const struct hr__trace_event *e = hr__graph_event(&p->graph, task);
        seen[task->event] = 1;
        if (hr__task_is_device(task)) {
            leaves_ns = p->trace.events[p->graph.tasks[task->launch].event].begin_ns;
            nodes += 2;
        } else if (e->length_ns && task->kind != HR__TASK_UNTRACED) {
            nodes += 1 + (hr__trace_end(e) <= leaves_ns);
        }
    }
    free(seen);
    return nodes;
}

/* The critical path that HolisticTraceAnalysis finds has 315 nodes. It takes time between operators
 * for nothing, so its path ends with kernels. That time is recorded, and the CPU needs it: the last
 * kernel ends 235 us before the CPU asks for it. So the path here stays on the CPU, which has 31
 * ends of events where the other one has those of 6 pieces of device work. */
static void nodes_of_the_critical_path(void **state)
{
    struct published p;
    open_trace(&p, "simple_add", &second_forward);
    assert_int_equal(count_nodes(&p), 315 - 2 * 6 + 31);
    for (size_t i = 0; i < p.graph.task_count; i++)
        if (p.graph.tasks[i].kind == HR__TASK_UNTRACED)
            p.graph.tasks[i].length_ns = 0;
    hr__schedule_clear(&p.schedule);
    assert_int_equal(hr__graph_replay(&p.schedule, &p.graph, NULL, NULL), 0);
    assert_int_equal(count_nodes(&p), 315);
    close_trace(&p);
}

static void alexnet(void **state)
{
    struct published p;
    open_trace(&p, "alexnet_forward", &second_forward);
    const struct hr__edge *event = edge_to(&p, HR__EDGE_EVENT, work(&p, 5606), work(&p, 5629));
    assert_non_null(event);
    close_trace(&p);
}

static void event_sync(void **state)
{
    struct published p;
    open_trace(&p, "event_sync", NULL);
    const char *name = awaited(&p, "cudaEventSynchronize", 0);
    assert_non_null(name);
    assert_non_null(strstr(name, "spin_kernel"));
    close_trace(&p);
}

/* Kernels of half the length: the gain stops where launches are the bottleneck. A throwaway replay
 * by other means predicted 400 ms. */
static void half_the_kernels(void **state)
{
    struct published p;
    open_trace(&p, "ddp_ns_rank0", NULL);
    assert_int_equal(p.graph.iterations, 5);
    assert_int_equal(p.graph.counts.polled, 1);
    for (size_t i = 0; i < p.graph.task_count; i++)
        if (hr__task_is_device(&p.graph.tasks[i]))
            p.graph.tasks[i].length_ns /= 2;
    hr__schedule_clear(&p.schedule);
    assert_int_equal(hr__graph_replay(&p.schedule, &p.graph, NULL, NULL), 0);
    assert_in_range(p.schedule.length_ns, 392000000, 408000000);
    close_trace(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_are_identical),
        cmocka_unit_test(simple_add),
        cmocka_unit_test(nodes_of_the_critical_path),
        cmocka_unit_test(alexnet),
        cmocka_unit_test(event_sync),
        cmocka_unit_test(half_the_kernels),
    };
    return cmocka_run_group_tests_name("published traces", tests, NULL, NULL);
}
