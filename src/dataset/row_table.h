/*
 * The table of a dataset's rows (headrace/rows.h): immutable, shared by a dataset and its subsets.
 */
#ifndef HR_DATASET_ROW_TABLE_H
#define HR_DATASET_ROW_TABLE_H

#include "base/row_layout.h"
#include "dataset/dataset.h"

struct hr__row_table {
    _Atomic uint32_t references;
    struct hr__rows_layout layout;
    size_t samples;
    uint64_t *offsets;          /* samples + 1 */
    void *data[HR_COLUMNS_MAX]; /* values of each column */
};

/* What a table is made of, as hr_dataset_with_rows takes it. */
struct hr__row_source {
    const struct hr_column *columns;
    size_t count;
    const uint64_t *offsets;
    const void *const *data;
};

/* Makes a table with one reference. Copies everything. Errors: -EINVAL, -EFBIG, -ENOMEM. */
int hr__row_table_create(struct hr__row_table **out, size_t samples,
                         const struct hr__row_source *from, struct hr_error *error);

/* Gets views of the rows of sample `at` of the table. */
void hr__row_table_sample(const struct hr__row_table *table, size_t at,
                          struct hr__sample_rows *out);

/* Returns the bytes that a table takes. */
size_t hr__row_table_bytes(const struct hr__row_table *table);

/* Adds a reference; returns its argument. Accepts NULL. */
struct hr__row_table *hr__row_table_ref(struct hr__row_table *table);

/* Drops a reference and sets *table to NULL. Accepts NULL. */
void hr__row_table_unref(struct hr__row_table **table);

/* Returns the layout of a dataset's rows; NULL: it has none. The dataset owns it. */
const struct hr__rows_layout *hr__dataset_layout(const struct hr_dataset *dataset);

/* Gets views of the rows of sample `index` of a dataset that has rows. They live as long as the
 * dataset. */
void hr__dataset_sample_rows(const struct hr_dataset *dataset, size_t index,
                             struct hr__sample_rows *out);

/* Computes XXH3-128 of the columns and of all samples' rows, in order; zeros for a dataset without
 * rows. Loops over all samples. */
void hr__dataset_rows_digest(const struct hr_dataset *dataset, uint8_t digest[16]);

#endif
