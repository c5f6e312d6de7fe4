/*
 * Writes analyses of memory as one HTML file that needs no network: the sentence, charts by
 * Chart.js and by page.js itself (the lives of blocks), and a table beside each chart, so that
 * nothing is lost on paper, to a screen reader or without scripts.
 *
 * Untrusted text (names of operators, files, parts of the model) is always escaped, the charts'
 * data is JSON without <, > and &, and a content security policy allows only the page's own
 * scripts, by their hashes.
 */
#include "base/error.h"
#include "memory/report/assets.h"
#include "memory/report/page_data.h"
#include "memory/report/tables.h"
#include "memory/report/words.h"
#include "report/assets.h"
#include "report/format.h"
#include "report/parts.h"

#include <errno.h>
#include <string.h>

#define LONG_SENTENCE 150 /* characters from which a sentence is set smaller */

struct page {
    const struct hr__memory_view *views;
    size_t count;
    struct hr__draft draft;
    struct hr__table tables[HR__MEMORY_TABLES];
};

static void put(struct page *p, const char *html)
{
    hr__draft_put(&p->draft, html);
}

/* Without a charting library, or for a record without blocks, pages have tables only. */
static bool has_charts(const struct page *p)
{
    return *hr__page_library && p->views->device;
}

static bool has(const struct page *p, enum hr__memory_table which)
{
    return hr__table_rows(&p->tables[which]) > 0;
}

static void table(struct page *p, enum hr__memory_table which)
{
    hr__table_html(&p->tables[which], &p->draft);
}

/* Adds the table of a chart's figures; folded if the chart is shown. */
static void figures(struct page *p, enum hr__memory_table which)
{
    if (!has(p, which))
        return;
    hr__page_figures(&p->draft, &p->tables[which], has_charts(p));
}

static void canvas(struct page *p, const char *id, const char *shape, const char *title)
{
    if (has_charts(p))
        hr__page_canvas(&p->draft, id, shape, title);
}

/* A chart and its description; `which`: the table of its figures, folded; HR__MEMORY_TABLES: the
 * table is elsewhere. */
struct figure {
    const char *id, *title, *about, *shape;
    enum hr__memory_table which;
};

static void figure(struct page *p, const struct figure *f)
{
    if (!has_charts(p) && (f->which == HR__MEMORY_TABLES || !has(p, f->which)))
        return;
    hr__draft_print(&p->draft, "<figure>\n<h3>%s</h3>\n", f->title);
    canvas(p, f->id, f->shape, f->title);
    if (*f->about && has_charts(p))
        hr__draft_print(&p->draft, "<figcaption>%s</figcaption>\n", f->about);
    if (f->which != HR__MEMORY_TABLES)
        figures(p, f->which);
    put(p, "</figure>\n");
}

static void paragraph(struct page *p,
                      void (*say)(const struct hr__memory_view *, struct hr__draft *))
{
    struct hr__draft words = {.text = NULL};
    say(p->views, &words);
    p->draft.failed |= words.failed;
    if (words.length && !words.failed) {
        put(p, "<p class=\"about\">");
        hr__draft_html(&p->draft, words.text);
        put(p, "</p>\n");
    }
    hr__draft_clear(&words);
}

static void list(struct page *p, enum hr__memory_table which)
{
    hr__page_list(&p->draft, &p->tables[which], false);
}

/* ---- sections ---- */

static void sentence(struct page *p)
{
    struct hr__draft words = {.text = NULL};
    hr__memory_say_peak(p->views, &words);
    p->draft.failed |= words.failed;
    put(p, words.length > LONG_SENTENCE ? "<h1 class=\"long\">" : "<h1>");
    hr__draft_html(&p->draft, words.failed ? "" : words.text);
    put(p, "</h1>\n");
    hr__draft_clear(&words);
}

static void head(struct page *p)
{
    const char *command = hr__view_fact(p->views, "command");
    hr__page_begin(&p->draft, "Where training memory goes", "Memory", p->views->name,
                   hr__memory_page_policy);
    sentence(p);
    put(p, "<p>");
    if (*command) {
        put(p, "<code>");
        hr__draft_html(&p->draft, command);
        put(p, "</code>, ");
    }
    put(p, "record <code>");
    hr__draft_html(&p->draft, p->views->name);
    put(p, "</code></p>\n</header>\n<main>\n<section>\n");
    if (has_charts(p))
        put(p, "<noscript><p>The charts need scripts; the tables below them have the same "
               "figures.</p></noscript>\n");
    list(p, HR__MEMORY_DAMAGE);
}

