/*
 * What a loader prepares, as a text: dataset and recipe, so that an agent can make them again.
 *
 * JSON, as compact as jansson writes it, keys sorted, so that equal statements are equal
 * texts: {"version": 1, "dataset": {...}, "recipe": {...}}. A dataset is one of
 *   {"kind": "folder", "path": absolute, "allow_empty_classes", "index", "count", "digest"}
 *   {"kind": "list" | "pack", "path": absolute, "count", "digest"}
 *   {"kind": "tar", "paths": absolute ones, "count", "digest"}
 *   {"kind": "paths", "paths": absolute ones, "labels"}
 *   {"kind": "subset", "of": dataset, "indices"}
 * "digest" is that of names and labels (dataset/describe.h): another one at the agent, because
 * files were added, is -ESTALE. A recipe holds its options and operations by
 * name, as recipe.h has them. Paths are bytes: what is not UTF-8 is escaped as \u00XX of its
 * bytes with "paths_are": "bytes".
 */
#ifndef HR_AGENT_STATEMENT_H
#define HR_AGENT_STATEMENT_H

#include <headrace/dataset.h>
#include <headrace/recipe.h>

/* *text is the caller's, freed with hr__free. Errors: -ENOTSUP: it has no description;
 * -ENOMEM. May block on the file system. */
int hr__statement_write(char **text, const struct hr_dataset *dataset,
                        const struct hr_recipe *recipe, struct hr_error *error);

/* Of a text that anybody may have written: the caller's references. Errors: -EPROTO: no
 * statement, with what and where; -ESTALE; those of opening and of hr_recipe_create. Blocks on
 * the file system. */
int hr__statement_read(const char *text, size_t length, struct hr_dataset **dataset,
                       struct hr_recipe **recipe, struct hr_error *error);

#endif
