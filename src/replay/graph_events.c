/* A rank's events in order, with their parents, phases and forward operators; see graph.h. */
#include "replay/graph.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST 4096

static int by_track(const void *a, const void *b, void *arg)
{
    const struct hr__trace_event *events = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct hr__trace_event *p = &events[x], *q = &events[y];
    if (p->track != q->track)
        return p->track < q->track ? -1 : 1;
    if (p->begin_ns != q->begin_ns)
        return p->begin_ns < q->begin_ns ? -1 : 1;
    if (p->length_ns != q->length_ns)
        return p->length_ns > q->length_ns ? -1 : 1;
    return x < y ? -1 : 1;
}

static int starts(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

/* Returns the phase that an event's name tells; HR__PHASES: none. */
static uint8_t phase_of(const char *name)
{
    size_t length = strlen(name);
    if (starts(name, "autograd::engine::evaluate_function"))
        return HR__PHASE_BACKWARD;
    if (starts(name, "Optimizer.step#") || starts(name, "Optimizer.zero_grad#"))
        return HR__PHASE_OPTIMIZER;
    if (starts(name, "enumerate(DataLoader)#"))
        return HR__PHASE_DATA;
    if (length > 9 && !strcmp(name + length - 9, "Backward0"))
        return HR__PHASE_BACKWARD;
    return HR__PHASES;
}

/* Finds the parents on one track. */
static void nest(struct hr__rank_events *e, uint32_t first, uint32_t end)
{
    uint32_t stack[DEPTH_MOST];
    size_t depth = 0;
    for (uint32_t i = first; i < end; i++) {
        uint32_t at = e->order[i];
        const struct hr__trace_event *event = &e->trace->events[at];
        while (depth && hr__trace_end(&e->trace->events[stack[depth - 1]]) <= event->begin_ns)
            depth--;
        uint32_t parent = depth ? stack[depth - 1] : HR__NO_EVENT;
        e->parent[at] = parent;
        uint8_t phase = phase_of(hr__trace_name(e->trace, event->name));
        if (phase == HR__PHASES && parent != HR__NO_EVENT)
            phase = e->phase[parent];
        if ((phase == HR__PHASES || phase == HR__PHASE_OTHER) &&
            (event->kind == HR__TRACE_OP || event->kind == HR__TRACE_RUNTIME))
            phase = HR__PHASE_FORWARD;
        e->phase[at] = phase == HR__PHASES ? HR__PHASE_OTHER : phase;
        if (depth < DEPTH_MOST)
            stack[depth++] = at;
    }
}

struct sequence {
    int64_t number;
    uint32_t event;
    uint8_t is_backward;
    int64_t begin_ns;
};

static int by_number(const void *a, const void *b)
{
    const struct sequence *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    if (x->is_backward != y->is_backward)
        return x->is_backward < y->is_backward ? -1 : 1;
    return x->begin_ns < y->begin_ns ? -1 : x->begin_ns > y->begin_ns;
}

/* Links backward operators to forward ones by their sequence numbers. Operators that make no node
 * of autograd have the number of the next one that does, so the last one is it. */
static int link_forward(struct hr__rank_events *e)
{
    struct sequence *all = hr__alloc(HR__TAG_REPLAY, e->trace->event_count + 1, sizeof *all);
    size_t count = 0;
    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < e->trace->event_count; i++) {
        const struct hr__trace_event *event = &e->trace->events[i];
        if (event->kind == HR__TRACE_OP && event->link >= 0)
            all[count++] = (struct sequence){.number = event->link,
                                             .event = (uint32_t)i,
                                             .is_backward = e->phase[i] == HR__PHASE_BACKWARD,
                                             .begin_ns = event->begin_ns};
    }
    qsort(all, count, sizeof *all, by_number);
    uint32_t forward = HR__NO_EVENT;
    for (size_t i = 0; i < count; i++) {
        if (i && all[i].number != all[i - 1].number)
            forward = HR__NO_EVENT;
        if (all[i].is_backward)
            e->forward[all[i].event] = forward;
        else
            forward = all[i].event;
    }
    hr__free(all);
    return 0;
}

