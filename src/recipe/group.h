/*
 * Groups: operations that apply to the operations after them in the list.
 */
#ifndef HR_RECIPE_GROUP_H
#define HR_RECIPE_GROUP_H

#include "recipe/operation.h"

/* Checks all operations of the recipe, and advances the state to what the last leaves. Errors:
 * -EINVAL. */
int hr__check_operations(struct hr_recipe *recipe, struct hr__state *state, struct hr_error *error);

/* Draws the parameters of all operations and appends their steps to the plan. Errors: -EINVAL. */
int hr__draw_operations(const struct hr_recipe *recipe, const struct hr_draw_key *key,
                        struct hr__prepare_plan *plan, struct hr_error *error);

#endif
