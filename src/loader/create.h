/* Making loaders. create.c is the only file that knows all parts of a loader (part.h). */
#ifndef HR_LOADER_CREATE_H
#define HR_LOADER_CREATE_H

#include <headrace/loader.h>

struct hr_dataset;
struct hr_recipe;

/* Checks options of the caller's version and completes them. */
int hr__options_take(struct hr_loader_options *out, const struct hr_loader_options *options,
                     struct hr_error *error);

/* Makes a loader from checked options, without ring, cache and threads. Errors: -ENODATA;
 * -ENOMEM. */
int hr__loader_make(struct hr_loader **out, struct hr_dataset *dataset, struct hr_recipe *recipe,
                    const struct hr_loader_options *options, struct hr_error *error);

#endif
