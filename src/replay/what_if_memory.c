/*
 * What if activations did not stay on the device until the backward pass: if they were computed
 * again, or kept in the host's memory meanwhile? Both cost time, which is predicted here; the
 * memory that they free is a matter of headrace memory.
 */
#include "replay/gradients.h"
#include "replay/scenario.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCIE_BYTES_PER_S 12.8e9 /* vDNN: measured of 16 GB/s */

static int no_memory(struct hr_error *error)
{
    return hr__fail(error, -ENOMEM, "out of memory for a what-if");
}

/* Returns the event of a task, of its launch for a device's work; HR__NO_EVENT: none. */
static uint32_t event_of(const struct hr__graph *g, const struct hr__graph_task *task)
{
    if (!hr__task_is_device(task))
        return task->event;
    return task->launch == HR__NO_TASK ? HR__NO_EVENT : g->tasks[task->launch].event;
}

/* Times of forward operators of a rank, by event. */
struct layer_times {
    int64_t *cpu_ns, *device_ns; /* of an operator with all within it */
};

/* Marks forward tasks by a regular expression; NULL: all. */
static int mark(struct hr__task_marks *out, const struct hr_replay_scenario *s, const char *layers,
                struct hr_error *error)
{
    struct hr_replay_selector which;
    hr_replay_selector_default(&which);
    which.phases = 1u << HR__PHASE_FORWARD | 1u << HR__PHASE_OTHER;
    which.within = layers;
    return hr__select(out, &s->graph, &which, error);
}

/* ---- recompute ---- */

/* Adds the lengths of marked tasks to their operators that have backward operators. */
static void add_forward(const struct hr_replay_scenario *s, uint32_t rank, const uint8_t *marks,
                        const uint8_t *has_backward, struct layer_times *times)
{
    const struct hr__graph *g = &s->graph;
    const struct hr__rank_events *r = &g->ranks[rank];
    for (size_t i = 0; i < s->replay->graph.task_count; i++) {
        const struct hr__graph_task *task = &g->tasks[i];
        uint32_t found = HR__NO_EVENT;
        if (!marks[i] || task->rank != rank || task->kind == HR__TASK_RETURN)
            continue;
        for (uint32_t e = event_of(g, task); e != HR__NO_EVENT; e = r->parent[e])
            if (has_backward[e])
                found = e; /* the outermost one, which counts once */
        if (found == HR__NO_EVENT)
            continue;
        if (hr__task_is_device(task))
            times->device_ns[found] += task->length_ns;
        else
            times->cpu_ns[found] += task->length_ns;
    }
}

/* Lengthens the first task of each backward operator by its forward operator. */
static size_t repeat_forward(struct hr_replay_scenario *s, uint32_t rank,
                             const struct hr__gradients *all, struct layer_times *times)
{
    struct hr__graph *g = &s->graph;
    const struct hr__rank_events *r = &g->ranks[rank];
    size_t count = 0;
    for (size_t i = 0; i < r->trace->event_count; i++) {
        uint32_t b = r->order[i], forward = r->forward[b];
        uint32_t cpu = all->first_task[rank][b], device = all->first_work[rank][b];
        if (forward == HR__NO_EVENT || cpu == HR__NO_TASK)
            continue;
        for (; forward != HR__NO_EVENT; forward = r->parent[forward]) {
            int64_t cpu_ns = times->cpu_ns[forward], device_ns = times->device_ns[forward];
            if (!cpu_ns && !device_ns)
                continue;
            times->cpu_ns[forward] = times->device_ns[forward] = 0; /* once */
            g->tasks[cpu].length_ns += cpu_ns;
            if (device != HR__NO_TASK)
                g->tasks[device].length_ns += device_ns;
            count++;
        }
    }
    return count;
}

static int recompute(struct hr_replay_scenario *s, uint32_t rank, const struct hr__gradients *all,
                     const uint8_t *marks, size_t *count)
{
    const struct hr__rank_events *r = &s->graph.ranks[rank];
    size_t n = r->trace->event_count;
    struct layer_times times = {.cpu_ns = hr__alloc(HR__TAG_REPLAY, n + 1, sizeof(int64_t)),
                                .device_ns = hr__alloc(HR__TAG_REPLAY, n + 1, sizeof(int64_t))};
    uint8_t *has_backward = hr__alloc(HR__TAG_REPLAY, n + 1, 1);
    int code = times.cpu_ns && times.device_ns && has_backward ? 0 : -ENOMEM;
    for (size_t b = 0; b < n && !code; b++)
        for (uint32_t e = r->forward[b];
             e != HR__NO_EVENT && r->trace->events[e].kind == HR__TRACE_OP; e = r->parent[e])
            has_backward[e] = 1;
    if (!code) {
        add_forward(s, rank, marks, has_backward, &times);
        *count += repeat_forward(s, rank, all, &times);
    }
    hr__free(times.cpu_ns);
    hr__free(times.device_ns);
    hr__free(has_backward);
    return code;
}

