/*
 * For fuzz targets of decoders: what must hold, and a region of an image that eight bytes of the
 * input choose.
 */
#ifndef HR_TEST_FUZZ_REGION_H
#define HR_TEST_FUZZ_REGION_H

#include "codec/codec.h"

#include <stdlib.h>
#include <string.h>

#define FUZZ_REGION_BYTES 8

static inline void require(int truth)
{
    if (!truth)
        abort();
}

/* Returns a number from `low` to `high`, both included. */
static inline int pick(const uint8_t byte[2], int low, int high)
{
    return low + (byte[0] << 8 | byte[1]) % (high - low + 1);
}

/* Returns a region of an image, not empty. */
static inline struct hr_region pick_region(const uint8_t choice[FUZZ_REGION_BYTES], int width,
                                           int height)
{
    struct hr_region r = {.width = pick(choice, 1, width), .height = pick(choice + 2, 1, height)};
    r.x = pick(choice + 4, 0, width - r.width);
    r.y = pick(choice + 6, 0, height - r.height);
    return r;
}

/* The region's pixels, which begin at both places, are the same. */
static inline void require_same(const struct hr__planar *a, const struct hr__planar *b,
                                const struct hr_region *region)
{
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < region->height; y++)
            require(!memcmp(a->plane[c] + y * a->stride, b->plane[c] + y * b->stride,
                            (size_t)region->width));
}

#endif
