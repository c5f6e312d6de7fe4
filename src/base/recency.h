/*
 * Lists of numbers from the newest to the oldest, as caches keep them. The links of all numbers are
 * one array of the caller's, and each number is in one list at most. All of it takes constant time.
 */
#ifndef HR_BASE_RECENCY_H
#define HR_BASE_RECENCY_H

#include <stdint.h>

#define HR__NO_ENTRY UINT32_MAX

struct hr__recency_links {
    uint32_t newer, older; /* HR__NO_ENTRY: none */
};

struct hr__recency {
    uint32_t newest, oldest; /* HR__NO_ENTRY: the list is empty */
};

static inline void hr__recency_init(struct hr__recency *list)
{
    *list = (struct hr__recency){HR__NO_ENTRY, HR__NO_ENTRY};
}

/* Adds a number that is in no list as the newest one. */
static inline void hr__recency_push(struct hr__recency *list, struct hr__recency_links *links,
                                    uint32_t number)
{
    links[number] = (struct hr__recency_links){.newer = HR__NO_ENTRY, .older = list->newest};
    *(list->newest != HR__NO_ENTRY ? &links[list->newest].newer : &list->oldest) = number;
    list->newest = number;
}

/* Removes a number that is in this list. */
static inline void hr__recency_pull(struct hr__recency *list, struct hr__recency_links *links,
                                    uint32_t number)
{
    struct hr__recency_links of = links[number];
    *(of.newer != HR__NO_ENTRY ? &links[of.newer].older : &list->newest) = of.older;
    *(of.older != HR__NO_ENTRY ? &links[of.older].newer : &list->oldest) = of.newer;
}

#endif
