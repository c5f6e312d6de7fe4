/* The entry to all backings; see cache.h. */
#include "cache/backend.h"

#include <string.h>

void hr__cache_destroy(struct hr__cache **cache)
{
    struct hr__cache *c = *cache;
    *cache = NULL;
    if (c)
        c->backend->destroy(c);
}

void hr__cache_abandon(struct hr__cache **cache)
{
    struct hr__cache *c = *cache;
    *cache = NULL;
    if (c)
        c->backend->abandon(c);
}

int hr__cache_find(struct hr__cache *cache, uint64_t index, struct hr__cache_item *item)
{
    return cache->backend->find(cache, index, item);
}

int hr__cache_unpin(struct hr__cache *cache, const struct hr__cache_item *item)
{
    return cache->backend->unpin(cache, item);
}

int hr__cache_locate(struct hr__cache *cache, uint64_t index, struct hr__cache_place *place)
{
    return cache->backend->locate && cache->backend->locate(cache, index, place);
}

int hr__cache_verify(struct hr__cache *cache, const struct hr__cache_place *place,
                     const void *bytes, size_t length)
{
    return cache->backend->verify(cache, place, bytes, length);
}

int hr__cache_has(struct hr__cache *cache, uint64_t index)
{
    return cache->backend->has(cache, index);
}

int hr__cache_note_place(struct hr__cache *cache, const struct hr__cache_progress *at)
{
    return cache->backend->note_place && cache->backend->note_place(cache, at);
}

enum hr__claim hr__cache_claim(struct hr__cache *cache, uint64_t index,
                               struct hr__cache_ticket *ticket)
{
    return cache->backend->claim(cache, index, ticket);
}

void hr__cache_unclaim(struct hr__cache *cache, struct hr__cache_ticket *ticket)
{
    if (ticket->is_claimed)
        cache->backend->unclaim(cache, ticket);
    ticket->is_claimed = 0;
}

int hr__cache_offer(struct hr__cache *cache, const struct hr__cache_offer *offer)
{
    int r = cache->backend->offer(cache, offer);
    if (offer->ticket)
        offer->ticket->is_claimed = 0;
    return r;
}

struct hr__cache_staged *hr__cache_take(struct hr__cache *cache, struct hr__cache_item *item)
{
    return cache->backend->take(cache, item);
}

uint64_t hr__cache_room(struct hr__cache *cache, const struct hr__cache_staged *staged,
                        uint64_t leave_free)
{
    return cache->backend->room(cache, staged, leave_free);
}

int hr__cache_settle(struct hr__cache *cache, struct hr__cache_staged *staged,
                     const struct hr__cache_final *final)
{
    return cache->backend->settle(cache, staged, final);
}

void hr__cache_get_counts(struct hr__cache *cache, struct hr__cache_counts *counts)
{
    cache->backend->get_counts(cache, counts);
}

void hr__cache_get_disk_counts(struct hr__cache *cache, struct hr__cache_counts *counts)
{
    memset(counts, 0, sizeof *counts);
    if (cache->backend->get_disk_counts)
        cache->backend->get_disk_counts(cache, counts);
}

int hr__cache_evicts(const struct hr__cache *cache)
{
    return cache->backend->evicts && cache->backend->evicts(cache);
}

void hr__cache_begin_uses(struct hr__cache *cache)
{
    cache->backend->begin_uses(cache);
}

void hr__cache_add_uses(struct hr__cache *cache, const int64_t *indices, size_t count)
{
    cache->backend->add_uses(cache, indices, count);
}

void hr__cache_end_uses(struct hr__cache *cache)
{
    cache->backend->end_uses(cache);
}

void hr__cache_use(struct hr__cache *cache, uint64_t index)
{
    cache->backend->use(cache, index);
}

int hr__cache_is_disk(const struct hr__cache *cache)
{
    return cache->is_disk;
}

void hr__cache_log_kept(struct hr__cache *cache)
{
    if (cache->backend->log_kept)
        cache->backend->log_kept(cache);
}

uint64_t hr__cache_waiting(const struct hr__cache *cache)
{
    return cache->backend->waiting(cache);
}

uint64_t hr__cache_budget(const struct hr__cache *cache)
{
    return cache->budget_bytes;
}

int hr__cache_is_kept(const struct hr__cache *cache)
{
    return cache->is_kept;
}

void hr__cache_publish(struct hr__cache *cache, const struct hr__worth *worth, enum hr_form form,
                       int asked)
{
    cache->backend->publish(cache, worth, form, asked);
}
