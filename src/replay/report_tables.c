/* The parts of a report on a replay that its text and its page share; see report.h. */
#include "replay/report.h"

#include "report/format.h"

#include <math.h>
#include <string.h>

#define NAMES_MOST 8

/* Returns the share of the critical path that is not the CPU's. */
static double device_share(const struct hr__shares *s)
{
    double cpu = s->kind[HR__TASK_OP] + s->kind[HR__TASK_CALL] + s->kind[HR__TASK_UNTRACED] +
                 s->kind[HR__TASK_RETURN];
    return cpu < 1 ? 1 - cpu : 0;
}

void hr__report_identity(struct hr__draft *draft, const struct hr__report *r)
{
    const struct hr__graph *g = &r->replay->graph;
    const struct hr__replay_identity *i = &r->replay->identity;
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES], c[HR__FORMAT_BYTES], d[HR__FORMAT_BYTES];
    if (g->is_whole)
        hr__draft_put(draft,
                      "The trace has no steps of the profiler (ProfilerStep#), so the whole "
                      "trace counts as one iteration: call the profiler's step() after each, "
                      "or name the iterations' annotation with --window. ");
    hr__draft_print(draft,
                    "Replay without a change: %s for %s recorded, error %s; the tasks begin %s off "
                    "(median) of an iteration. ",
                    hr__format_time(a, r->summary.replayed_s),
                    hr__format_time(b, r->summary.recorded_s), hr__format_share(c, fabs(i->error)),
                    hr__format_share(d, i->start_median));
    if (i->checked)
        hr__draft_print(draft,
                        "This is small by construction, because latencies are taken from the "
                        "trace. The check is the replay with the usual latencies: error %s; above "
                        "%s nothing is predicted. It tests %s of the critical path: the rest is "
                        "the CPU's, where tasks follow each other without gaps.",
                        hr__format_share(a, fabs(i->usual_error)),
                        hr__format_share(b, r->replay->limit),
                        hr__format_share(c, device_share(&r->shares)));
    else
        hr__draft_put(draft,
                      "This proves nothing: the CPU's tasks follow each other without gaps, so the "
                      "error is 0 by construction. Check a prediction against a change that you "
                      "have made.");
    if (!r->summary.is_trusted && i->worst != HR__NO_TASK)
        hr__draft_print(draft, " The largest error, %s, arises at '%.200s'.",
                        hr__format_time(a, (double)i->worst_ns / 1e9),
                        hr__graph_name(g, &g->tasks[i->worst]));
}

void hr__report_after(struct hr__draft *draft, const struct hr__replay_outcome *o)
{
    hr__draft_print(draft, "%s: the critical path is then ", o->text);
    hr__report_shares(draft, &o->shares, 3, o->bottleneck.name.name);
    hr__draft_put(draft, ".");
}

void hr__report_basis(struct hr__draft *draft, const struct hr__what_if *what)
{
    hr__draft_print(draft, "Assumes: %s Source: %s.", what->assumes, what->source);
}

bool hr__report_untried(struct hr__draft *draft, const struct hr__report *r, size_t i)
{
    const char *why = r->untried[i].why;
    for (size_t k = 0; k < i; k++)
        if (!strcmp(r->untried[k].why, why))
            return false;
    for (size_t k = i; k < r->untried_count; k++)
        if (!strcmp(r->untried[k].why, why))
            hr__draft_print(draft, "%s%s", k > i ? ", " : "", r->untried[k].text);
    hr__draft_print(draft, ": %s.", why);
    return true;
}

void hr__report_change(struct hr__draft *draft, const struct hr__report *r,
                       const struct hr__replay_outcome *o)
{
    char number[HR__FORMAT_BYTES];
    double change = o->iteration_s / r->summary.replayed_s - 1;
    hr__draft_put(draft, change > 0.0005 ? "+" : change < -0.0005 ? "-" : "");
    hr__draft_put(draft, hr__format_share(number, fabs(change)));
}

static void path_table(struct hr__table *t, const struct hr__report *r)
{
    static const char *const head[] = {">share", NULL};
    char number[HR__FORMAT_BYTES];
    hr__table_begin(t, "critical path", head);
    for (int k = 0; k < HR__TASK_KINDS + 2; k++) {
        double share = hr__report_share(&r->shares, k);
        if (share < 0.0005)
            continue;
        hr__table_cell(t, hr__report_kind(k));
        hr__table_cell(t, hr__format_share(number, share));
        hr__table_bar(t, share);
    }
}

/* Adds a cell and empties its words. */
static void cell(struct hr__table *t, struct hr__draft *words)
{
    hr__table_cell(t, words->text);
    t->failed |= words->failed;
    hr__draft_clear(words);
}

static void names_table(struct hr__table *t, const struct hr__report *r)
{
    static const char *const head[] = {">share", ">times", "", NULL};
    char number[HR__FORMAT_BYTES];
    struct hr__draft words = {.text = NULL};
    hr__table_begin(t, "most of it", head);
    for (size_t i = 0; i < r->name_count && i < NAMES_MOST; i++) {
        const struct hr__path_name *one = &r->names[i];
        if (one->share < 0.005)
            break;
        hr__report_name(&words, *one->name ? one->name : "(outside all annotations)");
        cell(t, &words);
        hr__table_cell(t, hr__format_share(number, one->share));
        hr__table_cell_print(t, "%u", one->count);
        hr__table_cell(t, hr__report_kind(one->kind));
    }
}

static void outcomes_table(struct hr__table *t, const struct hr__report *r, bool is_whole)
{
    static const char *const head[] = {">iteration", ">change", "then mostly", NULL};
    char number[HR__FORMAT_BYTES];
    struct hr__draft words = {.text = NULL};
    hr__table_begin(t, r->is_ranked ? "what if (each alone)" : "what if (one upon the other)",
                    head);
    for (size_t i = 0; i < r->count; i++) {
        const struct hr__replay_outcome *o = &r->outcomes[i];
        hr__table_cell(t, o->text);
        hr__table_cell(t, hr__format_time(number, o->iteration_s));
        hr__report_change(&words, r, o);
        cell(t, &words);
        if (is_whole)
            hr__report_bottleneck(&words, &o->bottleneck);
        else
            hr__report_shares(&words, &o->shares, 1, NULL);
        cell(t, &words);
    }
}

void hr__report_table(struct hr__table *out, enum hr__replay_table which,
                      const struct hr__report *r, bool is_whole)
{
    if (which == HR__REPORT_PATH)
        path_table(out, r);
    else if (which == HR__REPORT_NAMES)
        names_table(out, r);
    else
        outcomes_table(out, r, is_whole);
}