int hr__apply_recompute(struct hr_replay_scenario *s, const char *words, double factor,
                        struct hr_error *error)
{
    struct hr__argument a = {.key = "layers", .kind = HR__ARGUMENT_TEXT};
    struct hr__gradients all = {.all = NULL};
    struct hr__task_marks marks = {.is_marked = NULL};
    size_t count = 0;
    int code = hr__arguments_take(&a, 1, words, error);
    if (!code)
        code = mark(&marks, s, a.is_given ? a.text : NULL, error);
    if (!code)
        code = hr__gradients_find(&all, &s->replay->graph, error);
    for (uint32_t i = 0; i < s->graph.rank_count && !code; i++)
        code = recompute(s, i, &all, marks.is_marked, &count) ? no_memory(error) : 0;
    if (!code && !count)
        code = hr__fail(error, -ENODATA,
                        "the trace has no forward operators%s%.200s%s with backward ones (sequence "
                        "numbers): record forward and backward with one profiler",
                        a.is_given ? " within '" : "", a.text, a.is_given ? "'" : "");
    hr__gradients_clear(&all);
    hr__free(marks.is_marked);
    return code;
}

/* ---- offload ---- */

/* A layer whose input is kept in the host's memory. */
struct offloaded {
    uint32_t rank, forward, first, last, back; /* event; the first and last work of its forward
                                                  operator, the first of its backward operator */
    int64_t bytes;
};

struct offload_list {
    struct offloaded *all;
    size_t count;
    uint32_t *before, *after; /* by task: its neighbours on its stream; HR__NO_TASK: none */
};

/* Returns the index of a layer of an event or one around it; SIZE_MAX: none. */
static size_t layer_of(const struct offload_list *list, const struct hr__rank_events *r,
                       const uint32_t *at, uint32_t event)
{
    for (; event != HR__NO_EVENT; event = r->parent[event])
        if (at[event] < list->count)
            return at[event];
    return SIZE_MAX;
}

/* Lists the forward operators of marked tasks that say the size of their input: the outermost ones
 * whose own name matches have marked tasks, so the outermost operator with a size is meant. */
static int list_layers(struct offload_list *list, const struct hr_replay_scenario *s, uint32_t rank,
                       const uint8_t *marks, uint32_t *at)
{
    const struct hr__graph *g = &s->graph;
    const struct hr__rank_events *r = &g->ranks[rank];
    for (uint32_t i = 0; i < s->replay->graph.task_count; i++) {
        const struct hr__graph_task *task = &g->tasks[i];
        uint32_t found = HR__NO_EVENT;
        if (!marks[i] || task->rank != rank || !hr__task_is_device(task))
            continue;
        for (uint32_t e = event_of(g, task); e != HR__NO_EVENT; e = r->parent[e])
            if (r->trace->events[e].kind == HR__TRACE_OP && r->trace->events[e].value > 0)
                found = e;
        if (found == HR__NO_EVENT)
            continue;
        if (at[found] == UINT32_MAX) {
            if (hr__reserve(HR__TAG_REPLAY, &list->all, list->count + 1))
                return -ENOMEM;
            at[found] = (uint32_t)list->count;
            list->all[list->count++] = (struct offloaded){.rank = rank,
                                                          .forward = found,
                                                          .first = i,
                                                          .last = i,
                                                          .back = HR__NO_TASK,
                                                          .bytes = r->trace->events[found].value};
        }
        list->all[at[found]].last = i;
    }
    return 0;
}

/* Finds where the backward operators of layers begin on the device. */
static void find_backward(struct offload_list *list, const struct hr_replay_scenario *s,
                          uint32_t rank, const struct hr__gradients *all, const uint32_t *at)
{
    const struct hr__graph *g = &s->graph;
    const struct hr__rank_events *r = &g->ranks[rank];
    for (size_t b = 0; b < r->trace->event_count; b++) {
        uint32_t first = all->first_work[rank][b];
        size_t layer = r->forward[b] == HR__NO_EVENT || first == HR__NO_TASK
                           ? SIZE_MAX
                           : layer_of(list, r, at, r->forward[b]);
        if (layer == SIZE_MAX)
            continue;
        uint32_t *back = &list->all[layer].back;
        if (*back == HR__NO_TASK || g->tasks[first].begin_ns < g->tasks[*back].begin_ns)
            *back = first;
    }
}

/* Finds the neighbours of each task on its stream. Returns 0, or -ENOMEM. */
static int find_neighbours(struct offload_list *list, const struct hr__graph *g)
{
    size_t bytes = g->task_count * sizeof *list->before;
    list->before = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, sizeof *list->before);
    list->after = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, sizeof *list->after);
    if (!list->before || !list->after)
        return -ENOMEM;
    memset(list->before, 0xff, bytes);
    memset(list->after, 0xff, bytes);
    for (size_t i = 0; i < g->edge_count; i++) {
        if (g->edges[i].kind != HR__EDGE_STREAM)
            continue;
        list->before[g->edges[i].to] = g->edges[i].from;
        list->after[g->edges[i].from] = g->edges[i].to;
    }
    return 0;
}

