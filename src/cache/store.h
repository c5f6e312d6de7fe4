/*
 * Items of a segment, by key.
 *
 * An item is admitted once: it lies in the arena from then on (FINAL), or waits in
 * the ring for its conversion with room kept for it (STAGED, pending). The ring is a
 * circular buffer: what it would overwrite is settled as it is, so an admitted item is a
 * hit at every moment. An item for which the arena has no room passes through the ring
 * too (STAGED, not pending), so that a process which uses samples in the same order
 * finds it there instead of reading it a second time.
 *
 * Readers take no lock. Items of the arena are read where they lie. Those of the ring
 * are copied out, and count only if the ring has not come round to them meanwhile.
 * Every item that is found has been compared with its checksum.
 *
 * The ring is short: of users with the same order the one that is too far ahead waits a
 * little, so that they do not read everything twice; a fiftieth of its time at most, because
 * a job that is slower for good is none to wait for.
 *
 * A process that reads a sample claims its key, so that others wait for it; a claim
 * ends with its process.
 *
 * Bytes are copied into the segment inside a transaction (segment.h): there is no
 * half-written item, whenever its writer dies.
 */
#ifndef HR_CACHE_STORE_H
#define HR_CACHE_STORE_H

#include "cache/cache.h"
#include "cache/segment.h"

struct hr__store;
struct hr__store_staged; /* an item that is being converted */

/* Takes the segment over, also on failure. On success *out is the caller's. -ENOMEM. */
int hr__store_create(struct hr__store **out, struct hr__segment *segment, struct hr_error *error);

/* Ends the use (hr__directory_close). Accepts NULL. In a forked child: hr__store_abandon. */
void hr__store_destroy(struct hr__store **store);
void hr__store_abandon(struct hr__store **store);

struct hr__segment *hr__store_segment(struct hr__store *store);

/* Digest of what a text or structure says; neither half is 0. Pure. */
struct hr__key hr__key_of(const void *bytes, size_t length, uint64_t seed);

/* 1: found, right, and in *item, until hr__store_clear; 0: not. Any thread, no lock. */
int hr__store_find(struct hr__store *store, const struct hr__key *key, struct hr__cache_item *item);
void hr__store_clear(struct hr__cache_item *item);

/* Non-zero where the bytes of a found item have been its own until now; to be asked after their
 * last use. Any thread, no lock. */
int hr__store_is_whole(struct hr__store *store, const struct hr__cache_item *item);

/* Non-zero where it would be found, but for its checksum. Any thread, no lock. */
int hr__store_has(struct hr__store *store, const struct hr__key *key);

/* Where this user stands in an order that others may share; see hr__cache_note_place. */
void hr__store_note_place(struct hr__store *store, uint64_t order, uint64_t position);

/* See cache.h. */
enum hr__claim hr__store_claim(struct hr__store *store, const struct hr__key *key);
void hr__store_unclaim(struct hr__store *store, const struct hr__key *key);

struct hr__store_piece {
    const void *bytes;
    size_t length;
};

struct hr__store_offer {
    struct hr__key key;
    const struct hr__store_piece *pieces; /* copied one behind the other */
    size_t piece_count;
    size_t length;       /* of all pieces, < 4 GiB */
    size_t source_bytes; /* that the sample has on storage */
    enum hr_form form;
    int convert;    /* non-zero: stage it for a conversion */
    size_t reserve; /* bytes to keep for what it is converted to */
};

/* See hr__cache_offer. */
int hr__store_offer(struct hr__store *store, const struct hr__store_offer *offer);

/* See hr__cache_take and those after it. The bytes of *item are a copy, that ends with the
 * handle; settle frees the handle. */
struct hr__store_staged *hr__store_take(struct hr__store *store, struct hr__cache_item *item);
uint64_t hr__store_room(struct hr__store *store, const struct hr__store_staged *staged,
                        uint64_t leave_free);
int hr__store_settle(struct hr__store *store, struct hr__store_staged *staged,
                     const struct hr__cache_final *final);

void hr__store_get_counts(struct hr__store *store, struct hr__cache_counts *counts);
uint64_t hr__store_waiting(const struct hr__store *store);

#endif
