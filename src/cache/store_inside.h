/* Shared by store.c (finding, claiming, admitting), store_staging.c (conversions), store_disk.c
 * (items on disk), store_orders.c (who uses what next), store_evict.c (making room), and by
 * store_index.c (searching) and store_arena.c (checksums, growing and writing), which the others
 * use. */
#ifndef HR_CACHE_STORE_INSIDE_H
#define HR_CACHE_STORE_INSIDE_H

#include "base/clock.h"
#include "base/round.h"
#include "cache/store.h"
#include "cache/store_blocks.h"
#include "cache/store_orders.h"
#include "cache/store_ring.h"

struct hr__store {
    struct hr__segment *segment;
    pthread_mutex_t growing; /* one thread at a time requests more memory */

    /* When another user's progress was last seen to change. */
    _Atomic uint64_t progress[HR__SEGMENT_USERS], since_ns[HR__SEGMENT_USERS];
    _Atomic uint64_t others_asked_ns; /* when `others` was updated; 0: never */
    _Atomic int others;               /* number of live users besides this one */
    _Atomic int crowded;              /* the last offer did not fit */

    /* Other users with the same order: their last position, and since when. Then the time spent
     * waiting for them. */
    _Atomic uint64_t place[HR__SEGMENT_USERS], place_ns[HR__SEGMENT_USERS];
    _Atomic uint64_t waited_ns, waiting_ns; /* in total; time of the last decision to wait */
    uint64_t created_ns;

    _Atomic int is_full;  /* an offer did not fit */
    _Atomic int is_asked; /* the loader is to tell its uses */
    struct hr__store_orders orders;
};

static inline uint64_t hr__store_padded(uint64_t length)
{
    return hr__round_up(length, HR__SEGMENT_ALIGN);
}

static inline uint64_t hr__pack_lengths(uint64_t length, uint64_t source_bytes)
{
    return length | source_bytes << 32;
}

/* The time at which a write to a disk begins, for its entry's word: units of 2^20 ns, which wrap
 * after weeks. */
static inline uint32_t hr__store_moment(void)
{
    return (uint32_t)(hr__now_ns() >> 20);
}

/* Returns about when that was. */
static inline uint64_t hr__store_since_ns(uint32_t moment)
{
    return hr__now_ns() - ((uint64_t)(hr__store_moment() - moment) << 20);
}

/* Returns the bytes of the arena that items have, with what blocks waste. */
static inline uint64_t hr__store_used(const struct hr__books *books)
{
    uint64_t free = books->free_blocks * books->block_bytes;
    return books->arena_used > free ? books->arena_used - free : 0;
}

/* Returns the bytes of the budget that are neither used nor promised. */
static inline uint64_t hr__store_free(const struct hr__segment *s, const struct hr__books *books)
{
    uint64_t limit = atomic_load(&s->full) ? books->arena_allocated : s->layout.arena_bytes;
    uint64_t taken = books->arena_used + books->promised;
    return limit > taken ? limit - taken : 0;
}

/* Searches for the entry of a key. Returns 1, or 0 if there is none; *free is then the index of an
 * entry it may use, or UINT64_MAX. `locked`: within a transaction. */
int hr__store_search(struct hr__segment *segment, const struct hr__key *key, int locked,
                     struct hr__found *out, uint64_t *free);

/* Returns non-zero if the entry is a claim of this user. */
int hr__store_is_mine(const struct hr__segment *segment, const struct hr__found *found);

/* Ends a claim of this user, in a transaction that does nothing else, and commits it. */
void hr__store_vacate(struct hr__segment *segment, struct hr__books *books,
                      const struct hr__found *found);

/* Records that this user's reads go on. */
void hr__store_note_progress(struct hr__segment *segment);

/* Computes an item's checksum: XXH3-64 of its bytes, seeded with its key and form, so that bytes
 * stored under another key are detected too. With a secret: the tag of key, form, length and
 * bytes. */
uint64_t hr__store_checksum(const struct hr__segment *segment, const struct hr__key *key,
                            enum hr_form form, const void *bytes, size_t length);

/* The same for an offer, which may have several pieces. Returns 0 or -ENOMEM. */
int hr__store_checksum_offer(const struct hr__segment *segment, const struct hr__store_offer *offer,
                             uint64_t *out);

/* Returns non-zero if the bytes match the entry's checksum. */
int hr__store_is_right(const struct hr__segment *segment, const struct hr__found *found,
                       const uint8_t *bytes);

/* Gets memory for `bytes` more than the arena's items and promises take, if possible. Returns
 * non-zero if there was that much; other threads may use it before this one. */
int hr__store_grow(struct hr__store *store, uint64_t bytes);

/* Appends pieces to the arena's items and returns their offset. Within a transaction that has
 * checked the space. */
uint64_t hr__store_write(struct hr__segment *segment, struct hr__books *books,
                         const struct hr__store_piece *pieces, size_t piece_count, uint64_t length);

/*
 * Begins a transaction with room for `length` bytes in the ring; settles items that have to leave
 * it unconverted. Returns NULL if that is not possible now. The ring must be allocated.
 */
struct hr__books *hr__store_begin_staging(struct hr__store *store, uint64_t length);

/* store_evict.c: evicts items that are used later than an offer. Returns non-zero if that made room
 * in blocks. */
int hr__store_make_room(struct hr__store *store, const struct hr__store_offer *offer);

/* store_disk.c: as hr__store_find and hr__store_offer, for segments on disk. */
int hr__store_find_on_disk(struct hr__store *store, const struct hr__key *key,
                           struct hr__cache_item *item);
int hr__store_offer_to_disk(struct hr__store *store, const struct hr__store_offer *offer);

#endif
