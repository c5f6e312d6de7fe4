/* What store.c (finding, claiming, admitting) and store_staging.c (conversions)
 * share. */
#ifndef HR_CACHE_STORE_INSIDE_H
#define HR_CACHE_STORE_INSIDE_H

#include "base/round.h"
#include "cache/store.h"
#include "cache/store_ring.h"

struct hr__store {
    struct hr__segment *segment;
    pthread_mutex_t growing; /* one thread at a time asks for more memory */

    /* When another user was last seen to get on with its reads. */
    _Atomic uint64_t progress[HR__SEGMENT_USERS], since_ns[HR__SEGMENT_USERS];
    _Atomic uint64_t others_asked_ns; /* when `others` was asked; 0: never */
    _Atomic int others;               /* live users besides this one */
    _Atomic int crowded;              /* the last offer did not fit */

    /* Others with the same order: where they were, and since when; what waiting for them
     * took. */
    _Atomic uint64_t place[HR__SEGMENT_USERS], place_ns[HR__SEGMENT_USERS];
    _Atomic uint64_t waited_ns, waiting_ns; /* in all; when it was last said to be ahead */
    uint64_t created_ns;
};

/* An entry as it was at one moment. */
struct hr__found {
    uint64_t index;
    struct hr__key key;
    struct hr__word word;
    uint64_t offset, checksum;
    uint32_t length, source_bytes;
};

static inline uint64_t hr__store_padded(uint64_t length)
{
    return hr__round_up(length, HR__SEGMENT_ALIGN);
}

static inline uint64_t hr__pack_lengths(uint64_t length, uint64_t source_bytes)
{
    return length | source_bytes << 32;
}

/* Bytes of the budget that nothing has and nothing was promised. */
static inline uint64_t hr__store_free(const struct hr__segment *s, const struct hr__books *books)
{
    uint64_t limit = atomic_load(&s->full) ? books->arena_allocated : s->layout.arena_bytes;
    uint64_t taken = books->arena_used + books->promised;
    return limit > taken ? limit - taken : 0;
}

/* XXH3-64 of an item's bytes, seeded by its key and form: bytes that came under another
 * key are as wrong as others. With a secret the tag of key, form, length and bytes. */
uint64_t hr__store_checksum(const struct hr__segment *segment, const struct hr__key *key,
                            enum hr_form form, const void *bytes, size_t length);

/* Non-zero where those are an entry's bytes. */
int hr__store_is_right(const struct hr__segment *segment, const struct hr__found *found,
                       const uint8_t *bytes);

/* Memory for `bytes` more than the arena's items and promises take, if it can be had: non-zero
 * where there was that much, which others may take before this thread does. */
int hr__store_grow(struct hr__store *store, uint64_t bytes);

/* Entry `index` as it is: 1; 0: it is empty, or changed too often. `locked`: in a
 * transaction; without, what a killed writer began may be ended in one. */
int hr__store_look(struct hr__segment *segment, uint64_t index, int locked, struct hr__found *out);

/* Puts pieces behind the arena's items; returns their offset. Of a transaction that has
 * seen to the room. */
uint64_t hr__store_write(struct hr__segment *segment, struct hr__books *books,
                         const struct hr__store_piece *pieces, size_t piece_count, uint64_t length);

/*
 * Begins a transaction in which the ring has room for `length` bytes; what had to go was
 * settled as it is. NULL: not now. The ring is allocated.
 */
struct hr__books *hr__store_begin_staging(struct hr__store *store, uint64_t length);

#endif
