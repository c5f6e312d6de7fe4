/* Replays a graph; see simulate.h. */
#include "replay/simulate.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define LENGTH_MOST_NS 3.15e18 /* 100 years; times since 1970 take as much again */

/* What happens at a moment: a task is ready, or (task HR__NO_TASK) a lane becomes free. */
struct replay_moment {
    int64_t ns;
    uint32_t task, lane;
};

struct simulator {
    const struct hr__graph *g;
    const int32_t *priority;
    struct hr__replay_schedule *s;
    uint32_t *first_edge; /* by task: of those from it, in `by_from`; one more at the end */
    uint32_t *by_from;
    uint32_t *missing; /* by task: edges to it that are not fulfilled */
    struct replay_moment *heap;
    size_t heap_count;
    uint32_t *queue, *next; /* by lane: the first waiting task; by task: the next one */
    uint32_t *running;      /* by lane: the task that holds it, HR__NO_TASK: none */
    size_t done;
};

/* ---- moments ---- */

static int is_before(const void *one, const void *other)
{
    const struct replay_moment *a = one, *b = other;
    if (a->ns != b->ns)
        return a->ns < b->ns;
    return a->task < b->task; /* a lane becomes free after all that is ready then */
}

static void push(struct simulator *m, struct replay_moment moment)
{
    hr__heap_push(m->heap, &m->heap_count, &moment, sizeof moment, is_before);
}

/* ---- tasks ---- */

/* Begins a task and fulfils the edges from it. */
static void run(struct simulator *m, uint32_t task, int64_t ns)
{
    struct hr__replay_schedule *s = m->s;
    const struct hr__graph_task *t = &m->g->tasks[task];
    int64_t end = ns + t->length_ns;
    s->begin_ns[task] = ns;
    if (!m->g->lanes[t->lane].is_apart) {
        if (s->last == HR__NO_TASK || ns < s->first_ns)
            s->first_ns = ns;
        if (s->last == HR__NO_TASK || end >= s->begin_ns[s->last] + m->g->tasks[s->last].length_ns)
            s->last = task;
    }
    m->done++;
    for (uint32_t i = m->first_edge[task]; i < m->first_edge[task + 1]; i++) {
        const struct hr__edge *e = &m->g->edges[m->by_from[i]];
        int64_t ready = (e->from_begin ? ns : end) + e->lag_ns;
        /* until a task begins, begin_ns is when it may */
        if (s->cause[e->to] == UINT32_MAX || ready > s->begin_ns[e->to]) {
            s->begin_ns[e->to] = ready;
            s->cause[e->to] = m->by_from[i];
        }
        if (!--m->missing[e->to])
            push(m, (struct replay_moment){s->begin_ns[e->to], e->to, m->g->tasks[e->to].lane});
    }
}

/* Begins a task of a scheduled lane. */
static void hold(struct simulator *m, uint32_t task, int64_t ns)
{
    uint32_t lane = m->g->tasks[task].lane;
    m->running[lane] = task;
    run(m, task, ns);
    push(m, (struct replay_moment){ns + m->g->tasks[task].length_ns, HR__NO_TASK, lane});
}

/* Queues a task behind those of at least its priority. */
static void wait_for_lane(struct simulator *m, uint32_t task)
{
    uint32_t *at = &m->queue[m->g->tasks[task].lane];
    while (*at != HR__NO_TASK && (!m->priority || m->priority[*at] >= m->priority[task]))
        at = &m->next[*at];
    m->next[task] = *at;
    *at = task;
}

static void step(struct simulator *m)
{
    struct replay_moment moment;
    hr__heap_pop(m->heap, &m->heap_count, &moment, sizeof moment, is_before);
    if (moment.task == HR__NO_TASK) {
        uint32_t task = m->queue[moment.lane], held = m->running[moment.lane];
        if (held != HR__NO_TASK && m->s->begin_ns[held] + m->g->tasks[held].length_ns > moment.ns)
            return;
        m->running[moment.lane] = HR__NO_TASK;
        if (task == HR__NO_TASK)
            return;
        m->queue[moment.lane] = m->next[task];
        if (m->s->begin_ns[task] < moment.ns)
            m->s->holder[task] = held;
        hold(m, task, moment.ns);
        return;
    }
    if (!m->g->lanes[moment.lane].is_scheduled) {
        run(m, moment.task, moment.ns);
        return;
    }
    wait_for_lane(m, moment.task);
    /* all that is ready at this moment comes before the lane is given away */
    if (m->running[moment.lane] == HR__NO_TASK)
        push(m, (struct replay_moment){moment.ns, HR__NO_TASK, moment.lane});
}

