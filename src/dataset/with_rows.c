/* Datasets with rows: a table beside the samples of another dataset. */
#include "dataset/row_table.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

int hr_dataset_with_rows(struct hr_dataset **out, struct hr_dataset *parent,
                         const struct hr_column *columns, size_t count, const uint64_t *offsets,
                         const void *const *data, struct hr_error *error)
{
    *out = NULL;
    if (parent->produced)
        return hr__fail(error, -ENOTSUP,
                        "a produced dataset has no rows: let the producers return them");
    if (parent->masks)
        return hr__fail(error, -EINVAL,
                        "the dataset has masks, and a dataset has masks or rows: give the rows to "
                        "one without masks");
    if (!count)
        return hr__fail(error, -EINVAL, "no columns were given: a table of rows has at least one");
    const struct hr__row_source from = {columns, count, offsets, data};
    struct hr__row_table *t;
    int r = hr__row_table_create(&t, hr_dataset_count(parent), &from, error);
    if (!r)
        r = hr__dataset_create_alike(out, parent, t, error);
    hr__row_table_unref(&t);
    return r;
}

const struct hr__rows_layout *hr__dataset_layout(const struct hr_dataset *dataset)
{
    return dataset->rows ? &dataset->rows->layout : NULL;
}

size_t hr_dataset_column_count(const struct hr_dataset *dataset)
{
    return dataset->rows ? dataset->rows->layout.count : 0;
}

void hr_dataset_column(const struct hr_dataset *dataset, size_t i, struct hr_column *column)
{
    *column = dataset->rows->layout.column[i];
}

size_t hr_dataset_most_rows(const struct hr_dataset *dataset)
{
    return dataset->rows ? dataset->rows->layout.most : 0;
}

void hr__dataset_sample_rows(const struct hr_dataset *dataset, size_t index,
                             struct hr__sample_rows *out)
{
    size_t at = dataset->row_of ? (size_t)dataset->row_of[index] : index;
    hr__row_table_sample(dataset->rows, at, out);
}

const void *hr_dataset_rows(const struct hr_dataset *dataset, size_t index, size_t column,
                            size_t *count)
{
    struct hr__sample_rows rows;
    hr__dataset_sample_rows(dataset, index, &rows);
    *count = hr__column_has_rows(rows.layout, column) ? rows.rows : 1;
    return rows.data[column];
}

/* Hashes together what was hashed before and a block of bytes. */
static XXH128_hash_t chain(XXH128_hash_t before, const void *bytes, size_t length)
{
    const XXH128_hash_t step[2] = {before, XXH3_128bits(bytes, length)};
    return XXH3_128bits(step, sizeof step);
}

static XXH128_hash_t digest_columns(const struct hr__rows_layout *layout)
{
    XXH128_hash_t h = {0, 0};
    for (size_t c = 0; c < layout->count; c++) {
        const struct hr_column *column = &layout->column[c];
        int32_t facts[3 + HR_COLUMN_DIMS_MAX] = {(int32_t)column->dtype, (int32_t)column->role,
                                                 column->dims};
        for (int i = 0; i < column->dims; i++)
            facts[3 + i] = column->shape[i];
        h = chain(h, column->name, strlen(column->name));
        h = chain(h, facts, sizeof facts);
    }
    return h;
}

void hr__dataset_rows_digest(const struct hr_dataset *dataset, uint8_t digest[16])
{
    struct hr__sample_rows rows;
    XXH128_canonical_t bytes;
    memset(digest, 0, 16);
    if (!dataset->rows)
        return;
    const struct hr__rows_layout *layout = &dataset->rows->layout;
    XXH128_hash_t h = digest_columns(layout);
    for (size_t i = 0; i < dataset->count; i++) {
        hr__dataset_sample_rows(dataset, i, &rows);
        uint64_t count = rows.rows;
        h = chain(h, &count, sizeof count);
        for (size_t c = 0; c < layout->count; c++)
            h = chain(h, rows.data[c],
                      (hr__column_has_rows(layout, c) ? rows.rows : 1) * layout->value_bytes[c]);
    }
    XXH128_canonicalFromHash(&bytes, h);
    memcpy(digest, bytes.digest, sizeof bytes.digest);
}
