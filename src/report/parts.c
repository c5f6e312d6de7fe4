/* HTML parts that all pages share; see parts.h. */
#include "report/parts.h"

#include "report/assets.h"

void hr__page_begin(struct hr__draft *draft, const char *kind, const char *title,
                    const char *subject, const char *policy)
{
    hr__draft_put(draft, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                         "<meta http-equiv=\"Content-Security-Policy\" content=\"");
    hr__draft_put(draft, policy);
    hr__draft_put(draft,
                  "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<meta name=\"color-scheme\" content=\"light dark\">\n"
                  "<meta name=\"referrer\" content=\"no-referrer\">\n"
                  "<link rel=\"icon\" href=\"data:,\">\n<title>");
    hr__draft_print(draft, "%s: ", title);
    hr__draft_html(draft, subject);
    hr__draft_put(draft, "</title>\n<style>");
    hr__draft_put(draft, hr__page_style);
    hr__draft_print(draft, "</style>\n</head>\n<body>\n<header>\n<p class=\"kind\">%s</p>\n", kind);
}

void hr__page_foot(struct hr__draft *draft, bool has_library)
{
    hr__draft_print(draft,
                    "</section>\n</main>\n<footer>\n<p>Made by headrace %s. This page holds all "
                    "that it shows and asks no server for anything.</p>\n",
                    hr_version());
    if (has_library) {
        hr__draft_put(draft, "<details><summary>The charts are drawn by Chart.js; its licence"
                             "</summary>\n<pre>");
        hr__draft_lines_html(draft, hr__page_licence);
        hr__draft_put(draft, "</pre>\n</details>\n");
    }
    hr__draft_put(draft, "</footer>\n");
}

void hr__page_heading(struct hr__draft *draft, const char *anchor, const char *title,
                      const char *about)
{
    hr__draft_print(draft, "</section>\n<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">%s</h2>\n",
                    anchor, anchor, title);
    if (about)
        hr__draft_print(draft, "<p class=\"about\">%s</p>\n", about);
}

void hr__page_list(struct hr__draft *draft, const struct hr__table *t, bool is_code)
{
    if (!hr__table_rows(t))
        return;
    hr__draft_print(draft, "<h3>%s</h3>\n<ul class=\"notes\">\n", t->title);
    for (size_t i = 0; i < hr__table_rows(t); i++) {
        hr__draft_put(draft, is_code ? "<li><code>" : "<li>");
        hr__draft_html(draft, t->cells[i]);
        hr__draft_put(draft, is_code ? "</code></li>\n" : "</li>\n");
    }
    hr__draft_put(draft, "</ul>\n");
}

void hr__page_canvas(struct hr__draft *draft, const char *id, const char *shape, const char *title)
{
    hr__draft_print(draft,
                    "<div class=\"plot%s\"><canvas id=\"%s\" role=\"img\" aria-label=\"Chart: "
                    "%s. The table that follows has its figures.\"></canvas></div>\n",
                    shape, id, title);
}

void hr__page_figures(struct hr__draft *draft, const struct hr__table *table, bool is_folded)
{
    if (is_folded)
        hr__draft_put(draft, "<details><summary>The figures of this chart</summary>\n");
    hr__table_html(table, draft);
    if (is_folded)
        hr__draft_put(draft, "</details>\n");
}
