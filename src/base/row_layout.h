/*
 * The layout of rows (headrace/rows.h), shared by the rooms that hand them on.
 *
 * A *record* is the memory that one sample's rows have in a slot, or in memory shared with an
 * agent: a head, then each column at an offset of its own, with room for the most rows that any
 * sample has. So a sample may be written before the others of its batch, and a stand-in with other
 * rows fits. Delivery gathers the records of a batch into arrays without gaps.
 */
#ifndef HR_BASE_ROW_LAYOUT_H
#define HR_BASE_ROW_LAYOUT_H

#include <headrace/rows.h>

#include <stddef.h>
#include <stdint.h>

/* The head of a record. */
struct hr__row_record {
    uint64_t rows; /* of this sample, at most the layout's `most` */
};

/* Columns and where they are in a record. Immutable. */
struct hr__rows_layout {
    size_t count; /* columns; may be 0 */
    struct hr_column column[HR_COLUMNS_MAX];
    char name[HR_COLUMNS_MAX][HR_COLUMN_NAME_MAX]; /* column[].name points here */
    size_t value_bytes[HR_COLUMNS_MAX];            /* of one value */
    size_t offset[HR_COLUMNS_MAX];                 /* in a record; a multiple of 8 */
    int box, points;                               /* the columns of these roles; -1: none */
    size_t most;                                   /* rows of any sample */
    size_t bytes;                                  /* of one record; a multiple of 8 */
};

/* One sample's rows as its dataset has them: views of arrays that nobody changes. */
struct hr__sample_rows {
    const struct hr__rows_layout *layout;
    size_t rows;
    const void *data[HR_COLUMNS_MAX]; /* of each column: its values for this sample */
};

/* Returns non-zero if column `c` has one value for each row. */
static inline int hr__column_has_rows(const struct hr__rows_layout *layout, size_t c)
{
    return layout->column[c].role != HR_COLUMN_SAMPLE;
}

/* Returns non-zero if a recipe's geometry moves the values of column `c`. */
static inline int hr__column_moves(const struct hr__rows_layout *layout, size_t c)
{
    return layout->column[c].role == HR_COLUMN_BOX || layout->column[c].role == HR_COLUMN_POINTS;
}

/* Makes a layout of columns from outside: checks them, copies their names. Errors: -EINVAL, -EFBIG
 * (see hr_dataset_with_rows). */
int hr__rows_layout(struct hr__rows_layout *out, const struct hr_column *columns, size_t count,
                    size_t most, struct hr_error *error);

/*
 * Writes a sample's record. kept: indices of the rows that are kept, `rows` of them, in order;
 * NULL: all. moved: of each column whose values were moved, the new values of all of its rows;
 * NULL: the array, or of one column: not moved. What is not used of the record is left as it is.
 */
void hr__row_record_write(const struct hr__sample_rows *in, const uint32_t *kept, size_t rows,
                          const void *const *moved, struct hr__row_record *record);

/* Copies the used part of a record that another process may be writing. Returns 0; -EPROTO: it has
 * more rows than any sample. */
int hr__row_record_copy(const struct hr__rows_layout *layout, struct hr__row_record *to,
                        const struct hr__row_record *from);

#endif
