/*
 * A program's own values in a cache (include/headrace/cache.h), whatever kind of cache it is.
 *
 * values.c has what all kinds have in common, and the kind in this host's shared memory. The kind
 * on several hosts is in cluster/values.c, with hr_cache_open, which knows both.
 */
#ifndef HR_CACHE_VALUES_H
#define HR_CACHE_VALUES_H

#include "cache/store.h"

#include <headrace/cache.h>

#include <sys/types.h>
#include <unistd.h>

/* The value that a caller stores: `length` bytes in all. */
struct hr__value_offer {
    const struct hr_cache_piece *pieces;
    size_t piece_count, length;
};

/* One kind of cache. The functions are those of the public header; none is called in a forked
 * child, except close. */
struct hr__values_kind {
    void (*close)(struct hr_cache *cache);
    int (*get)(struct hr_cache *cache, const struct hr__key *key, int wait_ms,
               struct hr_cache_value *value);
    int (*put)(struct hr_cache *cache, const struct hr__key *key,
               const struct hr__value_offer *offer);
    void (*give_up)(struct hr_cache *cache, const struct hr__key *key);
    int (*is_whole)(struct hr_cache *cache, const struct hr_cache_value *value);
    void (*get_info)(struct hr_cache *cache, struct hr_cache_info *info);
};

/* What the handle of each kind begins with. */
struct hr_cache {
    const struct hr__values_kind *kind;
    pid_t pid; /* of the process that opened it */
};

static inline int hr__values_are_inherited(const struct hr_cache *cache)
{
    return cache->pid != getpid();
}

/* Opens the kind in this host's memory. The options are complete and valid. As hr_cache_open. */
int hr__values_open(struct hr_cache **out, const struct hr_cache_options *options,
                    struct hr_error *error);

#endif
