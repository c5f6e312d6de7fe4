/*
 * The items of a segment, by key.
 *
 * An item is admitted once. Either it goes into the arena (FINAL), for good unless users with
 * different orders evict it (store_orders.h), or it waits in the ring for its conversion, with
 * space reserved for it in the arena (STAGED, pending). The ring is a circular buffer. Before a
 * pending item is overwritten, it is settled unconverted in the arena, so an admitted item is a hit
 * until it is evicted. An item for which the arena has no room passes through the ring as well
 * (STAGED, not pending): a process that uses samples in the same order finds it there instead of
 * reading it again.
 *
 * Readers take no lock. They use items of the arena in place, or copy them if they may be evicted.
 * They copy items out of the ring and discard the copy if the ring has overwritten the item
 * meanwhile. Every item found is checked against its checksum.
 *
 * The ring is short. If users with the same order drift apart, the one too far ahead waits a
 * little, so that they do not read everything twice. It waits a fiftieth of its time at most,
 * because waiting cannot help a job that is permanently slower.
 *
 * A process that reads a sample claims its key, so that others wait for it. A claim ends when its
 * process dies.
 *
 * Bytes are copied into the segment within a transaction (segment.h), so there is never a
 * half-written item, no matter when its writer dies. Bytes on disk are written between two
 * transactions: the first takes their place, the second makes the item a hit.
 */
#ifndef HR_CACHE_STORE_H
#define HR_CACHE_STORE_H

#include "cache/cache.h"
#include "cache/segment.h"

struct hr__store;
struct hr__store_staged; /* an item in conversion */

/* Creates a store on a segment and takes ownership of the segment, even on failure. On success the
 * caller owns *out. Errors: -ENOMEM. */
int hr__store_create(struct hr__store **out, struct hr__segment *segment, struct hr_error *error);

/* Ends the use (hr__directory_close). Accepts NULL. In a forked child, call hr__store_abandon. */
void hr__store_destroy(struct hr__store **store);
void hr__store_abandon(struct hr__store **store);

struct hr__segment *hr__store_segment(struct hr__store *store);

/* Computes a key from the bytes of a text or structure; neither half is 0. Pure. */
struct hr__key hr__key_of(const void *bytes, size_t length, uint64_t seed);

/* Finds an item and checks it. Returns 1 with the item in *item, until hr__store_clear; else 0. Any
 * thread, no lock. */
int hr__store_find(struct hr__store *store, const struct hr__key *key, struct hr__cache_item *item);
void hr__store_clear(struct hr__cache_item *item);

/* For segments on disk: finds where an item is, without reading it. Returns 1 or 0. Any thread, no
 * lock. */
int hr__store_locate(struct hr__store *store, const struct hr__key *key,
                     struct hr__cache_place *place);

/* Checks the bytes that were read from a place. Returns 1, or 0 if they are not the item's; the
 * item is then dropped. `bytes`: NULL if it could not be read. Any thread. */
int hr__store_verify(struct hr__store *store, const struct hr__cache_place *place,
                     const void *bytes, size_t length);

/* For segments on disk: reads the item of entry `index` and checks it. Returns its length; 0: there
 * is none; -EBADMSG: it was not right, and was dropped; -ENOMEM. Any thread. Blocks. */
int64_t hr__store_check(struct hr__store *store, uint64_t index);

/* Returns non-zero if the bytes of a found item have been intact until now; call it after their
 * last use. Any thread, no lock. */
int hr__store_is_whole(struct hr__store *store, const struct hr__cache_item *item);

/* Returns non-zero if hr__store_find would find the item, apart from a wrong checksum. Any thread,
 * no lock. */
int hr__store_has(struct hr__store *store, const struct hr__key *key);

/* Records this user's progress in an order that others may share; see hr__cache_note_place. */
void hr__store_note_place(struct hr__store *store, const struct hr__cache_progress *at);

/* See cache.h. */
enum hr__claim hr__store_claim(struct hr__store *store, const struct hr__key *key);
void hr__store_unclaim(struct hr__store *store, const struct hr__key *key);

struct hr__store_piece {
    const void *bytes;
    size_t length;
};

struct hr__store_offer {
    struct hr__key key;
    const struct hr__store_piece *pieces; /* concatenated */
    size_t piece_count;
    size_t length;       /* of all pieces, < 4 GiB */
    size_t source_bytes; /* the sample's size on storage */
    enum hr_form form;
    int convert;     /* non-zero: stage it for a conversion */
    size_t reserve;  /* bytes to reserve for the converted item */
    uint32_t sample; /* number of its sample in the dataset + 1; 0: it has none */
};

/* See hr__cache_offer. */
int hr__store_offer(struct hr__store *store, const struct hr__store_offer *offer);

/* See hr__cache_take and the functions after it. The bytes of *item are a copy that belongs to the
 * handle; hr__store_settle frees the handle. */
struct hr__store_staged *hr__store_take(struct hr__store *store, struct hr__cache_item *item);
uint64_t hr__store_room(struct hr__store *store, const struct hr__store_staged *staged,
                        uint64_t leave_free);
int hr__store_settle(struct hr__store *store, struct hr__store_staged *staged,
                     const struct hr__cache_final *final);

void hr__store_get_counts(struct hr__store *store, struct hr__cache_counts *counts);
uint64_t hr__store_waiting(const struct hr__store *store);

#endif
