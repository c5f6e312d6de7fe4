/* Finds the gradients of a trace; see gradients.h. */
#include "replay/gradients.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GRADIENT "torch::autograd::AccumulateGrad"
#define STEP     "Optimizer.step#"
#define UPDATE   (HR__NO_TASK - 1) /* of a pass that is not known yet */
#define SKEW_NS  10000000          /* between the clocks of CPU and device, at most */

/* What divides a thread's time into passes: a gradient, or an operator of the next part. */
struct gradient_mark {
    int64_t begin_ns, end_ns;
    uint32_t event;
    int is_gradient;
};

struct gradient_finder {
    const struct hr__graph *g;
    struct hr__gradients *out;
    uint32_t rank;
    struct gradient_mark *marks;
    size_t count;
    uint32_t *last_task;   /* by event: the last CPU task of it */
    uint32_t *last_launch; /* by CPU task: the last device work launched up to its end */
};

/* ---- tasks of events ---- */

/* Notes a task as the first and the last one of its event and of those around it. */
static void note_task(struct gradient_finder *f, uint32_t at)
{
    const struct hr__rank_events *r = &f->g->ranks[f->rank];
    uint32_t *first = f->out->first_task[f->rank];
    for (uint32_t e = f->g->tasks[at].event; e != HR__NO_EVENT; e = r->parent[e]) {
        first[e] = first[e] == HR__NO_TASK ? at : first[e];
        f->last_task[e] = at;
    }
}

static void note_work(struct gradient_finder *f, uint32_t at)
{
    const struct hr__rank_events *r = &f->g->ranks[f->rank];
    const struct hr__graph_task *tasks = f->g->tasks;
    uint32_t *first = f->out->first_work[f->rank], launch = tasks[at].launch;
    if (tasks[at].kind != HR__TASK_COLLECTIVE) /* it exchanges gradients, and makes none */
        f->last_launch[launch] = at;
    for (uint32_t e = tasks[launch].event; e != HR__NO_EVENT; e = r->parent[e])
        if (first[e] == HR__NO_TASK || tasks[at].begin_ns < tasks[first[e]].begin_ns)
            first[e] = at;
}

/* Returns whether a task is within a step of an optimizer. */
static int is_update(const struct gradient_finder *f, const struct hr__graph_task *task)
{
    const struct hr__rank_events *r = &f->g->ranks[f->rank];
    uint32_t e = task->event;
    if (hr__task_is_device(task))
        e = task->launch == HR__NO_TASK ? HR__NO_EVENT : f->g->tasks[task->launch].event;
    if (task->phase != HR__PHASE_OPTIMIZER)
        return 0;
    for (; e != HR__NO_EVENT; e = r->parent[e])
        if (!strncmp(hr__trace_name(r->trace, r->trace->events[e].name), STEP, sizeof STEP - 1))
            return 1;
    return 0;
}

static void note_tasks(struct gradient_finder *f)
{
    const struct hr__graph *g = f->g;
    for (uint32_t i = 0; i < g->task_count; i++) {
        const struct hr__graph_task *task = &g->tasks[i];
        int is_device = hr__task_is_device(task);
        if (task->rank != f->rank || (!is_device && task->event == HR__NO_EVENT))
            continue;
        if (!is_device)
            note_task(f, i);
        else if (task->launch != HR__NO_TASK)
            note_work(f, i);
        f->out->update_of[i] = is_update(f, task) ? UPDATE : HR__NO_TASK;
    }
    /* tasks of a thread follow each other in their numbers */
    for (uint32_t i = 1; i < g->task_count; i++)
        if (f->last_launch[i] == HR__NO_TASK && g->tasks[i].lane == g->tasks[i - 1].lane)
            f->last_launch[i] = f->last_launch[i - 1];
}

/* ---- passes ---- */

static int by_begin(const void *a, const void *b)
{
    const struct gradient_mark *x = a, *y = b;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->event < y->event ? -1 : 1;
}

/* Returns the last task of a gradient, or of the function around one that took no time. */
static uint32_t task_of(const struct gradient_finder *f, uint32_t event)
{
    uint32_t parent = f->g->ranks[f->rank].parent[event];
    return f->last_task[event] != HR__NO_TASK || parent == HR__NO_EVENT ? f->last_task[event]
                                                                        : f->last_task[parent];
}

