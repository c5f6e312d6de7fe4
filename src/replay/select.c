/* Selects tasks by name, by what is around them, kind, phase, stream and rank. */
#include "replay/scenario.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <regex.h>
#include <string.h>

enum { MATCH_UNKNOWN, MATCH_NO, MATCH_YES };

struct selection {
    const struct hr__graph *g;
    const struct hr_replay_selector *s;
    regex_t name, within;
    uint8_t *
        *names[2];    /* by rank, by name: MATCH_UNKNOWN, MATCH_NO, MATCH_YES; of name, of within */
    uint8_t **events; /* by rank, by event: whether it, or one around it, matches within */
};

static int compile(regex_t *out, const char *text, struct hr_error *error)
{
    char words[128];
    int code = regcomp(out, text ? text : "", REG_EXTENDED | REG_NOSUB);
    if (!code)
        return 0;
    regerror(code, out, words, sizeof words);
    return hr__fail(error, -EINVAL, "'%s' is no extended regular expression: %s", text, words);
}

static int matches(struct selection *x, int which, uint32_t rank, uint32_t name)
{
    const char *text = which ? x->s->within : x->s->name;
    uint8_t *known = &x->names[which][rank][name];
    if (!text)
        return 1;
    if (*known == MATCH_UNKNOWN)
        *known = regexec(which ? &x->within : &x->name,
                         hr__trace_name(x->g->ranks[rank].trace, name), 0, NULL, 0)
                     ? MATCH_NO
                     : MATCH_YES;
    return *known == MATCH_YES;
}

/* Returns whether an event, one around it, or the forward operator of one, matches. */
static int is_within(struct selection *x, uint32_t rank, uint32_t event)
{
    const struct hr__rank_events *r = &x->g->ranks[rank];
    uint8_t found = MATCH_NO;
    for (uint32_t at = event; at != HR__NO_EVENT && found == MATCH_NO; at = r->parent[at]) {
        if (x->events[rank][at] != MATCH_UNKNOWN) {
            found = x->events[rank][at];
            break;
        }
        if (matches(x, 1, rank, r->trace->events[at].name))
            found = MATCH_YES;
        for (uint32_t f = r->forward[at]; f != HR__NO_EVENT && found == MATCH_NO; f = r->parent[f])
            if (matches(x, 1, rank, r->trace->events[f].name))
                found = MATCH_YES;
    }
    /* all from the event up to where it was found have the same answer, unless that is MATCH_YES */
    for (uint32_t at = event;
         at != HR__NO_EVENT && x->events[rank][at] == MATCH_UNKNOWN && found == MATCH_NO;
         at = r->parent[at])
        x->events[rank][at] = MATCH_NO;
    if (event != HR__NO_EVENT && found == MATCH_YES)
        x->events[rank][event] = MATCH_YES;
    return found == MATCH_YES;
}

static int is_selected(struct selection *x, const struct hr__graph_task *task)
{
    const struct hr_replay_selector *s = x->s;
    const struct hr__lane *lane = &x->g->lanes[task->lane];
    if ((s->kinds && !(s->kinds >> task->kind & 1)) ||
        (s->phases && !(s->phases >> task->phase & 1)) || (s->rank >= 0 && s->rank != task->rank))
        return 0;
    if (s->stream >= 0 && (!lane->is_stream ||
                           x->g->ranks[task->rank].trace->tracks[lane->track].thread != s->stream))
        return 0;
    if (task->event == HR__NO_EVENT)
        return !s->name && !s->within;
    if (!matches(x, 0, task->rank, hr__graph_event(x->g, task)->name))
        return 0;
    if (!s->within)
        return 1;
    uint32_t event = task->event;
    if (hr__task_is_device(task)) {
        if (matches(x, 1, task->rank, hr__graph_event(x->g, task)->name))
            return 1;
        event = task->launch == HR__NO_TASK ? HR__NO_EVENT : x->g->tasks[task->launch].event;
    }
    return is_within(x, task->rank, event);
}

static void clear(struct selection *x)
{
    for (size_t i = 0; i < x->g->rank_count; i++) {
        for (int which = 0; which < 2; which++)
            if (x->names[which])
                hr__free(x->names[which][i]);
        if (x->events)
            hr__free(x->events[i]);
    }
    hr__free(x->names[0]);
    hr__free(x->names[1]);
    hr__free(x->events);
    regfree(&x->name);
    regfree(&x->within);
}

static int allocate(struct selection *x)
{
    size_t ranks = x->g->rank_count;
    x->names[0] = hr__alloc(HR__TAG_REPLAY, ranks, sizeof *x->names[0]);
    x->names[1] = hr__alloc(HR__TAG_REPLAY, ranks, sizeof *x->names[1]);
    x->events = hr__alloc(HR__TAG_REPLAY, ranks, sizeof *x->events);
    if (!x->names[0] || !x->names[1] || !x->events)
        return 0;
    for (size_t i = 0; i < ranks; i++) {
        const struct hr__trace_data *t = x->g->ranks[i].trace;
        x->names[0][i] = hr__alloc(HR__TAG_REPLAY, t->name_ids.count + 1u, 1);
        x->names[1][i] = hr__alloc(HR__TAG_REPLAY, t->name_ids.count + 1u, 1);
        x->events[i] = hr__alloc(HR__TAG_REPLAY, t->event_count + 1, 1);
        if (!x->names[0][i] || !x->names[1][i] || !x->events[i])
            return 0;
    }
    return 1;
}

int hr__select(struct hr__task_marks *out, const struct hr__graph *graph,
               const struct hr_replay_selector *selector, struct hr_error *error)
{
    struct selection x = {.g = graph, .s = selector};
    *out = (struct hr__task_marks){.is_marked = NULL};
    int code = compile(&x.name, selector->name, error);
    if (code)
        return code;
    code = compile(&x.within, selector->within, error);
    if (code) {
        regfree(&x.name);
        return code;
    }
    out->is_marked = hr__alloc(HR__TAG_REPLAY, graph->task_count + 1, 1);
    if (!allocate(&x) || !out->is_marked)
        code = hr__fail(error, -ENOMEM, "out of memory for a selection of tasks");
    for (size_t i = 0; i < graph->task_count && !code; i++) {
        out->is_marked[i] = (uint8_t)is_selected(&x, &graph->tasks[i]);
        out->count += out->is_marked[i];
    }
    clear(&x);
    if (code)
        hr__free(out->is_marked);
    return code;
}
