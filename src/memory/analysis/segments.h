/*
 * Fragmentation: the memory that an allocator took from the device (segments), and how much of it
 * is in use. Free bytes within segments are usable only if a request fits into one piece.
 *
 * Segments are collected event by event, in the host's order, and joined with the blocks
 * afterwards. If the record has no segments of a device, its fragmentation is unknown.
 */
#ifndef HR_MEMORY_ANALYSIS_SEGMENTS_H
#define HR_MEMORY_ANALYSIS_SEGMENTS_H

#include "memory/analysis/timeline.h"

/* A segment taken or given back. */
struct hr__segment_event {
    uint64_t time_ns, address, bytes;
    uint64_t given_back; /* bytes that it removes from the existing segment */
    size_t end;          /* if taken: index of the event that ends it; SIZE_MAX: none */
    uint8_t device, is_taken;
};

/* All segment events. Initialize with zeros. */
struct hr__segment_log {
    struct hr__segment_event *events;
    size_t count;
    int code; /* -ENOMEM, sticky */
};

/* An hr__block_fn that logs segment events; arg: the log. */
void hr__segment_log_add(void *arg, const struct hr__blocks_found *found,
                         const struct hr__block_event *event);
void hr__segment_log_clear(struct hr__segment_log *log);

struct hr__segments_point {
    uint64_t time_ns, reserved_bytes, allocated_bytes;
};

struct hr__segments {
    int is_known;
    int is_partial; /* unknown: live blocks exceed the recorded segments */
    /* The moment of the most reserved bytes; among several, the first with the most allocated
     * bytes. */
    struct hr__segments_point most;
    uint64_t largest_free_bytes; /* then: largest free piece */
    uint64_t unusable_bytes;     /* then: free bytes in segments with a live block */
    uint32_t count;              /* then: number of segments */
    struct hr__segments_point *points;
    size_t point_count;
};

/*
 * Analyses one device. Keeps, from each of `most` equal parts of the time, the point with the most
 * reserved bytes. A free piece ends with its segment, unless a block that crosses the border shows
 * that two segments are one. `log` must be complete; this fills in its ends. The caller clears
 * *out. Errors: -ENOMEM.
 */
int hr__segments_make(struct hr__segments *out, struct hr__segment_log *log,
                      const struct hr__blocks_found *found, int device, size_t most);
void hr__segments_clear(struct hr__segments *segments);

#endif
