/* Scenarios and the primitives that change them; see include/headrace/replay.h. */
#include "replay/scenario.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "report/format.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PACKETS_MOST 1e8 /* simulated for loss-tolerance: about 20 s */

static const struct hr_replay_selector any = {.size = sizeof any, .stream = -1, .rank = -1};

void hr_replay_selector_init(struct hr_replay_selector *selector, size_t size)
{
    hr__versioned_default(selector, size, &any, sizeof any);
}

static int no_memory(struct hr_error *error)
{
    return hr__fail(error, -ENOMEM, "out of memory for a scenario");
}

static void *copy(const void *from, size_t count, size_t size)
{
    void *to = hr__alloc(HR__TAG_REPLAY, count + 1, size);
    if (to && count)
        memcpy(to, from, count * size);
    return to;
}

/* Says which part of the trace the graph cannot explain. */
static int refuse(const struct hr_replay *replay, struct hr_error *error)
{
    const struct hr__graph *g = &replay->graph;
    const struct hr__replay_identity *identity = &replay->identity;
    double off = hr__identity_distance(identity);
    char share[HR__FORMAT_BYTES], limit[HR__FORMAT_BYTES];
    const struct hr__graph_task *task =
        identity->worst == HR__NO_TASK ? NULL : &g->tasks[identity->worst];
    return hr__fail(error, -ENOTSUP,
                    "the graph does not explain the trace: its replay%s is %s %s than the record, "
                    "and the limit is %s, so nothing is predicted from it. The largest error, %lld "
                    "us, arises at '%.200s', %lld us after the beginning",
                    off == identity->error ? "" : " with the usual latencies",
                    hr__format_share(share, fabs(off)), off > 0 ? "longer" : "shorter",
                    hr__format_share(limit, replay->limit), (long long)identity->worst_ns / 1000,
                    task ? hr__graph_name(g, task) : "",
                    task ? (long long)task->begin_ns / 1000 : 0LL);
}

int hr_replay_scenario_create(struct hr_replay_scenario **out, const struct hr_replay *replay,
                              struct hr_error *error)
{
    const struct hr__graph *from = &replay->graph;
    *out = NULL;
    if (fabs(hr__identity_distance(&replay->identity)) > replay->limit)
        return refuse(replay, error);
    struct hr_replay_scenario *s = hr__alloc(HR__TAG_REPLAY, 1, sizeof *s);
    if (!s)
        return no_memory(error);
    s->replay = replay;
    s->packets_most = PACKETS_MOST;
    s->graph = *from;
    s->graph.tasks = copy(from->tasks, from->task_count, sizeof *from->tasks);
    s->graph.edges = copy(from->edges, from->edge_count, sizeof *from->edges);
    s->graph.lanes = copy(from->lanes, from->lane_count, sizeof *from->lanes);
    *out = s;
    if (s->graph.tasks && s->graph.edges && s->graph.lanes)
        return 0;
    hr_replay_scenario_destroy(out);
    return no_memory(error);
}

void hr_replay_scenario_destroy(struct hr_replay_scenario **scenario)
{
    struct hr_replay_scenario *s = *scenario;
    *scenario = NULL;
    if (!s)
        return;
    for (size_t i = 0; i < s->channel_count; i++)
        hr__free(s->channels[i].name);
    hr__free(s->channels);
    hr__free(s->exchange.update_ns);
    hr__free(s->exchange.tasks);
    hr__free(s->graph.tasks);
    hr__free(s->graph.edges);
    hr__free(s->graph.lanes);
    hr__free(s->priority);
    hr__free(s->selected);
    hr__free(s);
}

