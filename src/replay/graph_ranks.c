/*
 * Ranks of one run: their clocks, and their collectives.
 *
 * The kernel of a collective runs from when its own rank arrives, so it includes waiting for the
 * others. With all ranks' traces it is divided: an arrival of length 0, and the transfer, which
 * begins when the last rank has arrived. A collective ends on all ranks at once, which is what
 * aligns the clocks of several hosts.
 */
#include "replay/graph.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A collective of a rank. Those of several streams need not begin in the same order on all ranks,
 * so the n-th of one group and name belong together. */
struct rank_collective {
    const char *group, *name; /* the trace's; group "": unknown */
    uint32_t event;
    int64_t begin_ns, end_ns;
};

static int is_collective(const struct hr__trace_data *t, const struct hr__trace_event *e)
{
    const char *name = hr__trace_name(t, e->name);
    if (hr__trace_is_gloo(t, e))
        return 1;
    return e->kind == HR__TRACE_KERNEL &&
           (strstr(name, "ncclKernel") || strstr(name, "ncclDevKernel")) &&
           !strstr(name, "SendRecv");
}

static int by_name(const void *a, const void *b)
{
    const struct rank_collective *x = a, *y = b;
    int found = strcmp(x->group, y->group);
    if (!found)
        found = strcmp(x->name, y->name);
    if (!found)
        found = x->begin_ns < y->begin_ns ? -1 : x->begin_ns > y->begin_ns;
    return found;
}

/* Lists the collectives in the window of a rank by group and name, those of a name in order of
 * time. Returns NULL if out of memory. */
