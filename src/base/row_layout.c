/* Checks columns, lays out records and writes them; see row_layout.h. */
#include "base/row_layout.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

/* Most bytes of one record. */
#define RECORD_BYTES_MAX ((size_t)256 << 20)

size_t hr_dtype_bytes(enum hr_dtype dtype)
{
    static const uint8_t bytes[] = {
        [HR_UINT8] = 1, [HR_FLOAT16] = 2, [HR_BFLOAT16] = 2, [HR_FLOAT32] = 4,
        [HR_INT64] = 8, [HR_INT32] = 4,   [HR_FLOAT64] = 8,  [HR_BOOL] = 1,
    };
    return (size_t)dtype < sizeof bytes ? bytes[dtype] : 0;
}

/* "images", "images_1", ...: the images of views. */
static int is_reserved(const char *name)
{
    static const char images[] = "images";
    if (strncmp(name, images, sizeof images - 1))
        return !strcmp(name, "indices");
    const char *rest = name + sizeof images - 1;
    return !*rest || (*rest == '_' && rest[1] && !rest[1 + strspn(rest + 1, "0123456789")]);
}

static int check_name(const struct hr_column *columns, size_t c, struct hr_error *error)
{
    const char *name = columns[c].name;
    if (!name || !*name)
        return hr__fail(error, -EINVAL, "column %zu has no name", c);
    if (strlen(name) >= HR_COLUMN_NAME_MAX)
        return hr__fail(error, -EINVAL, "the name of column %zu has more than %d bytes", c,
                        HR_COLUMN_NAME_MAX - 1);
    if (is_reserved(name))
        return hr__fail(error, -EINVAL,
                        "column %zu has the name \"%s\", which a batch's own field has: choose "
                        "another",
                        c, name);
    for (size_t i = 0; i < c; i++)
        if (!strcmp(columns[i].name, name))
            return hr__fail(error, -EINVAL, "columns %zu and %zu have the same name", i, c);
    return 0;
}

/* Checks type and shape. Sets *bytes to those of one value. */
static int check_value(const struct hr_column *column, size_t *bytes, struct hr_error *error)
{
    char name[2 * HR_COLUMN_NAME_MAX];
    hr__printable(name, sizeof name, column->name);
    *bytes = hr_dtype_bytes(column->dtype);
    if (!*bytes)
        return hr__fail(error, -EINVAL, "column %s has the unknown type %d", name,
                        (int)column->dtype);
    if ((unsigned)column->role > HR_COLUMN_SAMPLE)
        return hr__fail(error, -EINVAL, "column %s has the unknown role %d", name,
                        (int)column->role);
    if (column->dims < 0 || column->dims > HR_COLUMN_DIMS_MAX)
        return hr__fail(error, -EINVAL, "column %s has %d dimensions: 0 to %d are possible", name,
                        column->dims, HR_COLUMN_DIMS_MAX);
    for (int i = 0; i < column->dims; i++) {
        if (column->shape[i] < 1 || (size_t)column->shape[i] > HR_COLUMN_BYTES_MAX / *bytes)
            return hr__fail(error, -EINVAL,
                            "dimension %d of column %s is %d: a value has at least one element and "
                            "at most %zu bytes",
                            i, name, column->shape[i], HR_COLUMN_BYTES_MAX);
        *bytes *= (size_t)column->shape[i];
    }
    int is_box = column->dims == 1 && column->shape[0] == 4;
    int are_points = column->dims == 2 && column->shape[1] == 3;
    if (column->role == HR_COLUMN_BOX && !(column->dtype == HR_FLOAT32 && is_box))
        return hr__fail(error, -EINVAL, "column %s has boxes: they are float32 of the shape {4}",
                        name);
    if (column->role == HR_COLUMN_POINTS && !(column->dtype == HR_FLOAT32 && are_points))
        return hr__fail(error, -EINVAL,
                        "column %s has points: they are float32 of the shape {K, 3}", name);
    return 0;
}

/* Notes the column with boxes, or that with points. */
static int note_role(struct hr__rows_layout *out, int c, struct hr_error *error)
{
    enum hr_column_role role = out->column[c].role;
    int *which = role == HR_COLUMN_BOX ? &out->box : &out->points;
    if (role != HR_COLUMN_BOX && role != HR_COLUMN_POINTS)
        return 0;
    if (*which >= 0)
        return hr__fail(error, -EINVAL,
                        "columns %d and %d both have %s: one column of a table may have them",
                        *which, c, role == HR_COLUMN_BOX ? "boxes" : "points");
    *which = c;
    return 0;
}

/* Finds the place of column `c` in a record. */
static int place(struct hr__rows_layout *out, size_t c, struct hr_error *error)
{
    size_t most = hr__column_has_rows(out, c) ? out->most : 1;
    size_t bytes = out->value_bytes[c];
    out->offset[c] = out->bytes;
    if (most > (RECORD_BYTES_MAX - out->bytes) / bytes)
        return hr__fail(error, -EFBIG,
                        "a sample has %zu rows, which need more than %zu MiB: every sample of a "
                        "batch gets as much room",
                        out->most, RECORD_BYTES_MAX >> 20);
    out->bytes += (most * bytes + 7) & ~(size_t)7;
    return 0;
}

int hr__rows_layout(struct hr__rows_layout *out, const struct hr_column *columns, size_t count,
                    size_t most, struct hr_error *error)
{
    int r = 0;
    memset(out, 0, sizeof *out);
    if (count > HR_COLUMNS_MAX)
        return hr__fail(error, -EINVAL, "%zu columns are too many: at most %d", count,
                        HR_COLUMNS_MAX);
    out->count = count;
    out->box = out->points = -1;
    out->most = most;
    out->bytes = sizeof(struct hr__row_record);
    for (size_t c = 0; c < count && !r; c++) {
        r = check_name(columns, c, error);
        if (r)
            break;
        out->column[c] = columns[c];
        memcpy(out->name[c], columns[c].name, strlen(columns[c].name) + 1);
        out->column[c].name = out->name[c];
        r = check_value(&out->column[c], &out->value_bytes[c], error);
        if (!r)
            r = note_role(out, (int)c, error);
        if (!r)
            r = place(out, c, error);
    }
    return r;
}

void hr__row_record_write(const struct hr__sample_rows *in, const uint32_t *kept, size_t rows,
                          const void *const *moved, struct hr__row_record *record)
{
    const struct hr__rows_layout *layout = in->layout;
    record->rows = rows;
    for (size_t c = 0; c < layout->count; c++) {
        size_t bytes = layout->value_bytes[c];
        const char *from = moved && moved[c] ? moved[c] : in->data[c];
        char *to = (char *)record + layout->offset[c];
        if (!hr__column_has_rows(layout, c))
            memcpy(to, from, bytes);
        else if (kept)
            for (size_t i = 0; i < rows; i++)
                memcpy(to + i * bytes, from + kept[i] * bytes, bytes);
        else if (rows)
            memcpy(to, from, rows * bytes);
    }
}

int hr__row_record_copy(const struct hr__rows_layout *layout, struct hr__row_record *to,
                        const struct hr__row_record *from)
{
    uint64_t rows = __atomic_load_n(&from->rows, __ATOMIC_RELAXED);
    if (rows > layout->most)
        return -EPROTO;
    to->rows = rows;
    for (size_t c = 0; c < layout->count; c++) {
        size_t at = layout->offset[c], values = hr__column_has_rows(layout, c) ? (size_t)rows : 1;
        memcpy((char *)to + at, (const char *)from + at, values * layout->value_bytes[c]);
    }
    return 0;
}
