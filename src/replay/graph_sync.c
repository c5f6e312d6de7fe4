/*
 * What blocking calls and streams waited for, and the lags of all edges to devices' work.
 *
 * A call's duration is mostly waiting: it becomes its own cost, and the wait is left to the edges
 * from the work that it waited for. The profiler's cuda_sync records say which work that is. Where
 * they are missing, or do not know the event (always with CUDA 12.9 and later), it is the work
 * that ended last before the call returned.
 */
#include "replay/graph.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define SLACK_NS        5000 /* between the clocks of CPU and device */
#define USUAL_LAUNCH_NS 5000 /* if the trace has no launch on an idle stream */
#define USUAL_GAP_NS    1000
#define RETURN_SAMPLES_NS                                                                          \
    3000 /* cost of a call that waits, at most, until a shorter one is known */

static int64_t end_of(const struct hr__graph_task *task)
{
    return task->begin_ns + task->length_ns;
}

/* When a task of a device was launched. */
static int64_t launched(const struct hr__graph *g, uint32_t task)
{
    uint32_t launch = g->tasks[task].launch;
    return launch == HR__NO_TASK ? INT64_MIN : g->tasks[launch].begin_ns;
}

/* Returns the first task of a stream that was launched at or after a time; one past its last. */
static uint32_t first_launched(const struct hr__graph *g, const struct hr__lane *lane, int64_t ns)
{
    uint32_t low = lane->first, high = lane->last + 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (launched(g, middle) < ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t last_launched(const struct hr__graph *g, const struct hr__lane *lane, int64_t ns)
{
    uint32_t next = first_launched(g, lane, ns);
    return next > lane->first ? next - 1 : HR__NO_TASK;
}

/* Returns the next stream of a rank from lane `at` on; with `stream` >= 0 only that one. */
static size_t next_stream(const struct hr__graph *g, size_t rank, int64_t stream, size_t at)
{
    for (; at < g->lane_count; at++) {
        const struct hr__lane *lane = &g->lanes[at];
        if (lane->is_stream && lane->rank == rank && lane->first != HR__NO_TASK &&
            (stream < 0 || g->ranks[rank].trace->tracks[lane->track].thread == stream))
            break;
    }
    return at;
}

/* ---- calls ---- */

struct blocking_call {
    uint32_t event, task, end; /* tasks: its own cost, its return */
    int64_t begin_ns, end_ns;
    enum hr__wait wait;
};

/* Makes a call's return wait for a device's task. */
static void wait_for(struct hr__graph *g, const struct blocking_call *c, uint32_t work, int64_t lag)
{
    hr__graph_add_edge(
        g, (struct hr__edge){.from = work, .to = c->end, .kind = HR__EDGE_SYNC, .lag_ns = lag});
}

/* Collects the last tasks launched before the call, on all streams or one. Returns the latest end,
 * INT64_MIN if there are none. */
static int64_t last_end(const struct hr__graph *g, const struct blocking_call *c, int64_t stream,
                        int64_t ns)
{
    int64_t end = INT64_MIN;
    size_t rank = g->tasks[c->task].rank;
    for (size_t at = next_stream(g, rank, stream, 0); at < g->lane_count;
         at = next_stream(g, rank, stream, at + 1)) {
        uint32_t work = last_launched(g, &g->lanes[at], ns);
        if (work != HR__NO_TASK && end_of(&g->tasks[work]) > end)
            end = end_of(&g->tasks[work]);
    }
    return end;
}

/* Sets the cost of a call that waited until `end`, and returns the lag of its return. */
static int64_t set_cost(struct hr__graph *g, const struct blocking_call *c, int64_t end)
{
    struct hr__graph_task *task = &g->tasks[c->task];
    int64_t lag = c->end_ns - end;
    if (end <= c->begin_ns)
        return 0; /* the work was done: the call only cost its own time */
    g->counts.waits++;
    int64_t cost = lag > 0 ? lag : 0;
    cost = cost < RETURN_SAMPLES_NS ? cost : RETURN_SAMPLES_NS;
    if (task->length_ns > cost)
        task->length_ns = cost;
    return lag;
}

static void wait_for_streams(struct hr__graph *g, const struct blocking_call *c, int64_t stream,
                             int64_t ns)
{
    size_t rank = g->tasks[c->task].rank;
    int64_t end = last_end(g, c, stream, ns);
    if (end == INT64_MIN || end > c->end_ns + SLACK_NS)
        return; /* it returned before that work was done: it cannot have waited for it */
    int64_t lag = set_cost(g, c, end);
    for (size_t at = next_stream(g, rank, stream, 0); at < g->lane_count;
         at = next_stream(g, rank, stream, at + 1)) {
        uint32_t work = last_launched(g, &g->lanes[at], ns);
        if (work != HR__NO_TASK)
            wait_for(g, c, work, lag);
    }
}

/* Waits for the work that ended last before the call returned, if that was while it waited. */
static void wait_by_guess(struct hr__graph *g, const struct blocking_call *c)
{
    size_t rank = g->tasks[c->task].rank;
    uint32_t found = HR__NO_TASK;
    for (size_t at = next_stream(g, rank, -1, 0); at < g->lane_count;
         at = next_stream(g, rank, -1, at + 1)) {
        const struct hr__lane *lane = &g->lanes[at];
        uint32_t i = last_launched(g, lane, c->begin_ns);
        while (i != HR__NO_TASK && i > lane->first && end_of(&g->tasks[i]) > c->end_ns + SLACK_NS)
            i--;
        if (i == HR__NO_TASK || end_of(&g->tasks[i]) > c->end_ns + SLACK_NS ||
            end_of(&g->tasks[i]) <= c->begin_ns)
            continue;
        if (found == HR__NO_TASK || end_of(&g->tasks[i]) > end_of(&g->tasks[found]))
            found = i;
    }
    if (found == HR__NO_TASK)
        return;
    g->counts.guessed++;
    wait_for(g, c, found, set_cost(g, c, end_of(&g->tasks[found])));
}

/* A copy from or to pageable memory, and a copy that is not Async, returns when it is done. */
static void wait_for_copy(struct hr__graph *g, const struct blocking_call *c)
{
    const struct hr__rank_events *r = &g->ranks[g->tasks[c->task].rank];
    const struct hr__trace_data *t = r->trace;
    uint32_t copy = hr__rank_events_find(r, HR__LINK_DEVICE, t->events[c->event].link);
    uint32_t work = copy == HR__NO_EVENT ? HR__NO_TASK : r->task[copy];
    if (work == HR__NO_TASK || end_of(&g->tasks[work]) > c->end_ns + SLACK_NS)
        return;
    if (strstr(hr__trace_name(t, t->events[c->event].name), "Async") &&
        !strstr(hr__trace_name(t, t->events[copy].name), "Pageable"))
        return;
    wait_for(g, c, work, set_cost(g, c, end_of(&g->tasks[work])));
}

static void add_call(struct hr__graph *g, size_t rank, const struct blocking_call *c)
{
    const struct hr__rank_events *r = &g->ranks[rank];
    const struct hr__trace_data *t = r->trace;
    if (c->wait == HR__WAIT_COPY) {
        wait_for_copy(g, c);
        return;
    }
    if (c->wait == HR__WAIT_DEVICE) {
        wait_for_streams(g, c, -1, c->begin_ns);
        return;
    }
    uint32_t sync = hr__rank_events_find(r, HR__LINK_SYNC, t->events[c->event].link);
    const struct hr__trace_event *s = sync == HR__NO_EVENT ? NULL : &t->events[sync];
    if (s && s->sync == HR__SYNC_STREAM && s->number >= 0) {
        wait_for_streams(g, c, s->number, c->begin_ns);
        return;
    }
    uint32_t record = s ? hr__rank_events_find(r, HR__LINK_CALL, s->value) : (uint32_t)HR__NO_EVENT;
    if (s && s->sync == HR__SYNC_EVENT && s->number >= 0 && record != HR__NO_EVENT)
        wait_for_streams(g, c, s->number, hr__graph_time(g, rank, t->events[record].begin_ns));
    else
        wait_by_guess(g, c);
}

/* ---- streams ---- */

/* Makes the next work of a stream wait for the last work before an event. */
static void add_stream_wait(struct hr__graph *g, size_t rank, const struct hr__trace_event *s)
{
    const struct hr__rank_events *r = &g->ranks[rank];
    const struct hr__trace_data *t = r->trace;
    uint32_t call = hr__rank_events_find(r, HR__LINK_CALL, s->link);
    uint32_t record = hr__rank_events_find(r, HR__LINK_CALL, s->value);
    size_t from = next_stream(g, rank, s->number < 0 ? INT64_MAX : s->number, 0);
    size_t to = next_stream(g, rank, t->tracks[s->track].thread, 0);
    if (call == HR__NO_EVENT || t->events[call].begin_ns < r->begin_ns ||
        t->events[call].begin_ns >= r->end_ns)
        return;
    if (record == HR__NO_EVENT || s->number < 0) {
        g->counts.unresolved++;
        return;
    }
    if (from == g->lane_count || to == g->lane_count || from == to)
        return;
    int64_t recorded = hr__graph_time(g, rank, t->events[record].begin_ns);
    int64_t waits = hr__graph_time(g, rank, t->events[call].begin_ns);
    uint32_t work = last_launched(g, &g->lanes[from], recorded);
    uint32_t next = first_launched(g, &g->lanes[to], waits);
    if (work == HR__NO_TASK || next > g->lanes[to].last)
        return;
    if (end_of(&g->tasks[work]) > g->tasks[next].begin_ns + SLACK_NS)
        g->counts.unresolved++;
    else
        hr__graph_add_edge(g, (struct hr__edge){.from = work, .to = next, .kind = HR__EDGE_EVENT});
}

void hr__graph_add_syncs(struct hr__graph *g, size_t rank)
{
    const struct hr__rank_events *r = &g->ranks[rank];
    const struct hr__trace_data *t = r->trace;
    for (uint32_t i = 0; i < g->task_count && !g->no_memory; i++) {
        const struct hr__graph_task *end = &g->tasks[i];
        if (end->kind != HR__TASK_RETURN || end->rank != rank)
            continue;
        const struct hr__trace_event *e = &t->events[end->event];
        struct blocking_call c = {.event = end->event,
                                  .task = r->task[end->event],
                                  .end = i,
                                  .end_ns = end->begin_ns,
                                  .wait = hr__call_waits(hr__trace_name(t, e->name))};
        c.begin_ns = g->tasks[c.task].begin_ns;
        add_call(g, rank, &c);
    }
    for (size_t i = 0; i < t->event_count && !g->no_memory; i++)
        if (t->events[i].kind == HR__TRACE_SYNC && t->events[i].sync == HR__SYNC_WAIT)
            add_stream_wait(g, rank, &t->events[i]);
}

/* ---- lags ---- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int64_t median(int64_t *values, size_t count, int64_t otherwise)
{
    if (!count)
        return otherwise;
    qsort(values, count, sizeof *values, by_value);
    return values[(count - 1) / 2];
}

/* Returns when the stream's work before a task ended; INT64_MIN: there is none. */
static int64_t before(const struct hr__graph *g, uint32_t task)
{
    const struct hr__lane *lane = &g->lanes[g->tasks[task].lane];
    return task == lane->first ? INT64_MIN : end_of(&g->tasks[task - 1]);
}

/* Collects the recorded times from launches to kernels on idle streams, or, with `is_gap`, between
 * kernels on busy ones. waits: tasks that also wait for another stream. Returns the median. */
static int64_t find_usual(const struct hr__graph *g, const uint8_t *waits, int64_t *values,
                          int is_gap)
{
    size_t count = 0;
    for (uint32_t i = 0; i < g->task_count; i++) {
        const struct hr__graph_task *task = &g->tasks[i];
        if (task->kind != HR__TASK_KERNEL || task->launch == HR__NO_TASK || waits[i])
            continue;
        int64_t called = launched(g, i), earlier = before(g, i);
        int is_idle = earlier <= called;
        if (!is_gap && is_idle && task->begin_ns >= called)
            values[count++] = task->begin_ns - called;
        if (is_gap && !is_idle && earlier >= called + g->launch_ns && task->begin_ns >= earlier)
            values[count++] = task->begin_ns - earlier;
    }
    return median(values, count, is_gap ? USUAL_GAP_NS : USUAL_LAUNCH_NS);
}

static void find_all_usual(struct hr__graph *g)
{
    int64_t *values = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, sizeof *values);
    uint8_t *waits = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, 1);
    g->no_memory |= !values || !waits;
    if (!g->no_memory) {
        for (size_t i = 0; i < g->edge_count; i++)
            waits[g->edges[i].to] |= g->edges[i].kind == HR__EDGE_EVENT;
        g->launch_ns = find_usual(g, waits, values, 0);
        g->gap_ns = find_usual(g, waits, values, 1);
    }
    hr__free(values);
    hr__free(waits);
}

