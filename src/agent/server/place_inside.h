/* Shared by place.c, which makes a queue's memory and its cursors, and place_ring.c, which acquires
 * and publishes places. */
#ifndef HR_AGENT_SERVER_PLACE_INSIDE_H
#define HR_AGENT_SERVER_PLACE_INSIDE_H

#include "agent/server/place.h"

/* One place of the ring. */
struct hr__place {
    uint64_t number; /* of the last chunk published in it; HR__SEQUENCE_NONE: none */
    uint64_t piece;  /* the piece of data that it uses */
    bool is_open;    /* acquired, and neither published nor dropped yet */
};

/* A piece taken out of the ring because cursors still hold samples of its chunk. */
struct hr__leased {
    uint64_t number; /* of the chunk */
    uint64_t piece;
};

static inline struct hr__header_place *hr__header_places(const struct hr__places *places)
{
    return (struct hr__header_place *)(void *)((uint8_t *)places->header +
                                               places->header->places_offset);
}

/* Wakes the jobs that wait on the header's futex. */
void hr__places_ring(struct hr__places *places);

/* Returns the sequence that the cursor takes next, from its control block, clamped to its span.
 * Without the lock the result is approximate. */
uint64_t hr__cursor_next(const struct hr__places *places, const struct hr__place_cursor *cursor);

/* Writes the ranges [from, to) that the cursor holds: *past of samples taken before it was placed
 * last, *present of samples taken since. */
void hr__cursor_holds_locked(const struct hr__places *places, const struct hr__place_cursor *cursor,
                             uint64_t past[2], uint64_t present[2]);

/* Finds the furthest active cursor that has not finished its span, and the sequence that it takes
 * next. `cursor` may be NULL. Returns false if there is none. Without the lock: approximate. */
bool hr__places_furthest(const struct hr__places *places, uint64_t *next,
                         const struct hr__place_cursor **cursor);

/* Moves leased pieces that no cursor holds any more to the spare ones. */
void hr__places_reclaim_locked(struct hr__places *places);

/* Frees a record that is in no list. */
void hr__place_record_free(struct hr__places *places, struct hr__place_record *record);

void hr__places_forget_records_locked(struct hr__places *places);

#endif