/* Inserts the copies of a layer. `later`: the layer whose backward pass comes before its own. */
static int copy_layer(struct hr_replay_scenario *s, const struct offload_list *list,
                      const struct offloaded *layer, const struct offloaded *later,
                      double bytes_per_s, struct hr_error *error)
{
    char channel[64];
    uint32_t made;
    snprintf(channel, sizeof channel, "copies of rank %u", layer->rank);
    struct hr_replay_insertion x = {
        .size = sizeof x,
        .channel = channel,
        .length_ns = (int64_t)fmin((double)layer->bytes / bytes_per_s * 1e9 + 0.5, 2e18),
        .after = &list->before[layer->first],
        .after_count = 1,
        .before = &list->after[layer->last],
        .before_count = 1};
    int code = *x.after == HR__NO_TASK || *x.before == HR__NO_TASK
                   ? 0
                   : hr_replay_insert(s, &x, &made, error);
    x.after = &list->before[later->back];
    x.before = &layer->back;
    return code || *x.after == HR__NO_TASK ? code : hr_replay_insert(s, &x, &made, error);
}

/* By rank, those without a backward pass last, then by its begin. context: the tasks. */
static int by_back(const void *a, const void *b, void *context)
{
    const struct offloaded *x = a, *y = b;
    const struct hr__graph_task *tasks = context;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->back == HR__NO_TASK || y->back == HR__NO_TASK)
        return (x->back == HR__NO_TASK) - (y->back == HR__NO_TASK);
    if (tasks[x->back].begin_ns != tasks[y->back].begin_ns)
        return tasks[x->back].begin_ns < tasks[y->back].begin_ns ? -1 : 1;
    return x->back < y->back ? -1 : x->back > y->back;
}

/* Inserts the copies of all layers with a backward pass, except the last of each: its input is
 * needed again at once. */
static int copy_layers(struct hr_replay_scenario *s, struct offload_list *list, double bytes_per_s,
                       size_t *count, struct hr_error *error)
{
    const struct hr__graph_task *tasks = s->replay->graph.tasks;
    int code = 0;
    qsort_r(list->all, list->count, sizeof *list->all, by_back, (void *)tasks);
    for (size_t i = 1; i < list->count && !code; i++) {
        const struct offloaded *layer = &list->all[i], *later = layer - 1;
        if (layer->back == HR__NO_TASK || later->rank != layer->rank ||
            tasks[later->back].begin_ns <= tasks[layer->last].begin_ns)
            continue;
        code = copy_layer(s, list, layer, later, bytes_per_s, error);
        ++*count;
    }
    return code;
}

static int offload(struct hr_replay_scenario *s, const struct hr__gradients *all,
                   const uint8_t *marks, double bytes_per_s, struct hr_error *error)
{
    struct offload_list list = {.all = NULL};
    size_t count = 0;
    int code = 0;
    for (uint32_t i = 0; i < s->graph.rank_count && !code; i++) {
        size_t n = s->graph.ranks[i].trace->event_count;
        uint32_t *at = hr__alloc(HR__TAG_REPLAY, n + 1, sizeof *at);
        if (at)
            memset(at, 0xff, (n + 1) * sizeof *at);
        code = at ? list_layers(&list, s, i, marks, at) : -ENOMEM;
        if (!code)
            find_backward(&list, s, i, all, at);
        hr__free(at);
    }
    code = code ? code : find_neighbours(&list, &s->graph);
    if (code)
        code = no_memory(error);
    else if (!list.count)
        code = hr__fail(error, -ENODATA,
                        "the trace has no such layers on a device with the sizes of their inputs: "
                        "name others with layers=REGEX, or record with shapes (headrace replay "
                        "record --shapes, or torch.profiler.profile(record_shapes=True))");
    else
        code = copy_layers(s, &list, bytes_per_s, &count, error);
    if (!code && !count)
        code = hr__fail(error, -ENODATA,
                        "no layer but the last one has a backward pass in the trace that could be "
                        "linked to it (sequence numbers): nothing would leave the device");
    hr__free(list.all);
    hr__free(list.before);
    hr__free(list.after);
    return code;
}

int hr__apply_offload(struct hr_replay_scenario *s, const char *words, double factor,
                      struct hr_error *error)
{
    struct hr__argument a[] = {
        {.key = "link", .kind = HR__ARGUMENT_SPEED, .value = PCIE_BYTES_PER_S},
        {.key = "layers", .kind = HR__ARGUMENT_TEXT, .text = "aten::conv"}};
    struct hr__gradients all = {.all = NULL};
    struct hr__task_marks marks = {.is_marked = NULL};
    int code = hr__arguments_take(a, 2, words, error);
    if (!code && !(a[0].value > 0))
        code = hr__fail(error, -EINVAL, "offload: link must be more than 0");
    if (!code && !s->graph.counts.kernels)
        code = hr__fail(error, -ENODATA, "the trace has no kernels of a device");
    if (!code)
        code = mark(&marks, s, a[1].text, error);
    if (!code)
        code = hr__gradients_find(&all, &s->replay->graph, error);
    if (!code)
        code = offload(s, &all, marks.is_marked, a[0].value, error);
    hr__gradients_clear(&all);
    hr__free(marks.is_marked);
    return code;
}
