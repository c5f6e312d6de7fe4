/*
 * Collectives of gloo, which run on threads of their own beside the work of a CPU; see graph.h.
 *
 * Each is an annotation "gloo:all_reduce" on a thread of gloo's, and becomes a task that
 * communicates. The operators c10d::* that ask for collectives are done in their order, so the last
 * collective in the window belongs to the last operator. Waiting for one leaves no record but time
 * without operators on the main thread, which ends soon after the collective: such time waits for
 * it, and for all that ended earlier. What ends after the last wait is waited for by the optimizer.
 */
#include "replay/graph.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_LEAST_NS 20000 /* of a wait; shorter ones are not divided */
#define WAKE_NS                                                                                    \
    200000 /* a thread goes on this long after the collective, or a quarter of the                 \
              time that it waited */

/* A collective, or the operator that asks for one. */
struct gloo_item {
    int64_t begin_ns, end_ns;
    uint32_t event, at; /* at: the collective's task; the operator's track */
};

struct gloo_list {
    struct gloo_item *items;
    size_t count;
};

static int by_begin(const void *a, const void *b)
{
    const struct gloo_item *x = a, *y = b;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->event < y->event ? -1 : x->event > y->event;
}

static int by_end(const void *a, const void *b)
{
    const struct gloo_item *x = a, *y = b;
    if (x->end_ns != y->end_ns)
        return x->end_ns < y->end_ns ? -1 : 1;
    return by_begin(a, b);
}

static void sort(struct gloo_list *list, int (*order)(const void *, const void *))
{
    if (list->count)
        qsort(list->items, list->count, sizeof *list->items, order);
}

static void add(struct hr__graph *g, struct gloo_list *list, struct gloo_item item)
{
    if (hr__reserve(HR__TAG_REPLAY, &list->items, list->count + 1))
        g->no_memory = 1;
    else
        list->items[list->count++] = item;
}

int hr__trace_is_gloo(const struct hr__trace_data *trace, const struct hr__trace_event *event)
{
    return event->kind == HR__TRACE_ANNOTATION && event->length_ns > 0 &&
           !strncmp(hr__trace_name(trace, event->name), "gloo:", 5);
}

/* Returns the lane of a rank's thread; NULL: it has none. */
static struct hr__lane *lane_of(const struct hr__graph *g, size_t rank, uint32_t track)
{
    for (size_t i = 0; i < g->lane_count; i++)
        if (g->lanes[i].rank == rank && g->lanes[i].track == track)
            return &g->lanes[i];
    return NULL;
}

/* Adds a collective after the last one of its thread, whose lane is the last one. */
static void add_collective(struct hr__graph *g, size_t rank, uint32_t event, struct gloo_list *list)
{
    struct hr__lane *lane = &g->lanes[g->lane_count - 1];
    const struct hr__trace_event *e = &g->ranks[rank].trace->events[event];
    struct gloo_item item = {.begin_ns = hr__graph_time(g, rank, e->begin_ns), .event = event};
    item.end_ns = item.begin_ns + e->length_ns;
    item.at = hr__graph_add_task(g, (struct hr__graph_task){.begin_ns = item.begin_ns,
                                                            .length_ns = e->length_ns,
                                                            .event = event,
                                                            .lane = (uint32_t)g->lane_count - 1,
                                                            .launch = HR__NO_TASK,
                                                            .rank = (uint16_t)rank,
                                                            .kind = HR__TASK_COLLECTIVE});
    if (g->no_memory)
        return;
    if (lane->last == HR__NO_TASK)
        lane->first = item.at;
    else
        hr__graph_add_edge(
            g, (struct hr__edge){.from = lane->last, .to = item.at, .kind = HR__EDGE_THREAD});
    lane->last = item.at;
    g->ranks[rank].task[event] = item.at;
    g->counts.collectives++;
    add(g, list, item);
}

/* Finds the collectives and operators of a thread. */
static void read_thread(struct hr__graph *g, size_t rank, uint32_t track,
                        struct gloo_list *collectives, struct gloo_list *operators)
{
    const struct hr__rank_events *r = &g->ranks[rank];
    int has_lane = lane_of(g, rank, track) != NULL, is_new = 0;
    for (uint32_t i = r->first[track]; i < r->first[track + 1] && !g->no_memory; i++) {
        uint32_t event = r->order[i];
        const struct hr__trace_event *e = &r->trace->events[event];
        if (e->begin_ns < r->begin_ns || e->begin_ns >= r->end_ns)
            continue;
        if (has_lane && e->kind == HR__TRACE_OP &&
            !strncmp(hr__trace_name(r->trace, e->name), "c10d::", 6))
            add(g, operators,
                (struct gloo_item){
                    .begin_ns = hr__graph_time(g, rank, e->begin_ns), .event = event, .at = track});
        if (has_lane || !hr__trace_is_gloo(r->trace, e))
            continue;
        if (!is_new)
            hr__graph_add_lane(g, (struct hr__lane){.rank = (uint32_t)rank,
                                                    .track = track,
                                                    .first = HR__NO_TASK,
                                                    .last = HR__NO_TASK});
        is_new = 1;
        if (!g->no_memory)
            add_collective(g, rank, event, collectives);
    }
}

