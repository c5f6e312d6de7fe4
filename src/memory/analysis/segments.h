/*
 * Fragmentation: what an allocator took from the device (segments), and what of it is in use.
 * Free bytes within segments are of use only where a request fits into one piece.
 *
 * Segments are collected event by event, in the host's order, and joined with the blocks
 * afterwards. If the record has no segments of a device, its fragmentation is not known.
 */
#ifndef HR_MEMORY_ANALYSIS_SEGMENTS_H
#define HR_MEMORY_ANALYSIS_SEGMENTS_H

#include "memory/analysis/timeline.h"

/* A segment taken or given back. */
struct hr__segment_event {
    uint64_t time_ns, address, bytes;
    uint64_t given_back; /* bytes that it ends: of the segment that is there */
    size_t end;          /* of one that is taken: the event that ends it; SIZE_MAX: none */
    uint8_t device, is_taken;
};

/* All of them. Zeroed: empty. */
struct hr__segment_log {
    struct hr__segment_event *events;
    size_t count, room;
    int code; /* -ENOMEM, sticky */
};

/* An hr__block_fn; arg: the log. */
void hr__segment_log_add(void *arg, const struct hr__blocks_found *found,
                         const struct hr__block_event *event);
void hr__segment_log_clear(struct hr__segment_log *log);

struct hr__segments_point {
    uint64_t time_ns, reserved_bytes, allocated_bytes;
};

struct hr__segments {
    int is_known;
    int is_partial; /* not known: more bytes live than there are in all segments told of */
    /* Of the moments of the most reserved bytes the first of the most allocated ones. */
    struct hr__segments_point most;
    uint64_t largest_free_bytes; /* then: the largest piece that is free */
    uint64_t unusable_bytes;     /* then: free, in segments in which a block lives */
    uint32_t count;              /* then */
    struct hr__segments_point *points;
    size_t point_count;
};

/*
 * Of one device; of the points in each of `most` equal parts of the time that with the most
 * reserved bytes is kept. A free piece ends with its segment, unless a block that lives across
 * the border shows that two are one. `log` is complete, and changed: ends are filled in. On
 * success *out is to be cleared. Errors: -ENOMEM.
 */
int hr__segments_make(struct hr__segments *out, struct hr__segment_log *log,
                      const struct hr__blocks_found *found, int device, size_t most);
void hr__segments_clear(struct hr__segments *segments);

#endif
