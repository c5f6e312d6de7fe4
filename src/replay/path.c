/* Critical paths; see path.h. */
#include "replay/path.h"

#include "base/ids.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 8200 /* a whole name: trace.c cuts longer ones */

/* Returns the task before one on the critical path; HR__NO_TASK: it is the first. */
static uint32_t before(const struct hr__graph *g, const struct hr__replay_schedule *s,
                       uint32_t task)
{
    if (s->holder[task] != HR__NO_TASK)
        return s->holder[task];
    return s->cause[task] == UINT32_MAX ? HR__NO_TASK : g->edges[s->cause[task]].from;
}

int hr__path_back(struct hr__path_walk *w, const struct hr__graph *g,
                  const struct hr__replay_schedule *s)
{
    uint32_t next = w->is_begun ? w->task : HR__NO_TASK;
    w->task = w->is_begun ? before(g, s, next) : s->last;
    if (w->task == HR__NO_TASK)
        return 0;
    int64_t length = g->tasks[w->task].length_ns, begin = s->begin_ns[w->task];
    int64_t until = w->is_begun ? w->begin_ns : begin + length;
    int64_t span = until > begin ? until - begin : 0;
    /* a launch's kernel begins during or after the call: what lies between is latency */
    int is_own = next == HR__NO_TASK || s->holder[next] != HR__NO_TASK ||
                 !g->edges[s->cause[next]].from_begin;
    w->is_begun = 1;
    w->begin_ns = begin;
    w->own_ns = !is_own ? 0 : length < span ? length : span;
    w->latency_ns = span - w->own_ns;
    return 1;
}

/* Returns whether a task of the CPU waits for the loader. */
static int is_waiting(const struct hr__graph_task *task)
{
    return task->phase == HR__PHASE_DATA && !hr__task_is_device(task);
}

void hr__path_shares(struct hr__shares *out, const struct hr__graph *g,
                     const struct hr__replay_schedule *s)
{
    double all = 0;
    *out = (struct hr__shares){.latency = 0};
    for (struct hr__path_walk w = {.is_begun = 0}; hr__path_back(&w, g, s);) {
        const struct hr__graph_task *task = &g->tasks[w.task];
        out->kind[task->kind] += (double)w.own_ns;
        if (is_waiting(task))
            out->waits[task->kind] += (double)w.own_ns;
        out->latency += (double)w.latency_ns;
        all += (double)(w.own_ns + w.latency_ns);
    }
    for (int k = 0; k < HR__TASK_KINDS && all > 0; k++) {
        out->kind[k] /= all;
        out->waits[k] /= all;
        out->data += out->waits[k];
    }
    out->latency /= all > 0 ? all : 1;
}

/* ---- names ---- */

/* Returns the bytes of a name to compare: "ProfilerStep#" of "ProfilerStep#12". */
static size_t compared(const char *name)
{
    size_t length = strlen(name), end = length;
    while (end && name[end - 1] >= '0' && name[end - 1] <= '9')
        end--;
    return end && name[end - 1] == '#' ? end : length;
}

static int by_share(const void *a, const void *b)
{
    const struct hr__path_name *x = a, *y = b;
    if (x->share != y->share)
        return x->share > y->share ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Adds a task; ids: the names so far. Returns 0, or -ENOMEM. */
static int add_name(struct hr__path_name **all, struct hr__ids *ids, const struct hr__graph *g,
                    const struct hr__path_walk *w)
{
    const struct hr__graph_task *task = &g->tasks[w->task];
    const char *name = hr__graph_name(g, task);
    uint8_t kind = is_waiting(task) ? HR__PATH_DATA : task->kind;
    char key[KEY_BYTES];
    int n = snprintf(key, sizeof key, "%c%.*s", kind == HR__PATH_DATA ? 'd' : ' ',
                     (int)compared(name), name);
    size_t length = (size_t)n < sizeof key ? (size_t)n : sizeof key - 1;
    uint32_t known = hr__ids_find(ids, key, length);
    uint32_t id = known ? known : hr__ids_add(ids, key, length);
    if (!id || hr__reserve(HR__TAG_REPLAY, all, (size_t)ids->count + 1))
        return -ENOMEM;
    struct hr__path_name *one = &(*all)[id - 1];
    if (!known)
        *one = (struct hr__path_name){.name = name, .kind = kind};
    if (one->kind == HR__TASK_RETURN)
        one->kind = kind;
    one->share += (double)w->own_ns;
    one->count += task->kind != HR__TASK_RETURN;
    return 0;
}

int hr__path_names(struct hr__path_name **out, size_t *count, const struct hr__graph *g,
                   const struct hr__replay_schedule *s)
{
    struct hr__ids ids = {.count = 0};
    double all = 0;
    int code = 0;
    *out = NULL;
    for (struct hr__path_walk w = {.is_begun = 0}; !code && hr__path_back(&w, g, s);) {
        all += (double)(w.own_ns + w.latency_ns);
        if (w.own_ns)
            code = add_name(out, &ids, g, &w);
    }
    *count = ids.count;
    for (size_t i = 0; i < *count && !code; i++)
        (*out)[i].share /= all;
    if (*count && !code)
        qsort(*out, *count, sizeof **out, by_share);
    hr__ids_clear(&ids);
    return code;
}
