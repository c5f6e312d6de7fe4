/* Addresses and the blocks there; see places.h. Open addressing. */
#include "memory/import/places.h"

#include "base/memory.h"

static size_t home_of(const struct hr__memory_places *places, uint8_t device, uint64_t address)
{
    uint64_t mixed = (address ^ (uint64_t)device << 56) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 20) & (places->capacity - 1);
}

static struct hr__memory_place *look(const struct hr__memory_places *places, uint8_t device,
                                     uint64_t address)
{
    size_t at = home_of(places, device, address);
    while (places->table[at].is_met &&
           (places->table[at].address != address || places->table[at].device != device))
        at = (at + 1) & (places->capacity - 1);
    return &places->table[at];
}

static int grow(struct hr__memory_places *places)
{
    struct hr__memory_places old = *places;
    places->capacity = old.capacity ? 2 * old.capacity : 1024;
    places->table = hr__alloc(HR__TAG_MEMORY, places->capacity, sizeof *places->table);
    if (!places->table) {
        *places = old;
        return 0;
    }
    for (size_t i = 0; i < old.capacity; i++)
        if (old.table[i].is_met)
            *look(places, old.table[i].device, old.table[i].address) = old.table[i];
    hr__free(old.table);
    return 1;
}

struct hr__memory_place *hr__places_find(struct hr__memory_places *places, uint8_t device,
                                         uint64_t address)
{
    if (2 * (places->count + 1) > places->capacity && !grow(places))
        return NULL;
    struct hr__memory_place *place = look(places, device, address);
    if (!place->is_met) {
        *place = (struct hr__memory_place){.address = address, .device = device, .is_met = 1};
        places->count++;
    }
    return place;
}

void hr__places_clear(struct hr__memory_places *places)
{
    hr__free(places->table);
    *places = (struct hr__memory_places){.table = NULL};
}
