/*
 * Rows: what a dataset knows of its samples besides their bytes, such as boxes and their classes.
 *
 * A table has typed columns. A sample has any number of rows, and each row has one value in each
 * column; a column of the role HR_COLUMN_SAMPLE has one value for each sample instead. The table
 * is immutable and belongs to its dataset. A loader hands over a batch's rows one sample after the
 * other, without gaps: hr_batch_field (headrace/loader.h).
 */
#ifndef HEADRACE_ROWS_H
#define HEADRACE_ROWS_H

#include <headrace/base.h>
#include <headrace/dataset.h>
#include <headrace/prepare.h>
#include <headrace/recipe.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most columns of a table, bytes of a column's name with its zero, and dimensions of a value. */
#define HR_COLUMNS_MAX      32
#define HR_COLUMN_NAME_MAX  64
#define HR_COLUMN_DIMS_MAX  3
#define HR_COLUMN_BYTES_MAX ((size_t)1 << 20) /* of one value */

enum hr_column_role {
    HR_COLUMN_VALUE = 0,  /* handed over as it is: class ids, flags, tokens of a text */
    HR_COLUMN_BOX = 1,    /* x1, y1, x2, y2 in pixels of the image: float32, shape {4} */
    HR_COLUMN_POINTS = 2, /* K points: x, y in pixels, then a value: float32, shape {K, 3} */
    HR_COLUMN_SAMPLE = 3, /* one value for each sample, not for each row: an image's number, a
                             vector of scores. Handed over as it is */
};

struct hr_column {
    const char *name;
    enum hr_dtype dtype;
    enum hr_column_role role;
    int dims;                      /* of one value; 0: it is a number */
    int shape[HR_COLUMN_DIMS_MAX]; /* the first `dims` are used */
};

/*
 * Makes a dataset of the samples of `parent` with a table of `count` columns. Sample i has the rows
 * offsets[i] to offsets[i + 1] - 1; there is one offset more than there are samples, and the first
 * is 0. data[c] holds the values of column c without gaps: for each row, or for each sample if the
 * column has the role HR_COLUMN_SAMPLE. Copies everything, and holds a reference to the parent,
 * whose own rows are replaced. A subset of the new dataset has its samples' rows. A column named
 * "labels" takes the place of the dataset's own labels in batches.
 *
 * Errors: -EINVAL names the column, or the sample and row: no or a reserved name ("images",
 * "images_1" and so on, "indices"), a name that is given twice, a type or shape that does not suit
 * the role, offsets that decrease, two columns with boxes or with points, a box or point that is
 * not finite, a box whose x2 or y2 is less than its x1 or y1; -ENOTSUP: a produced dataset; -EFBIG:
 * more than 256 MiB of rows of one sample; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_dataset_with_rows(struct hr_dataset **out, struct hr_dataset *parent,
                                             const struct hr_column *columns, size_t count,
                                             const uint64_t *offsets, const void *const *data,
                                             struct hr_error *error);

/* Number of columns; 0: the dataset has no rows. */
HR_API size_t hr_dataset_column_count(const struct hr_dataset *dataset);

/* Describes column `i`, less than hr_dataset_column_count. The dataset owns the name. */
HR_API void hr_dataset_column(const struct hr_dataset *dataset, size_t i, struct hr_column *column);

/*
 * Returns the values of column `column` for sample `index`, and their number in *count: its rows,
 * or 1 for the role HR_COLUMN_SAMPLE. They belong to the dataset and are as it was given them:
 * boxes are in pixels of the stored image. Both arguments must be in range.
 */
HR_API const void *hr_dataset_rows(const struct hr_dataset *dataset, size_t index, size_t column,
                                   size_t *count);

/* Most rows of any sample: what a loader makes room for in each sample's place. */
HR_API size_t hr_dataset_most_rows(const struct hr_dataset *dataset);

/* A sample of a dataset, and its bytes (hr_dataset_read). */
struct hr_sample {
    const struct hr_dataset *dataset;
    size_t index;
    const void *bytes;
    size_t length;
    const void *mask; /* of a dataset with masks (headrace/masks.h): the mask's bytes; NULL: prepare
                         the image alone */
    size_t mask_length;
};

/* Where a prepared sample goes. */
struct hr_sample_room {
    void *const *outs;    /* the tensor of each view */
    void *const *columns; /* of each column: room for hr_dataset_most_rows values, or for one if it
                             has the role HR_COLUMN_SAMPLE; unused without rows */
    size_t *rows;         /* set to the number of rows that are left */
    uint8_t *mask;        /* height x width; unused without masks */
};

/* Runs `recipe` on one sample as hr_preparer_run_views does, and on its rows. Errors: also those
 * with which a loader refuses recipe and rows; -ERANGE: no such sample. */
HR_API HR_NODISCARD int
hr_preparer_run_sample(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                       const struct hr_sample *sample, const struct hr_draw_key *key,
                       const struct hr_sample_room *room, struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
