/*
 * HTML that all pages share: sections, charts, and the table of a chart's figures.
 */
#ifndef HR_REPORT_PARTS_H
#define HR_REPORT_PARTS_H

#include "report/table.h"

/* Ends a section and begins another; `about`: a line below its title, NULL: none. */
void hr__page_heading(struct hr__draft *draft, const char *anchor, const char *title,
                      const char *about);

/* Where a chart is drawn; shape: further classes of its place, "" or " thin". */
void hr__page_canvas(struct hr__draft *draft, const char *id, const char *shape, const char *title);

/* The table of a chart's figures; folded where there is the chart. */
void hr__page_figures(struct hr__draft *draft, const struct hr__table *table, bool is_folded);

#endif
