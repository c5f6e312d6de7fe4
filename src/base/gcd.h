/* The greatest common divisor. */
#ifndef HR_BASE_GCD_H
#define HR_BASE_GCD_H

#include <stdint.h>

/* Returns the greatest common divisor (Euclid's algorithm); with b = 0: a. */
static inline uint64_t hr__gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif
