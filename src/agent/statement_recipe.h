/*
 * A recipe as JSON and back. One table per operation names its parameters, so that writing
 * and reading cannot differ. Numbers have 17 digits: what is read is the same double.
 */
#ifndef HR_AGENT_STATEMENT_RECIPE_H
#define HR_AGENT_STATEMENT_RECIPE_H

#include "recipe/recipe.h"
#include "base/json.h"

/* What hr_recipe_create takes. */
struct hr__stated_recipe {
    struct hr_recipe_options options;
    struct hr_operation operations[HR__RECIPE_MAX_OPERATIONS];
    size_t count;
};

/* The caller's reference; NULL: out of memory. */
json_t *hr__stated_recipe_write(const struct hr_recipe *recipe);

/* Reads the object; whether such a recipe can be made is for hr_recipe_create to say. What
 * is wrong is the reader's. */
void hr__stated_recipe_read(struct hr__json *reader, const json_t *object,
                            struct hr__stated_recipe *out);

#endif
