/*
 * Measures items of coefficients in version 1 of the layout, which nothing else writes any more:
 * the base of coefficients_over_version1.
 */
#include "item_version.h"

#include "../tests/unit/codec/version1.h"

#include <stdio.h>
#include <stdlib.h>

unsigned char *item_in_version(unsigned char *item, size_t *length)
{
    struct hr__coefficients c;
    struct hr_error error;
    if (hr__coefficients_open(&c, item, *length, &error)) {
        fprintf(stderr, "version 1: %s\n", error.message);
        exit(3);
    }
    /* rows beyond 64 KiB are in no image of these benchmarks */
    unsigned char *before = version1_of(&c, c.header.flags & HR__ITEM_WIDE, length);
    if (!before) {
        fprintf(stderr, "version 1: the item is damaged\n");
        exit(3);
    }
    free(item);
    return before;
}
