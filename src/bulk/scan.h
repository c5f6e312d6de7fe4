/* Opens datasets for other code of the library, in ways that the public functions cannot
 * express. */
#ifndef HR_BULK_SCAN_H
#define HR_BULK_SCAN_H

#include "dataset/dataset.h"
#include "dataset/shards.h"

/* As hr_dataset_open_tar (HR__SOURCE_TAR) and hr_dataset_open_parquet (HR__SOURCE_PARQUET), but
 * takes paths literally. */
int hr__dataset_open_shards(struct hr_dataset **out, enum hr__source_kind kind,
                            const struct hr__shards *shards,
                            const struct hr_dataset_options *options, struct hr_error *error);

#endif
