/*
 * What a dataset was made of, so that another process can make the same one: the kind, the
 * path as it was given, and the options that change what is in it. Relative paths are read
 * as they were then, also when the process has gone to another directory since.
 */
#ifndef HR_DATASET_DESCRIBE_H
#define HR_DATASET_DESCRIBE_H

#include "dataset/dataset.h"

#define HR__DIGEST_BYTES 16

/*
 * Says what `dataset` was opened from; `path` is copied, `options` may be NULL where they do
 * not matter. By whoever opens it, before others see it. Until then it is one of paths.
 * Errors: -ENOMEM.
 */
int hr__dataset_set_source(struct hr_dataset *dataset, enum hr__source_kind kind, const char *path,
                           const struct hr_dataset_options *options, struct hr_error *error);

/*
 * `path` as an absolute one, if it was relative when the dataset was opened. *out is the
 * caller's, freed with hr__free. Errors: -ENOENT: the working directory was not known then;
 * -ENOMEM.
 */
int hr__source_absolute(char **out, const struct hr__dataset_source *source, const char *path);

/*
 * A digest of what a file or folder stood for when it was opened: keys, labels and classes in
 * their order, and where the pieces of containers lie. Of a subset: its parent's. XXH3-128.
 * Any thread. Looks at each sample: about 0.1 s for a million.
 */
void hr__dataset_digest(const struct hr_dataset *dataset, uint8_t digest[HR__DIGEST_BYTES]);

#endif
