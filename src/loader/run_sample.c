/* Prepares one sample with its rows or its mask, without a loader. */
#include "base/error.h"
#include "base/memory.h"
#include "dataset/row_table.h"
#include "recipe/mask.h"
#include "recipe/recipe.h"
#include "recipe/rows.h"

#include <errno.h>
#include <string.h>

/* Copies the columns of a record to the caller's arrays. */
static void give_columns(const struct hr__rows_layout *layout, const struct hr__row_record *record,
                         void *const *columns)
{
    for (size_t c = 0; c < layout->count; c++) {
        size_t values = hr__column_has_rows(layout, c) ? (size_t)record->rows : 1;
        memcpy(columns[c], (const char *)record + layout->offset[c],
               values * layout->value_bytes[c]);
    }
}

int hr_preparer_run_sample(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                           const struct hr_sample *sample, const struct hr_draw_key *key,
                           const struct hr_sample_room *room, struct hr_error *error)
{
    const struct hr_dataset *dataset = sample->dataset;
    const struct hr__rows_layout *layout = hr__dataset_layout(dataset);
    const struct hr_item item = {sample->bytes, sample->length, 0};
    const struct hr__mask mask = {
        .bytes = sample->mask, .length = sample->mask_length, .out = room->mask};
    struct hr__prepared prepared = {.outs = room->outs};
    struct hr__sample_rows in;
    *room->rows = 0;
    int r = hr__recipe_check_rows(recipe, layout, error);
    if (!r && sample->mask && dataset->masks) {
        prepared.mask = &mask;
        r = hr__recipe_check_masks(recipe, error);
    }
    if (!r && layout && sample->index >= dataset->count)
        r = hr__fail(error, -ERANGE, "there is no sample %zu: the dataset has %zu, from 0 on",
                     sample->index, dataset->count);
    if (!r && layout) {
        hr__dataset_sample_rows(dataset, sample->index, &in);
        prepared.in = &in;
        prepared.record = hr__alloc(HR__TAG_LOADER, 1, layout->bytes);
        if (!prepared.record)
            r = hr__fail(error, -ENOMEM, "out of memory for %zu rows of a sample", layout->most);
    }
    if (!r)
        r = hr__preparer_run_item(preparer, recipe, &item, key, &prepared, error);
    if (!r && layout) {
        give_columns(layout, prepared.record, room->columns);
        *room->rows = (size_t)prepared.record->rows;
    }
    hr__free(prepared.record);
    return r;
}
