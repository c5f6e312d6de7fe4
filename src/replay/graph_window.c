/*
 * Which part of a trace is replayed: the steps of the profiler, or annotations that the caller
 * names, or else all of it. A trace may hold 30 s of CUDA's initialisation before its first step.
 */
#include "replay/graph.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STEP    "ProfilerStep#"
#define MOST_NS (INT64_C(1) << 55) /* a year: longer ones are damaged, and sums would overflow */

/* The annotations of a window, in order of time. */
struct found_window {
    uint32_t count, track;
    int64_t begin_ns, end_ns; /* from the first one's begin to the last one's end */
    int64_t shortest_ns, longest_ns;
};

static int is_meant(const struct hr__trace_data *t, const struct hr__trace_event *e,
                    const char *name)
{
    const char *text = hr__trace_name(t, e->name);
    if (t->tracks[e->track].is_stream)
        return 0;
    if (!name)
        return e->kind == HR__TRACE_ANNOTATION && !strncmp(text, STEP, sizeof STEP - 1);
    return (e->kind == HR__TRACE_ANNOTATION || e->kind == HR__TRACE_OP) && strstr(text, name);
}

static struct found_window find(const struct hr__rank_events *ranks, const char *name, int instance)
{
    const struct hr__trace_data *t = ranks->trace;
    struct found_window found = {.track = UINT32_MAX};
    for (size_t i = 0; i < t->event_count; i++) {
        const struct hr__trace_event *e = &t->events[ranks->order[i]];
        if (!is_meant(t, e, name) || (found.track != UINT32_MAX && e->track != found.track))
            continue;
        /* one inside another one is a part of it, unless it is asked for */
        if (instance < 0 && found.count && e->begin_ns < found.end_ns &&
            hr__trace_end(e) <= found.end_ns)
            continue;
        found.track = e->track;
        if (!found.count || (int)found.count == instance) {
            found.begin_ns = e->begin_ns;
            found.end_ns = hr__trace_end(e);
        } else if (instance < 0) {
            found.end_ns = hr__trace_end(e);
        }
        if (!found.count || e->length_ns < found.shortest_ns)
            found.shortest_ns = e->length_ns;
        if (e->length_ns > found.longest_ns)
            found.longest_ns = e->length_ns;
        found.count++;
    }
    return found;
}

/* Returns the thread with the most operators; without any, that with the most calls. */
static uint32_t busiest(const struct hr__rank_events *r)
{
    const struct hr__trace_data *t = r->trace;
    uint64_t most = 0;
    uint32_t found = 0;
    for (uint32_t track = 0; track < t->track_count; track++) {
        uint64_t weight = 0;
        for (uint32_t i = r->first[track]; i < r->first[track + 1]; i++)
            weight += t->events[r->order[i]].kind == HR__TRACE_OP ? 1000 : 1;
        if (!t->tracks[track].is_stream && weight > most) {
            most = weight;
            found = track;
        }
    }
    return found;
}

static void take_all(struct hr__graph *g, struct hr__rank_events *r)
{
    const struct hr__trace_data *t = r->trace;
    int is_first = 1;
    for (size_t i = 0; i < t->event_count; i++) {
        const struct hr__trace_event *e = &t->events[i];
        if (e->kind == HR__TRACE_ANNOTATION || e->kind == HR__TRACE_PYTHON)
            continue;
        if (is_first || e->begin_ns < r->begin_ns)
            r->begin_ns = e->begin_ns;
        if (is_first || hr__trace_end(e) > r->end_ns)
            r->end_ns = hr__trace_end(e);
        is_first = 0;
    }
    r->main = busiest(r);
    g->iterations = 1;
    g->is_whole = 1;
    snprintf(g->window, sizeof g->window,
             "the whole trace as one iteration: it has no " STEP " annotations");
}

static int check_length(const struct hr__rank_events *r, size_t rank, struct hr_error *error)
{
    int64_t length = r->end_ns - r->begin_ns;
    if (length > 0 && length < MOST_NS)
        return 0;
    return hr__fail(error, -ENODATA, "rank %zu: the part of the trace to replay %s", rank,
                    length > 0 ? "is longer than a year: its times are damaged" : "has no length");
}

int hr__graph_find_window(struct hr__graph *g, size_t rank, const struct hr__trace_window *window,
                          struct hr_error *error)
{
    struct hr__rank_events *r = &g->ranks[rank];
    struct found_window found = find(r, window->name, window->instance);
    if (window->name && (!found.count || window->instance >= (int)found.count))
        return hr__fail(error, -ENODATA,
                        "rank %zu: %u annotations contain '%s', and number %d was asked for (from "
                        "0 on): see the names of annotations in the trace",
                        rank, found.count, window->name,
                        window->instance < 0 ? 0 : window->instance);
    if (!found.count) {
        take_all(g, r);
        return check_length(r, rank, error);
    }
    r->main = found.track;
    r->begin_ns = found.begin_ns;
    r->end_ns = found.end_ns;
    int code = check_length(r, rank, error);
    if (code)
        return code;
    uint32_t count = window->instance < 0 ? found.count : 1;
    if (rank && count != g->iterations)
        return hr__fail(error, -EINVAL,
                        "rank %zu has %u iterations, and rank 0 has %u: give traces of the same "
                        "steps of one run",
                        rank, count, g->iterations);
    g->iterations = count;
    if (!rank && count > 1) {
        g->shortest_ns = found.shortest_ns;
        g->longest_ns = found.longest_ns;
        g->middle_ns = find(r, window->name, (int)count / 2).begin_ns - r->begin_ns;
    }
    if (window->name)
        snprintf(g->window, sizeof g->window, "%u of %u annotations that contain '%.80s'", count,
                 found.count, window->name);
    else
        snprintf(g->window, sizeof g->window, "%u steps of the profiler (" STEP ")", count);
    return 0;
}
