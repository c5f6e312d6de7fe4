/*
 * Writes the data of a memory page's charts as JSON that is safe within a script element: the first
 * record's analysis, with its long lists as plain numbers, and the drawn parts of the other
 * records.
 */
#ifndef HR_MEMORY_REPORT_PAGE_DATA_H
#define HR_MEMORY_REPORT_PAGE_DATA_H

#include "memory/report/view.h"

/* Writes at most some 3 MB for a record of any size. */
void hr__memory_page_data(const struct hr__memory_view *views, size_t count,
                          struct hr__draft *draft);

#endif
