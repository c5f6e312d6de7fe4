/* Shard names: one path, or a folder or pattern that stands for many. */
#ifndef HR_DATASET_SHARDS_H
#define HR_DATASET_SHARDS_H

#include <headrace/base.h>

#include <stddef.h>

struct hr__shards {
    char **paths; /* owned */
    size_t count;
};

/*
 * Expands braces like shells and WebDataset. "train-{000..146}.tar" counts, with leading zeros if
 * both bounds have the same number of digits; "{a,b}.tar" lists; several braces multiply. A text
 * without braces is one path. On success, free *shards with hr__shards_clear. Errors: -EINVAL:
 * unmatched brace or more than a million shards; -ENOMEM.
 */
int hr__shards_expand(struct hr__shards *shards, const char *pattern, struct hr_error *error);

/*
 * Adds the files that `path` means to *shards, which may be empty: a file; the files in a folder
 * whose names end in `suffix`, if that is not NULL; a pattern with "*", "?" or "[" as of shells; or
 * braces, as above. Files of a folder or pattern are sorted by name. Free *shards with
 * hr__shards_clear, also on failure. Blocks. Errors: as above; -ENOENT: no such file; -EINVAL: a
 * folder with files of several splits ("train-0.parquet", "test-0.parquet").
 */
int hr__shards_find(struct hr__shards *shards, const char *path, const char *suffix,
                    struct hr_error *error);

void hr__shards_clear(struct hr__shards *shards);

#endif
