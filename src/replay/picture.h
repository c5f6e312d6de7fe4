/*
 * What a picture shows of a replay: the busy runs of threads and streams, and which of them are on
 * the critical path. Its size is bounded: tasks too short to see are joined with their neighbours,
 * and only the lanes with the most of the critical path, then of work, are kept.
 */
#ifndef HR_REPLAY_PICTURE_H
#define HR_REPLAY_PICTURE_H

#include "replay/scenario.h"

#define HR__PICTURE_LANES 12
#define HR__PICTURE_STEPS                                                                          \
    1000 /* what is shorter than the time shown by this is too short to see                        \
          */

struct hr__picture_run {
    int64_t begin_ns, end_ns; /* within the time shown */
    int64_t busy_ns;          /* less than its length if there are pauses too short to see */
    int64_t longest_ns;
    uint32_t task;  /* the longest one */
    uint32_t count; /* tasks */
    uint8_t kind;   /* enum hr__task_kind: most of it */
};

struct hr__picture_lane {
    uint32_t lane;
    int64_t critical_ns, busy_ns; /* in the time shown */
    struct hr__picture_run *runs, *critical;
    size_t run_count, critical_count;
};

struct hr__replay_picture {
    int64_t begin_ns, end_ns; /* the time shown, of the replay */
    int64_t least_ns;         /* what is shorter is joined */
    struct hr__picture_lane lanes[HR__PICTURE_LANES];
    size_t lane_count, left_out;
};

/* Makes the picture of an iteration in the middle of a replay. The caller clears *out, also after
 * an error. Errors: -ENOMEM. */
HR_NODISCARD int hr__picture_make(struct hr__replay_picture *out, const struct hr__graph *graph,
                                  const struct hr__replay_schedule *schedule);
void hr__picture_clear(struct hr__replay_picture *picture);

#endif