int hr_replay_select(struct hr_replay_scenario *s, const struct hr_replay_selector *selector,
                     const uint32_t **tasks, size_t *count, struct hr_error *error)
{
    struct hr_replay_selector taken = any;
    struct hr__task_marks marks;
    *tasks = NULL;
    *count = 0;
    int code =
        hr__versioned_take(&taken, sizeof taken, selector, "struct hr_replay_selector", error);
    if (!code)
        code = hr__select(&marks, &s->graph, &taken, error);
    if (code)
        return code;
    if (hr__reserve(HR__TAG_REPLAY, &s->selected, marks.count + 1)) {
        hr__free(marks.is_marked);
        return no_memory(error);
    }
    for (uint32_t i = 0; i < s->graph.task_count; i++)
        if (marks.is_marked[i])
            s->selected[(*count)++] = i;
    *tasks = s->selected;
    hr__free(marks.is_marked);
    return 0;
}

int hr_replay_task_get(const struct hr_replay_scenario *s, uint32_t task,
                       struct hr_replay_task *out)
{
    if (task >= s->graph.task_count)
        return -EINVAL;
    const struct hr__graph_task *t = &s->graph.tasks[task];
    const struct hr_replay_task result = {
        .name = hr__graph_name(&s->graph, t),
        .kind = t->kind,
        .phase = t->phase,
        .rank = t->rank,
        .lane = t->lane,
        .begin_ns = t->begin_ns,
        .length_ns = t->length_ns,
        .bytes = t->event == HR__NO_EVENT ? -1 : hr__graph_event(&s->graph, t)->value};
    hr__versioned_give(out, &result, sizeof result);
    return 0;
}

/* Marks the tasks of a list. The caller frees *out. */
static int mark(uint8_t **out, const struct hr__graph *g, const uint32_t *tasks, size_t count,
                struct hr_error *error)
{
    *out = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, 1);
    if (!*out)
        return no_memory(error);
    for (size_t i = 0; i < count; i++) {
        if (tasks[i] >= g->task_count) {
            hr__free(*out);
            return hr__fail(error, -EINVAL, "there is no task %u: the last one is %zu", tasks[i],
                            g->task_count - 1);
        }
        (*out)[tasks[i]] = 1;
    }
    return 0;
}

/* ---- primitives ---- */

void hr__scale(struct hr__graph *g, const uint8_t *is_marked, double factor)
{
    for (size_t i = 0; i < g->edge_count; i++) {
        struct hr__edge *e = &g->edges[i];
        const struct hr__graph_task *from = &g->tasks[e->from];
        /* the launch is somewhere within the call */
        if (e->from_begin && e->kind == HR__EDGE_LAUNCH && is_marked[e->from] && e->lag_ns > 0 &&
            e->lag_ns <= from->length_ns)
            e->lag_ns = (int64_t)fmin((double)e->lag_ns * factor, 4e18);
    }
    for (size_t i = 0; i < g->task_count; i++)
        if (is_marked[i])
            g->tasks[i].length_ns = /* a replay refuses what is too long */
                (int64_t)fmin((double)g->tasks[i].length_ns * factor + 0.5, 4e18);
}

int hr_replay_scale(struct hr_replay_scenario *s, const uint32_t *tasks, size_t count,
                    double factor, struct hr_error *error)
{
    uint8_t *is_marked;
    if (!(factor >= 0 && factor <= 1e6))
        return hr__fail(error, -EINVAL, "a factor must be from 0 to 1000000");
    int code = mark(&is_marked, &s->graph, tasks, count, error);
    if (code)
        return code;
    hr__scale(&s->graph, is_marked, factor);
    hr__free(is_marked);
    return 0;
}

void hr__remove(struct hr__graph *g, uint8_t *is_marked)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->task_count; i++) {
        struct hr__graph_task *task = &g->tasks[i];
        int is_device = hr__task_is_device(task);
        if (is_device && task->launch != HR__NO_TASK && is_marked[task->launch])
            is_marked[i] = 1;
        if (!is_marked[i])
            continue;
        task->length_ns = 0;
        if (is_device) /* without its launch nothing but its stream holds it back */
            task->begin_ns = 0;
    }
    for (size_t i = 0; i < g->edge_count; i++) {
        struct hr__edge *e = &g->edges[i];
        if (is_marked[e->to] && (e->kind == HR__EDGE_LAUNCH || e->kind == HR__EDGE_SYNC))
            continue;
        if (is_marked[e->to] && (e->kind == HR__EDGE_STREAM || e->kind == HR__EDGE_THREAD))
            e->lag_ns = e->from_begin = 0;
        g->edges[kept++] = *e;
    }
    g->edge_count = kept;
}

