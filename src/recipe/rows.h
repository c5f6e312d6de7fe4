/*
 * A sample's rows on their way through a recipe.
 *
 * Planning draws a sample's parameters operation by operation (plan.h). Each function that appends
 * a step which moves pixels also moves the boxes and points of plan->rows, so that an operation
 * that draws from boxes finds them as they stand at its place. Operations that drop rows mark them
 * in `dropped`. Once the plan is made, hr__rows_finish writes what is left to the sample's record.
 * The walk over pixels knows nothing of rows.
 *
 * Coordinates are pixels of the image as it stands, after EXIF orientation where that is applied.
 */
#ifndef HR_RECIPE_ROWS_H
#define HR_RECIPE_ROWS_H

#include "base/row_layout.h"

struct hr__mask;
struct hr_recipe;
struct hr__prepare_plan;
struct hr__scratch;

/* The rows of the sample that is being planned. */
struct hr__plan_rows {
    const struct hr__sample_rows *in; /* NULL: the sample has no rows */
    float *moved[HR_COLUMNS_MAX];     /* boxes, points: all rows of the column as they stand now, in
                                         the layout of the input; NULL: a column of another role */
    uint8_t *dropped;                 /* for each row: non-zero: an operation dropped it */
};

/* What a preparer makes of a sample. */
struct hr__prepared {
    void *const *outs;                /* where the tensor of each view goes */
    const struct hr__sample_rows *in; /* NULL: the sample has no rows */
    struct hr__row_record *record;    /* where its rows go; NULL: nowhere */
    const struct hr__mask *mask;      /* NULL: the sample has none (mask.h) */
    int64_t *extents; /* of a padded recipe: the part of the tensor that may be other than zero;
                         becomes the result's shape. NULL: all of it may */
};

/* Refuses a recipe that cannot treat rows of this layout (NULL: the dataset has none) as they have
 * to be: one that works on boxes, without any; and with boxes or points, one whose operations would
 * move pixels and not them, or that has several views. Errors: -EINVAL names the operation. */
int hr__recipe_check_rows(const struct hr_recipe *recipe, const struct hr__rows_layout *layout,
                          struct hr_error *error);

/* Begins planning a sample: sets the plan's rows, with copies of the boxes and points. Errors:
 * -ENOMEM. */
int hr__rows_begin(struct hr__scratch *scratch, struct hr_error *error);

/* Writes the rows that the scratch's plan did not drop to `record`. Errors: -ENOMEM. */
int hr__rows_finish(struct hr__scratch *scratch, struct hr__row_record *record,
                    struct hr_error *error);

#endif
