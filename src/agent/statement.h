/*
 * A statement describes what a loader prepares, its dataset and recipe, as text, so that an agent
 * can open the same.
 *
 * It is compact JSON with sorted keys, so equal statements are equal texts:
 * {"version": 1, "dataset": {...}, "recipe": {...}}. The recipe of a produced dataset is {}. A
 * dataset is one of
 *   {"kind": "folder", "path": absolute, "allow_empty_classes", "index", "count", "digest"}
 *   {"kind": "list" | "pack", "path": absolute, "count", "digest"}
 *   {"kind": "tar" | "parquet", "paths": absolute ones, "count", "digest"}, "label" and "image"
 *    if they are named
 *   {"kind": "ranges", "paths": absolute ones, "ranges": path, offset, bytes, label of each sample}
 *   {"kind": "paths", "paths": absolute ones, "labels"}
 *   {"kind": "produced", "name", "count", "sample_bytes", "layout", "digest"}
 *   {"kind": "subset", "of": dataset, "indices"}
 * One in buckets adds "s3_endpoint" or "gs_endpoint", with which the agent's own are compared.
 * "digest" is the digest of names and labels (dataset/describe.h). If the agent finds another
 * one, because files were added, it fails with -ESTALE. A recipe lists its options and operations
 * by name, as in recipe.h. Paths are bytes: if one is not UTF-8, "paths_are": "bytes" is added
 * and each byte above 0x7F is written as the character \u00XX.
 *
 * A dataset with rows adds "rows": the digest of its samples' rows (dataset/row_table.h), so jobs
 * with other rows have another statement. The rows themselves travel beside the text, as a block
 * (dataset/row_block.h). One with masks adds "masks": the dataset of the masks.
 */
#ifndef HR_AGENT_STATEMENT_H
#define HR_AGENT_STATEMENT_H

#include <headrace/dataset.h>
#include <headrace/recipe.h>

/* `recipe` may be NULL with a produced dataset. *text is the caller's, freed with hr__free. Errors:
 * -ENOTSUP: the dataset cannot be described; -ENOMEM. May block on the file system. */
int hr__statement_write(char **text, const struct hr_dataset *dataset,
                        const struct hr_recipe *recipe, struct hr_error *error);

/* What a job sends of its dataset and recipe. */
struct hr__statement_sent {
    const char *text;
    size_t length;
    const void *rows;    /* the block of the dataset's rows; NULL: it has none */
    uint64_t rows_bytes; /* of the block */
};

/* Opens what comes from an untrusted sender. *dataset and *recipe are the caller's references.
 * Errors: -EPROTO: invalid, with what is wrong and where; -ESTALE; those of opening a dataset and
 * of hr_recipe_create. Blocks on the file system. */
int hr__statement_read(const struct hr__statement_sent *sent, struct hr_dataset **dataset,
                       struct hr_recipe **recipe, struct hr_error *error);

#endif