static void sides(struct page *p)
{
    static const struct figure batch = {"chart-batch", "What the peaks are made of", "", "",
                                        HR__MEMORY_SIDES};
    static const struct figure fits = {
        "chart-fits", "Over the batch size",
        "Marks are records; the line is fitted to them, up to the memory there is.", "",
        HR__MEMORY_TABLES};
    size_t sized = 0;
    if (p->count < 2)
        return;
    hr__page_heading(&p->draft, "sides", "The records side by side",
                     "Each at its own peak. All that follows is about the first.");
    for (size_t i = 0; i < p->count; i++)
        sized += p->views[i].batch_size >= 1;
    put(p, "<div class=\"pair\">\n");
    figure(p, &batch);
    if (sized > 1)
        figure(p, &fits);
    put(p, "</div>\n");
    table(p, HR__MEMORY_SIDE_PARTS);
}

static void peak(struct page *p)
{
    hr__page_heading(&p->draft, "peak", "What memory holds at its peak", NULL);
    if (has_charts(p))
        put(p, "<figure>\n<div class=\"plot thin\"><canvas id=\"chart-peak\" role=\"img\" "
               "aria-label=\"Chart: the peak by category. The table that follows has its figures."
               "\"></canvas></div>\n</figure>\n");
    put(p, "<div class=\"pair\">\n<div>");
    table(p, HR__MEMORY_PEAK);
    put(p, "</div>\n<div>");
    table(p, HR__MEMORY_BATCH);
    table(p, HR__MEMORY_DEVICES);
    put(p, "</div>\n</div>\n");
}

static void timeline(struct page *p)
{
    static const struct figure bytes = {
        "chart-bytes", "Bytes held, by category",
        "A click shows the lives of the blocks at that moment below. The dashed line is the peak.",
        "", HR__MEMORY_TIMELINE};
    static const struct figure fragments = {
        "chart-fragments", "Taken from the device, and in blocks",
        "What lies between the lines is free in the allocator's segments: of use only where a "
        "request fits into one piece.",
        " low", HR__MEMORY_FRAGMENTS};
    hr__page_heading(&p->draft, "time", "Over time", NULL);
    figure(p, &bytes);
    if (has(p, HR__MEMORY_FRAGMENTS))
        figure(p, &fragments);
}

static void lives(struct page *p)
{
    if (!has(p, HR__MEMORY_LIVES))
        return;
    hr__page_heading(
        &p->draft, "lives", "The lives of blocks",
        "Some iterations from the middle of the record: a bar for each block from its "
        "allocation to its free, with a tick for each access: writes in the upper half, reads "
        "in the lower. Of very many blocks the largest are drawn.");
    put(p, "<figure>\n<h3>Blocks and their accesses</h3>\n");
    if (has_charts(p))
        put(p,
            "<div class=\"tools\" id=\"lives-tools\"></div>\n"
            "<div class=\"plot tall\"><canvas id=\"chart-lives\" tabindex=\"0\" "
            "role=\"application\" "
            "aria-label=\"Chart: the lives of blocks. Arrow keys move, plus and minus zoom, n and "
            "p "
            "go from block to block, 0 shows all. The table that follows has the largest blocks.\">"
            "</canvas><div class=\"tip\" id=\"lives-tip\" hidden></div></div>\n"
            "<p class=\"status\" id=\"lives-status\" role=\"status\" aria-live=\"polite\"></p>\n"
            "<figcaption>Drag to move; click, then turn the wheel to zoom (with Shift: height). "
            "Keys: arrows move, + and - zoom, n and p go from block to block, 0 shows all."
            "</figcaption>\n");
    figures(p, HR__MEMORY_LIVES);
    put(p, "</figure>\n");
}

static void intervals(struct page *p)
{
    static const struct figure distribution = {"chart-cdf", "How many are no longer than that", "",
                                               "", HR__MEMORY_INTERVALS};
    static const struct figure violins = {
        "chart-violins", "Their distribution",
        "Width: how many are so long; the bar: the middle half; the dot: the median.", "",
        HR__MEMORY_TABLES};
    static const struct figure scatter = {
        "chart-scatter", "Interval against size",
        "Right of the line a block could leave the device and be back in time (S_max). Large marks "
        "are those with which most could be moved.",
        "", HR__MEMORY_OUTLIERS};
    if (!has(p, HR__MEMORY_INTERVALS))
        return;
    hr__page_heading(&p->draft, "intervals", "Time between two accesses to a block",
                     "By behaviour: what the two accesses were.");
    paragraph(p, hr__memory_say_intervals);
    put(p, "<div class=\"pair\">\n");
    figure(p, &distribution);
    figure(p, &violins);
    put(p, "</div>\n");
    figure(p, &scatter);
}

