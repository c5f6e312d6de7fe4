/* The replay of an unchanged graph against the record; see simulate.h. */
#include "replay/path.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define FAR_NS 20000 /* a lag is far above the usual one if it exceeds it by this at least */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int64_t unexplained(const struct hr__graph *g, const struct hr__replay_schedule *s)
{
    int64_t sum = 0;
    for (struct hr__path_walk w = {.is_begun = 0}; hr__path_back(&w, g, s);) {
        if (s->cause[w.task] == UINT32_MAX)
            continue;
        const struct hr__edge *e = &g->edges[s->cause[w.task]];
        int64_t usual = e->kind == HR__EDGE_LAUNCH   ? g->launch_ns
                        : e->kind == HR__EDGE_STREAM ? g->gap_ns
                                                     : 0;
        if (e->lag_ns > usual + FAR_NS && e->lag_ns > 3 * usual)
            sum += e->lag_ns - usual;
    }
    return sum;
}

/* Finds the task at which the largest error of a replay arises: what it adds to the error of the
 * one that it waited for. */
static void find_worst(struct hr__replay_identity *out, const struct hr__graph *g,
                       const struct hr__replay_schedule *s)
{
    out->worst = HR__NO_TASK;
    out->worst_ns = 0;
    for (uint32_t i = 0; i < g->task_count; i++) {
        int64_t off = s->begin_ns[i] - g->tasks[i].begin_ns;
        if (s->cause[i] != UINT32_MAX) {
            uint32_t from = g->edges[s->cause[i]].from;
            off -= s->begin_ns[from] - g->tasks[from].begin_ns;
        }
        if (llabs(off) > out->worst_ns) {
            out->worst_ns = llabs(off);
            out->worst = i;
        }
    }
}

/* Replays with the usual time from each launch to its kernel, and between two kernels, instead of
 * the recorded ones: what of the record follows from the graph alone. */
static int find_usual_error(struct hr__replay_identity *out, const struct hr__graph *g,
                            struct hr_error *error)
{
    struct hr__graph usual = *g;
    struct hr__replay_schedule s;
    usual.edges = hr__alloc(HR__TAG_REPLAY, g->edge_count + 1, sizeof *usual.edges);
    if (!usual.edges)
        return hr__fail(error, -ENOMEM, "out of memory for a replay");
    for (size_t i = 0; i < g->edge_count; i++) {
        struct hr__edge *e = &usual.edges[i];
        *e = g->edges[i];
        out->checked++;
        if (e->kind == HR__EDGE_LAUNCH && g->tasks[e->to].kind == HR__TASK_KERNEL)
            e->lag_ns = g->launch_ns;
        else if (e->kind == HR__EDGE_STREAM && !e->from_begin)
            e->lag_ns = g->gap_ns;
        else if (e->kind == HR__EDGE_EVENT)
            e->lag_ns = 0;
        else
            out->checked--;
    }
    int code = hr__graph_replay(&s, &usual, NULL, error);
    if (!code) {
        out->usual_error = (double)(s.length_ns - g->recorded_ns) / (double)g->recorded_ns;
        if (fabs(out->usual_error) > fabs(out->error))
            find_worst(out, &usual, &s);
    }
    hr__schedule_clear(&s);
    hr__free(usual.edges);
    return code;
}

double hr__identity_distance(const struct hr__replay_identity *identity)
{
    return fabs(identity->usual_error) > fabs(identity->error) ? identity->usual_error
                                                               : identity->error;
}

int hr__identity_find(struct hr__replay_identity *out, const struct hr__graph *g,
                      const struct hr__replay_schedule *s, struct hr_error *error)
{
    double iteration = (double)g->recorded_ns / g->iterations;
    int64_t *errors = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, sizeof *errors);
    *out = (struct hr__replay_identity){.worst = HR__NO_TASK};
    if (!errors)
        return hr__fail(error, -ENOMEM, "out of memory for a replay");
    find_worst(out, g, s);
    for (uint32_t i = 0; i < g->task_count; i++)
        errors[i] = llabs(s->begin_ns[i] - g->tasks[i].begin_ns);
    qsort(errors, g->task_count, sizeof *errors, by_value);
    out->start_median_ns = errors[g->task_count / 2];
    out->start_max_ns = errors[g->task_count - 1];
    hr__free(errors);
    out->start_median = (double)out->start_median_ns / iteration;
    out->start_max = (double)out->start_max_ns / iteration;
    out->error = (double)(s->length_ns - g->recorded_ns) / (double)g->recorded_ns;
    out->unexplained_ns = unexplained(g, s);
    return find_usual_error(out, g, error);
}
