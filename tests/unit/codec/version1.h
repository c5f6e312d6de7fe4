/*
 * Writes items of version 1 of the form `coefficients`, which Headrace still reads but no longer
 * writes: for the tests that read them and the benchmark that compares the versions.
 */
#ifndef HR_TEST_VERSION1_H
#define HR_TEST_VERSION1_H

#include "codec/coefficients.h"

/* Converts an opened item to version 1. `wide`: use the index for rows of more than 64 KiB; without
 * it no row may be longer. Returns the bytes, which the caller frees; NULL if the item is
 * damaged. */
uint8_t *version1_of(const struct hr__coefficients *item, int wide, size_t *length);

#endif
