/*
 * The addresses that a trace mentions, by device, and the blocks there. Importers use it to find
 * the blocks that existed before the trace began.
 */
#ifndef HR_MEMORY_IMPORT_PLACES_H
#define HR_MEMORY_IMPORT_PLACES_H

#include <stddef.h>
#include <stdint.h>

/* `is_known` and `mark` are for the caller; 0 at first. */
struct hr__memory_place {
    uint64_t address;
    uint64_t bytes; /* of the current or last block there */
    uint8_t device;
    uint8_t is_met; /* 0: an empty slot */
    uint8_t lives;
    uint8_t is_known, mark;
};

/* A hash table, at most half full; places are never removed. Initialize with zeros. */
struct hr__memory_places {
    struct hr__memory_place *table;
    size_t capacity, count;
};

/* Returns the place of an address, adding it if it is new; NULL: out of memory. Valid until the
 * next call. */
struct hr__memory_place *hr__places_find(struct hr__memory_places *places, uint8_t device,
                                         uint64_t address);

void hr__places_clear(struct hr__memory_places *places);

#endif
