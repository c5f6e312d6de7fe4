/* Rows of batches: room, copies, and arrays without gaps; see batch_rows.h. */
#include "loader/batch_rows.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>

/* Most bytes that column `c` has in a batch of `samples` samples; a multiple of 64. */
static size_t column_bytes(const struct hr__rows_layout *layout, size_t c, size_t samples)
{
    size_t most = hr__column_has_rows(layout, c) ? layout->most : 1;
    return (samples * most * layout->value_bytes[c] + 63) & ~(size_t)63;
}

/* Bytes of the struct before the arrays. */
#define HEAD_BYTES ((sizeof(struct hr__batch_rows) + 63) & ~(size_t)63)

/* The sum fits: a record has less than 2^29 bytes, a batch fewer than 2^31 samples, and the columns
 * need no more than the records, rounded up. */
size_t hr__batch_rows_bytes(const struct hr__row_table *table, size_t samples)
{
    const struct hr__rows_layout *layout = &table->layout;
    size_t bytes = HEAD_BYTES + samples * layout->bytes + (samples + 1) * sizeof(int64_t);
    for (size_t c = 0; c < layout->count; c++)
        bytes += column_bytes(layout, c, samples);
    return bytes;
}

int hr__batch_rows_create(struct hr__batch_rows **out, struct hr__row_table *table, size_t samples,
                          struct hr_error *error)
{
    const struct hr__rows_layout *layout = &table->layout;
    struct hr__batch_rows *rows = hr__alloc(HR__TAG_SLOT, 1, hr__batch_rows_bytes(table, samples));
    *out = rows;
    if (!rows)
        return hr__fail(error, -ENOMEM,
                        "out of memory for the rows of %zu samples, up to %zu of each: lower "
                        "batch_size or batches_ahead",
                        samples, layout->most);
    rows->table = hr__row_table_ref(table);
    rows->layout = layout;
    char *at = (char *)rows + HEAD_BYTES;
    for (size_t c = 0; c < layout->count; c++) {
        rows->values[c] = at;
        at += column_bytes(layout, c, samples);
    }
    rows->records = at;
    rows->offsets = (int64_t *)(void *)(at + samples * layout->bytes);
    return 0;
}

void hr__batch_rows_destroy(struct hr__batch_rows **rows)
{
    if (*rows)
        hr__row_table_unref(&(*rows)->table);
    hr__free(*rows);
    *rows = NULL;
}

struct hr__row_record *hr__batch_record(const struct hr__batch_rows *rows, size_t place)
{
    return (struct hr__row_record *)(void *)(rows->records + place * rows->layout->bytes);
}

void hr__batch_rows_gather(struct hr__batch_rows *rows, size_t count)
{
    const struct hr__rows_layout *layout = rows->layout;
    rows->offsets[0] = 0;
    for (size_t i = 0; i < count; i++)
        rows->offsets[i + 1] = rows->offsets[i] + (int64_t)hr__batch_record(rows, i)->rows;
    for (size_t c = 0; c < layout->count; c++) {
        size_t bytes = layout->value_bytes[c];
        int has_rows = hr__column_has_rows(layout, c);
        for (size_t i = 0; i < count; i++) {
            const char *record = (const char *)hr__batch_record(rows, i);
            size_t first = has_rows ? (size_t)rows->offsets[i] : i;
            size_t values = has_rows ? (size_t)(rows->offsets[i + 1] - rows->offsets[i]) : 1;
            memcpy(rows->values[c] + first * bytes, record + layout->offset[c], values * bytes);
        }
    }
}
