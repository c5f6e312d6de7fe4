/* Names of shards: one path, or a pattern that stands for many. */
#ifndef HR_DATASET_SHARDS_H
#define HR_DATASET_SHARDS_H

#include <headrace/base.h>

#include <stddef.h>

struct hr__shards {
    char **paths; /* owned */
    size_t count, capacity;
};

/*
 * Expands braces as shells and WebDataset do: "train-{000..146}.tar" counts, with
 * leading zeros where both bounds have as many digits, "{a,b}.tar" lists; several of them multiply.
 * A text without braces is one path. On success hr__shards_clear frees what is in *shards. Errors:
 * -EINVAL: a brace without its partner, or more than a million shards; -ENOMEM.
 */
int hr__shards_expand(struct hr__shards *shards, const char *pattern, struct hr_error *error);

void hr__shards_clear(struct hr__shards *shards);

#endif
