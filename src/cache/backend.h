/*
 * The interface that the backings of a cache implement. Each function is
 * specified in cache.h under the same name.
 */
#ifndef HR_CACHE_BACKEND_H
#define HR_CACHE_BACKEND_H

#include "cache/cache.h"

struct hr__cache_backend {
    void (*destroy)(struct hr__cache *cache);
    void (*abandon)(struct hr__cache *cache);
    int (*find)(struct hr__cache *cache, uint64_t index, struct hr__cache_item *item);
    int (*unpin)(struct hr__cache *cache, const struct hr__cache_item *item);
    int (*locate)(struct hr__cache *cache, uint64_t index,
                  struct hr__cache_place *place); /* or
                                                     NULL */
    int (*verify)(struct hr__cache *cache, const struct hr__cache_place *place, const void *bytes,
                  size_t length); /* if there is locate */
    int (*has)(struct hr__cache *cache, uint64_t index);
    int (*note_place)(struct hr__cache *cache, const struct hr__cache_progress *at); /* or NULL */
    enum hr__claim (*claim)(struct hr__cache *cache, uint64_t index,
                            struct hr__cache_ticket *ticket);
    void (*unclaim)(struct hr__cache *cache, struct hr__cache_ticket *ticket);
    int (*offer)(struct hr__cache *cache, const struct hr__cache_offer *offer);
    struct hr__cache_staged *(*take)(struct hr__cache *cache, struct hr__cache_item *item);
    uint64_t (*room)(struct hr__cache *cache, const struct hr__cache_staged *staged,
                     uint64_t leave_free);
    int (*settle)(struct hr__cache *cache, struct hr__cache_staged *staged,
                  const struct hr__cache_final *final);
    void (*get_counts)(struct hr__cache *cache, struct hr__cache_counts *counts);
    void (*get_disk_counts)(struct hr__cache *cache, struct hr__cache_counts *counts); /* or NULL */
    uint64_t (*waiting)(const struct hr__cache *cache);
    void (*publish)(struct hr__cache *cache, const struct hr__worth *worth, enum hr_form form,
                    int asked);
    /* Of caches that evict; or NULL. */
    int (*evicts)(const struct hr__cache *cache);
    void (*begin_uses)(struct hr__cache *cache);
    void (*add_uses)(struct hr__cache *cache, const int64_t *indices, size_t count);
    void (*end_uses)(struct hr__cache *cache);
    void (*use)(struct hr__cache *cache, uint64_t index);
    void (*log_kept)(struct hr__cache *cache); /* or NULL */
};

/* The first member of each backing's struct. Constant. */
struct hr__cache {
    const struct hr__cache_backend *backend;
    uint64_t budget_bytes;
    int is_kept;
    int is_disk;
};

#endif
