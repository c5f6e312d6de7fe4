/* The calls of a worker that programs linked with --wrap replace, and the real ones. */
#ifndef HR_TEST_LOADER_WRAPPED_H
#define HR_TEST_LOADER_WRAPPED_H

#include "recipe/recipe.h"
#include "storage/reader.h"

#include <headrace/prepare.h>

int __real_hr__preparer_run_item(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                                 const struct hr_item *item, const struct hr_draw_key *key,
                                 const struct hr__prepared *prepared, struct hr_error *error);
int __wrap_hr__preparer_run_item(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                                 const struct hr_item *item, const struct hr_draw_key *key,
                                 const struct hr__prepared *prepared, struct hr_error *error);
int __real_hr__read_file(struct hr__read *read, uint64_t max_bytes);
int __wrap_hr__read_file(struct hr__read *read, uint64_t max_bytes);

#endif
