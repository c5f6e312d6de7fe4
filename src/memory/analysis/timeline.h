/*
 * Live bytes over time by category, and the peak. Pure functions of the blocks found.
 */
#ifndef HR_MEMORY_ANALYSIS_TIMELINE_H
#define HR_MEMORY_ANALYSIS_TIMELINE_H

#include "memory/analysis/blocks.h"
#include "memory/record/names.h"

struct hr__period;

struct hr__timeline_point {
    uint64_t time_ns;
    uint64_t bytes[HR__CATEGORIES];
};

struct hr__timeline {
    struct hr__timeline_point *points;
    size_t count;
    struct hr__timeline_point peak; /* first moment with the most bytes */
    uint64_t peak_bytes;            /* sum of all categories */
    uint32_t peak_begun;            /* blocks begun, and ended, up to the peak, on all devices */
    uint32_t peak_freed;
    uint64_t end_bytes; /* live at the record's end */
    uint64_t negative;  /* moments with more bytes freed than live; should be 0 */
};

/*
 * Walks through the changes of a device's live blocks. `now.time_ns` is the time of the last
 * change, or before the record at first.
 */
struct hr__walk {
    const struct hr__blocks_found *found;
    int device;
    uint32_t next_begin, next_end; /* indices of the record's blocks, and of their ends */
    uint64_t total, negative;
    struct hr__timeline_point now;
};

struct hr__walk hr__walk_begin(const struct hr__blocks_found *found, int device);

/* Takes the next change. Returns 1, or 0 at the end. At the same time, ends come before beginnings,
 * so that a block and its replacement are not counted twice. */
int hr__walk_step(struct hr__walk *walk);

/* Returns the time of the next change; UINT64_MAX: none. */
uint64_t hr__walk_next_ns(struct hr__walk *walk);

/* Lists the device's blocks that live after `begun` beginnings and `freed` ends, oldest first. The
 * caller frees *blocks. Errors: -ENOMEM. */
int hr__blocks_living(const struct hr__blocks_found *found, int device, uint32_t begun,
                      uint32_t freed, uint32_t **blocks, size_t *count);

/* Makes the timeline of one device. Keeps the point with the most bytes from each of `most` equal
 * parts of the time, so that peaks show, and always the first and the last point. Blocks from
 * before the recording count from the first point on. The caller clears *out. Errors: -EINVAL,
 * -ENOMEM. */
int hr__timeline_make(struct hr__timeline *out, const struct hr__blocks_found *found, int device,
                      size_t most, struct hr_error *error);
void hr__timeline_clear(struct hr__timeline *timeline);

/* Result of replaying the record from its end. */
struct hr__backward {
    uint64_t peak_bytes;
    uint64_t negative; /* moments with negative live bytes */
};

/* Starts with the blocks live at the end, removes those that began and restores those that
 * ended. */
int hr__timeline_backward(struct hr__backward *out, const struct hr__blocks_found *found,
                          int device);

/* Fills peak_bytes of the iterations, for one device. */
void hr__timeline_iterations(struct hr__period *period, const struct hr__blocks_found *found,
                             int device);

/* Returns non-zero if a block lives at a moment; its beginning counts, its end does not. */
static inline int hr__block_lives(const struct hr__block *block, uint64_t time_ns)
{
    return block->alloc_ns <= time_ns && time_ns < block->free_ns;
}

#endif
