/* Loaders whose batches an agent prepares (attach.h): options, and finding who implements them. */
#ifndef HR_LOADER_REMOTE_H
#define HR_LOADER_REMOTE_H

#include <headrace/loader.h>

struct hr_loader;

/* Of taken options: whether those about an agent go together. Errors: -EINVAL. */
int hr__remote_check(const struct hr_loader_options *options, struct hr_error *error);

/* Non-zero where an agent is to prepare; says so once where it is asked for and cannot. */
int hr__remote_is_wanted(const struct hr_loader_options *options);

/* Attaches a loader that is made but for its threads and cache. Errors: -ENOTSUP: built
 * without agents; -ENOMEM; the attachment's. */
int hr__remote_create(struct hr_loader *l, struct hr_error *error);

/* Frees the copies of options. */
void hr__remote_free_texts(struct hr_loader *l);

#endif
