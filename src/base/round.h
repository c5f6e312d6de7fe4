/* Rounding sizes up to whole pages, items or pieces. */
#ifndef HR_BASE_ROUND_H
#define HR_BASE_ROUND_H

#include <stdint.h>

/* Returns the smallest multiple of `to` that is at least `n`. `to` must not be 0, and n + to - 1
 * must not overflow. */
static inline uint64_t hr__round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

#endif
