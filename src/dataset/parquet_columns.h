/* Which columns of a Parquet table hold the images and their labels. */
#ifndef HR_DATASET_PARQUET_COLUMNS_H
#define HR_DATASET_PARQUET_COLUMNS_H

#include "dataset/names.h"
#include "dataset/parquet_footer.h"
#include "dataset/shard_samples.h"

struct hr__parquet_choice {
    size_t image, label;      /* columns; label: HR__PARQUET_NONE for "none" */
    struct hr__names classes; /* of the label, by number; empty: not known */
};

#define HR__PARQUET_NONE SIZE_MAX

/* Chooses as parquet.h says, by the names in `source`. On success free out->classes with
 * hr__names_clear. Messages begin with `path`. Errors: -EINVAL, -ENOTSUP, -ENOMEM. Pure. */
int hr__parquet_choose(struct hr__parquet_choice *out, const struct hr__parquet_footer *footer,
                       const struct hr__shard_source *source, const char *path,
                       struct hr_error *error);

#endif
