/*
 * Records what an agent's threads and jobs do during a window of time, as a Chrome trace.
 *
 * Each worker has a ring that keeps its newest events. Only the worker writes to it, without a
 * lock. Events of the loop and of publishers go to one array under a lock; they are rare (one for
 * each chunk and for each reading of a control block). While nothing is recorded an event costs
 * one load. The rings are allocated by the first recording and then kept, because a worker may be
 * using one.
 *
 * Format: Chrome's "Trace Event Format" (JSON), for ui.perfetto.dev and chrome://tracing.
 */
#ifndef HR_AGENT_SERVER_TRACE_H
#define HR_AGENT_SERVER_TRACE_H

#include "loader/crew.h"

#include <stdbool.h>

struct hr__trace;

/* Interval at which cursors should be read while recording. */
#define HR__TRACE_LOOK_MS 10

/* `workers`: those of the crew. On success *out is the caller's. Errors: -ENOMEM. */
int hr__trace_create(struct hr__trace **out, int workers, struct hr_error *error);

/* Call it after the crew was destroyed, or no longer watches. Accepts NULL. */
void hr__trace_destroy(struct hr__trace **trace);

/* The callback for hr__crew_watch, with the trace as argument. Called on the crew's workers. */
void hr__trace_watch(void *trace, const struct hr__crew_event *event);

/* Begins to record. Errors: -EBUSY: it records already, or a recording is being written; -ENOMEM.
 * Start and stop must not run at the same time. */
int hr__trace_start(struct hr__trace *trace, struct hr_error *error);

/* Returns whether it records. Any thread. */
bool hr__trace_is_on(const struct hr__trace *trace);

/* Ends the recording. Waits microseconds for events that workers are writing. Next, call
 * hr__trace_write or hr__trace_cancel. */
void hr__trace_stop(struct hr__trace *trace);

/*
 * Writes what was recorded until stop. *json is the caller's, freed with hr__free. Takes a second
 * of CPU time for a million events: call it on a thread that nobody waits for. Errors: -ENOMEM.
 * Afterwards, even if it failed, the next recording may begin.
 */
int hr__trace_write(struct hr__trace *trace, char **json, struct hr_error *error);

/* Ends a recording, stopped or not, without writing it. */
void hr__trace_cancel(struct hr__trace *trace);

/* The functions below do nothing while it does not record. Any thread. */

/* Names a queue. Call it for all queues after start, and for each one made while recording. `title`
 * is copied. */
void hr__trace_queue(struct hr__trace *trace, const struct hr_loader *loader, uint64_t queue,
                     const char *title);

/* Records that `count` samples of a queue are ready, from `sequence` on. */
void hr__trace_published(struct hr__trace *trace, uint64_t queue, uint64_t sequence,
                         uint64_t count);

/* The state of a cursor (fields: agent/share.h). Takes, releases and waits are derived from the
 * change since the last reading. */
struct hr__trace_cursor {
    uint64_t number; /* unique among cursors */
    uint64_t queue;
    int pid, rank;
    const char *program; /* copied */
    uint64_t head;       /* of the queue's header */
    uint64_t mark, next, wait_ns;
};

void hr__trace_cursor(struct hr__trace *trace, const struct hr__trace_cursor *cursor);

#endif
