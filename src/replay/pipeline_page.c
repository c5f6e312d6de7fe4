/*
 * Writes a plan as one HTML file that needs no network: the sentence, the table of plans, the run
 * of the first one as a Gantt chart, its stages and memory, and what is not possible.
 */
#include "replay/pipeline_report.h"

#include "base/error.h"
#include "report/format.h"
#include "report/parts.h"

#include <errno.h>

struct plan_page {
    const struct hr_plan *plan;
    struct hr__draft draft;
    struct hr__table tables[HR__PLAN_TABLES];
};

static void put(struct plan_page *p, const char *html)
{
    hr__draft_put(&p->draft, html);
}

static void table(struct plan_page *p, enum hr__plan_table which)
{
    hr__table_html(&p->tables[which], &p->draft);
}

static void head(struct plan_page *p)
{
    struct hr__draft words = {.text = NULL};
    hr__page_begin(&p->draft, "How to divide a network over GPUs", "Pipeline",
                   p->plan->profile.name, hr__plan_page_policy);
    put(p, "<h1 class=\"long\">");
    hr__plan_sentence(p->plan, &words);
    p->draft.failed |= words.failed;
    hr__draft_html(&p->draft, words.failed ? "" : words.text);
    hr__draft_clear(&words);
    put(p, "</h1>\n<p>");
    hr__draft_html(&p->draft, p->plan->profile.name);
    hr__draft_print(&p->draft, "%s%d layers, %d GPUs, batches of %d samples at most</p>\n",
                    *p->plan->profile.name ? ": " : "", p->plan->profile.layer_count,
                    p->plan->options.gpus, p->plan->options.batch);
    put(p, "</header>\n<main>\n<section>\n");
}

static void gantt(struct plan_page *p)
{
    hr__page_heading(&p->draft, "run", "The run of the first plan",
                     "One row for each GPU of one replica. Numbers are those of the microbatches; "
                     "passes with weights of an odd version are striped.");
    put(p, "<figure>\n<h3>Passes over time</h3>\n<div class=\"plot\"><canvas id=\"chart-gantt\" "
           "role=\"img\" aria-label=\"Chart: the passes of each GPU over time. The "
           "tables that follow have its figures.\"></canvas><div class=\"tip\" id=\"gantt-tip\" "
           "hidden></div></div>\n<figcaption>Blue: forward passes. Orange: backward passes. Grey: "
           "updates of the weights. Empty: the GPU waits.</figcaption>\n</figure>\n");
    table(p, HR__PLAN_STAGES);
    table(p, HR__PLAN_MEMORY);
    table(p, HR__PLAN_VERSIONS);
}

/* The tasks that the chart draws: numbers only. */
static void data(struct plan_page *p)
{
    const struct hr__pipeline_run *run = &p->plan->run;
    double drawn = hr__plan_drawn_s(p->plan);
    struct hr__draft *d = &p->draft;
    hr__draft_print(d, "{\"rows\":%d,\"end\":", run->device_count);
    hr__draft_number(d, drawn, 9);
    hr__draft_put(d, ",\"tasks\":[");
    for (size_t i = 0; i < (size_t)run->device_count * run->device_tasks; i++) {
        const struct hr__pipeline_task *t = &run->tasks[i];
        if (t->begin_s >= drawn)
            continue;
        hr__draft_print(d, "%s[%d,%d,%d,%d,%d,", i ? "," : "", (int)(i / run->device_tasks),
                        (int)t->kind, t->stage, t->microbatch, t->version);
        hr__draft_number(d, t->begin_s, 9);
        hr__draft_put(d, ",");
        hr__draft_number(d, t->end_s, 9);
        hr__draft_put(d, "]");
    }
    hr__draft_put(d, "]}");
}

static void foot(struct plan_page *p)
{
    hr__page_foot(&p->draft, false);
    if (p->plan->count) {
        put(p, "<script type=\"application/json\" id=\"data\">");
        data(p);
        put(p, "</script>\n<script>");
        put(p, hr__plan_page_script);
        put(p, "</script>\n");
    }
    put(p, "</body>\n</html>\n");
}

int hr_plan_write_page(const struct hr_plan *plan, const char *path, struct hr_error *error)
{
    struct plan_page p = {.plan = plan};
    if (!plan || !path)
        return hr__fail(error, -EINVAL, "a plan and a path are needed to write it as a page");
    hr__plan_tables_make(p.tables, plan);
    p.draft.failed = hr__plan_tables_failed(p.tables);
    head(&p);
    table(&p, HR__PLAN_CHOICES);
    hr__page_list(&p.draft, &p.tables[HR__PLAN_HOLDS], false);
    if (plan->count)
        gantt(&p);
    hr__page_heading(&p.draft, "limits", "What is not possible, and what was assumed", NULL);
    hr__page_list(&p.draft, &p.tables[HR__PLAN_REFUSED], false);
    hr__page_list(&p.draft, &p.tables[HR__PLAN_NOTES], false);
    foot(&p);
    int r = hr__draft_write(&p.draft, path, error);
    hr__plan_tables_clear(p.tables);
    hr__draft_clear(&p.draft);
    return r;
}
