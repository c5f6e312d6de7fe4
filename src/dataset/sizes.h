/*
 * Sizes and times of the samples' files: one statx each, in parallel, into the
 * catalog's own arrays, which may be read meanwhile.
 */
#ifndef HR_DATASET_SIZES_H
#define HR_DATASET_SIZES_H

#include "base/executor.h"
#include "dataset/catalog.h"
#include "dataset/progress.h"

/*
 * Looks at every file. `base` is what the catalog's directories are relative
 * to ("" for the working directory). Files that cannot be looked at keep
 * HR_SIZE_UNKNOWN. Sets HR__CATALOG_SIZES when all were asked. Blocks.
 * Errors: -ECANCELED.
 */
int hr__sizes_fill(struct hr__catalog *catalog, const char *base,
                   const struct hr__executor *executor, struct hr__progress *progress);

/*
 * Non-zero when up to `count` files, other ones each time, are still as the catalog says:
 * size, times and inode. Blocks.
 */
int hr__sizes_spot_check(struct hr__catalog *catalog, const char *base, uint64_t count);

#endif
