/*
 * Queries the sizes and times of the samples' files with one statx each, in parallel. The results
 * go directly into the catalog's arrays, which may be read meanwhile.
 */
#ifndef HR_DATASET_SIZES_H
#define HR_DATASET_SIZES_H

#include "base/executor.h"
#include "dataset/catalog.h"
#include "dataset/progress.h"

/*
 * Queries every file. The catalog's directories are relative to `base` ("": the working directory).
 * Files that cannot be queried keep HR_SIZE_UNKNOWN. Sets HR__CATALOG_SIZES when all have been
 * queried. Blocks. Errors: -ECANCELED.
 */
int hr__sizes_fill(struct hr__catalog *catalog, const char *base,
                   const struct hr__executor *executor, struct hr__progress *progress);

/*
 * Returns non-zero if up to `count` files, chosen at random each time, still match the catalog in
 * size, times and inode. Blocks.
 */
int hr__sizes_spot_check(struct hr__catalog *catalog, const char *base, uint64_t count);

#endif
