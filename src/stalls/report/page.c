/*
 * Writes a result as one HTML file that needs no network: the sentence, charts by Chart.js, and a
 * table beside each chart, so that nothing is lost on paper, to a screen reader or without scripts.
 *
 * Untrusted text (the command, names of hosts and files) is always escaped, the charts' data is
 * JSON without <, > and &, and a content security policy allows only the page's own two scripts, by
 * their hashes.
 */
#include "base/error.h"
#include "report/assets.h"
#include "report/format.h"
#include "report/parts.h"
#include "stalls/model/inside.h"
#include "stalls/report/assets.h"
#include "stalls/report/page_data.h"
#include "stalls/report/tables.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define LONG_SENTENCE 150           /* characters from which a sentence is set smaller */
#define NOT_KNOWN     "not known: " /* prefix of some of the model's reasons */

struct stalls_page {
    const struct hr_stalls *stalls;
    struct hr__draft draft;
    struct hr__table tables[HR__TABLES];
    struct hr__page_data data;
};

static void put(struct stalls_page *p, const char *html)
{
    hr__draft_put(&p->draft, html);
}

static bool has_charts(void)
{
    return *hr__page_library != 0;
}

static void table(struct stalls_page *p, enum hr__report_table which)
{
    hr__table_html(&p->tables[which], &p->draft);
}

/* Adds one of two tables side by side; if it is empty, the other takes its place. */
static void half(struct stalls_page *p, enum hr__report_table which)
{
    if (!hr__table_rows(&p->tables[which]))
        return;
    put(p, "<div>");
    table(p, which);
    put(p, "</div>\n");
}

/* A chart and its table (NULL: the table is elsewhere); without a charting library only the table,
 * unfolded. */
struct stalls_figure {
    const char *id, *title, *about, *shape;
    const struct hr__table *table;
};

static void figure(struct stalls_page *p, const struct stalls_figure *f)
{
    hr__draft_print(&p->draft, "<figure>\n<h3>%s</h3>\n", f->title);
    if (has_charts())
        hr__page_canvas(&p->draft, f->id, f->shape, f->title);
    if (*f->about)
        hr__draft_print(&p->draft, "<figcaption>%s</figcaption>\n", f->about);
    if (f->table)
        hr__page_figures(&p->draft, f->table, has_charts());
    put(p, "</figure>\n");
}

/* ---- sections ---- */

static void head(struct stalls_page *p)
{
    hr__page_begin(&p->draft, "Where the time of a training run goes", "Data stalls",
                   p->stalls->command ? p->stalls->command : "a training run",
                   hr__stalls_page_policy);
    const char *sentence = p->stalls->sentence ? p->stalls->sentence : "";
    put(p, strlen(sentence) > LONG_SENTENCE ? "<h1 class=\"long\">" : "<h1>");
    hr__draft_html(&p->draft, sentence);
    put(p, "</h1>\n<p>");
    if (p->stalls->command) {
        put(p, "<code>");
        hr__draft_html(&p->draft, p->stalls->command);
        put(p, "</code>");
    }
    if (p->stalls->started) {
        put(p, ", measured ");
        hr__draft_html(&p->draft, p->stalls->started);
    }
    put(p, "</p>\n</header>\n<main>\n<section>\n");
    if (has_charts())
        put(p, "<noscript><p>The charts need scripts; the tables below them have the same "
               "figures.</p></noscript>\n");
}

static void split(struct stalls_page *p)
{
    const struct hr__table *cold = &p->tables[HR__TABLE_COLD], *warm = &p->tables[HR__TABLE_WARM];
    if (!hr__table_rows(cold) && !hr__table_rows(warm))
        return;
    hr__page_heading(
        &p->draft, "time", "Where the time goes",
        "Measured by difference: the same training on batches that are there already, on "
        "batches prepared from files in memory, and from files on storage.");
    if (has_charts() && (hr__page_data_drawn(p->stalls, p->stalls->summary.share, 4) ||
                         hr__page_data_drawn(p->stalls, p->stalls->summary.warm_share, 3)))
        put(p, "<figure>\n<div class=\"plot low\"><canvas id=\"chart-split\" role=\"img\" "
               "aria-label=\"Chart: shares of the time. The tables that follow have its figures.\">"
               "</canvas></div>\n</figure>\n");
    put(p, "<div class=\"pair\">\n");
    half(p, HR__TABLE_COLD);
    half(p, HR__TABLE_WARM);
    put(p, "</div>\n");
}

