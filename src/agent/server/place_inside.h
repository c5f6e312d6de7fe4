/* What the files of a lane's memory share: place.c makes and seats, place_ring.c takes and
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

/* A piece that was left to the seats that hold a chunk's samples. */
struct hr__lent {
    uint64_t number; /* of the chunk */
    uint64_t piece;
};

static inline struct hr__board_place *hr__board_places(const struct hr__places *places)
{
    return (struct hr__board_place *)(void *)((uint8_t *)places->board +
                                              places->board->places_offset);
}

/* Wakes who waits for the board. */
void hr__places_ring(struct hr__places *places);

/* What a seat has taken so far, as its desk says, in range. Without the lock: about. */
uint64_t hr__seat_next(const struct hr__places *places, const struct hr__place_seat *seat);

/* What it holds of what it took before it was seated last, and since: from and up to. */
void hr__seat_holds_locked(const struct hr__places *places, const struct hr__place_seat *seat,
                           uint64_t past[2], uint64_t present[2]);

/* The sequence that the seat furthest ahead takes next; false: none takes. Without the lock:
 * about. */
bool hr__places_furthest(const struct hr__places *places, uint64_t *next,
                         const struct hr__place_seat **seat);

/* Takes back what nobody holds any more. */
void hr__places_reclaim_locked(struct hr__places *places);

/* One that is in no list any more. */
void hr__place_record_free(struct hr__places *places, struct hr__place_record *record);

void hr__places_forget_records_locked(struct hr__places *places);

#endif