/* Returns when an edge would let its target begin, without a lag. */
static int64_t source(const struct hr__graph *g, const struct hr__edge *e)
{
    const struct hr__graph_task *from = &g->tasks[e->from];
    return e->from_begin ? from->begin_ns : end_of(from);
}

static int64_t usual(const struct hr__graph *g, const struct hr__edge *e)
{
    return e->kind == HR__EDGE_LAUNCH ? g->launch_ns : e->kind == HR__EDGE_STREAM ? g->gap_ns : 0;
}

/* Returns whether the lag of an edge is to be found: it is one to the work of a device. */
static int is_open(const struct hr__graph *g, const struct hr__edge *e, size_t rank)
{
    const struct hr__graph_task *to = &g->tasks[e->to];
    return to->rank == rank && hr__task_is_device(to) && e->kind != HR__EDGE_GROUP;
}

/* Returns when an edge usually lets its target begin. The delay of a launch only counts if it began
 * on an idle stream: otherwise the work was queued. */
static int64_t usual_begin(const struct hr__graph *g, const struct hr__edge *e)
{
    if (e->kind == HR__EDGE_LAUNCH && before(g, e->to) > source(g, e))
        return source(g, e);
    return source(g, e) + usual(g, e);
}

void hr__graph_set_lags(struct hr__graph *g, size_t rank)
{
    uint32_t *last = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, sizeof *last);
    if (!rank)
        find_all_usual(g);
    if (!last || g->no_memory) {
        g->no_memory = 1;
        hr__free(last);
        return;
    }
    memset(last, 0xff, g->task_count * sizeof *last);
    for (uint32_t i = 0; i < g->edge_count; i++) {
        struct hr__edge *e = &g->edges[i];
        if (!is_open(g, e, rank))
            continue;
        /* work that overlaps with the one before it on its stream follows its begin */
        if (e->kind == HR__EDGE_STREAM && end_of(&g->tasks[e->from]) > g->tasks[e->to].begin_ns)
            e->from_begin = 1;
        uint32_t best = last[e->to];
        if (best == UINT32_MAX || usual_begin(g, e) > usual_begin(g, &g->edges[best]))
            last[e->to] = i;
    }
    for (uint32_t i = 0; i < g->edge_count; i++) {
        struct hr__edge *e = &g->edges[i];
        if (!is_open(g, e, rank))
            continue;
        int64_t exact = g->tasks[e->to].begin_ns - source(g, e), lag = usual(g, e);
        e->lag_ns = last[e->to] == i || exact < lag ? exact : lag;
    }
    hr__free(last);
}
