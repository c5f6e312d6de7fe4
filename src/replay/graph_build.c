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
        hr__graph_add_streams(g, rank);
    if (!g->no_memory)
        hr__graph_add_syncs(g, rank);
    if (!g->no_memory)
        hr__graph_set_lags(g, rank);
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
    return code;
}

/* Finds the end of the last task, and whether there is any. */
static void measure(struct hr__graph *g)
{
    int64_t begin = 0, end = INT64_MIN;
    for (size_t i = 0; i < g->task_count; i++) {
        const struct hr__graph_task *task = &g->tasks[i];
        begin = task->begin_ns < begin ? task->begin_ns : begin;
        end = task->begin_ns + task->length_ns > end ? task->begin_ns + task->length_ns : end;
    }
    g->recorded_ns = g->task_count ? end - begin : 0;
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
