/* The fields of a batch, as the public API describes them. */
#include "loader/batch_rows.h"
#include "loader/ring.h"

#include <errno.h>
#include <string.h>

/* Describes the images of one view. */
static void images_field(const struct hr_batch *batch, size_t view, struct hr_field *field)
{
    static const char *const names[HR_RECIPE_MAX_VIEWS] = {
        "images",    "images_1",  "images_2",  "images_3",  "images_4",  "images_5",  "images_6",
        "images_7",  "images_8",  "images_9",  "images_10", "images_11", "images_12", "images_13",
        "images_14", "images_15", "images_16", "images_17", "images_18", "images_19", "images_20",
        "images_21", "images_22", "images_23", "images_24", "images_25", "images_26", "images_27",
        "images_28", "images_29", "images_30", "images_31"};
    struct hr_tensor_spec spec;
    void *images;
    if (hr_batch_images(batch, view, &images, &spec))
        return;
    *field = (struct hr_field){.name = names[view],
                               .dtype = spec.dtype,
                               .dims = 1 + (int)spec.dims,
                               .shape = {(int64_t)batch->count},
                               .data = images,
                               .extents = batch->extents};
    for (size_t d = 0; d < spec.dims; d++)
        field->shape[1 + d] = spec.shape[d];
}

void hr__batch_set_mask_extents(struct hr_batch *batch)
{
    size_t dims = batch->spec->dims, height = batch->spec->layout == HR_NCHW;
    for (size_t i = 0; batch->mask_extents && i < batch->count; i++)
        for (size_t side = 0; side < 2; side++)
            batch->mask_extents[2 * i + side] = batch->extents[i * dims + height + side];
}

static void masks_field(const struct hr_batch *batch, struct hr_field *field)
{
    *field =
        (struct hr_field){.name = "masks",
                          .dtype = HR_UINT8,
                          .dims = 3,
                          .shape = {(int64_t)batch->count, batch->spec->height, batch->spec->width},
                          .data = batch->masks,
                          .extents = batch->mask_extents};
}

static void numbers_field(const struct hr_batch *batch, const char *name, int64_t *numbers,
                          struct hr_field *field)
{
    *field = (struct hr_field){.name = name,
                               .dtype = HR_INT64,
                               .dims = 1,
                               .shape = {(int64_t)batch->count},
                               .data = numbers};
}

static void column_field(const struct hr_batch *batch, size_t c, struct hr_field *field)
{
    const struct hr__batch_rows *rows = batch->rows;
    const struct hr_column *column = &rows->layout->column[c];
    int has_rows = hr__column_has_rows(rows->layout, c);
    *field = (struct hr_field){.name = column->name,
                               .dtype = column->dtype,
                               .dims = 1 + column->dims,
                               .data = rows->values[c],
                               .offsets = has_rows ? rows->offsets : NULL};
    field->shape[0] = has_rows ? rows->offsets[batch->count] : (int64_t)batch->count;
    for (int i = 0; i < column->dims; i++)
        field->shape[1 + i] = column->shape[i];
}

/* Returns non-zero if a column stands for the dataset's own labels. */
static int has_labels_column(const struct hr_batch *batch)
{
    for (size_t c = 0; batch->rows && c < batch->rows->layout->count; c++)
        if (!strcmp(batch->rows->layout->column[c].name, "labels"))
            return 1;
    return 0;
}

int hr_batch_field(const struct hr_batch *batch, size_t i, struct hr_field *field)
{
    size_t views = hr__batch_views(batch);
    if (i < views) {
        images_field(batch, i, field);
        return 0;
    }
    i -= views;
    if (batch->masks && i-- == 0) {
        masks_field(batch, field);
        return 0;
    }
    if (!has_labels_column(batch) && i-- == 0) {
        numbers_field(batch, "labels", batch->labels, field);
        return 0;
    }
    if (i-- == 0) {
        numbers_field(batch, "indices", batch->indices, field);
        return 0;
    }
    if (i >= (batch->rows ? batch->rows->layout->count : 0))
        return -ERANGE;
    column_field(batch, i, field);
    return 0;
}