int hr_replay_remove(struct hr_replay_scenario *s, const uint32_t *tasks, size_t count,
                     struct hr_error *error)
{
    uint8_t *is_marked;
    int code = mark(&is_marked, &s->graph, tasks, count, error);
    if (code)
        return code;
    hr__remove(&s->graph, is_marked);
    hr__free(is_marked);
    return 0;
}

int hr__insert_after(struct hr__graph *g, uint32_t after, struct hr__graph_task task, uint32_t *out)
{
    uint8_t order = g->lanes[task.lane].is_stream ? HR__EDGE_STREAM : HR__EDGE_THREAD;
    uint32_t at = hr__graph_add_task(g, task);
    for (size_t i = 0; i < g->edge_count && !g->no_memory; i++)
        if (g->edges[i].from == after && g->edges[i].kind == order)
            g->edges[i].from = at;
    hr__graph_add_edge(g, (struct hr__edge){.from = after, .to = at, .kind = order});
    *out = at;
    return g->no_memory ? -ENOMEM : 0;
}

/* Finds the lane of a channel, or makes it. */
static int channel_of(struct hr_replay_scenario *s, const char *name, uint32_t *lane)
{
    for (size_t i = 0; i < s->channel_count; i++)
        if (!strcmp(s->channels[i].name, name)) {
            *lane = s->channels[i].lane;
            return 0;
        }
    if (hr__reserve(HR__TAG_REPLAY, &s->channels, s->channel_count + 1))
        return -ENOMEM;
    char *text = hr__strdup(HR__TAG_REPLAY, name);
    *lane = text ? hr__graph_add_lane(&s->graph, (struct hr__lane){.track = UINT32_MAX,
                                                                   .is_scheduled = 1,
                                                                   .first = HR__NO_TASK,
                                                                   .last = HR__NO_TASK})
                 : 0;
    if (!text || s->graph.no_memory) {
        hr__free(text);
        return -ENOMEM;
    }
    s->channels[s->channel_count++] = (struct hr__replay_channel){text, *lane};
    return 0;
}

/* Makes `priority` cover all tasks. */
static int grow_priority(struct hr_replay_scenario *s)
{
    if (hr__reserve(HR__TAG_REPLAY, &s->priority, s->graph.task_count + 1))
        return -ENOMEM;
    for (; s->priority_count < s->graph.task_count; s->priority_count++)
        s->priority[s->priority_count] = 0;
    return 0;
}

int hr__scenario_simulate(struct hr__replay_schedule *out, struct hr_replay_scenario *s,
                          struct hr_error *error)
{
    *out = (struct hr__replay_schedule){.begin_ns = NULL};
    if (s->priority && grow_priority(s))
        return no_memory(error);
    return hr__graph_replay(out, &s->graph, s->priority, error);
}

static int check_insertion(const struct hr_replay_scenario *s, const struct hr_replay_insertion *x,
                           struct hr_error *error)
{
    if (x->length_ns < 0 || x->length_ns > INT64_MAX / 4)
        return hr__fail(error, -EINVAL, "a task's length must be from 0 to 2e18 ns");
    if (!x->after_count)
        return hr__fail(error, -EINVAL, "an inserted task waits for at least one task");
    for (size_t i = 0; i < x->after_count + x->before_count; i++) {
        uint32_t task = i < x->after_count ? x->after[i] : x->before[i - x->after_count];
        if (task >= s->graph.task_count)
            return hr__fail(error, -EINVAL, "there is no task %u: the last one is %zu", task,
                            s->graph.task_count - 1);
    }
    return 0;
}