static int find_marks(struct gradient_finder *f)
{
    const struct hr__rank_events *r = &f->g->ranks[f->rank];
    for (uint32_t i = 0; i < r->trace->event_count; i++) {
        const struct hr__trace_event *e = &r->trace->events[i];
        int is_gradient = e->kind == HR__TRACE_OP && r->phase[i] == HR__PHASE_BACKWARD &&
                          !strcmp(hr__trace_name(r->trace, e->name), GRADIENT);
        int is_end = e->track == r->main && e->kind == HR__TRACE_OP &&
                     (r->phase[i] == HR__PHASE_FORWARD || r->phase[i] == HR__PHASE_OPTIMIZER);
        if ((!is_gradient && !is_end) || e->begin_ns < r->begin_ns || e->begin_ns >= r->end_ns ||
            (is_gradient && task_of(f, i) == HR__NO_TASK))
            continue;
        if (hr__reserve(HR__TAG_REPLAY, &f->marks, f->count + 1))
            return -ENOMEM;
        f->marks[f->count++] =
            (struct gradient_mark){hr__graph_time(f->g, f->rank, e->begin_ns),
                                   hr__graph_time(f->g, f->rank, hr__trace_end(e)), i, is_gradient};
    }
    if (f->count)
        qsort(f->marks, f->count, sizeof *f->marks, by_begin);
    return 0;
}

/* Returns the forward operator of the backward operator before a gradient. */
static uint32_t forward_of(const struct hr__rank_events *r, uint32_t event)
{
    const struct hr__trace_event *events = r->trace->events, *e = &events[event];
    uint32_t low = r->first[e->track], high = r->first[e->track + 1];
    while (low < high) { /* the first one that begins no earlier */
        uint32_t middle = low + (high - low) / 2;
        if (events[r->order[middle]].begin_ns < e->begin_ns)
            low = middle + 1;
        else
            high = middle;
    }
    while (low-- > r->first[e->track])
        if (r->forward[r->order[low]] != HR__NO_EVENT)
            return r->forward[r->order[low]];
    return HR__NO_EVENT;
}

static int add_gradient(struct gradient_finder *f, struct hr__backward_pass *pass,
                        const struct gradient_mark *mark)
{
    const struct hr__rank_events *r = &f->g->ranks[f->rank];
    struct hr__gradients *out = f->out;
    uint32_t task = task_of(f, mark->event), kernel = f->last_launch[task];
    if (hr__reserve(HR__TAG_REPLAY, &out->all, out->count + 1))
        return -ENOMEM;
    if (kernel != HR__NO_TASK && f->g->tasks[kernel].phase != HR__PHASE_BACKWARD)
        kernel = HR__NO_TASK;
    if (!pass->count) {
        pass->first = (uint32_t)out->count;
        pass->begin_ns = mark->begin_ns;
    }
    pass->count++;
    pass->end_ns = mark->end_ns;
    out->all[out->count++] = (struct hr__gradient){.bytes = r->trace->events[mark->event].value,
                                                   .task = task,
                                                   .kernel = kernel,
                                                   .forward = forward_of(r, mark->event)};
    return 0;
}

/* Returns when a task was asked for. */
static int64_t asked_ns(const struct hr__graph *g, uint32_t at)
{
    const struct hr__graph_task *task = &g->tasks[at];
    return hr__task_is_device(task) ? g->tasks[task->launch].begin_ns : task->begin_ns;
}