static int by_link(const void *a, const void *b, void *arg)
{
    const struct hr__trace_event *events = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (events[x].link != events[y].link)
        return events[x].link < events[y].link ? -1 : 1;
    if (events[x].begin_ns != events[y].begin_ns)
        return events[x].begin_ns < events[y].begin_ns ? -1 : 1;
    return x < y ? -1 : 1;
}

static int is_linked(const struct hr__trace_event *event, enum hr__link link)
{
    if (event->link < 0)
        return 0;
    return link == HR__LINK_CALL   ? event->kind == HR__TRACE_RUNTIME
           : link == HR__LINK_SYNC ? event->kind == HR__TRACE_SYNC
                                   : hr__trace_is_gpu(event);
}

static int sort_links(struct hr__rank_events *e)
{
    const struct hr__trace_data *t = e->trace;
    for (int link = 0; link < HR__LINKS; link++) {
        size_t count = 0;
        for (size_t i = 0; i < t->event_count; i++)
            count += (size_t)is_linked(&t->events[i], (enum hr__link)link);
        e->linked[link] = hr__alloc(HR__TAG_REPLAY, count + 1, sizeof *e->linked[link]);
        if (!e->linked[link])
            return -ENOMEM;
        for (size_t i = 0; i < t->event_count; i++)
            if (is_linked(&t->events[i], (enum hr__link)link))
                e->linked[link][e->linked_count[link]++] = (uint32_t)i;
        qsort_r(e->linked[link], count, sizeof *e->linked[link], by_link, t->events);
    }
    return 0;
}

uint32_t hr__rank_events_find(const struct hr__rank_events *e, enum hr__link link,
                              int64_t correlation)
{
    const uint32_t *all = e->linked[link];
    size_t low = 0, high = e->linked_count[link];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (e->trace->events[all[middle]].link < correlation)
            low = middle + 1;
        else
            high = middle;
    }
    int is_there = correlation >= 0 && low < e->linked_count[link] &&
                   e->trace->events[all[low]].link == correlation;
    return is_there ? all[low] : HR__NO_EVENT;
}

int hr__rank_events_make(struct hr__rank_events *e, const struct hr__trace_data *trace)
{
    size_t n = trace->event_count;
    *e = (struct hr__rank_events){.trace = trace, .main = UINT32_MAX};
    if (n >= HR__NO_EVENT)
        return -E2BIG;
    e->order = hr__alloc(HR__TAG_REPLAY, n + 1, sizeof *e->order);
    e->first = hr__alloc(HR__TAG_REPLAY, trace->track_count + 1, sizeof *e->first);
    e->parent = hr__alloc(HR__TAG_REPLAY, n + 1, sizeof *e->parent);
    e->forward = hr__alloc(HR__TAG_REPLAY, n + 1, sizeof *e->forward);
    e->phase = hr__alloc(HR__TAG_REPLAY, n + 1, sizeof *e->phase);
    e->task = hr__alloc(HR__TAG_REPLAY, n + 1, sizeof *e->task);
    if (!e->order || !e->first || !e->parent || !e->forward || !e->phase || !e->task)
        return -ENOMEM;
    memset(e->parent, 0xff, n * sizeof *e->parent);
    memset(e->forward, 0xff, n * sizeof *e->forward);
    memset(e->task, 0xff, n * sizeof *e->task);
    for (size_t i = 0; i < n; i++)
        e->order[i] = (uint32_t)i;
    if (n)
        qsort_r(e->order, n, sizeof *e->order, by_track, trace->events);
    for (size_t i = 0, track = 0; track <= trace->track_count; track++) {
        while (i < n && trace->events[e->order[i]].track < track)
            i++;
        e->first[track] = (uint32_t)i;
    }
    for (size_t track = 0; track < trace->track_count; track++)
        if (!trace->tracks[track].is_stream)
            nest(e, e->first[track], e->first[track + 1]);
    int code = sort_links(e);
    return code ? code : link_forward(e);
}

void hr__rank_events_clear(struct hr__rank_events *e)
{
    hr__free(e->order);
    hr__free(e->first);
    hr__free(e->parent);
    hr__free(e->forward);
    hr__free(e->phase);
    hr__free(e->task);
    for (int link = 0; link < HR__LINKS; link++)
        hr__free(e->linked[link]);
    *e = (struct hr__rank_events){.trace = NULL};
}
