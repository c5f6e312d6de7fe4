/* Datasets with masks: beside the samples of another dataset, those of a dataset of masks. */
#include "dataset/dataset.h"

#include "base/error.h"

#include <headrace/masks.h>

#include <errno.h>

int hr_dataset_with_masks(struct hr_dataset **out, struct hr_dataset *parent,
                          struct hr_dataset *masks, struct hr_error *error)
{
    *out = NULL;
    if (parent->produced || masks->produced)
        return hr__fail(error, -EINVAL,
                        "a produced dataset has no masks: let the producers return them");
    if (parent->masks || masks->masks || parent->rows || masks->rows)
        return hr__fail(error, -EINVAL,
                        "a dataset has masks or rows, once: give the masks to one without either");
    if (parent->count != masks->count)
        return hr__fail(error, -EINVAL, "there are %zu images and %zu masks: give one for each",
                        parent->count, masks->count);
    int r = hr__dataset_create_alike(out, parent, NULL, error);
    if (!r)
        (*out)->masks = hr_dataset_ref(masks);
    return r;
}

const struct hr_dataset *hr_dataset_masks(const struct hr_dataset *dataset)
{
    return dataset->masks;
}
