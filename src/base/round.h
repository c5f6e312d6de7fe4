/* Sizes as the multiples that pages, items and pieces come in. */
#ifndef HR_BASE_ROUND_H
#define HR_BASE_ROUND_H

#include <stdint.h>

/* The least multiple of `to` that is not less than `n`. n + to - 1 must fit; to is not 0. */
static inline uint64_t hr__round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

#endif
