/*
 * Critical paths: the tasks that hold a replay's end back, and what their time goes into.
 */
#ifndef HR_REPLAY_PATH_H
#define HR_REPLAY_PATH_H

#include "replay/simulate.h"

/* Walks a critical path from its last task back to its first one: start with zeros. */
struct hr__path_walk {
    uint32_t task; /* the current one */
    int is_begun;
    int64_t own_ns;     /* of the path: its own time */
    int64_t latency_ns; /* between its end, or begin, and that of the task after it */
    int64_t begin_ns;
};

/* Goes to the task before the current one. Returns 0 if there is none. */
int hr__path_back(struct hr__path_walk *walk, const struct hr__graph *graph,
                  const struct hr__replay_schedule *schedule);

/* Where the time of a critical path goes: shares by kind of task, and of latencies. */
struct hr__shares {
    double kind[HR__TASK_KINDS], latency;
    double data, waits[HR__TASK_KINDS]; /* waiting for the loader: in all, and of each kind's */
};
void hr__path_shares(struct hr__shares *out, const struct hr__graph *graph,
                     const struct hr__replay_schedule *schedule);

#define HR__PATH_DATA (HR__TASK_KINDS + 1)

/* Tasks of one name on a critical path; those that wait for the loader apart from others. */
struct hr__path_name {
    const char *name; /* of the graph's trace; "": none. A number after '#' is not compared. */
    double share;     /* of the path */
    uint32_t count;
    uint8_t kind; /* enum hr__task_kind: of the last one; HR__PATH_DATA: waiting for the loader */
};

/* Lists them, the largest share first; blocking calls and their returns together. The caller frees
 * *out. Errors: -ENOMEM. */
HR_NODISCARD int hr__path_names(struct hr__path_name **out, size_t *count,
                                const struct hr__graph *graph,
                                const struct hr__replay_schedule *schedule);

#endif
