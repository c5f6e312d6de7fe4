/* Opens datasets for other code of the library, in ways that the public functions cannot
 * express. */
#ifndef HR_BULK_SCAN_H
#define HR_BULK_SCAN_H

#include <headrace/dataset.h>

/* As hr_dataset_open_tar, but takes paths literally: braces are not expanded. */
int hr__dataset_open_tars(struct hr_dataset **out, char *const *paths, size_t count,
                          const struct hr_dataset_options *options, struct hr_error *error);

#endif