static struct rank_collective *list(const struct hr__rank_events *r, size_t *count)
{
    const struct hr__trace_data *t = r->trace;
    struct rank_collective *all = NULL;
    *count = 0;
    for (uint32_t i = 0; i < t->event_count; i++) {
        const struct hr__trace_event *e = &t->events[i];
        if (!is_collective(t, e) || e->begin_ns < r->begin_ns || e->begin_ns >= r->end_ns)
            continue;
        if (hr__reserve(HR__TAG_REPLAY, &all, *count + 1)) {
            hr__free(all);
            return NULL;
        }
        all[(*count)++] =
            (struct rank_collective){.group = e->group ? t->groups[e->group - 1].name : "",
                                     .name = hr__trace_name(t, e->name),
                                     .event = i,
                                     .begin_ns = e->begin_ns,
                                     .end_ns = hr__trace_end(e)};
    }
    if (!all)
        return hr__alloc(HR__TAG_REPLAY, 1, sizeof *all);
    qsort(all, *count, sizeof *all, by_name);
    return all;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Returns the median difference of the ends of two ranks' collectives; 0: out of memory. */
static int64_t shift(const struct rank_collective *first, const struct rank_collective *other,
                     size_t count)
{
    int64_t *all = hr__alloc(HR__TAG_REPLAY, count, sizeof *all), found = 0;
    for (size_t i = 0; all && i < count; i++)
        all[i] = other[i].end_ns - first[i].end_ns;
    if (all) {
        qsort(all, count, sizeof *all, by_value);
        found = all[count / 2];
    }
    hr__free(all);
    return found;
}

/* Returns the first collective whose group or name differs; count: none. */
static size_t difference(const struct rank_collective *first, const struct rank_collective *other,
                         size_t count)
{
    size_t i = 0;
    while (i < count && !strcmp(first[i].group, other[i].group) &&
           !strcmp(first[i].name, other[i].name))
        i++;
    return i;
}

/* Returns a group that has some of the traces' ranks only; NULL: none. */
static const struct hr__trace_group *find_part(const struct hr__graph *g,
                                               const struct hr__trace_data *t)
{
    for (size_t i = 0; i < t->group_count; i++)
        if (t->groups[i].size > 1 && (size_t)t->groups[i].size < g->rank_count)
            return &t->groups[i];
    return NULL;
}

/* Rejects a collective of fewer ranks than there are traces: these are of several groups. Those of
 * gloo do not say their group, so one that exists may be theirs. */
static int check_groups(const struct hr__graph *g, size_t rank, const struct rank_collective *all,
                        size_t count, struct hr_error *error)
{
    const struct hr__trace_data *t = g->ranks[rank].trace;
    const struct hr__trace_group *part = find_part(g, t);
    for (size_t i = 0; i < count; i++) {
        const struct hr__trace_event *e = &t->events[all[i].event];
        if (e->number > 0 && (size_t)e->number < g->rank_count)
            return hr__fail(error, -EINVAL,
                            "trace %zu has '%.100s' in its window, which is of %s with %d rank%s, "
                            "and there are %zu traces: give the trace of one rank, or those of a "
                            "run whose ranks are all in one group",
                            rank + 1, all[i].name,
                            e->group ? hr__trace_group_label(t, e->group) : "a group", e->number,
                            e->number == 1 ? "" : "s", g->rank_count);
        if (part && e->number <= 0 && !e->group)
            return hr__fail(error, -EINVAL,
                            "trace %zu has '%.100s' in its window, which does not say its process "
                            "group, and the run has %s with %lld ranks: give the trace of one "
                            "rank, or those of a run whose ranks are all in one group",
                            rank + 1, all[i].name, part->label, (long long)part->size);
    }
    return 0;
}

/* Rejects a rank whose collectives are not those of the first one. */
static int check_names(const struct hr__graph *g, size_t rank, const struct rank_collective *first,
                       const struct rank_collective *other, size_t count, struct hr_error *error)
{
    const struct hr__trace_data *t = g->ranks[rank].trace, *of = g->ranks[0].trace;
    size_t at = difference(first, other, count);
    if (at == count)
        return 0;
    uint16_t group = t->events[other[at].event].group,
             first_group = of->events[first[at].event].group;
    int has_groups = group && first_group;
    return hr__fail(
        error, -EINVAL,
        "trace %zu has '%.100s'%s%s in its window where the first one has '%.100s'%s%s: "
        "give traces of the same steps of one run, whose ranks are all in one group",
        rank + 1, other[at].name, has_groups ? " of " : "",
        has_groups ? hr__trace_group_label(t, group) : "", first[at].name, has_groups ? " of " : "",
        has_groups ? hr__trace_group_label(of, first_group) : "");
}

int hr__graph_align(struct hr__graph *g, struct hr_error *error)
{
    int code = 0;
    size_t first_count, count;
    if (g->rank_count == 1)
        return 0;
    struct rank_collective *first = list(&g->ranks[0], &first_count);
    if (first)
        code = check_groups(g, 0, first, first_count, error);
    for (size_t i = 1; first && i < g->rank_count && !code; i++) {
        struct rank_collective *other = list(&g->ranks[i], &count);
        if (!other) {
            g->no_memory = 1;
            break;
        }
        if (count != first_count)
            code = hr__fail(error, -EINVAL,
                            "trace %zu has %zu collectives in its window, and the first one has "
                            "%zu: give traces of the same steps of one run",
                            i + 1, count, first_count);
        else
            code = check_names(g, i, first, other, count, error);
        if (!code)
            g->ranks[i].shift_ns =
                count ? shift(first, other, count) : g->ranks[i].begin_ns - g->ranks[0].begin_ns;
        hr__free(other);
    }
    g->no_memory |= !first;
    hr__free(first);
    return code;
}

/* Divides the k-th collective of all ranks: what each rank's kernel waited for is now waited for by
 * its arrival, and all transfers begin after all arrivals. arrivals: by task. */
static void join(struct hr__graph *g, const uint32_t *tasks, uint32_t *arrivals)
{
    int64_t latest = INT64_MIN;
    for (size_t i = 0; i < g->rank_count; i++)
        if (g->tasks[tasks[i]].begin_ns > latest)
            latest = g->tasks[tasks[i]].begin_ns;
    for (size_t i = 0; i < g->rank_count; i++) {
        struct hr__graph_task arrival = g->tasks[tasks[i]];
        int64_t end = arrival.begin_ns + arrival.length_ns;
        arrival.length_ns = 0;
        arrivals[tasks[i]] = hr__graph_add_task(g, arrival);
        g->tasks[tasks[i]].begin_ns = latest;
        g->tasks[tasks[i]].length_ns = end > latest ? end - latest : 0;
        g->counts.joined++;
    }
}

/* Adds the edges from all arrivals to all transfers. */
static void link_all(struct hr__graph *g, const uint32_t *tasks, const uint32_t *arrivals)
{
    for (size_t i = 0; i < g->rank_count; i++)
        for (size_t k = 0; k < g->rank_count; k++)
            hr__graph_add_edge(g, (struct hr__edge){.from = arrivals[tasks[i]],
                                                    .to = tasks[k],
                                                    .kind = HR__EDGE_GROUP});
}

/* Calls join, or link_all if `is_linking`, for each collective that all ranks have. */
static void for_each(struct hr__graph *g, struct rank_collective **all, size_t count,
                     uint32_t *arrivals, int is_linking)
{
    uint32_t *tasks = hr__alloc(HR__TAG_REPLAY, g->rank_count, sizeof *tasks);
    g->no_memory |= !tasks;
    for (size_t k = 0; k < count && !g->no_memory; k++) {
        int is_whole = 1;
        for (size_t i = 0; i < g->rank_count; i++) {
            tasks[i] = g->ranks[i].task[all[i][k].event];
            is_whole &= tasks[i] != HR__NO_TASK;
        }
        if (is_whole && is_linking)
            link_all(g, tasks, arrivals);
        else if (is_whole)
            join(g, tasks, arrivals);
    }
    hr__free(tasks);
}

void hr__graph_join_ranks(struct hr__graph *g)
{
    if (g->rank_count < 2)
        return;
    uint32_t *arrivals = hr__alloc(HR__TAG_REPLAY, g->task_count, sizeof *arrivals);
    struct rank_collective **all = hr__alloc(HR__TAG_REPLAY, g->rank_count, sizeof *all);
    size_t count = 0, edges = g->edge_count;
    g->no_memory |= !arrivals || !all;
    for (size_t i = 0; i < g->rank_count && !g->no_memory; i++) {
        all[i] = list(&g->ranks[i], &count);
        g->no_memory |= !all[i];
    }
    if (!g->no_memory) {
        memset(arrivals, 0xff, g->task_count * sizeof *arrivals);
        for_each(g, all, count, arrivals, 0);
        for (size_t i = 0; i < edges && !g->no_memory; i++)
            if (arrivals[g->edges[i].to] != HR__NO_TASK)
                g->edges[i].to = arrivals[g->edges[i].to];
        for_each(g, all, count, arrivals, 1);
    }
    for (size_t i = 0; all && i < g->rank_count; i++)
        hr__free(all[i]);
    hr__free(all);
    hr__free(arrivals);
}
