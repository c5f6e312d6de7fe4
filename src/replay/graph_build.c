/* Builds the graph of traces from its parts; see graph.h. */
#include "replay/graph.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>

static void add_rank(struct hr__graph *g, size_t rank)
{
    hr__graph_add_threads(g, rank);
    if (!g->no_memory)
        hr__graph_join_threads(g, rank);
    if (!g->no_memory)
        hr__graph_add_gloo(g, rank);
    if (!g->no_memory)
        hr__graph_add_streams(g, rank);
    if (!g->no_memory)
        hr__graph_add_syncs(g, rank);
    if (!g->no_memory)
        hr__graph_set_lags(g, rank);
}

enum { LINK_IN = 1, LINK_ANY = 2 };

/* Finds the CPU threads, besides the main ones, that nothing waits for: a loader's thread that pins
 * memory, another training in the same process. They have times of their own, which would hold back
 * every prediction. */
static void find_apart(struct hr__graph *g)
{
    uint8_t *links = hr__alloc(HR__TAG_REPLAY, g->lane_count + 1, 1);
    if (!links) {
        g->no_memory = 1;
        return;
    }
    for (size_t i = 0; i < g->edge_count; i++) {
        uint32_t from = g->tasks[g->edges[i].from].lane, to = g->tasks[g->edges[i].to].lane;
        if (from == to)
            continue;
        links[from] |= LINK_ANY;
        links[to] |= g->edges[i].kind == HR__EDGE_CROSS ? LINK_IN | LINK_ANY : LINK_ANY;
    }
    for (size_t i = 0; i < g->lane_count; i++) {
        struct hr__lane *lane = &g->lanes[i];
        if (lane->is_stream || lane->first == HR__NO_TASK ||
            lane->track == g->ranks[lane->rank].main)
            continue;
        lane->is_apart = !links[i];
        g->counts.apart += !links[i];
        g->counts.loose += links[i] && !(links[i] & LINK_IN);
    }
    hr__free(links);
}

static int build(struct hr__graph *g, const struct hr__trace_data *traces,
                 const struct hr__trace_window *window, struct hr_error *error)
{
    static const struct hr__trace_window steps = {.name = NULL, .instance = -1};
    int code = 0;
    for (size_t i = 0; i < g->rank_count && !code; i++) {
        if (hr__rank_events_make(&g->ranks[i], &traces[i]))
            g->no_memory = 1;
        else
            code = hr__graph_find_window(g, i, window ? window : &steps, error);
        if (g->no_memory)
            return 0;
    }
    if (code)
        return code;
    g->origin_ns = g->ranks[0].begin_ns;
    code = hr__graph_align(g, error);
    for (size_t i = 0; i < g->rank_count && !code && !g->no_memory; i++)
        add_rank(g, i);
    if (!code && !g->no_memory)
        hr__graph_join_ranks(g);
    if (!code && !g->no_memory)
        find_apart(g);
    return code;
}

/* Finds the end of the last task, and whether there is any. */
static void measure(struct hr__graph *g)
{
    int64_t begin = 0, end = INT64_MIN;
    for (size_t i = 0; i < g->task_count; i++) {
        const struct hr__graph_task *task = &g->tasks[i];
        if (g->lanes[task->lane].is_apart)
            continue;
        begin = task->begin_ns < begin ? task->begin_ns : begin;
        end = task->begin_ns + task->length_ns > end ? task->begin_ns + task->length_ns : end;
    }
    g->recorded_ns = end > begin ? end - begin : 0;
    int64_t window_ns = g->ranks[0].end_ns - g->ranks[0].begin_ns;
    g->tail_ns = end > window_ns ? end - window_ns : 0;
}

int hr__graph_build(struct hr__graph *out, const struct hr__trace_data *traces, size_t count,
                    const struct hr__trace_window *window, struct hr_error *error)
{
    *out = (struct hr__graph){.rank_count = count, .iterations = 1};
    if (!count || count > UINT16_MAX)
        return hr__fail(error, -EINVAL, "%zu traces: give from 1 to 65535", count);
    out->ranks = hr__alloc(HR__TAG_REPLAY, count, sizeof *out->ranks);
    if (!out->ranks)
        out->no_memory = 1;
    int code = out->no_memory ? 0 : build(out, traces, window, error);
    if (code)
        return code;
    if (out->no_memory)
        return hr__fail(error, -ENOMEM, "out of memory for the graph of a trace");
    measure(out);
    if (out->recorded_ns <= 0)
        return hr__fail(error, -ENODATA,
                        "nothing ran in the part of the trace to replay (%s): choose another one",
                        out->window);
    return 0;
}
