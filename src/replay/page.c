/*
 * Writes a report on a replay as one HTML file that needs no network: the answer in a sentence, an
 * iteration before and after on its threads and streams, where its time goes, and the what-ifs with
 * what each assumes. Its size is bounded by that of its pictures (picture.h), whatever the
 * trace's.
 */
#include "replay/picture.h"
#include "replay/report.h"

#include "base/error.h"
#include "base/ids.h"
#include "report/format.h"
#include "report/parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BARS_MOST 24 /* what-ifs in the chart of shares */

/* The script of the page, and the policy that allows only it; embedded at build time. */
extern const char hr__replay_page_script[];
extern const char hr__replay_page_policy[];

static const char *const no_columns[] = {NULL};

struct replay_page {
    struct hr__report report;
    struct hr_replay_scenario before; /* unchanged: borrows the replay's graph */
    struct hr_replay_scenario *after; /* NULL: no what-if to show */
    const char *after_text;
    struct hr__replay_picture pictures[2];
    struct hr__ids names; /* of the pictures, in the order of the data's */
    struct hr__draft draft, name_list;
};

static void put(struct replay_page *p, const char *html)
{
    hr__draft_put(&p->draft, html);
}

/* Adds words that a function wrote as HTML, and empties them. */
static void put_words(struct replay_page *p, struct hr__draft *words)
{
    p->draft.failed |= words->failed;
    hr__draft_html(&p->draft, words->text ? words->text : "");
    hr__draft_clear(words);
}

static void table(struct replay_page *p, enum hr__replay_table which)
{
    struct hr__table made;
    hr__report_table(&made, which, &p->report, true);
    p->draft.failed |= made.failed;
    hr__table_html(&made, &p->draft);
    hr__table_clear(&made);
}

/* ---- text ---- */

static void head(struct replay_page *p)
{
    const struct hr__report *r = &p->report;
    const char *device = r->replay->traces[0].device;
    struct hr__draft words = {.text = NULL};
    hr__page_begin(&p->draft, "What an optimisation would bring", "Replay",
                   device ? device : "a trace", hr__replay_page_policy);
    put(p, "<h1 class=\"long\">");
    hr__report_sentence(&words, r);
    put_words(p, &words);
    put(p, "</h1>\n<p>");
    hr__draft_html(&p->draft, r->replay->graph.window);
    hr__draft_print(&p->draft, ", %u rank%s", r->summary.ranks, r->summary.ranks == 1 ? "" : "s");
    if (device) {
        put(p, ", ");
        hr__draft_html(&p->draft, device);
    }
    put(p, "</p>\n</header>\n<main>\n<section>\n<p>");
    hr__report_identity(&words, r);
    put_words(p, &words);
    put(p, "</p>\n<noscript><p>The charts need scripts; the tables below them have their "
           "figures.</p></noscript>\n");
}

static void picture(struct replay_page *p, int which)
{
    const struct hr__replay_picture *t = &p->pictures[which];
    const char *id = which ? "after" : "before";
    char least[HR__FORMAT_BYTES];
    put(p, "<figure>\n<h3>");
    if (which) {
        put(p, "After: ");
        hr__draft_html(&p->draft, p->after_text);
    } else {
        put(p, "Before: as recorded");
    }
    hr__draft_print(&p->draft,
                    "</h3>\n<div class=\"plot\"><canvas id=\"chart-%s\" role=\"img\" "
                    "aria-label=\"Chart: the tasks of each thread and stream over time. The tables "
                    "that follow have its figures.\"></canvas><div class=\"tip\" id=\"%s-tip\" "
                    "hidden></div></div>\n<figcaption>",
                    id, id);
    if (!which)
        put(p, "<span id=\"legend\"></span>The red line below a row: what is on the critical path. "
               "Paler: with pauses. ");
    hr__draft_print(&p->draft, "What is shorter than %s is joined with its neighbours",
                    hr__format_time(least, (double)t->least_ns / 1e9));
    if (t->left_out)
        hr__draft_print(&p->draft,
                        "; left out, because they matter less: %zu of the threads and "
                        "streams",
                        t->left_out);
    put(p, ".</figcaption>\n</figure>\n");
}

static void pictures(struct replay_page *p)
{
    hr__page_heading(&p->draft, "timeline",
                     p->report.replay->graph.is_whole ? "The trace over time"
                                                      : "An iteration over time",
                     p->report.replay->graph.iterations > 1
                         ? "As long as one iteration takes, from the middle of those that were "
                           "replayed. A device may work on the iteration before."
                         : NULL);
    picture(p, 0);
    if (p->after)
        picture(p, 1);
}

