/*
 * Fragmentation: what an allocator took from the device (segments), and what of it is in use.
 * Free bytes within segments are of use only where a request fits into one piece.
 *
 * Fed event by event in the host's order. Of a device whose segments nobody told nothing is
 * known.
 */
#ifndef HR_MEMORY_SEGMENTS_H
#define HR_MEMORY_SEGMENTS_H

#include "memory/blocks.h"

struct hr__segments_point {
    uint64_t time_ns, reserved_bytes, allocated_bytes;
};

struct hr__segments {
    int is_known;
    struct hr__segments_point most; /* the first moment of the most reserved bytes */
    uint64_t largest_free_bytes;    /* then */
    uint64_t unusable_bytes;        /* then: free, in segments in which a block lives */
    uint32_t count;                 /* then */
    struct hr__segments_point *points;
    size_t point_count;
};

void hr__segments_clear(struct hr__segments *segments);

#endif
