/* Writes and reads blocks of rows; see row_block.h. */
#include "dataset/row_block.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#define MAGIC           "HRROWS1\n" /* 8 bytes without the final zero */
#define BYTE_ORDER_MARK 0x01020304u

struct block_head {
    char magic[8];
    uint32_t byte_order; /* BYTE_ORDER_MARK */
    uint32_t columns;
    uint64_t samples, rows;
    uint64_t bytes;    /* of the block */
    uint64_t checksum; /* XXH3-64 of the bytes after the head */
};

struct block_column {
    char name[HR_COLUMN_NAME_MAX]; /* zeros after its end */
    int32_t dtype, role, dims;
    int32_t shape[HR_COLUMN_DIMS_MAX]; /* zeros after `dims` */
};

_Static_assert(sizeof(struct block_head) % 8 == 0 && sizeof(struct block_column) % 8 == 0,
               "all parts begin at multiples of 8");

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

/* Where the parts of a block are. */
struct block_parts {
    uint64_t columns, offsets; /* positions in the block */
    uint64_t values[HR_COLUMNS_MAX];
    uint64_t bytes; /* of the block */
};

/* Finds the parts of a block. Returns zero if it would be larger than the most. */
static int lay_out(struct block_parts *out, const struct hr__rows_layout *layout, uint64_t samples,
                   uint64_t rows)
{
    if (samples > HR__ROW_BLOCK_BYTES_MAX / 8 - 1)
        return 0;
    out->columns = sizeof(struct block_head);
    out->offsets = out->columns + layout->count * sizeof(struct block_column);
    out->bytes = out->offsets + (samples + 1) * sizeof(uint64_t);
    for (size_t c = 0; c < layout->count; c++) {
        uint64_t count = hr__column_has_rows(layout, c) ? rows : samples, values;
        if (__builtin_mul_overflow(count, layout->value_bytes[c], &values) ||
            values > HR__ROW_BLOCK_BYTES_MAX || out->bytes > HR__ROW_BLOCK_BYTES_MAX)
            return 0;
        out->values[c] = out->bytes;
        out->bytes += padded(values);
    }
    return out->bytes <= HR__ROW_BLOCK_BYTES_MAX;
}

/* Returns how many rows all samples have. */
static uint64_t count_rows(const struct hr_dataset *dataset)
{
    struct hr__sample_rows rows;
    uint64_t count = 0;
    for (size_t i = 0; i < dataset->count; i++) {
        hr__dataset_sample_rows(dataset, i, &rows);
        count += rows.rows;
    }
    return count;
}

static void write_columns(struct block_column *out, const struct hr__rows_layout *layout)
{
    for (size_t c = 0; c < layout->count; c++) {
        const struct hr_column *column = &layout->column[c];
        memcpy(out[c].name, layout->name[c], sizeof out[c].name);
        out[c].dtype = (int32_t)column->dtype;
        out[c].role = (int32_t)column->role;
        out[c].dims = column->dims;
        for (int i = 0; i < column->dims; i++)
            out[c].shape[i] = column->shape[i];
    }
}

static void write_values(char *block, const struct block_parts *parts,
                         const struct hr_dataset *dataset)
{
    const struct hr__rows_layout *layout = &dataset->rows->layout;
    uint64_t *offsets = (uint64_t *)(void *)(block + parts->offsets);
    struct hr__sample_rows rows;
    for (size_t i = 0; i < dataset->count; i++) {
        hr__dataset_sample_rows(dataset, i, &rows);
        offsets[i + 1] = offsets[i] + rows.rows;
        for (size_t c = 0; c < layout->count; c++) {
            int has_rows = hr__column_has_rows(layout, c);
            size_t bytes = layout->value_bytes[c], count = has_rows ? rows.rows : 1;
            if (count)
                memcpy(block + parts->values[c] + (has_rows ? offsets[i] : i) * bytes, rows.data[c],
                       count * bytes);
        }
    }
}

int hr__row_block_make(void **out, uint64_t *bytes, const struct hr_dataset *dataset,
                       struct hr_error *error)
{
    const struct hr__rows_layout *layout = &dataset->rows->layout;
    struct block_parts parts;
    uint64_t rows = count_rows(dataset);
    *out = NULL;
    if (!lay_out(&parts, layout, dataset->count, rows))
        return hr__fail(error, -EFBIG, "the rows of %zu samples have more than %" PRIu64 " GiB",
                        dataset->count, HR__ROW_BLOCK_BYTES_MAX >> 30);
    char *block = hr__alloc(HR__TAG_DATASET, parts.bytes, 1);
    if (!block)
        return hr__fail(error, -ENOMEM, "out of memory for a copy of the rows, %" PRIu64 " MiB",
                        parts.bytes >> 20);
    struct block_head *head = (struct block_head *)(void *)block;
    *head = (struct block_head){.byte_order = BYTE_ORDER_MARK,
                                .columns = (uint32_t)layout->count,
                                .samples = dataset->count,
                                .rows = rows,
                                .bytes = parts.bytes};
    memcpy(head->magic, MAGIC, sizeof head->magic);
    write_columns((struct block_column *)(void *)(block + parts.columns), layout);
    write_values(block, &parts, dataset);
    head->checksum = XXH3_64bits(block + sizeof *head, parts.bytes - sizeof *head);
    *out = block;
    *bytes = parts.bytes;
    return 0;
}

