/*
 * The ring of a segment: where items wait for their conversion, or pass by. See
 * store.h for what that means; store.c and store_staging.c use it.
 *
 * Positions grow for ever; an item at position p lies at p modulo the ring's size, behind
 * a small header that tells whose it is, and never across the ring's end. An item is
 * valid while its position is not before the tail. The tail moves before bytes are
 * overwritten, so whoever copied bytes out and then finds the tail not beyond them has
 * what was written there. Bytes are copied as atomic words, because readers do not wait.
 */
#ifndef HR_CACHE_STORE_RING_H
#define HR_CACHE_STORE_RING_H

#include "cache/segment_inside.h"
#include "cache/store.h"

/* In front of each item. */
struct hr__ring_header {
    uint64_t position; /* of this header: tells it from anything else */
    uint64_t bytes;    /* of header and item; a multiple of HR__SEGMENT_ALIGN */
    uint64_t entry;    /* index of its entry; HR__RING_GAP: nobody's */
    uint64_t reserved[5];
};

#define HR__RING_GAP UINT64_MAX

/* Non-zero where an item of `length` bytes is small enough to be staged. */
int hr__ring_takes(const struct hr__segment *segment, uint64_t length);

/* Makes the ring real memory, once; a refusal is for good. Takes the directory's lock, takes
 * and ends a transaction. 0 or a negative errno. */
int hr__ring_allocate(struct hr__segment *segment);

/* Where the header of the next item of `length` bytes will be. */
uint64_t hr__ring_next(const struct hr__segment *segment, const struct hr__books *books,
                       uint64_t length);

/* Where the tail has to be before an item of `length` bytes can be written. */
uint64_t hr__ring_wanted_tail(const struct hr__segment *segment, const struct hr__books *books,
                              uint64_t length);

/* The header at `position`, copied; 0, or -EBADMSG: it is not one. Of a transaction. */
int hr__ring_header_at(const struct hr__segment *segment, const struct hr__books *books,
                       uint64_t position, struct hr__ring_header *out);

/* Everything before `tail` is gone. Of a transaction; takes effect at once. */
void hr__ring_advance(struct hr__segment *segment, struct hr__books *books, uint64_t tail);

/* Writes an item behind the head, for which the tail has made room; books->ring_head is
 * then behind it. Returns the position of its bytes. Of a transaction. */
uint64_t hr__ring_write(struct hr__segment *segment, struct hr__books *books, uint64_t entry,
                        const struct hr__store_piece *pieces, size_t length);

/* Non-zero where bytes at `position` have not been given up. */
static inline int hr__ring_is_valid(const struct hr__segment *segment, uint64_t position)
{
    return atomic_load_explicit(&segment->header->ring_tail, memory_order_relaxed) <= position;
}

/* Copies bytes out; non-zero where they are what was written at that position. `out` has
 * room for a multiple of 8. Any thread, no lock. */
int hr__ring_copy(const struct hr__segment *segment, uint64_t position, void *out, size_t length);

#endif
