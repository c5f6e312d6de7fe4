/* The calls of a worker that programs linked with --wrap replace, and the real ones. */
#ifndef HR_TEST_LOADER_WRAPPED_H
#define HR_TEST_LOADER_WRAPPED_H

#include "storage/reader.h"

#include <headrace/prepare.h>

int __real_hr_preparer_run(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                           const void *bytes, size_t length, const struct hr_draw_key *key,
                           void *out, struct hr_error *error);
int __wrap_hr_preparer_run(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                           const void *bytes, size_t length, const struct hr_draw_key *key,
                           void *out, struct hr_error *error);
int __real_hr__read_file(struct hr__read *read, uint64_t max_bytes);
int __wrap_hr__read_file(struct hr__read *read, uint64_t max_bytes);

#endif