static void shares(struct replay_page *p)
{
    hr__page_heading(&p->draft, "path", "Where the time goes",
                     "The critical path is what holds the end of an iteration back: a task that is "
                     "not on it may take longer without a loss.");
    put(p, "<figure>\n<h3>The critical path, by kind of time</h3>\n<div class=\"plot\"><canvas "
           "id=\"chart-path\" role=\"img\" aria-label=\"Chart: the kinds of time of the critical "
           "path, before and after each what-if. The tables that follow have its figures.\">"
           "</canvas><div class=\"tip\" id=\"path-tip\" hidden></div></div>\n</figure>\n");
    table(p, HR__REPORT_PATH);
    table(p, HR__REPORT_NAMES);
}

/* Adds a list, and empties its rows. */
static void list(struct replay_page *p, struct hr__table *rows)
{
    p->draft.failed |= rows->failed;
    hr__page_list(&p->draft, rows, false);
    hr__table_clear(rows);
}

/* A list with a sentence for each what-if. */
static void basis(struct replay_page *p)
{
    struct hr__table rows;
    hr__table_begin(&rows, "What each assumes", no_columns);
    for (size_t i = 0; i < p->report.count; i++) {
        struct hr__draft words = {.text = NULL};
        hr__draft_print(&words, "%s: ", p->report.outcomes[i].text);
        hr__report_basis(&words, p->report.outcomes[i].what);
        hr__table_cell(&rows, words.text);
        p->draft.failed |= words.failed;
        hr__draft_clear(&words);
    }
    list(p, &rows);
}

static void untried(struct replay_page *p)
{
    struct hr__table rows;
    hr__table_begin(&rows, "What was not tried", no_columns);
    for (size_t i = 0; i < p->report.untried_count; i++) {
        struct hr__draft words = {.text = NULL};
        if (hr__report_untried(&words, &p->report, i))
            hr__table_cell(&rows, words.text);
        p->draft.failed |= words.failed;
        hr__draft_clear(&words);
    }
    list(p, &rows);
}

static void what_ifs(struct replay_page *p)
{
    if (!p->report.count && !p->report.untried_count)
        return;
    hr__page_heading(&p->draft, "what-ifs", "What would change it",
                     "\"Then mostly\" names the bottleneck that is left: more of the same what-if "
                     "does not help beyond it.");
    table(p, HR__REPORT_OUTCOMES);
    basis(p);
    untried(p);
}

static void notes(struct replay_page *p)
{
    struct hr__table rows;
    hr__page_heading(&p->draft, "notes", "What the graph does not know", NULL);
    hr__table_begin(&rows, "Notes", no_columns);
    const char *line = p->report.notes.text ? p->report.notes.text : "";
    for (const char *end; (end = strchr(line, '\n')); line = end + 1)
        hr__table_cell_print(&rows, "%.*s", (int)(end - line), line);
    list(p, &rows);
}

/* ---- data ---- */

/* Returns the number of a name in the data. */
static uint32_t name_of(struct replay_page *p, const char *name)
{
    struct hr__draft words = {.text = NULL};
    hr__report_name(&words, name);
    const char *text = words.text ? words.text : "";
    uint32_t id = hr__ids_find(&p->names, text, strlen(text));
    if (!id) {
        id = hr__ids_add(&p->names, text, strlen(text));
        p->draft.failed |= !id;
        hr__draft_put(&p->name_list, p->name_list.length ? "," : "");
        hr__draft_json(&p->name_list, text);
    }
    hr__draft_clear(&words);
    return id - 1;
}

static void lane_data(struct replay_page *p, const struct hr_replay_scenario *s,
                      const struct hr__replay_picture *t, const struct hr__picture_lane *lane)
{
    char name[160];
    struct hr__draft *d = &p->draft;
    hr__scenario_lane_name(s, lane->lane, name, sizeof name);
    put(p, "{\"name\":");
    hr__draft_json(d, name);
    put(p, ",\"runs\":[");
    for (size_t i = 0; i < lane->run_count; i++) {
        const struct hr__picture_run *run = &lane->runs[i];
        uint32_t at = name_of(p, hr__graph_name(&s->graph, &s->graph.tasks[run->task]));
        hr__draft_print(d, "%s[%lld,%lld,%lld,%d,%u,%lld,%u]", i ? "," : "",
                        (long long)(run->begin_ns - t->begin_ns),
                        (long long)(run->end_ns - t->begin_ns), (long long)run->busy_ns, run->kind,
                        run->count, (long long)run->longest_ns, at);
    }
    put(p, "],\"critical\":[");
    for (size_t i = 0; i < lane->critical_count; i++)
        hr__draft_print(d, "%s[%lld,%lld]", i ? "," : "",
                        (long long)(lane->critical[i].begin_ns - t->begin_ns),
                        (long long)(lane->critical[i].end_ns - t->begin_ns));
    put(p, "]}");
}

