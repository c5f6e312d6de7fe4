/* A sample's rows on their way through a recipe; see rows.h. */
#include "recipe/rows.h"

#include "base/error.h"
#include "recipe/scratch.h"

#include <errno.h>
#include <string.h>

/* Bytes of the row table's working memory, which is 64-byte aligned. */
static size_t rounded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

int hr__rows_begin(struct hr__scratch *scratch, struct hr_error *error)
{
    const struct hr__sample_rows *in = scratch->input_rows;
    struct hr__plan_rows *rows = &scratch->plan.rows;
    *rows = (struct hr__plan_rows){.in = in};
    if (!in)
        return 0;
    const struct hr__rows_layout *layout = in->layout;
    /* a byte more, so that `moved` is not NULL for a sample without rows */
    size_t flags = rounded(in->rows + 1), bytes = flags;
    for (size_t c = 0; c < layout->count; c++)
        bytes += hr__column_moves(layout, c) ? rounded(in->rows * layout->value_bytes[c]) : 0;
    int r = hr__buffer_reserve(&scratch->rows, bytes, error);
    if (r)
        return r;
    char *at = scratch->rows.bytes;
    rows->dropped = (uint8_t *)at;
    if (in->rows)
        memset(at, 0, in->rows);
    at += flags;
    for (size_t c = 0; c < layout->count; c++) {
        if (!hr__column_moves(layout, c))
            continue;
        rows->moved[c] = (float *)(void *)at;
        if (in->rows)
            memcpy(at, in->data[c], in->rows * layout->value_bytes[c]);
        at += rounded(in->rows * layout->value_bytes[c]);
    }
    return 0;
}

int hr__rows_finish(struct hr__scratch *scratch, struct hr__row_record *record,
                    struct hr_error *error)
{
    const struct hr__plan_rows *rows = &scratch->plan.rows;
    const struct hr__sample_rows *in = rows->in;
    const void *moved[HR_COLUMNS_MAX];
    size_t kept = 0;
    int r = hr__buffer_reserve(&scratch->kept_rows, in->rows * sizeof(uint32_t), error);
    if (r)
        return r;
    uint32_t *index = scratch->kept_rows.bytes;
    for (size_t i = 0; i < in->rows; i++)
        if (!rows->dropped[i])
            index[kept++] = (uint32_t)i;
    for (size_t c = 0; c < in->layout->count; c++)
        moved[c] = rows->moved[c];
    hr__row_record_write(in, index, kept, moved, record);
    return 0;
}
