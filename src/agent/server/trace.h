/*
 * Recording what an agent's threads and jobs do, for a Chrome trace of a window of time.
 *
 * Each worker has a ring of events that only it writes, the newest kept; it takes no lock and
 * waits for nobody. What the agent's loop and the publishers tell goes to one more ring, under
 * a lock: it is rare (a chunk, a look at a control block). While nobody records, an event costs a
 * load. The rings are made when they are needed first and stay, because a worker may be in one.
 *
 * Format: Chrome's "Trace Event Format" (JSON), for ui.perfetto.dev and chrome://tracing.
 */
#ifndef HR_AGENT_SERVER_TRACE_H
#define HR_AGENT_SERVER_TRACE_H

#include "loader/crew.h"

#include <stdbool.h>

struct hr__trace;

/* How often cursors should be looked at while it records. */
#define HR__TRACE_LOOK_MS 10

/* `workers` of the crew. On success *out is the caller's. Errors: -ENOMEM. */
int hr__trace_create(struct hr__trace **out, int workers, struct hr_error *error);

/* The crew is gone, or watches no more. Accepts NULL. */
void hr__trace_destroy(struct hr__trace **trace);

/* For hr__crew_watch, with the trace. On the crew's workers only. */
void hr__trace_watch(void *trace, const struct hr__crew_event *event);

/* Begins to record. Errors: -EBUSY: it does already, or is being written; -ENOMEM. One thread
 * at a time, as stop. */
int hr__trace_start(struct hr__trace *trace, struct hr_error *error);

/* Any thread. */
bool hr__trace_is_on(const struct hr__trace *trace);

/* Ends the recording; waits for the event that a worker has in hand, for microseconds. Then it
 * is written, or given up. */
void hr__trace_stop(struct hr__trace *trace);

/*
 * What was recorded before stop; *json is the caller's, freed with hr__free. A second of CPU
 * time for a million events: on a thread that nobody waits for. Errors: -ENOMEM. After it, also
 * where it fails, the next recording may begin.
 */
int hr__trace_write(struct hr__trace *trace, char **json, struct hr_error *error);

/* Ends a recording, or what was stopped, without a text. */
void hr__trace_cancel(struct hr__trace *trace);

/* The next ones do nothing while it does not record. Any thread. */

/* Names a queue: all that there are, after start, and those that are made meanwhile. `title` is
 * copied. */
void hr__trace_queue(struct hr__trace *trace, const struct hr_loader *loader, uint64_t queue,
                     const char *title);

/* `count` samples of a queue are ready, from `sequence` on. */
void hr__trace_published(struct hr__trace *trace, uint64_t queue, uint64_t sequence,
                         uint64_t count);

/* A look at a cursor: agent/share.h says what each is. Takes, releases and waits are what has
 * changed since the last look. */
struct hr__trace_cursor {
    uint64_t number; /* tells it from other cursors */
    uint64_t queue;
    int pid, rank;
    const char *program; /* copied */
    uint64_t head;       /* of the queue's header */
    uint64_t mark, next, wait_ns;
};

void hr__trace_cursor(struct hr__trace *trace, const struct hr__trace_cursor *cursor);

#endif
