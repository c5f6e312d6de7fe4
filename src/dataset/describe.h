/*
 * Describes what a dataset was opened from, so that another process can open the same one: the
 * kind, the path as passed, and the options that affect the contents. Relative paths refer to the
 * working directory at the time of opening, even if the process has changed it since.
 */
#ifndef HR_DATASET_DESCRIBE_H
#define HR_DATASET_DESCRIBE_H

#include "dataset/dataset.h"

#define HR__DIGEST_BYTES 16

/*
 * Records what `dataset` was opened from. `path` is copied; `options` may be NULL if they do not
 * matter. The function that opens the dataset calls this before others use it. Without the call,
 * the kind is HR__SOURCE_PATHS. Errors: -ENOMEM.
 */
int hr__dataset_set_source(struct hr_dataset *dataset, enum hr__source_kind kind, const char *path,
                           const struct hr_dataset_options *options, struct hr_error *error);

/*
 * Makes `path` absolute, relative to the working directory when the dataset was opened. The caller
 * frees *out with hr__free. Errors: -ENOENT: that directory is unknown; -ENOMEM.
 */
int hr__source_absolute(char **out, const struct hr__dataset_source *source, const char *path);

/* Returns the length of the longest directory path, with its slash, that all keys begin with. */
size_t hr__dataset_common(const struct hr_dataset *dataset);

/*
 * Computes a digest (XXH3-128) of the contents that the source had when it was opened: keys, labels
 * and classes in order, and the positions of pieces in containers. For a subset, the parent's
 * digest. Any thread. Loops over all samples: about 0.1 s for a million.
 */
void hr__dataset_digest(const struct hr_dataset *dataset, uint8_t digest[HR__DIGEST_BYTES]);

#endif
