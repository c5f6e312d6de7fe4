/* The work of devices, stream by stream, and the calls that launched it; see graph.h. */
#include "replay/graph.h"

#include <string.h>

#define FAR_NS (INT64_C(1) << 55) /* a year: work that far from the window is damaged */

static uint8_t kind_of(const struct hr__trace_event *e, const char *name)
{
    if (e->kind == HR__TRACE_COPY)
        return HR__TASK_COPY;
    if (e->kind == HR__TRACE_SET)
        return HR__TASK_SET;
    return strstr(name, "ncclKernel") || strstr(name, "ncclDevKernel") || !strncmp(name, "nccl", 4)
               ? HR__TASK_COLLECTIVE
               : HR__TASK_KERNEL;
}

/* Returns whether work belongs to the window: it was launched in it, or before it and is not done
 * when it begins. */
static int is_inside(const struct hr__rank_events *r, const struct hr__trace_event *e,
                     uint32_t call)
{
    int64_t launched = call == HR__NO_EVENT ? e->begin_ns : r->trace->events[call].begin_ns;
    if (launched >= r->end_ns)
        return 0;
    return launched >= r->begin_ns || hr__trace_end(e) > r->begin_ns;
}

/* Adds one piece of work after the last one of its stream. */
static void add_work(struct hr__graph *g, size_t rank, uint32_t lane_at, uint32_t event)
{
    struct hr__rank_events *r = &g->ranks[rank];
    const struct hr__trace_event *e = &r->trace->events[event];
    struct hr__lane *lane = &g->lanes[lane_at];
    uint32_t call = hr__rank_events_find(r, HR__LINK_CALL, e->link), last = lane->last;
    if (!is_inside(r, e, call))
        return;
    if (e->begin_ns < r->begin_ns - FAR_NS || hr__trace_end(e) > r->end_ns + FAR_NS) {
        g->counts.far++;
        return;
    }
    int64_t begin = e->begin_ns > r->begin_ns ? e->begin_ns : r->begin_ns;
    uint32_t launch = call == HR__NO_EVENT ? HR__NO_TASK : r->task[call];
    uint32_t at = hr__graph_add_task(
        g,
        (struct hr__graph_task){.begin_ns = hr__graph_time(g, rank, begin),
                                .length_ns = hr__trace_end(e) - begin,
                                .event = event,
                                .lane = lane_at,
                                .launch = launch,
                                .rank = (uint16_t)rank,
                                .kind = kind_of(e, hr__trace_name(r->trace, e->name)),
                                .phase = call == HR__NO_EVENT ? HR__PHASE_OTHER : r->phase[call]});
    if (g->no_memory)
        return;
    r->task[event] = at;
    g->counts.kernels++;
    if (launch == HR__NO_TASK) {
        g->counts.unlaunched++;
    } else {
        g->counts.launches++;
        g->counts.skewed += g->tasks[at].begin_ns < g->tasks[launch].begin_ns;
        hr__graph_add_edge(
            g,
            (struct hr__edge){.from = launch, .to = at, .kind = HR__EDGE_LAUNCH, .from_begin = 1});
    }
    g->counts.collectives += g->tasks[at].kind == HR__TASK_COLLECTIVE;
    if (last == HR__NO_TASK) {
        lane->first = at;
    } else {
        g->counts.many += launch != HR__NO_TASK && g->tasks[last].launch == launch;
        hr__graph_add_edge(g, (struct hr__edge){.from = last, .to = at, .kind = HR__EDGE_STREAM});
    }
    lane->last = at;
}

void hr__graph_add_streams(struct hr__graph *g, size_t rank)
{
    const struct hr__rank_events *r = &g->ranks[rank];
    for (uint32_t track = 0; track < r->trace->track_count && !g->no_memory; track++) {
        if (!r->trace->tracks[track].is_stream)
            continue;
        uint32_t lane = hr__graph_add_lane(g, (struct hr__lane){.rank = (uint32_t)rank,
                                                                .track = track,
                                                                .is_stream = 1,
                                                                .first = HR__NO_TASK,
                                                                .last = HR__NO_TASK});
        for (uint32_t i = r->first[track]; i < r->first[track + 1] && !g->no_memory; i++)
            if (hr__trace_is_gpu(&r->trace->events[r->order[i]]))
                add_work(g, rank, lane, r->order[i]);
    }
}
