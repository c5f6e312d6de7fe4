/*
 * Live bytes over time, by category, and the peak: pure functions of the blocks found.
 */
#ifndef HR_MEMORY_TIMELINE_H
#define HR_MEMORY_TIMELINE_H

#include "memory/blocks.h"

#define HR__CATEGORIES (HR_MEMORY_WORKSPACE + 1)

struct hr__timeline_point {
    uint64_t time_ns;
    uint64_t bytes[HR__CATEGORIES];
};

struct hr__timeline {
    struct hr__timeline_point *points;
    size_t count;
    struct hr__timeline_point peak; /* the first moment of the most bytes */
    uint64_t peak_bytes;            /* of all categories */
    uint64_t end_bytes;             /* still live at the end */
};

/* Of one device. Of the points in each of `most` equal parts of the time the one with the most
 * bytes is kept, so that peaks show; the first and the last always are. Blocks that were there
 * before recording began count from the first point on. On success *out is to be cleared.
 * Errors: -EINVAL, -ENOMEM. */
int hr__timeline_make(struct hr__timeline *out, const struct hr__blocks_found *found, int device,
                      size_t most, struct hr_error *error);
void hr__timeline_clear(struct hr__timeline *timeline);

/* Non-zero where a block lives at a moment, its beginning included and its end not. */
static inline int hr__block_lives(const struct hr__block *block, uint64_t time_ns)
{
    return block->alloc_ns <= time_ns && time_ns < block->free_ns;
}

#endif
