/* HTML parts that all pages share; see parts.h. */
#include "report/parts.h"

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
