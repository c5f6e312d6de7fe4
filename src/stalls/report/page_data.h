/*
 * Writes the data of a page's charts as JSON that is safe within a script element.
 */
#ifndef HR_STALLS_REPORT_PAGE_DATA_H
#define HR_STALLS_REPORT_PAGE_DATA_H

#include "stalls/report/curves.h"

struct hr__page_data {
    const struct hr_stalls *stalls;
    struct hr__curves cache, cores;
    /* a segment of the first rank each, to show batch by batch; NULL: none */
    const struct hr__segment_record *cold, *warm;
};

/* Makes some 40 predictions. The rest points into `stalls`, which must outlive `data`. */
void hr__page_data_make(struct hr__page_data *data, const struct hr_stalls *stalls);

void hr__page_data_json(const struct hr__page_data *data, struct hr__draft *draft);

/* Fills a table with the batches of both segments. */
void hr__page_data_batches(const struct hr__page_data *data, struct hr__table *table);

/* Returns whether shares are known well enough to be drawn. */
bool hr__page_data_drawn(const struct hr_stalls *stalls, const struct hr_interval *share,
                         int parts);

#endif
