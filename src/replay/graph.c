/* Tasks, lanes and edges of a graph; see graph.h. graph_build.c puts them together. */
#include "replay/graph.h"

#include "base/memory.h"

uint32_t hr__graph_add_task(struct hr__graph *g, struct hr__graph_task task)
{
    if (g->no_memory || g->task_count >= HR__NO_TASK - 1 ||
        hr__reserve(HR__TAG_REPLAY, &g->tasks, g->task_count + 1)) {
        g->no_memory = 1;
        return 0;
    }
    g->tasks[g->task_count] = task;
    return (uint32_t)g->task_count++;
}

uint32_t hr__graph_add_lane(struct hr__graph *g, struct hr__lane lane)
{
    if (g->no_memory || hr__reserve(HR__TAG_REPLAY, &g->lanes, g->lane_count + 1)) {
        g->no_memory = 1;
        return 0;
    }
    g->lanes[g->lane_count] = lane;
    return (uint32_t)g->lane_count++;
}

void hr__graph_add_edge(struct hr__graph *g, struct hr__edge edge)
{
    if (g->no_memory || hr__reserve(HR__TAG_REPLAY, &g->edges, g->edge_count + 1)) {
        g->no_memory = 1;
        return;
    }
    g->edges[g->edge_count++] = edge;
}

const char *hr__graph_name(const struct hr__graph *g, const struct hr__graph_task *task)
{
    if (task->event == HR__NO_EVENT)
        return "";
    return hr__trace_name(g->ranks[task->rank].trace, hr__graph_event(g, task)->name);
}

void hr__graph_clear(struct hr__graph *g)
{
    for (size_t i = 0; g->ranks && i < g->rank_count; i++)
        hr__rank_events_clear(&g->ranks[i]);
    hr__free(g->ranks);
    hr__free(g->tasks);
    hr__free(g->edges);
    hr__free(g->lanes);
    *g = (struct hr__graph){.ranks = NULL};
}
