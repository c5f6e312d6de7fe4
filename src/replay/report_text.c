/* A report on a replay as text. The identity comes first: it says how far to trust the rest. */
#include "replay/report.h"

#include "base/error.h"
#include "base/memory.h"
#include "report/format.h"
#include "report/table.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Returns the share of the critical path that is not the CPU's. */
static double device_share(const struct hr__shares *s)
{
    double cpu = s->kind[HR__TASK_OP] + s->kind[HR__TASK_CALL] + s->kind[HR__TASK_UNTRACED] +
                 s->kind[HR__TASK_RETURN];
    return cpu < 1 ? 1 - cpu : 0;
}

static void add_identity(struct hr__draft *draft, const struct hr__report *r, int columns)
{
    const struct hr__graph *g = &r->replay->graph;
    const struct hr__replay_identity *i = &r->replay->identity;
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES], c[HR__FORMAT_BYTES], d[HR__FORMAT_BYTES];
    struct hr__draft line = {.text = NULL};
    if (g->is_whole)
        hr__draft_put(&line,
                      "The trace has no steps of the profiler (ProfilerStep#), so the whole "
                      "trace counts as one iteration: call the profiler's step() after each, "
                      "or name the iterations' annotation with --window. ");
    hr__draft_print(&line,
                    "Replay without a change: %s for %s recorded, error %s; the tasks begin %s off "
                    "(median) of an iteration. ",
                    hr__format_time(a, r->summary.replayed_s),
                    hr__format_time(b, r->summary.recorded_s), hr__format_share(c, fabs(i->error)),
                    hr__format_share(d, i->start_median));
    if (i->checked)
        hr__draft_print(&line,
                        "This is small by construction, because latencies are taken from the "
                        "trace. The check is the replay with the usual latencies: error %s; above "
                        "%s nothing is predicted. It tests %s of the critical path: the rest is "
                        "the CPU's, where tasks follow each other without gaps.",
                        hr__format_share(a, fabs(i->usual_error)),
                        hr__format_share(b, r->replay->limit),
                        hr__format_share(c, device_share(&r->shares)));
    else
        hr__draft_put(&line,
                      "This proves nothing: the CPU's tasks follow each other without gaps, so the "
                      "error is 0 by construction. Check a prediction against a change that you "
                      "have made.");
    if (!r->summary.is_trusted && i->worst != HR__NO_TASK)
        hr__draft_print(&line, " The largest error, %s, arises at '%.200s'.",
                        hr__format_time(a, (double)i->worst_ns / 1e9),
                        hr__graph_name(g, &g->tasks[i->worst]));
    hr__text_wrap(line.text ? line.text : "", columns, 0, draft);
    draft->failed |= line.failed;
    hr__draft_clear(&line);
}

static void add_path(struct hr__draft *draft, const struct hr__report *r, int columns)
{
    static const char *const head[] = {">share", NULL};
    struct hr__table table;
    char number[HR__FORMAT_BYTES];
    hr__table_begin(&table, "critical path", head);
    for (int k = 0; k < HR__TASK_KINDS + 2; k++) {
        double share = hr__report_share(&r->shares, k);
        if (share < 0.0005)
            continue;
        hr__table_cell(&table, hr__report_kind(k));
        hr__table_cell(&table, hr__format_share(number, share));
        hr__table_bar(&table, share);
    }
    hr__table_text(&table, columns, draft);
    hr__table_clear(&table);
}

static void add_outcomes(struct hr__draft *draft, const struct hr__report *r, int columns)
{
    static const char *const head[] = {">iteration", ">change", "then mostly", NULL};
    struct hr__table table;
    char number[HR__FORMAT_BYTES];
    hr__table_begin(&table, r->is_ranked ? "what if (each alone)" : "what if (one upon the other)",
                    head);
    for (size_t i = 0; i < r->count; i++) {
        const struct hr__replay_outcome *o = &r->outcomes[i];
        double change = o->iteration_s / r->summary.replayed_s - 1;
        struct hr__draft then = {.text = NULL};
        hr__report_shares(&then, &o->shares, 1);
        hr__table_cell(&table, o->text);
        hr__table_cell(&table, hr__format_time(number, o->iteration_s));
        hr__table_cell_print(&table, "%s%s",
                             change > 0.0005    ? "+"
                             : change < -0.0005 ? "-"
                                                : "",
                             hr__format_share(number, fabs(change)));
        hr__table_cell(&table, then.text ? then.text : "");
        hr__draft_clear(&then);
    }
    hr__table_text(&table, columns, draft);
    hr__table_clear(&table);
    hr__draft_put(draft, r->count ? "\n" : "");
    for (size_t i = 0; i < r->count; i++) {
        struct hr__draft line = {.text = NULL};
        hr__draft_print(&line, "%s: %s", r->outcomes[i].text, r->outcomes[i].what->assumes);
        hr__text_wrap(line.text ? line.text : "", columns, 2, draft);
        hr__draft_clear(&line);
    }
}

static void add_notes(struct hr__draft *draft, const struct hr__report *r, int columns)
{
    char *line = r->notes.text;
    hr__draft_put(draft, "\n");
    for (char *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        hr__text_wrap(line, columns, 2, draft);
        *end = '\n';
    }
}

int hr_replay_report_text(const struct hr_replay *replay, const char *const *what_ifs, size_t count,
                          int columns, char **out, struct hr_error *error)
{
    struct hr__report report;
    struct hr__draft draft = {.text = NULL}, sentence = {.text = NULL};
    int width = hr__text_width(columns);
    *out = NULL;
    int code = hr__report_make(&report, replay, what_ifs, count, error);
    if (!code) {
        hr__report_sentence(&sentence, &report);
        add_identity(&draft, &report, width);
        hr__draft_put(&draft, "\n");
        hr__text_wrap(sentence.text ? sentence.text : "", width, 0, &draft);
        add_path(&draft, &report, width);
        if (report.count)
            add_outcomes(&draft, &report, width);
        add_notes(&draft, &report, width);
        code = hr__draft_finish(&draft, out, error);
    }
    hr__draft_clear(&sentence);
    hr__draft_clear(&draft);
    hr__report_clear(&report);
    return code;
}
