/*
 * The data of the charts of a page about memory, as JSON that is safe within a script element:
 * the first record's analysis with its long lists as plain numbers, and what is drawn of the other
 * records beside it.
 */
#ifndef HR_MEMORY_REPORT_PAGE_DATA_H
#define HR_MEMORY_REPORT_PAGE_DATA_H

#include "memory/report/view.h"

/* Of a record of any size at most some 3 MB. */
void hr__memory_page_data(const struct hr__memory_view *views, size_t count,
                          struct hr__draft *draft);

#endif