static void ranks(struct stalls_page *p)
{
    if (!hr__table_rows(&p->tables[HR__TABLE_RANKS]))
        return;
    hr__page_heading(
        &p->draft, "ranks", "Ranks",
        "A rank that waits makes the others wait for it when gradients are summed: that part "
        "is within their step. What its loading costs everybody was measured by letting only "
        "this rank load.");
    const struct stalls_figure f = {"chart-ranks", "Time blocked in next(), by rank",
                                    "Share of the time of each rank; at most 32 of them are drawn.",
                                    " low", &p->tables[HR__TABLE_RANKS]};
    figure(p, &f);
}

static void changes(struct stalls_page *p)
{
    hr__page_heading(
        &p->draft, "changes", "What would change it",
        "Predicted by a simulation of the loader's queue, the cores and the storage from what "
        "was measured. <code>headrace predict</code> answers other questions.");
    struct hr_stalls_prediction now = {.size = sizeof now};
    struct hr_stalls_change none;
    struct hr_error error = {0};
    hr_stalls_change_default(&none);
    if (hr_stalls_predict(p->stalls, &none, &now, &error)) {
        bool some = hr__table_rows(&p->tables[HR__TABLE_CHANGES]) > 0;
        put(p, some ? "<p>Not everything can be predicted: " : "<p>Nothing can be predicted: ");
        bool is_prefixed = !strncmp(error.message, NOT_KNOWN, strlen(NOT_KNOWN));
        hr__draft_html(&p->draft, error.message + (is_prefixed ? strlen(NOT_KNOWN) : 0));
        put(p, "</p>\n");
    }
    table(p, HR__TABLE_CHANGES);
}

static const char *format_share_of_cache(char *out, double x)
{
    return hr__format_share(out, x);
}

static const char *format_cores(char *out, double x)
{
    return hr__format_fixed(out, x, 0, true);
}

/* Returns whether there is a line to draw. */
static bool is_curve(const struct hr__curves *curves)
{
    bool drawn = false;
    for (int i = 0; i < curves->curve_count; i++)
        drawn |= curves->curve[i].count > 1;
    return drawn;
}

static void curve(struct stalls_page *p, const struct hr__curves *curves, struct stalls_figure f)
{
    struct hr__table t;
    if (!is_curve(curves))
        return;
    hr__curves_table(curves, curves == &p->data.cache ? "cached" : "cores",
                     curves == &p->data.cache ? format_share_of_cache : format_cores, &t);
    p->draft.failed |= t.failed;
    f.table = &t;
    figure(p, &f);
    hr__table_clear(&t);
}

static void curves(struct stalls_page *p)
{
    const struct stalls_figure cache = {
        "chart-cache", "Over the share of the dataset in a cache",
        "In a steady state, after the first epoch. The page cache evicts files that the epoch "
        "still needs; a cache that never evicts keeps what it has.",
        "", NULL};
    const struct stalls_figure cores = {
        "chart-cores", "Over the cores of a host",
        "With all files in memory: what preparation and training make of "
        "the cores that they share.",
        "", NULL};
    if (!is_curve(&p->data.cache) && !is_curve(&p->data.cores))
        return;
    hr__page_heading(
        &p->draft, "curves", "Throughput over memory and cores",
        "Lines are predicted, with the interval that what was measured allows; long dashes are "
        "beyond what this machine could measure. Marks with whiskers were measured.");
    put(p, "<div class=\"pair\">\n");
    curve(p, &p->data.cache, cache);
    curve(p, &p->data.cores, cores);
    put(p, "</div>\n");
}

