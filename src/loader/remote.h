/* Loaders whose batches an agent prepares (attach.h): their options, and finding the
 * implementation. */
#ifndef HR_LOADER_REMOTE_H
#define HR_LOADER_REMOTE_H

#include <headrace/loader.h>

struct hr_loader;

/* Checks that the options about an agent go together. The options are taken. Errors: -EINVAL. */
int hr__remote_check(const struct hr_loader_options *options, struct hr_error *error);

/* Refuses samples that an agent does not prepare, if the loader wants one. Errors: -EINVAL;
 * -ENOTSUP. */
int hr__remote_check_samples(const struct hr_loader *l, struct hr_error *error);

/* Returns non-zero if an agent is to prepare the batches. */
int hr__remote_is_wanted(const struct hr_loader_options *options);

/* Attaches a loader that is complete except for its threads and cache. Errors: -ENOTSUP: built
 * without agents; -ENOMEM; the attachment's. */
int hr__remote_create(struct hr_loader *l, struct hr_error *error);

/* Frees the loader's copies of text options. */
void hr__remote_free_texts(struct hr_loader *l);

#endif
