/* The set of a cache's items, and which of them is used last (residents.h). */
#include "cache/residents.h"

#include "base/memory.h"

#include <errno.h>
#include <string.h>

void hr__residents_init(struct hr__residents *set)
{
    *set = (struct hr__residents){.drawn = HR__RESIDENTS_DRAWN};
    hr__random_init(&set->random, 0, HR__PURPOSE_EVICTION, 0, 0);
}

int hr__residents_reserve(struct hr__residents *set, uint32_t items)
{
    if (hr__reserve(HR__TAG_CACHE, &set->items, items) ||
        hr__reserve(HR__TAG_CACHE, &set->place, items))
        return -ENOMEM;
    if (items > set->places) {
        memset(set->place + set->places, 0, (items - set->places) * sizeof *set->place);
        set->places = items;
    }
    return 0;
}

void hr__residents_clear(struct hr__residents *set)
{
    hr__free(set->items);
    hr__free(set->place);
    hr__residents_init(set);
}

void hr__residents_add(struct hr__residents *set, uint32_t item)
{
    set->items[set->count++] = item;
    set->place[item] = set->count;
}

void hr__residents_remove(struct hr__residents *set, uint32_t item)
{
    uint32_t place = set->place[item], moved = set->items[--set->count];
    set->items[place - 1] = moved;
    set->place[moved] = place;
    set->place[item] = 0;
}

uint32_t hr__residents_furthest(struct hr__residents *set, hr__next_use *next, const void *context,
                                double *when)
{
    uint32_t furthest = HR__NO_RESIDENT;
    *when = 0;
    for (uint32_t i = 0; set->count && i < set->drawn; i++) {
        uint64_t at = (uint64_t)hr__random_u32(&set->random) * set->count >> 32;
        double then = next(context, set->items[at]);
        if (furthest == HR__NO_RESIDENT || then > *when) {
            furthest = set->items[at];
            *when = then;
        }
    }
    return furthest;
}
