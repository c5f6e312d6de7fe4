/*
 * The rows of a batch (headrace/rows.h): a record for each sample, which its worker writes, and the
 * arrays without gaps that delivery makes of them.
 */
#ifndef HR_LOADER_BATCH_ROWS_H
#define HR_LOADER_BATCH_ROWS_H

#include "dataset/row_table.h"

#include <headrace/loader.h>

struct hr__batch_rows {
    struct hr__row_table *table; /* a reference */
    const struct hr__rows_layout *layout;
    char *records;                /* layout->bytes for each sample */
    char *values[HR_COLUMNS_MAX]; /* of each column, valid once gathered */
    int64_t *offsets;             /* likewise: samples + 1 */
};

/* Makes room for the rows of `samples` samples of a table's. Errors: -ENOMEM. */
int hr__batch_rows_create(struct hr__batch_rows **out, struct hr__row_table *table, size_t samples,
                          struct hr_error *error);

/* Returns the bytes that this takes. */
size_t hr__batch_rows_bytes(const struct hr__row_table *table, size_t samples);

/* Any thread, also in a forked child. Accepts NULL. */
void hr__batch_rows_destroy(struct hr__batch_rows **rows);

/* Returns the record of the sample at `place`. */
struct hr__row_record *hr__batch_record(const struct hr__batch_rows *rows, size_t place);

/* Gathers the rows of the first `count` samples. */
void hr__batch_rows_gather(struct hr__batch_rows *rows, size_t count);

#endif
