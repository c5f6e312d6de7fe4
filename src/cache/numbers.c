/* A set of whole numbers whose largest member is found at once (numbers.h). */
#include "cache/numbers.h"

#include "base/memory.h"

#include <errno.h>
#include <string.h>

/* Numbers of room that are added at a time, at least: one word of the second level. */
#define STEP 4096

/* Returns how many words a level has for so many numbers. */
static size_t words_of(uint32_t room, int level)
{
    uint64_t bits = UINT64_C(64) << 6 * level;
    return (size_t)((room + bits - 1) / bits);
}

int hr__numbers_reserve(struct hr__numbers *set, uint32_t room)
{
    if (room <= set->room)
        return 0;
    uint32_t most = HR__NO_NUMBER - STEP;
    uint64_t wanted = room > set->room + set->room / 2 ? room : set->room + set->room / 2;
    wanted = wanted < most ? (wanted + STEP - 1) / STEP * STEP : HR__NO_NUMBER;
    for (int level = 0; level < HR__NUMBERS_LEVELS; level++)
        if (hr__reserve(HR__TAG_CACHE, &set->words[level], words_of((uint32_t)wanted, level)))
            return -ENOMEM;
    for (int level = 0; level < HR__NUMBERS_LEVELS; level++) {
        size_t there = words_of(set->room, level);
        memset(set->words[level] + there, 0,
               (words_of((uint32_t)wanted, level) - there) * sizeof *set->words[level]);
    }
    set->room = (uint32_t)wanted;
    return 0;
}

void hr__numbers_free(struct hr__numbers *set)
{
    for (int level = 0; level < HR__NUMBERS_LEVELS; level++)
        hr__free(set->words[level]);
    *set = (struct hr__numbers){.room = 0};
}

void hr__numbers_clear(struct hr__numbers *set)
{
    for (int level = 0; level < HR__NUMBERS_LEVELS && set->room; level++)
        memset(set->words[level], 0, words_of(set->room, level) * sizeof *set->words[level]);
}

void hr__numbers_add(struct hr__numbers *set, uint32_t number)
{
    for (int level = 0; level < HR__NUMBERS_LEVELS; level++, number /= 64) {
        uint64_t *word = &set->words[level][number / 64], before = *word;
        *word |= UINT64_C(1) << number % 64;
        if (before)
            return;
    }
}

void hr__numbers_remove(struct hr__numbers *set, uint32_t number)
{
    for (int level = 0; level < HR__NUMBERS_LEVELS; level++, number /= 64) {
        uint64_t *word = &set->words[level][number / 64];
        *word &= ~(UINT64_C(1) << number % 64);
        if (*word)
            return;
    }
}

uint32_t hr__numbers_largest(const struct hr__numbers *set)
{
    uint32_t at = 0;
    if (!set->room || !set->words[HR__NUMBERS_LEVELS - 1][0])
        return HR__NO_NUMBER;
    for (int level = HR__NUMBERS_LEVELS; level--;)
        at = at * 64 + 63 - (uint32_t)__builtin_clzll(set->words[level][at]);
    return at;
}