int hr_replay_insert(struct hr_replay_scenario *s, const struct hr_replay_insertion *insertion,
                     uint32_t *task, struct hr_error *error)
{
    struct hr_replay_insertion x = {.size = sizeof x};
    struct hr__graph *g = &s->graph;
    uint32_t lane = 0, at = 0;
    int code = hr__versioned_take(&x, sizeof x, insertion, "struct hr_replay_insertion", error);
    if (!code)
        code = check_insertion(s, &x, error);
    if (code)
        return code;
    const struct hr__graph_task *after = &g->tasks[x.after[0]];
    struct hr__graph_task made = {.begin_ns = after->begin_ns + after->length_ns,
                                  .length_ns = x.length_ns,
                                  .event = HR__NO_EVENT,
                                  .lane = after->lane,
                                  .launch = HR__NO_TASK,
                                  .rank = after->rank,
                                  .kind = HR__TASK_INSERTED,
                                  .phase = after->phase};
    if (!x.channel) {
        code = hr__insert_after(g, x.after[0], made, &at);
    } else if (!(code = channel_of(s, x.channel, &lane))) {
        made.lane = lane;
        at = hr__graph_add_task(g, made);
    }
    for (size_t i = x.channel ? 0 : 1; i < x.after_count && !code; i++)
        hr__graph_add_edge(g,
                           (struct hr__edge){.from = x.after[i], .to = at, .kind = HR__EDGE_ADDED});
    for (size_t i = 0; i < x.before_count && !code; i++)
        hr__graph_add_edge(
            g, (struct hr__edge){.from = at, .to = x.before[i], .kind = HR__EDGE_ADDED});
    if (code || g->no_memory || grow_priority(s))
        return no_memory(error);
    s->priority[at] = x.priority;
    *task = at;
    return 0;
}

int hr_replay_reschedule(struct hr_replay_scenario *s, uint32_t lane, const uint32_t *tasks,
                         const int32_t *priorities, size_t count, struct hr_error *error)
{
    struct hr__graph *g = &s->graph;
    size_t kept = 0;
    if (lane >= g->lane_count)
        return hr__fail(error, -EINVAL, "there is no lane %u: the last one is %zu", lane,
                        g->lane_count - 1);
    for (size_t i = 0; i < count; i++)
        if (tasks[i] >= g->task_count || g->tasks[tasks[i]].lane != lane)
            return hr__fail(error, -EINVAL, "task %u is not on lane %u", tasks[i], lane);
    if (grow_priority(s))
        return no_memory(error);
    for (size_t i = 0; i < count; i++)
        s->priority[tasks[i]] = priorities[i];
    for (size_t i = 0; i < g->edge_count; i++) {
        const struct hr__edge *e = &g->edges[i];
        int is_order = e->kind == HR__EDGE_THREAD || e->kind == HR__EDGE_STREAM;
        if (!is_order || g->tasks[e->to].lane != lane || g->tasks[e->from].lane != lane)
            g->edges[kept++] = *e;
    }
    g->edge_count = kept;
    g->lanes[lane].is_scheduled = 1;
    return 0;
}

void hr__scenario_lane_name(const struct hr_replay_scenario *s, uint32_t at, char *out,
                            size_t capacity)
{
    const struct hr__lane *lane = &s->graph.lanes[at];
    for (size_t i = 0; i < s->channel_count; i++)
        if (s->channels[i].lane == at) {
            snprintf(out, capacity, "%s", s->channels[i].name);
            return;
        }
    const struct hr__trace_track *track = &s->graph.ranks[lane->rank].trace->tracks[lane->track];
    int n = 0;
    if (s->graph.rank_count > 1)
        n = snprintf(out, capacity, "rank %u: ", lane->rank);
    if (lane->is_stream)
        snprintf(out + n, capacity - (size_t)n, "device %lld stream %lld",
                 (long long)track->process, (long long)track->thread);
    else if (track->name)
        snprintf(out + n, capacity - (size_t)n, "%s", track->name);
    else
        snprintf(out + n, capacity - (size_t)n, "thread %lld", (long long)track->thread);
}
