/*
 * HTML parts that all pages share: sections, charts, and the table of a chart's figures.
 */
#ifndef HR_REPORT_PARTS_H
#define HR_REPORT_PARTS_H

#include "report/table.h"

/* Begins a page, up to its sentence: `kind` stands over it, "title: subject" names the page,
 * `policy` allows its scripts. */
void hr__page_begin(struct hr__draft *draft, const char *kind, const char *title,
                    const char *subject, const char *policy);

/* Ends the last section, and the text of a page; `has_library`: with the licence of the charting
 * library. Scripts may follow. */
void hr__page_foot(struct hr__draft *draft, bool has_library);

/* Ends a section and begins another; `about`: a line below its title, NULL: none. */
void hr__page_heading(struct hr__draft *draft, const char *anchor, const char *title,
                      const char *about);

/* Adds the rows of a table as a list, if it has any; `is_code`: as code. */
void hr__page_list(struct hr__draft *draft, const struct hr__table *table, bool is_code);

/* Adds the canvas of a chart; shape: further CSS classes, "" or " thin". */
void hr__page_canvas(struct hr__draft *draft, const char *id, const char *shape, const char *title);

/* Adds the table of a chart's figures; folded if the chart shows them. */
void hr__page_figures(struct hr__draft *draft, const struct hr__table *table, bool is_folded);

#endif