/* Returns the first task of a lane that begins at a time or later; one beyond its last: none. */
static uint32_t first_from(const struct hr__graph *g, const struct hr__lane *lane, int64_t ns)
{
    uint32_t low = lane->first, high = lane->last + 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (g->tasks[middle].begin_ns < ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Moves the end of a pass to that of its operators on any thread of its rank. */
static void extend(const struct gradient_finder *f, struct hr__backward_pass *pass,
                   int64_t break_ns)
{
    const struct hr__graph *g = f->g;
    for (size_t at = 0; at < g->lane_count; at++) {
        const struct hr__lane *lane = &g->lanes[at];
        if (lane->rank != pass->rank || lane->is_stream || lane->first == HR__NO_TASK)
            continue;
        for (uint32_t i = first_from(g, lane, pass->begin_ns);
             i <= lane->last && g->tasks[i].begin_ns < break_ns; i++) {
            int64_t end = g->tasks[i].begin_ns + g->tasks[i].length_ns;
            if (g->tasks[i].phase == HR__PHASE_BACKWARD && !hr__task_is_device(&g->tasks[i]) &&
                end > pass->end_ns)
                pass->end_ns = end;
        }
    }
}

/* Returns the lane where waiting for a pass shows: the device's stream or the main thread; NULL:
 * there is none. */
static const struct hr__lane *place_of(const struct gradient_finder *f,
                                       const struct hr__backward_pass *pass)
{
    const struct hr__graph *g = f->g;
    const struct hr__gradient *last = &f->out->all[pass->first + pass->count - 1];
    if (last->kernel != HR__NO_TASK)
        return &g->lanes[g->tasks[last->kernel].lane];
    for (size_t at = 0; at < g->lane_count; at++) {
        const struct hr__lane *lane = &g->lanes[at];
        if (lane->rank == pass->rank && !lane->is_stream && lane->first != HR__NO_TASK &&
            lane->track == g->ranks[pass->rank].main)
            return lane;
    }
    return NULL;
}

/* Finds what follows a pass, and its updates; the next pass begins at `until_ns`. Only a part of
 * the lanes is looked at: there may be thousands of passes. */
static void follow(struct gradient_finder *f, struct hr__backward_pass *pass, int64_t break_ns,
                   int64_t until_ns)
{
    const struct hr__graph *g = f->g;
    extend(f, pass, break_ns);
    pass->next = HR__NO_TASK;
    const struct hr__lane *lane = place_of(f, pass);
    /* a stream's work begins after its launch, but for a difference of clocks */
    for (uint32_t i = lane ? first_from(g, lane, pass->end_ns - SKEW_NS) : 1;
         lane && i <= lane->last; i++) {
        if (hr__task_is_device(&g->tasks[i]) && g->tasks[i].launch == HR__NO_TASK)
            continue;
        int64_t asked = asked_ns(g, i);
        if (asked < pass->end_ns)
            continue;
        if (pass->next == HR__NO_TASK)
            pass->next = i;
        if (asked >= until_ns)
            break;
        if (f->out->update_of[i] == UPDATE)
            f->out->update_of[i] = (uint32_t)f->out->pass_count;
    }
}

/* Divides the gradients of a rank into passes. */
static int find_passes(struct gradient_finder *f)
{
    struct hr__gradients *out = f->out;
    for (size_t i = 0; i < f->count;) {
        struct hr__backward_pass pass = {.rank = f->rank};
        int64_t until_ns = INT64_MAX;
        for (; i < f->count && (f->marks[i].is_gradient || !pass.count); i++)
            if (f->marks[i].is_gradient && add_gradient(f, &pass, &f->marks[i]))
                return -ENOMEM;
        if (!pass.count)
            break;
        for (size_t k = i; k < f->count && until_ns == INT64_MAX; k++)
            if (f->marks[k].is_gradient)
                until_ns = f->marks[k].begin_ns;
        follow(f, &pass, i < f->count ? f->marks[i].begin_ns : INT64_MAX, until_ns);
        if (hr__reserve(HR__TAG_REPLAY, &out->passes, out->pass_count + 1))
            return -ENOMEM;
        out->passes[out->pass_count++] = pass;
    }
    return 0;
}

static uint32_t *numbers(size_t count)
{
    uint32_t *all = hr__alloc(HR__TAG_REPLAY, count + 1, sizeof *all);
    if (all)
        memset(all, 0xff, (count + 1) * sizeof *all);
    return all;
}

static int find_of_rank(struct hr__gradients *out, const struct hr__graph *g, uint32_t rank)
{
    size_t events = g->ranks[rank].trace->event_count;
    struct gradient_finder f = {.g = g, .out = out, .rank = rank};
    int code = -ENOMEM;
    out->first_task[rank] = numbers(events);
    out->first_work[rank] = numbers(events);
    f.last_task = numbers(events);
    f.last_launch = numbers(g->task_count);
    if (out->first_task[rank] && out->first_work[rank] && f.last_task && f.last_launch) {
        note_tasks(&f);
        code = find_marks(&f);
        code = code ? code : find_passes(&f);
    }
    hr__free(f.marks);
    hr__free(f.last_task);
    hr__free(f.last_launch);
    return code;
}

int hr__gradients_find(struct hr__gradients *out, const struct hr__graph *graph,
                       struct hr_error *error)
{
    size_t ranks = graph->rank_count;
    *out = (struct hr__gradients){.rank_count = ranks};
    out->first_task = hr__alloc(HR__TAG_REPLAY, ranks, sizeof *out->first_task);
    out->first_work = hr__alloc(HR__TAG_REPLAY, ranks, sizeof *out->first_work);
    out->update_of = numbers(graph->task_count);
    int code = out->first_task && out->first_work && out->update_of ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < ranks && !code; i++)
        code = find_of_rank(out, graph, i);
    if (code)
        return hr__fail(error, code, "out of memory for the gradients of a trace");
    if (!out->pass_count)
        return hr__fail(error, -ENODATA,
                        "the trace has no backward pass that makes gradients (no operator " GRADIENT
                        "): record steps of a training");
    return 0;
}

void hr__gradients_clear(struct hr__gradients *all)
{
    for (size_t i = 0; i < all->rank_count; i++) {
        if (all->first_task)
            hr__free(all->first_task[i]);
        if (all->first_work)
            hr__free(all->first_work[i]);
    }
    hr__free(all->first_task);
    hr__free(all->first_work);
    hr__free(all->update_of);
    hr__free(all->all);
    hr__free(all->passes);
    *all = (struct hr__gradients){.all = NULL};
}
