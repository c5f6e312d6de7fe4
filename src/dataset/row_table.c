/* Tables of rows: made once of arrays of the caller's, checked, then only read; see row_table.h. */
#include "dataset/row_table.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

static int check_offsets(const uint64_t *offsets, size_t samples, size_t *most,
                         struct hr_error *error)
{
    *most = 0;
    if (offsets[0])
        return hr__fail(error, -EINVAL, "the first offset of the rows is %llu: it must be 0",
                        (unsigned long long)offsets[0]);
    for (size_t i = 0; i < samples; i++) {
        if (offsets[i + 1] < offsets[i])
            return hr__fail(error, -EINVAL, "the rows of sample %zu end before they begin", i);
        uint64_t rows = offsets[i + 1] - offsets[i];
        if (rows > UINT32_MAX)
            return hr__fail(error, -EFBIG, "sample %zu has %llu rows: at most 2^32 - 1", i,
                            (unsigned long long)rows);
        *most = rows > *most ? (size_t)rows : *most;
    }
    return 0;
}

/* Finds a value of row `row` that is not finite, or a box that is inverted. Returns what is wrong;
 * NULL: nothing. */
static const char *wrong_with(const struct hr_column *column, const float *value, size_t elements)
{
    for (size_t i = 0; i < elements; i++)
        if (!isfinite(value[i]))
            return "is not finite";
    if (column->role == HR_COLUMN_BOX && (value[2] < value[0] || value[3] < value[1]))
        return "is inverted: boxes are x1, y1, x2, y2, and x2 and y2 must not be less";
    return NULL;
}

static int check_geometry(const struct hr__row_table *t, size_t c, struct hr_error *error)
{
    size_t elements = t->layout.value_bytes[c] / sizeof(float);
    const float *value = t->data[c];
    for (size_t i = 0; i < t->samples; i++) {
        for (uint64_t row = t->offsets[i]; row < t->offsets[i + 1]; row++, value += elements) {
            const char *wrong = wrong_with(&t->layout.column[c], value, elements);
            if (wrong)
                return hr__fail(error, -EINVAL, "%s of row %llu of sample %zu (%g, %g, %g, ...) %s",
                                t->layout.name[c], (unsigned long long)(row - t->offsets[i]), i,
                                (double)value[0], (double)value[1], (double)value[2], wrong);
        }
    }
    return 0;
}

/* Returns how many values column `c` has. */
static size_t values_of(const struct hr__row_table *t, size_t c)
{
    return hr__column_has_rows(&t->layout, c) ? (size_t)t->offsets[t->samples] : t->samples;
}

/* Copies the values of a column. A table with no row has no data, which may be NULL. */
static int take_column(struct hr__row_table *t, size_t c, const void *data, struct hr_error *error)
{
    size_t values = values_of(t, c);
    if (values && !data)
        return hr__fail(error, -EINVAL, "column %s has no data", t->layout.name[c]);
    t->data[c] = hr__alloc(HR__TAG_DATASET, values ? values : 1, t->layout.value_bytes[c]);
    if (!t->data[c])
        return hr__fail(error, -ENOMEM, "out of memory for %zu values of column %s", values,
                        t->layout.name[c]);
    if (values)
        memcpy(t->data[c], data, values * t->layout.value_bytes[c]);
    return hr__column_moves(&t->layout, c) ? check_geometry(t, c, error) : 0;
}

static int fill(struct hr__row_table *t, const struct hr_column *columns, size_t count,
                const uint64_t *offsets, const void *const *data, struct hr_error *error)
{
    size_t most;
    int r = check_offsets(offsets, t->samples, &most, error);
    if (!r)
        r = hr__rows_layout(&t->layout, columns, count, most, error);
    if (r)
        return r;
    t->offsets = hr__alloc(HR__TAG_DATASET, t->samples + 1, sizeof *t->offsets);
    if (!t->offsets)
        return hr__fail(error, -ENOMEM, "out of memory for the rows of %zu samples", t->samples);
    memcpy(t->offsets, offsets, (t->samples + 1) * sizeof *t->offsets);
    for (size_t c = 0; c < count && !r; c++)
        r = take_column(t, c, data[c], error);
    return r;
}

int hr__row_table_create(struct hr__row_table **out, size_t samples,
                         const struct hr__row_source *from, struct hr_error *error)
{
    struct hr__row_table *t = hr__alloc(HR__TAG_DATASET, 1, sizeof *t);
    *out = NULL;
    if (!t)
        return hr__fail(error, -ENOMEM, "out of memory for a table of rows");
    atomic_init(&t->references, 1);
    t->samples = samples;
    int r = fill(t, from->columns, from->count, from->offsets, from->data, error);
    if (r)
        hr__row_table_unref(&t);
    *out = t;
    return r;
}

size_t hr__row_table_bytes(const struct hr__row_table *t)
{
    size_t bytes = sizeof *t + (t->samples + 1) * sizeof *t->offsets;
    for (size_t c = 0; c < t->layout.count; c++)
        bytes += values_of(t, c) * t->layout.value_bytes[c];
    return bytes;
}

struct hr__row_table *hr__row_table_ref(struct hr__row_table *table)
{
    if (table)
        atomic_fetch_add_explicit(&table->references, 1, memory_order_relaxed);
    return table;
}

void hr__row_table_unref(struct hr__row_table **table)
{
    struct hr__row_table *t = *table;
    *table = NULL;
    /* acq_rel: all uses by other owners happen before the free */
    if (!t || atomic_fetch_sub_explicit(&t->references, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t c = 0; c < HR_COLUMNS_MAX; c++)
        hr__free(t->data[c]);
    hr__free(t->offsets);
    hr__free(t);
}

void hr__row_table_sample(const struct hr__row_table *t, size_t at, struct hr__sample_rows *out)
{
    out->layout = &t->layout;
    out->rows = (size_t)(t->offsets[at + 1] - t->offsets[at]);
    for (size_t c = 0; c < t->layout.count; c++) {
        size_t first = hr__column_has_rows(&t->layout, c) ? (size_t)t->offsets[at] : at;
        out->data[c] = (const char *)t->data[c] + first * t->layout.value_bytes[c];
    }
}
