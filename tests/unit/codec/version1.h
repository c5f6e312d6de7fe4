/*
 * Writes items of coefficients of version 1, which Headrace reads and does not write any more: for
 * tests of reading them, and for the benchmark that compares the versions.
 */
#ifndef HR_TEST_VERSION1_H
#define HR_TEST_VERSION1_H

#include "codec/coefficients.h"

/* Makes an item of version 1 of an opened item. `wide`: with the index of rows beyond 64 KiB, which
 * must not be longer otherwise. Returns its bytes, for the caller to free; NULL if the item is
 * damaged. */
uint8_t *version1_of(const struct hr__coefficients *item, int wide, size_t *length);

#endif