static void blocks(struct page *p)
{
    static const struct figure f = {"chart-parts", "By part of the model and category",
                                    "The part in which a block was made, or to which it belongs.",
                                    "", HR__MEMORY_PARTS};
    hr__page_heading(
        &p->draft, "blocks", "The blocks of the peak",
        "Those that read the same are one row: what they are, the operator and the line of code "
        "that made them, as far as that was recorded.");
    table(p, HR__MEMORY_GROUPS);
    if (has(p, HR__MEMORY_PARTS))
        figure(p, &f);
}

static void iterations(struct page *p)
{
    static const struct figure f = {
        "chart-iterations", "Iterations one by one",
        "Bars: how long each takes; striped in red: one whose behaviours differ. Line: the most it "
        "holds.",
        "", HR__MEMORY_ITERATIONS};
    hr__page_heading(
        &p->draft, "iterations", "What repeats",
        "The pattern is found in the sequence of allocations, frees, reads and writes, with "
        "their sizes and operators.");
    table(p, HR__MEMORY_PATTERN);
    if (has(p, HR__MEMORY_ITERATIONS))
        figure(p, &f);
}

static void advice(struct page *p)
{
    hr__page_heading(
        &p->draft, "advice", "What would lower the peak",
        "Arithmetic on what was recorded; whether the program can do without is for its author "
        "to say.");
    if (has(p, HR__MEMORY_ADVICE)) {
        table(p, HR__MEMORY_REMEDIES);
        list(p, HR__MEMORY_CAVEATS);
        put(p, "<details><summary>Block by block</summary>\n");
        table(p, HR__MEMORY_ADVICE);
        put(p, "</details>\n");
    } else if (p->views->found->found.accesses)
        put(p, "<p>Nothing was found: no large block lies idle over the peak.</p>\n");
    else
        put(p, "<p>Nothing is known: this record does not tell when blocks are used.</p>\n");
    if (!has(p, HR__MEMORY_ADVICE))
        list(p, HR__MEMORY_CAVEATS);
}

static void foot(struct page *p)
{
    hr__page_heading(&p->draft, "how", "The record", NULL);
    table(p, HR__MEMORY_RUN);
    list(p, HR__MEMORY_NOTES);
    hr__page_foot(&p->draft, has_charts(p));
    if (has_charts(p)) {
        put(p, "<script type=\"application/json\" id=\"data\">");
        hr__memory_page_data(p->views, p->count, &p->draft);
        put(p, "</script>\n<script>");
        put(p, hr__page_library);
        put(p, "</script>\n<script>");
        put(p, hr__memory_page_script);
        put(p, "</script>\n");
    }
    put(p, "</body>\n</html>\n");
}

int hr_memory_write_page(const struct hr_memory *const *memories, size_t count, const char *path,
                         struct hr_error *error)
{
    struct hr__memory_view *views;
    struct page p = {.count = count};
    if (!memories || !count || !path)
        return hr__fail(error, -EINVAL, "a record and a path are needed to write it as a page");
    int code = hr__memory_views_open(&views, memories, count, error);
    if (code)
        return code;
    p.views = views;
    hr__memory_tables_make(p.tables, views, count, false);
    p.draft.failed = hr__memory_tables_failed(p.tables);
    /* The section headings already say this. */
    p.tables[HR__MEMORY_PATTERN].title = p.tables[HR__MEMORY_RUN].title = "";
    p.tables[HR__MEMORY_REMEDIES].title = "what to do with blocks";
    head(&p);
    peak(&p);
    sides(&p);
    timeline(&p);
    lives(&p);
    blocks(&p);
    advice(&p);
    intervals(&p);
    iterations(&p);
    foot(&p);
    code = hr__draft_write(&p.draft, path, error);
    hr__memory_tables_clear(p.tables);
    hr__draft_clear(&p.draft);
    hr__memory_views_close(&views);
    return code;
}
