/* Datasets with masks: beside the samples of another dataset, those of a dataset of masks. */
#include "dataset/dataset.h"

#include "base/error.h"
#include "base/memory.h"

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

/* Returns a copy of a sample's path; NULL: out of memory. */
static char *copy_path(const struct hr_dataset *dataset, size_t index)
{
    size_t length = hr_dataset_path(dataset, index, NULL, 0);
    char *path = hr__alloc(HR__TAG_DATASET, length + 1, 1);
    if (path)
        hr_dataset_path(dataset, index, path, length + 1);
    return path;
}

int hr__dataset_pair(struct hr_dataset **out, struct hr_dataset *dataset, struct hr_error *error)
{
    struct hr_dataset *of[2] = {dataset, dataset->masks};
    size_t count = 2 * dataset->count;
    *out = NULL;
    if (hr__dataset_origin(of[0])->containers || hr__dataset_origin(of[1])->containers)
        return hr__fail(error, -ENOTSUP,
                        "images and masks are packed together if each is a file of its own, and "
                        "some of these are in packs or tar files: pack the files");
    char **paths = hr__alloc(HR__TAG_DATASET, count + 1, sizeof *paths);
    int64_t *labels = hr__alloc(HR__TAG_DATASET, count + 1, sizeof *labels);
    int r = paths && labels ? 0 : -ENOMEM;
    for (size_t i = 0; !r && i < count; i++) {
        paths[i] = copy_path(of[i & 1], i / 2);
        labels[i] = hr_dataset_label(of[i & 1], i / 2);
        r = paths[i] ? 0 : -ENOMEM;
    }
    if (r)
        hr__fail(error, r, "out of memory for the paths of %zu images and their masks", count / 2);
    else
        r = hr_dataset_from_paths(out, (const char *const *)paths, labels, count, error);
    if (!r)
        (*out)->is_paired = 1;
    for (size_t i = 0; paths && i < count; i++)
        hr__free(paths[i]);
    hr__free(paths);
    hr__free(labels);
    return r;
}

int hr__dataset_unpair(struct hr_dataset **dataset, struct hr_error *error)
{
    struct hr_dataset *half[2] = {NULL, NULL}, *with;
    size_t count = (*dataset)->count / 2;
    int64_t *indices = hr__alloc(HR__TAG_DATASET, count + 1, sizeof *indices);
    int r = indices ? 0 : hr__fail(error, -ENOMEM, "out of memory for %zu masks", count);
    for (size_t is_mask = 0; !r && is_mask < 2; is_mask++) {
        for (size_t i = 0; i < count; i++)
            indices[i] = (int64_t)(2 * i + is_mask);
        r = hr_dataset_subset(&half[is_mask], *dataset, indices, count, error);
    }
    if (!r)
        r = hr_dataset_with_masks(&with, half[0], half[1], error);
    hr__free(indices);
    hr_dataset_unref(&half[0]);
    hr_dataset_unref(&half[1]);
    if (r)
        return r;
    hr_dataset_unref(dataset);
    *dataset = with;
    return 0;
}
