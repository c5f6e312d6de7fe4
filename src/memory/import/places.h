/*
 * The addresses a trace mentions, by device, and what lives there: importers find with it the
 * blocks that existed before the trace began.
 */
#ifndef HR_MEMORY_IMPORT_PLACES_H
#define HR_MEMORY_IMPORT_PLACES_H

#include <stddef.h>
#include <stdint.h>

/* `is_known` and `mark` are for who uses it; 0 at first. */
struct hr__memory_place {
    uint64_t address;
    uint64_t bytes; /* of what lives or lived there */
    uint8_t device;
    uint8_t is_met; /* 0: an empty slot */
    uint8_t lives;
    uint8_t is_known, mark;
};

/* Zeroed: empty. A hash table, at most half full; places are never taken out. */
struct hr__memory_places {
    struct hr__memory_place *table;
    size_t capacity, count;
};

/* The place of an address, which is met from now on; NULL: out of memory. Valid until the next
 * call. */
struct hr__memory_place *hr__places_find(struct hr__memory_places *places, uint8_t device,
                                         uint64_t address);

/* The same; NULL: it was not met. */
const struct hr__memory_place *hr__places_look(const struct hr__memory_places *places,
                                               uint8_t device, uint64_t address);
void hr__places_clear(struct hr__memory_places *places);

#endif
