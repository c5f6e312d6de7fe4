/* What the files of a queue's memory share: place.c makes and cursors, place_ring.c takes and
 * gives places. */
#ifndef HR_AGENT_SERVER_PLACE_INSIDE_H
#define HR_AGENT_SERVER_PLACE_INSIDE_H

#include "agent/server/place.h"

/* One of the ring. */
struct hr__place {
    uint64_t number; /* of the chunk whose samples it had last; HR__SEQUENCE_NONE: of none */
    uint64_t piece;  /* of data, in it */
    bool is_open;    /* acquired, and neither published nor dropped */
};

/* A piece that was left to the cursors that hold a chunk's samples. */
struct hr__leased {
    uint64_t number; /* of the chunk */
    uint64_t piece;
};

static inline struct hr__header_place *hr__header_places(const struct hr__places *places)
{
    return (struct hr__header_place *)(void *)((uint8_t *)places->header +
                                               places->header->places_offset);
}

/* Wakes who waits for the header. */
void hr__places_ring(struct hr__places *places);

/* What a cursor has taken so far, as its control block says, in range. Without the lock: about. */
uint64_t hr__cursor_next(const struct hr__places *places, const struct hr__place_cursor *cursor);

/* What it holds of what it took before it was placed last, and since: from and up to. */
void hr__cursor_holds_locked(const struct hr__places *places, const struct hr__place_cursor *cursor,
                             uint64_t past[2], uint64_t present[2]);

/* The sequence that the cursor furthest ahead takes next; false: none takes. Without the lock:
 * about. */
bool hr__places_furthest(const struct hr__places *places, uint64_t *next,
                         const struct hr__place_cursor **cursor);

/* Takes back what nobody holds any more. */
void hr__places_reclaim_locked(struct hr__places *places);

/* One that is in no list any more. */
void hr__place_record_free(struct hr__places *places, struct hr__place_record *record);

void hr__places_forget_records_locked(struct hr__places *places);

#endif
