/*
 * What the charts of a page about memory draw, as JSON that a script element may hold: the
 * first record's analysis with its long lists as plain numbers, and of the others what is drawn
 * beside it.
 */
#ifndef HR_MEMORY_REPORT_PAGE_DATA_H
#define HR_MEMORY_REPORT_PAGE_DATA_H

#include "memory/report/view.h"

/* Of a record of any size at most some 3 MB. */
void hr__memory_page_data(const struct hr__memory_view *views, size_t count,
                          struct hr__draft *draft);

#endif