static int allocate(struct simulator *m)
{
    size_t tasks = m->g->task_count, edges = m->g->edge_count, lanes = m->g->lane_count;
    struct hr__replay_schedule *s = m->s;
    s->begin_ns = hr__alloc(HR__TAG_REPLAY, tasks + 1, sizeof *s->begin_ns);
    s->cause = hr__alloc(HR__TAG_REPLAY, tasks + 1, sizeof *s->cause);
    s->holder = hr__alloc(HR__TAG_REPLAY, tasks + 1, sizeof *s->holder);
    m->first_edge = hr__alloc(HR__TAG_REPLAY, tasks + 2, sizeof *m->first_edge);
    m->by_from = hr__alloc(HR__TAG_REPLAY, edges + 1, sizeof *m->by_from);
    m->missing = hr__alloc(HR__TAG_REPLAY, tasks + 1, sizeof *m->missing);
    /* a task is ready once, and frees its lane or finds it free */
    m->heap = hr__alloc(HR__TAG_REPLAY, 3 * tasks + 1, sizeof *m->heap);
    m->queue = hr__alloc(HR__TAG_REPLAY, lanes + 1, sizeof *m->queue);
    m->next = hr__alloc(HR__TAG_REPLAY, tasks + 1, sizeof *m->next);
    m->running = hr__alloc(HR__TAG_REPLAY, lanes + 1, sizeof *m->running);
    return s->begin_ns && s->cause && s->holder && m->first_edge && m->by_from && m->missing &&
           m->heap && m->queue && m->next && m->running;
}

static void prepare(struct simulator *m)
{
    const struct hr__graph *g = m->g;
    memset(m->s->cause, 0xff, g->task_count * sizeof *m->s->cause);
    memset(m->s->holder, 0xff, g->task_count * sizeof *m->s->holder);
    memset(m->queue, 0xff, g->lane_count * sizeof *m->queue);
    memset(m->running, 0xff, g->lane_count * sizeof *m->running);
    for (size_t i = 0; i < g->edge_count; i++) {
        m->first_edge[g->edges[i].from + 2]++;
        m->missing[g->edges[i].to]++;
    }
    for (size_t i = 2; i <= g->task_count + 1; i++)
        m->first_edge[i] += m->first_edge[i - 1];
    for (uint32_t i = 0; i < g->edge_count; i++)
        m->by_from[m->first_edge[g->edges[i].from + 1]++] = i;
    for (uint32_t i = 0; i < g->task_count; i++)
        if (!m->missing[i]) {
            m->s->begin_ns[i] = g->tasks[i].begin_ns;
            push(m, (struct replay_moment){g->tasks[i].begin_ns, i, g->tasks[i].lane});
        }
}

/* Returns whether sums of times may overflow. */
static int is_too_long(const struct hr__graph *g)
{
    double sum = 0;
    for (size_t i = 0; i < g->task_count; i++)
        sum += (double)g->tasks[i].length_ns;
    for (size_t i = 0; i < g->edge_count; i++)
        sum += fabs((double)g->edges[i].lag_ns);
    return sum > LENGTH_MOST_NS;
}

int hr__graph_replay(struct hr__replay_schedule *out, const struct hr__graph *graph,
                     const int32_t *priority, struct hr_error *error)
{
    struct simulator m = {.g = graph, .priority = priority, .s = out};
    int code = 0;
    *out = (struct hr__replay_schedule){.last = HR__NO_TASK};
    if (is_too_long(graph))
        return hr__fail(error, -ERANGE,
                        "the tasks last longer than 100 years together: the trace's times are "
                        "damaged, or a factor is too large");
    if (!allocate(&m)) {
        code = hr__fail(error, -ENOMEM, "out of memory for a replay");
    } else {
        prepare(&m);
        while (m.heap_count)
            step(&m);
        if (m.done < graph->task_count)
            code = hr__fail(error, -ELOOP,
                            "%zu of %zu tasks wait for each other in a circle: the trace's "
                            "synchronisations contradict its times",
                            graph->task_count - m.done, graph->task_count);
        else if (out->last != HR__NO_TASK)
            out->length_ns =
                out->begin_ns[out->last] + graph->tasks[out->last].length_ns - out->first_ns;
    }
    hr__free(m.first_edge);
    hr__free(m.by_from);
    hr__free(m.missing);
    hr__free(m.heap);
    hr__free(m.queue);
    hr__free(m.next);
    hr__free(m.running);
    return code;
}

void hr__schedule_clear(struct hr__replay_schedule *s)
{
    hr__free(s->begin_ns);
    hr__free(s->cause);
    hr__free(s->holder);
    *s = (struct hr__replay_schedule){.begin_ns = NULL};
}
