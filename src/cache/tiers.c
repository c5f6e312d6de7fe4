/*
 * The cache backing of two tiers: memory, private or shared, and a disk behind it. Each tier is a
 * cache of its own. The disk evicts nothing; the memory may, if it is shared.
 *
 * A sample is looked for in memory, then on the disk, then read from its source. What was read is
 * offered to memory first, wherever it came from. The disk gets what a shared memory has no room
 * for: what it has lasts as long as the disk's, so a second copy would repay nothing. Private
 * memory is gone after the run, so the disk gets everything then, and the next run reads it there.
 * Likewise while shared memory evicts: what it loses is then on the disk.
 *
 * A claim is one of both tiers, because other processes may share only one of them with this one.
 */
#include "cache/backend.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>

struct tiers {
    struct hr__cache cache;
    struct hr__cache *memory, *disk; /* owned */
};

static struct tiers *of(struct hr__cache *cache)
{
    return (struct tiers *)cache;
}

static void destroy(struct hr__cache *cache)
{
    hr__cache_destroy(&of(cache)->memory);
    hr__cache_destroy(&of(cache)->disk);
    hr__free(cache);
}

static void abandon(struct hr__cache *cache)
{
    hr__cache_abandon(&of(cache)->memory);
    hr__cache_abandon(&of(cache)->disk);
    hr__free(cache);
}

static int find(struct hr__cache *cache, uint64_t index, struct hr__cache_item *item)
{
    return hr__cache_find(of(cache)->memory, index, item);
}

static int unpin(struct hr__cache *cache, const struct hr__cache_item *item)
{
    return hr__cache_unpin(of(cache)->memory, item);
}

static int locate(struct hr__cache *cache, uint64_t index, struct hr__cache_place *place)
{
    return hr__cache_locate(of(cache)->disk, index, place);
}

static int verify(struct hr__cache *cache, const struct hr__cache_place *place, const void *bytes,
                  size_t length)
{
    return hr__cache_verify(of(cache)->disk, place, bytes, length);
}

static int has(struct hr__cache *cache, uint64_t index)
{
    return hr__cache_has(of(cache)->memory, index) || hr__cache_has(of(cache)->disk, index);
}

static int note_place(struct hr__cache *cache, const struct hr__cache_progress *at)
{
    return hr__cache_note_place(of(cache)->memory, at);
}

static int evicts(const struct hr__cache *cache)
{
    return hr__cache_evicts(((const struct tiers *)cache)->memory);
}

static void begin_uses(struct hr__cache *cache)
{
    hr__cache_begin_uses(of(cache)->memory);
}

static void add_uses(struct hr__cache *cache, const int64_t *indices, size_t count)
{
    hr__cache_add_uses(of(cache)->memory, indices, count);
}

static void end_uses(struct hr__cache *cache)
{
    hr__cache_end_uses(of(cache)->memory);
}

static void use(struct hr__cache *cache, uint64_t index)
{
    hr__cache_use(of(cache)->memory, index);
}

/* Gets one tier's part of a ticket, and puts it back. */
static struct hr__cache_ticket take_ticket(const struct hr__cache_ticket *ticket, int tier)
{
    return (struct hr__cache_ticket){
        .key = {ticket->tiers[tier].key[0], ticket->tiers[tier].key[1]},
        .is_claimed = ticket->tiers[tier].is_claimed,
    };
}

static void put_ticket(struct hr__cache_ticket *ticket, int tier,
                       const struct hr__cache_ticket *own)
{
    ticket->tiers[tier].key[0] = own->key[0];
    ticket->tiers[tier].key[1] = own->key[1];
    ticket->tiers[tier].is_claimed = own->is_claimed;
}

static void unclaim_one(struct hr__cache *cache, struct hr__cache_ticket *ticket, int tier)
{
    struct hr__cache_ticket own = take_ticket(ticket, tier);
    hr__cache_unclaim(cache, &own);
    put_ticket(ticket, tier, &own);
}

static void unclaim(struct hr__cache *cache, struct hr__cache_ticket *ticket)
{
    unclaim_one(of(cache)->memory, ticket, 0);
    unclaim_one(of(cache)->disk, ticket, 1);
}

