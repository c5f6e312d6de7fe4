/*
 * Live bytes over time, by category, and the peak: pure functions of the blocks found.
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
    struct hr__timeline_point peak; /* the first moment of the most bytes */
    uint64_t peak_bytes;            /* of all categories */
    uint32_t peak_begun;            /* blocks, and ends of blocks, up to then, on all devices */
    uint32_t peak_freed;
    uint64_t end_bytes; /* still live at the end */
    uint64_t negative;  /* moments at which more was freed than lived: there should be none */
};

/*
 * The record's changes to what lives on a device, one after the other. `now.time_ns` is that of
 * the last one, or of before the record.
 */
struct hr__walk {
    const struct hr__blocks_found *found;
    int device;
    uint32_t next_begin, next_end; /* of the record's blocks, and of their ends */
    uint64_t total, negative;
    struct hr__timeline_point now;
};

struct hr__walk hr__walk_begin(const struct hr__blocks_found *found, int device);

/* The next change: 1, or 0 at the end. Of one moment ends come first, so that what takes
 * another's place does not count twice. */
int hr__walk_step(struct hr__walk *walk);

/* When it will be; UINT64_MAX: there is none. */
uint64_t hr__walk_next_ns(struct hr__walk *walk);

/* The blocks of the device that live after so many beginnings and ends, in the order of their
 * beginning: *blocks is the caller's. Errors: -ENOMEM. */
int hr__blocks_living(const struct hr__blocks_found *found, int device, uint32_t begun,
                      uint32_t freed, uint32_t **blocks, size_t *count);

/* Of one device. Of the points in each of `most` equal parts of the time the one with the most
 * bytes is kept, so that peaks show; the first and the last always are. Blocks that were there
 * before recording began count from the first point on. On success *out is to be cleared.
 * Errors: -EINVAL, -ENOMEM. */
int hr__timeline_make(struct hr__timeline *out, const struct hr__blocks_found *found, int device,
                      size_t most, struct hr_error *error);
void hr__timeline_clear(struct hr__timeline *timeline);

/* What replaying the record from its end gives. */
struct hr__backward {
    uint64_t peak_bytes;
    uint64_t negative; /* moments of less than nothing */
};

/* Begins with what lives at the end, takes away what began and brings back what ended. */
int hr__timeline_backward(struct hr__backward *out, const struct hr__blocks_found *found,
                          int device);

/* Fills peak_bytes of iterations: of one device. */
void hr__timeline_iterations(struct hr__period *period, const struct hr__blocks_found *found,
                             int device);

/* Non-zero where a block lives at a moment, its beginning included and its end not. */
static inline int hr__block_lives(const struct hr__block *block, uint64_t time_ns)
{
    return block->alloc_ns <= time_ns && time_ns < block->free_ns;
}

#endif
