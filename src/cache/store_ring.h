/*
 * The ring of a segment, where items wait for their conversion or pass through. See store.h for its
 * purpose; store.c and store_staging.c use it.
 *
 * Positions only grow. An item at position p is stored at p modulo the ring's size, after a small
 * header that identifies it, and never across the ring's end. An item is valid while its position
 * is not before the tail. The tail moves before bytes are overwritten. So if a reader has copied
 * bytes out and then finds that the tail has not passed them, the copy is good. Bytes are copied as
 * atomic words, because readers take no lock.
 */
#ifndef HR_CACHE_STORE_RING_H
#define HR_CACHE_STORE_RING_H

#include "cache/segment_inside.h"
#include "cache/store.h"

/* Precedes each item. */
struct hr__ring_header {
    uint64_t position; /* of this header; identifies it as one */
    uint64_t bytes;    /* of header and item; a multiple of HR__SEGMENT_ALIGN */
    uint64_t entry;    /* index of its entry; HR__RING_GAP: unused space */
    uint64_t sample;   /* number of its sample + 1, or 0 */
    uint64_t reserved[4];
};

#define HR__RING_GAP UINT64_MAX

/* Returns non-zero if an item of `length` bytes is small enough to be staged. */
int hr__ring_takes(const struct hr__segment *segment, uint64_t length);

/* Allocates memory for the ring, once; a refusal is final. Takes the directory's lock and runs a
 * transaction. Returns 0 or a negative errno. */
int hr__ring_allocate(struct hr__segment *segment);

/* Returns the position that the tail must reach before an item of `length` bytes can be written. */
uint64_t hr__ring_wanted_tail(const struct hr__segment *segment, const struct hr__books *books,
                              uint64_t length);

/* Copies the header at `position`. Returns 0, or -EBADMSG if there is none. Within a
 * transaction. */
int hr__ring_header_at(const struct hr__segment *segment, const struct hr__books *books,
                       uint64_t position, struct hr__ring_header *out);

/* Discards everything before `tail`. Within a transaction; takes effect at once. */
void hr__ring_advance(struct hr__segment *segment, struct hr__books *books, uint64_t tail);

/* Writes an item at the head and advances books->ring_head past it. The tail must have made room.
 * Returns the position of the item's bytes. Within a transaction. */
uint64_t hr__ring_write(struct hr__segment *segment, struct hr__books *books, uint64_t entry,
                        const struct hr__store_offer *offer);

/* Returns non-zero if the bytes at `position` have not been discarded. */
static inline int hr__ring_is_valid(const struct hr__segment *segment, uint64_t position)
{
    return atomic_load_explicit(&segment->header->ring_tail, memory_order_relaxed) <= position;
}

/* Copies bytes out. Returns non-zero if they are what was written at that position. `out` has room
 * for a multiple of 8. Any thread, no lock. */
int hr__ring_copy(const struct hr__segment *segment, uint64_t position, void *out, size_t length);

#endif
