/*
 * A set of whole numbers whose largest member is found at once.
 *
 * A bit for each number, and above these, for each word of 64 bits, one that says whether the word
 * has any: six levels are enough for all numbers of 32 bits. Adding, removing and finding the
 * largest each touch at most six words, of which the upper ones stay in the processor's cache:
 * the bits of 28 million numbers are 3.5 MB.
 *
 * No locks: the caller serialises the calls for one set.
 */
#ifndef HR_CACHE_NUMBERS_H
#define HR_CACHE_NUMBERS_H

#include <headrace/base.h>

#include <stdint.h>

#define HR__NUMBERS_LEVELS 6

/* No number: the set is empty. It cannot be a member. */
#define HR__NO_NUMBER UINT32_MAX

/* Zeroed: empty, with room for none. */
struct hr__numbers {
    uint64_t *words[HR__NUMBERS_LEVELS]; /* the first level has the numbers */
    uint32_t room;
};

/* Makes room for the numbers 0 to `room` - 1. Errors: -ENOMEM; the set is then as before. */
HR_NODISCARD int hr__numbers_reserve(struct hr__numbers *set, uint32_t room);
void hr__numbers_free(struct hr__numbers *set);

/* Removes all members. */
void hr__numbers_clear(struct hr__numbers *set);

void hr__numbers_add(struct hr__numbers *set, uint32_t number);
void hr__numbers_remove(struct hr__numbers *set, uint32_t number);
uint32_t hr__numbers_largest(const struct hr__numbers *set);

static inline int hr__numbers_has(const struct hr__numbers *set, uint32_t number)
{
    return (int)(set->words[0][number / 64] >> number % 64 & 1);
}

#endif
