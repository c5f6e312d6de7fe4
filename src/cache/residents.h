/*
 * The set of a cache's items, and which of them is used last.
 *
 * To find an item whose next use is far, some random ones are compared. With 32 of them, the chosen
 * one is on average among the furthest 3 per cent, which costs few reads (docs/cache.md). It takes
 * the same short time for any number of items, and needs no order among them, which would change
 * with the speed of every job.
 *
 * No locks: the caller serialises the calls for one set.
 */
#ifndef HR_CACHE_RESIDENTS_H
#define HR_CACHE_RESIDENTS_H

#include "base/random.h"

#include <headrace/base.h>

#include <stdint.h>

/* How many random items are compared. */
#define HR__RESIDENTS_DRAWN 32

#define HR__NO_RESIDENT UINT32_MAX

struct hr__residents {
    uint32_t *items; /* all of them, in no order */
    uint32_t *place; /* by item: where it is in `items`, + 1; 0: it is not there */
    uint32_t places; /* length of `place` */
    uint32_t count;
    uint32_t drawn; /* how many are compared */
    struct hr__random random;
};

/* Makes an empty set. hr__residents_clear frees its memory and makes it empty. */
void hr__residents_init(struct hr__residents *set);
void hr__residents_clear(struct hr__residents *set);

/* Makes room for items 0 to `items` - 1, all in all. Errors: -ENOMEM. */
HR_NODISCARD int hr__residents_reserve(struct hr__residents *set, uint32_t items);

static inline int hr__residents_has(const struct hr__residents *set, uint32_t item)
{
    return set->place[item] != 0;
}

/* Add an item that is not there, or remove one that is. */
void hr__residents_add(struct hr__residents *set, uint32_t item);
void hr__residents_remove(struct hr__residents *set, uint32_t item);

/* Returns in how many ticks an item is used next (hr__future_next). */
typedef double hr__next_use(const void *context, uint32_t item);

/* Returns an item whose next use is among the furthest, and stores in how many ticks that is.
 * Returns HR__NO_RESIDENT if the set is empty. */
uint32_t hr__residents_furthest(struct hr__residents *set, hr__next_use *next, const void *context,
                                double *when);

#endif