/* Adds an edge from each operator to its collective. */
static void launch(struct hr__graph *g, size_t rank, struct gloo_list *collectives,
                   struct gloo_list *operators)
{
    sort(collectives, by_begin);
    sort(operators, by_begin);
    for (size_t i = collectives->count, k = operators->count; i && k; i--, k--) {
        const struct gloo_item *made = &collectives->items[i - 1], *by = &operators->items[k - 1];
        const struct hr__lane *lane = lane_of(g, rank, by->at);
        uint32_t low = lane->first, high = lane->last;
        if (by->begin_ns > made->begin_ns || lane->first == HR__NO_TASK)
            continue;
        while (low < high) { /* the first task of the operator */
            uint32_t middle = low + (high - low) / 2;
            if (g->tasks[middle].begin_ns < by->begin_ns)
                low = middle + 1;
            else
                high = middle;
        }
        if (g->tasks[low].begin_ns > made->begin_ns)
            continue;
        g->tasks[made->at].phase = g->ranks[rank].phase[by->event];
        hr__graph_add_edge(
            g, (struct hr__edge){
                   .from = low, .to = made->at, .kind = HR__EDGE_CROSS, .from_begin = 1});
    }
}

/* Returns whether a task is time without operators that nothing else divides. */
static int is_gap(const struct hr__graph *g, uint32_t i)
{
    const struct hr__graph_task *gap = &g->tasks[i], *rest = gap + 1;
    return gap->kind == HR__TASK_UNTRACED && gap->length_ns >= WAIT_LEAST_NS &&
           rest->kind == HR__TASK_UNTRACED && rest->launch == i && !rest->length_ns;
}

static void wait_for(struct hr__graph *g, const struct gloo_item *item, uint32_t task)
{
    hr__graph_add_edge(g, (struct hr__edge){.from = item->at, .to = task, .kind = HR__EDGE_CROSS});
}

/* Divides the main thread's waits, and makes them wait. */
static void join(struct hr__graph *g, size_t rank, struct gloo_list *list)
{
    const struct hr__lane *lane = lane_of(g, rank, g->ranks[rank].main);
    size_t waited = 0, ended = 0;
    sort(list, by_end);
    if (!lane || lane->first == HR__NO_TASK)
        return;
    uint32_t first = lane->first, last = lane->last;
    for (uint32_t i = first; i < last && !g->no_memory; i++) {
        if (!is_gap(g, i))
            continue;
        int64_t begin = g->tasks[i].begin_ns, length = g->tasks[i].length_ns, end = begin + length;
        while (ended < list->count && list->items[ended].end_ns <= end)
            ended++;
        int64_t late = ended ? end - list->items[ended - 1].end_ns : length;
        if (late >= length || late > (length / 4 > WAKE_NS ? length / 4 : WAKE_NS))
            continue;
        g->tasks[i].length_ns = 0;
        g->tasks[i + 1].begin_ns = end - late;
        g->tasks[i + 1].length_ns = late;
        for (; waited < ended; waited++)
            wait_for(g, &list->items[waited], i + 1);
    }
    for (uint32_t i = first; i <= last && waited < list->count && !g->no_memory; i++)
        if (g->tasks[i].phase == HR__PHASE_OPTIMIZER)
            while (waited < list->count && list->items[waited].end_ns <= g->tasks[i].begin_ns)
                wait_for(g, &list->items[waited++], i);
}

void hr__graph_add_gloo(struct hr__graph *g, size_t rank)
{
    struct gloo_list collectives = {.items = NULL}, operators = {.items = NULL};
    const struct hr__trace_data *t = g->ranks[rank].trace;
    for (uint32_t track = 0; track < t->track_count && !g->no_memory; track++)
        if (!t->tracks[track].is_stream)
            read_thread(g, rank, track, &collectives, &operators);
    if (!g->no_memory)
        launch(g, rank, &collectives, &operators);
    if (!g->no_memory)
        join(g, rank, &collectives);
    hr__free(collectives.items);
    hr__free(operators.items);
}
