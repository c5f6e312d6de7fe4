/*
 * Replays a graph: when each task begins if only its edges hold it back ("Daydream", ATC'20).
 * Tasks of a thread or stream keep their recorded order, which the edges hold; those of
 * a scheduled lane run one at a time, the one with the highest priority of those that are ready.
 *
 * With the recorded order, more work never shortens a replay; with priorities it may, as Graham
 * showed ("Bounds on Multiprocessing Timing Anomalies", 1969).
 */
#ifndef HR_REPLAY_SIMULATE_H
#define HR_REPLAY_SIMULATE_H

#include "replay/graph.h"

struct hr__replay_schedule {
    int64_t *begin_ns; /* by task */
    uint32_t *cause;   /* by task: the edge that was the last to be fulfilled; UINT32_MAX: none */
    uint32_t *holder;  /* by task: of a scheduled lane, the task that held the lane until it began;
                          HR__NO_TASK: none */
    uint32_t last;     /* the task that ends last, threads apart left out; HR__NO_TASK: none */
    int64_t length_ns; /* from the first begin to the last end */
    int64_t first_ns;
};

/* `priority`: by task, higher first; NULL: all the same, the one ready first runs first. The caller
 * clears *out, also after an error. Errors: -ENOMEM; -ELOOP: the edges contradict each other;
 * -ERANGE: the tasks are too long. */
HR_NODISCARD int hr__graph_replay(struct hr__replay_schedule *out, const struct hr__graph *graph,
                                  const int32_t *priority, struct hr_error *error);
void hr__schedule_clear(struct hr__replay_schedule *schedule);

/*
 * How far the replay of an unchanged graph is from the record. `error` is small by construction:
 * lags are taken from the record. `usual_error` is the check: it shows what the graph alone
 * explains. Without work of a device nothing is checked: CPU tasks follow each other without gaps.
 */
struct hr__replay_identity {
    double error;                   /* of the length, relative */
    double start_median, start_max; /* of the tasks' begins, relative to an iteration */
    int64_t start_median_ns, start_max_ns;
    uint32_t worst; /* the task with the largest jump of its error, in the replay of the two that is
                       further from the record; HR__NO_TASK */
    int64_t worst_ns;
    double usual_error;     /* of the length, if every launch and gap took the usual time */
    uint64_t checked;       /* edges whose recorded lag the usual one replaced for that */
    int64_t unexplained_ns; /* on the critical path: lags far above the usual ones */
};

/* Errors: those of hr__graph_replay. */
HR_NODISCARD int hr__identity_find(struct hr__replay_identity *out, const struct hr__graph *graph,
                                   const struct hr__replay_schedule *schedule,
                                   struct hr_error *error);

/* Returns the larger one of the two errors, with its sign: what a limit is compared with. */
double hr__identity_distance(const struct hr__replay_identity *identity);

#endif