static int damaged(struct hr_error *error, const char *what)
{
    return hr__fail(error, -EBADMSG, "the rows are damaged: %s", what);
}

static int check_head(const struct block_head *head, const char *block, uint64_t bytes,
                      uint64_t samples, struct hr_error *error)
{
    if (bytes < sizeof *head || memcmp(head->magic, MAGIC, sizeof head->magic))
        return damaged(error, "they do not begin as rows do");
    if (head->byte_order != BYTE_ORDER_MARK)
        return hr__fail(error, -ENOTSUP,
                        "the rows were written on a machine of another byte order");
    if (head->bytes != bytes || head->columns < 1 || head->columns > HR_COLUMNS_MAX)
        return damaged(error, "their length differs");
    if (bytes - sizeof *head < head->columns * sizeof(struct block_column))
        return damaged(error, "they end within the columns");
    if (head->checksum != XXH3_64bits(block + sizeof *head, bytes - sizeof *head))
        return damaged(error, "their checksum differs");
    if (head->samples != samples)
        return hr__fail(error, -EBADMSG, "the rows are of %" PRIu64 " samples, not of %" PRIu64,
                        head->samples, samples);
    return 0;
}

/* Reads the descriptions of columns; hr__rows_layout checks their values. */
static int read_columns(struct hr_column *out, const struct block_column *in, size_t count,
                        struct hr_error *error)
{
    for (size_t c = 0; c < count; c++) {
        if (!memchr(in[c].name, 0, sizeof in[c].name))
            return damaged(error, "a column's name has no end");
        out[c] = (struct hr_column){.name = in[c].name,
                                    .dtype = (enum hr_dtype)in[c].dtype,
                                    .role = (enum hr_column_role)in[c].role,
                                    .dims = in[c].dims};
        for (int i = 0; i < HR_COLUMN_DIMS_MAX; i++)
            out[c].shape[i] = in[c].shape[i];
    }
    return 0;
}

/* What the table's maker refuses is damage of a block. */
static int as_damage(int r, struct hr_error *error)
{
    if (r != -EINVAL && r != -EFBIG)
        return r;
    if (error)
        error->code = -EBADMSG;
    return -EBADMSG;
}

int hr__row_block_read(struct hr__row_table **out, const void *block, uint64_t bytes,
                       uint64_t samples, struct hr_error *error)
{
    struct block_head head = {.columns = 0};
    struct hr_column columns[HR_COLUMNS_MAX];
    const void *data[HR_COLUMNS_MAX];
    struct hr__rows_layout layout;
    struct block_parts parts;
    const char *at = block;
    *out = NULL;
    memcpy(&head, block, bytes < sizeof head ? bytes : sizeof head);
    int r = check_head(&head, at, bytes, samples, error);
    if (!r)
        r = read_columns(columns, (const void *)(at + sizeof head), head.columns, error);
    if (!r) /* `most` is not known yet, and 0 fits whatever it is */
        r = hr__rows_layout(&layout, columns, head.columns, 0, error);
    if (r)
        return as_damage(r, error);
    if (!lay_out(&parts, &layout, head.samples, head.rows) || parts.bytes != bytes)
        return damaged(error, "their length differs");
    const uint64_t *offsets = (const void *)(at + parts.offsets);
    if (offsets[head.samples] != head.rows)
        return damaged(error, "they are not as many as their offsets tell");
    for (size_t c = 0; c < head.columns; c++)
        data[c] = at + parts.values[c];
    const struct hr__row_source from = {columns, head.columns, offsets, data};
    return as_damage(hr__row_table_create(out, head.samples, &from, error), error);
}

int hr__dataset_cut_rows(struct hr_dataset **dataset, struct hr_error *error)
{
    struct hr__row_table *rows = NULL;
    struct hr_dataset *cut;
    uint64_t bytes;
    void *block;
    if (!(*dataset)->row_of)
        return 0;
    int r = hr__row_block_make(&block, &bytes, *dataset, error);
    if (r)
        return r;
    r = hr__row_block_read(&rows, block, bytes, (*dataset)->count, error);
    hr__free(block);
    if (!r)
        r = hr__dataset_create_alike(&cut, *dataset, rows, error);
    hr__row_table_unref(&rows);
    if (r)
        return r;
    hr_dataset_unref(dataset);
    *dataset = cut;
    return 0;
}
