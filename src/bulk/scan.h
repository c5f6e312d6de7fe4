/* Opening datasets inside the library: what the public functions have no words for. */
#ifndef HR_BULK_SCAN_H
#define HR_BULK_SCAN_H

#include <headrace/dataset.h>

/* hr_dataset_open_tar of these very paths, in which braces mean nothing. */
int hr__dataset_open_tars(struct hr_dataset **out, char *const *paths, size_t count,
                          const struct hr_dataset_options *options, struct hr_error *error);

#endif
