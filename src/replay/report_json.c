/* A report on a replay as JSON (docs/replay.md). */
#include "replay/report.h"

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MOST 100

/* Returns the member for a kind of time; see hr__report_kind. */
static const char *member_of(int kind)
{
    static const char *const names[] = {"operators", "calls",     "untraced", "returns",
                                        "kernels",   "copies",    "sets",     "communication",
                                        "inserted",  "latencies", "data"};
    return names[kind];
}

/* Kinds of time of a critical path, as members. */
static json_t *shares(const struct hr__shares *s)
{
    json_t *all = json_object();
    for (int k = 0; k < HR__TASK_KINDS; k++)
        json_object_set_new(all, member_of(k), hr__json_real(s->kind[k]));
    json_object_set_new(all, member_of(HR__TASK_KINDS), hr__json_real(s->latency));
    json_object_set_new(all, member_of(HR__TASK_KINDS + 1), hr__json_real(s->data));
    return all;
}

static json_t *identity(const struct hr__report *r)
{
    const struct hr__replay_identity *i = &r->replay->identity;
    const struct hr__graph *g = &r->replay->graph;
    json_t *one = json_object();
    json_object_set_new(one, "error", hr__json_real(i->error));
    json_object_set_new(one, "start_error_median", hr__json_real(i->start_median));
    json_object_set_new(one, "start_error_max", hr__json_real(i->start_max));
    json_object_set_new(one, "usual_error", hr__json_real(i->usual_error));
    json_object_set_new(one, "checked", json_integer((json_int_t)i->checked));
    json_object_set_new(one, "unexplained", hr__json_real(r->summary.unexplained));
    json_object_set_new(one, "trusted", json_boolean(r->summary.is_trusted));
    json_object_set_new(one, "worst",
                        i->worst == HR__NO_TASK
                            ? json_null()
                            : hr__json_string(hr__graph_name(g, &g->tasks[i->worst])));
    json_object_set_new(one, "worst_s", hr__json_real((double)i->worst_ns / 1e9));
    return one;
}

static json_t *trace(const struct hr__report *r)
{
    const struct hr__graph *g = &r->replay->graph;
    const char *device = r->replay->traces[0].device;
    json_t *one = json_object();
    json_object_set_new(one, "events", json_integer((json_int_t)r->summary.events));
    json_object_set_new(one, "tasks", json_integer((json_int_t)r->summary.tasks));
    json_object_set_new(one, "edges", json_integer((json_int_t)r->summary.edges));
    json_object_set_new(one, "kernels", json_integer((json_int_t)g->counts.kernels));
    json_object_set_new(one, "ranks", json_integer(r->summary.ranks));
    json_object_set_new(one, "iterations", json_integer(r->summary.iterations));
    json_object_set_new(one, "window", hr__json_string(g->window));
    json_object_set_new(one, "device", device ? hr__json_string(device) : json_null());
    return one;
}

static json_t *bottleneck(const struct hr__bottleneck *b)
{
    json_t *one = json_object();
    json_object_set_new(one, "kind", json_string(member_of(b->kind)));
    json_object_set_new(one, "share", hr__json_real(b->share));
    json_object_set_new(one, "name", b->name.name ? hr__json_string(b->name.name) : json_null());
    return one;
}

/* The names with the largest shares of the critical path. */
static json_t *names(const struct hr__report *r)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->name_count && i < NAMES_MOST; i++) {
        const struct hr__path_name *n = &r->names[i];
        json_t *one = json_object();
        json_object_set_new(one, "name", hr__json_string(n->name));
        json_object_set_new(one, "kind", json_string(member_of(n->kind)));
        json_object_set_new(one, "share", hr__json_real(n->share));
        json_object_set_new(one, "count", json_integer(n->count));
        json_array_append_new(all, one);
    }
    return all;
}

static json_t *outcomes(const struct hr__report *r)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->count; i++) {
        const struct hr__replay_outcome *o = &r->outcomes[i];
        json_t *one = json_object();
        json_object_set_new(one, "what", hr__json_string(o->text));
        json_object_set_new(one, "assumes", hr__json_string(o->what->assumes));
        json_object_set_new(one, "source", hr__json_string(o->what->source));
        json_object_set_new(one, "iteration_s", hr__json_real(o->iteration_s));
        json_object_set_new(one, "gain", hr__json_real(1 - o->iteration_s / r->summary.replayed_s));
        json_object_set_new(one, "critical_path", shares(&o->shares));
        json_object_set_new(one, "bottleneck", bottleneck(&o->bottleneck));
        json_array_append_new(all, one);
    }
    return all;
}

static json_t *untried(const struct hr__report *r)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->untried_count; i++) {
        json_t *one = json_object();
        json_object_set_new(one, "what", json_string(r->untried[i].text));
        json_object_set_new(one, "why", hr__json_string(r->untried[i].why));
        json_array_append_new(all, one);
    }
    return all;
}

static json_t *notes(const struct hr__report *r)
{
    json_t *all = json_array();
    const char *line = r->notes.text ? r->notes.text : "";
    for (const char *end; (end = strchr(line, '\n')); line = end + 1)
        json_array_append_new(all, json_stringn(line, (size_t)(end - line)));
    return all;
}

static json_t *build(const struct hr__report *r)
{
    struct hr__draft sentence = {.text = NULL};
    json_t *all = json_object();
    hr__report_sentence(&sentence, r);
    json_object_set_new(all, "kind", json_string("headrace replay"));
    json_object_set_new(all, "version", json_integer(1));
    json_object_set_new(all, "summary", hr__json_string(sentence.text ? sentence.text : ""));
    json_object_set_new(all, "identity", identity(r));
    json_object_set_new(all, "iteration_s", hr__json_real(r->summary.recorded_s));
    json_object_set_new(all, "replayed_s", hr__json_real(r->summary.replayed_s));
    json_object_set_new(all, "critical_path", shares(&r->shares));
    json_object_set_new(all, "critical_path_names", names(r));
    json_object_set_new(all, "bottleneck", bottleneck(&r->bottleneck));
    json_object_set_new(all, "ranked", json_boolean(r->is_ranked));
    json_object_set_new(all, "what_ifs", outcomes(r));
    json_object_set_new(all, "not_tried", untried(r));
    json_object_set_new(all, "trace", trace(r));
    json_object_set_new(all, "notes", notes(r));
    hr__draft_clear(&sentence);
    return all;
}

int hr_replay_report_json(const struct hr_replay *replay, const char *const *what_ifs, size_t count,
                          char **out, struct hr_error *error)
{
    struct hr__report report;
    *out = NULL;
    int code = hr__report_make(&report, replay, what_ifs, count, error);
    if (!code) {
        json_t *all = build(&report);
        char *text = all ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
        *out = text ? hr__strdup(HR__TAG_REPLAY, text) : NULL;
        free(text);
        json_decref(all);
        if (!*out)
            code = hr__fail(error, -ENOMEM, "out of memory for a report");
    }
    hr__report_clear(&report);
    return code;
}
