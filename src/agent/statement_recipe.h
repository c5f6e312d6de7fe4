/*
 * Converts a recipe to JSON and back. One table per operation names its parameters, for writing
 * and reading alike. Numbers are written with 17 digits, so the same double is read back.
 */
#ifndef HR_AGENT_STATEMENT_RECIPE_H
#define HR_AGENT_STATEMENT_RECIPE_H

#include "base/json.h"
#include "recipe/recipe.h"

/* The arguments of hr_recipe_create. */
struct hr__stated_recipe {
    struct hr_recipe_options options;
    struct hr_operation operations[HR__RECIPE_MAX_OPERATIONS];
    size_t count;
};

/* Returns a new reference; NULL: out of memory. */
json_t *hr__stated_recipe_write(const struct hr_recipe *recipe);

/* Reads the object; errors are recorded in the reader. hr_recipe_create checks later whether the
 * recipe is valid. */
void hr__stated_recipe_read(struct hr__json *reader, const json_t *object,
                            struct hr__stated_recipe *out);

#endif