static void picture_data(struct replay_page *p, int which)
{
    const struct hr__replay_picture *t = &p->pictures[which];
    hr__draft_print(&p->draft, "%s{\"id\":\"%s\",\"lanes\":[", which ? "," : "",
                    which ? "after" : "before");
    for (size_t i = 0; i < t->lane_count; i++) {
        put(p, i ? ",\n" : "");
        lane_data(p, which ? p->after : &p->before, t, &t->lanes[i]);
    }
    put(p, "]}");
}

static void bar_data(struct replay_page *p, const char *name, double iteration_s,
                     const struct hr__shares *s)
{
    put(p, "{\"name\":");
    hr__draft_json(&p->draft, name);
    put(p, ",\"s\":");
    hr__draft_number(&p->draft, iteration_s, 9);
    put(p, ",\"shares\":[");
    for (int k = 0; k < HR__TASK_KINDS + 2; k++) {
        put(p, k ? "," : "");
        hr__draft_number(&p->draft, hr__report_share(s, k), 4);
    }
    put(p, "]}");
}

static void data(struct replay_page *p)
{
    const struct hr__report *r = &p->report;
    int64_t longest = 0;
    for (int i = 0; i < 2; i++) {
        int64_t length = p->pictures[i].end_ns - p->pictures[i].begin_ns;
        longest = length > longest ? length : longest;
    }
    hr__draft_print(&p->draft, "{\"length\":%lld,\"pictures\":[", (long long)longest);
    picture_data(p, 0);
    if (p->after)
        picture_data(p, 1);
    put(p, "],\"names\":[");
    hr__draft_add(&p->draft, p->name_list.text ? p->name_list.text : "", p->name_list.length);
    p->draft.failed |= p->name_list.failed;
    put(p, "],\"kinds\":[");
    for (int k = 0; k < HR__TASK_KINDS + 2; k++) {
        put(p, k ? "," : "");
        hr__draft_json(&p->draft, hr__report_kind(k));
    }
    put(p, "],\"bars\":[");
    bar_data(p, "as recorded", r->summary.replayed_s, &r->shares);
    for (size_t i = 0; i < r->count && i < BARS_MOST; i++) {
        put(p, ",");
        bar_data(p, r->outcomes[i].text, r->outcomes[i].iteration_s, &r->outcomes[i].shares);
    }
    put(p, "]}");
}

/* ---- all ---- */

/* Makes the scenario of the second picture. */
static int make_after(struct replay_page *p, struct hr_error *error)
{
    const struct hr__report *r = &p->report;
    const struct hr__replay_outcome *shown = hr__report_shown(r);
    if (!shown)
        return 0;
    int code = hr_replay_scenario_create(&p->after, r->replay, error);
    p->after_text = shown->text;
    if (r->is_ranked)
        return code ? code : hr_replay_apply(p->after, shown->text, error);
    for (size_t i = 0; i < r->count && !code; i++)
        code = hr_replay_apply(p->after, r->outcomes[i].text, error);
    if (r->count > 1)
        p->after_text = "all of the what-ifs";
    return code;
}

static int make_pictures(struct replay_page *p, struct hr_error *error)
{
    struct hr__replay_schedule schedule = {.begin_ns = NULL};
    int code = make_after(p, error);
    if (!code && p->after)
        code = hr__scenario_simulate(&schedule, p->after, error);
    if (!code) {
        code = hr__picture_make(&p->pictures[0], &p->before.graph, &p->before.replay->schedule);
        if (!code && p->after)
            code = hr__picture_make(&p->pictures[1], &p->after->graph, &schedule);
        if (code)
            code = hr__fail(error, code, "out of memory for a page");
    }
    hr__schedule_clear(&schedule);
    return code;
}

static void write_all(struct replay_page *p)
{
    head(p);
    pictures(p);
    shares(p);
    what_ifs(p);
    notes(p);
    hr__page_foot(&p->draft, false);
    put(p, "<script type=\"application/json\" id=\"data\">");
    data(p);
    put(p, "</script>\n<script>");
    put(p, hr__replay_page_script);
    put(p, "</script>\n</body>\n</html>\n");
}

int hr_replay_write_page(const struct hr_replay *replay, const char *const *what_ifs_given,
                         size_t count, const char *path, struct hr_error *error)
{
    struct replay_page p = {.before = {.replay = replay, .graph = replay->graph}};
    int code = hr__report_make(&p.report, replay, what_ifs_given, count, error);
    if (!code)
        code = make_pictures(&p, error);
    if (!code) {
        write_all(&p);
        code = hr__draft_write(&p.draft, path, error);
    }
    for (int i = 0; i < 2; i++)
        hr__picture_clear(&p.pictures[i]);
    hr_replay_scenario_destroy(&p.after);
    hr__ids_clear(&p.names);
    hr__draft_clear(&p.name_list);
    hr__draft_clear(&p.draft);
    hr__report_clear(&p.report);
    return code;
}