static void timeline(struct stalls_page *p)
{
    const struct stalls_figure cold = {"chart-cold", "Files on storage", "", " low", NULL};
    const struct stalls_figure warm = {"chart-warm", "Files in memory", "", " low", NULL};
    struct hr__table batches;
    hr__page_data_batches(&p->data, &batches);
    p->draft.failed |= batches.failed;
    if (hr__table_rows(&batches)) {
        hr__page_heading(
            &p->draft, "batches", "Batch by batch",
            "A segment of the first rank from storage and one with its files in memory, both "
            "on the same scale: how long each batch is waited for, and the rest of its time. "
            "Where workers take cores from training, that rest grows too.");
        put(p, "<div class=\"pair\">\n");
        if (p->data.cold && has_charts())
            figure(p, &cold);
        if (p->data.warm && has_charts())
            figure(p, &warm);
        put(p, "</div>\n");
        hr__page_figures(&p->draft, &batches, has_charts());
    }
    hr__table_clear(&batches);
}

static void rates(struct stalls_page *p)
{
    hr__page_heading(
        &p->draft, "rates", "Rates",
        "Samples per second of all ranks. Training is never faster than the slowest of G, P "
        "and F, and slower where they share cores.");
    table(p, HR__TABLE_RATES);
    put(p, "<div class=\"pair\">\n");
    half(p, HR__TABLE_PREPARE);
    half(p, HR__TABLE_FORMS);
    put(p, "</div>\n");
    if (hr__table_rows(&p->tables[HR__TABLE_FORMS]) && *p->stalls->hosts[0].recipe) {
        put(p, "<p class=\"about\">Headrace's loader was measured with this recipe: <code>");
        hr__draft_html(&p->draft, p->stalls->hosts[0].recipe);
        put(p, "</code></p>\n");
    }
    if (!p->stalls->host_count || p->stalls->hosts[0].depth_count < 2) {
        table(p, HR__TABLE_STORAGE); /* no line to draw */
        return;
    }
    const struct stalls_figure f = {"chart-storage", "Storage over reads in flight",
                                    hr__is_at_urls(p->stalls)
                                        ? "Objects of this dataset, or ranges of them, as the "
                                          "store sends them."
                                        : "Whole files of this dataset, read around the page "
                                          "cache.",
                                    " low", &p->tables[HR__TABLE_STORAGE]};
    figure(p, &f);
}

static void list(struct stalls_page *p, enum hr__report_table which)
{
    hr__page_list(&p->draft, &p->tables[which], which == HR__TABLE_WRITTEN);
}

static void how(struct stalls_page *p)
{
    hr__page_heading(
        &p->draft, "how", "How it was measured",
        "Equal segments of one run: on batches replayed from the device, from the host, "
        "prepared with their files in memory, and with their files on storage only. The order "
        "turns around from round to round, so that drift cancels; from storage and from memory "
        "it is the same files. An interval holds its figure with 95 % confidence. That files "
        "were or were not in memory is verified by the bytes the kernel read.");
    table(p, HR__TABLE_RUN);
    table(p, HR__TABLE_UNVERIFIED);
    list(p, HR__TABLE_NOTES);
    list(p, HR__TABLE_WRITTEN);
    if (hr__table_rows(&p->tables[HR__TABLE_SEGMENTS])) {
        put(p, "<details><summary>Every segment of the first rank</summary>\n");
        table(p, HR__TABLE_SEGMENTS);
        put(p, "</details>\n");
    }
}

static void foot(struct stalls_page *p)
{
    hr__page_foot(&p->draft, has_charts());
    if (has_charts()) {
        put(p, "<script type=\"application/json\" id=\"data\">");
        hr__page_data_json(&p->data, &p->draft);
        put(p, "</script>\n<script>");
        put(p, hr__page_library);
        put(p, "</script>\n<script>");
        put(p, hr__stalls_page_script);
        put(p, "</script>\n");
    }
    put(p, "</body>\n</html>\n");
}

int hr_stalls_write_page(const struct hr_stalls *result, const char *path, struct hr_error *error)
{
    struct stalls_page p = {.stalls = result};
    if (!result || !path)
        return hr__fail(error, -EINVAL, "a result and a path are needed to write it as a page");
    hr__tables_make(p.tables, result);
    hr__page_data_make(&p.data, result);
    p.draft.failed = hr__tables_failed(p.tables);
    head(&p);
    split(&p);
    changes(&p);
    curves(&p);
    timeline(&p);
    ranks(&p);
    rates(&p);
    how(&p);
    foot(&p);
    int r = hr__draft_write(&p.draft, path, error);
    hr__tables_clear(p.tables);
    hr__draft_clear(&p.draft);
    return r;
}