static enum hr__claim claim(struct hr__cache *cache, uint64_t index,
                            struct hr__cache_ticket *ticket)
{
    struct hr__cache_ticket memory, disk;
    *ticket = (struct hr__cache_ticket){.is_claimed = 0};
    enum hr__claim answer = hr__cache_claim(of(cache)->memory, index, &memory);
    put_ticket(ticket, 0, &memory);
    if (answer == HR__CLAIM_FOUND || answer == HR__CLAIM_BUSY)
        return answer;
    answer = hr__cache_claim(of(cache)->disk, index, &disk);
    put_ticket(ticket, 1, &disk);
    if (answer == HR__CLAIM_BUSY) {
        unclaim_one(of(cache)->memory, ticket, 0);
        return answer;
    }
    ticket->is_claimed = memory.is_claimed || disk.is_claimed;
    return ticket->is_claimed ? HR__CLAIM_YOURS : HR__CLAIM_ALONE;
}

static int offer_one(struct hr__cache *cache, const struct hr__cache_offer *given, int tier)
{
    struct hr__cache_ticket own = take_ticket(given->ticket, tier);
    struct hr__cache_offer offer = *given;
    offer.ticket = &own;
    int kept = hr__cache_offer(cache, &offer);
    put_ticket(given->ticket, tier, &own);
    return kept;
}

static int offer(struct hr__cache *cache, const struct hr__cache_offer *given)
{
    struct tiers *c = of(cache);
    if (!given->ticket)
        return 0;
    int kept = offer_one(c->memory, given, 0);
    int lasts = kept && c->cache.is_kept && !hr__cache_evicts(c->memory);
    if (given->is_on_disk || lasts)
        unclaim_one(c->disk, given->ticket, 1);
    else
        kept |= offer_one(c->disk, given, 1);
    return kept;
}

static struct hr__cache_staged *take(struct hr__cache *cache, struct hr__cache_item *item)
{
    return hr__cache_take(of(cache)->memory, item);
}

static uint64_t room(struct hr__cache *cache, const struct hr__cache_staged *staged,
                     uint64_t leave_free)
{
    return hr__cache_room(of(cache)->memory, staged, leave_free);
}

static int settle(struct hr__cache *cache, struct hr__cache_staged *staged,
                  const struct hr__cache_final *final)
{
    return hr__cache_settle(of(cache)->memory, staged, final);
}

static void get_counts(struct hr__cache *cache, struct hr__cache_counts *counts)
{
    hr__cache_get_counts(of(cache)->memory, counts);
}

static void get_disk_counts(struct hr__cache *cache, struct hr__cache_counts *counts)
{
    hr__cache_get_counts(of(cache)->disk, counts);
}

static uint64_t waiting(const struct hr__cache *cache)
{
    return hr__cache_waiting(((const struct tiers *)cache)->memory);
}

static void publish(struct hr__cache *cache, const struct hr__worth *worth, enum hr_form form,
                    int asked)
{
    hr__cache_publish(of(cache)->memory, worth, form, asked);
}

static void log_kept(struct hr__cache *cache)
{
    hr__cache_log_kept(of(cache)->memory);
}

static const struct hr__cache_backend backend = {
    .destroy = destroy,
    .abandon = abandon,
    .find = find,
    .unpin = unpin,
    .locate = locate,
    .verify = verify,
    .has = has,
    .note_place = note_place,
    .claim = claim,
    .unclaim = unclaim,
    .offer = offer,
    .take = take,
    .room = room,
    .settle = settle,
    .get_counts = get_counts,
    .get_disk_counts = get_disk_counts,
    .waiting = waiting,
    .publish = publish,
    .evicts = evicts,
    .begin_uses = begin_uses,
    .add_uses = add_uses,
    .end_uses = end_uses,
    .use = use,
    .log_kept = log_kept,
};

int hr__cache_create_tiers(struct hr__cache **out, struct hr__cache *memory, struct hr__cache *disk,
                           struct hr_error *error)
{
    struct tiers *c = hr__alloc(HR__TAG_CACHE, 1, sizeof *c);
    *out = c ? &c->cache : NULL;
    if (!c) {
        hr__cache_destroy(&memory);
        hr__cache_destroy(&disk);
        return hr__fail(error, -ENOMEM, "out of memory for a cache");
    }
    c->cache = (struct hr__cache){
        .backend = &backend, .budget_bytes = memory->budget_bytes, .is_kept = memory->is_kept};
    c->memory = memory;
    c->disk = disk;
    return 0;
}
