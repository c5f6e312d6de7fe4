/*
 * Writes a trace in Chrome's JSON ("Trace Event Format"), which Perfetto (ui.perfetto.dev) and
 * chrome://tracing open; one event per line.
 *
 * A function that begins an event leaves it open: the caller adds members and closes the event with
 * "}", or with "}}" if "args" is open too.
 */
#ifndef HR_REPORT_EVENTS_H
#define HR_REPORT_EVENTS_H

#include "base/draft.h"

#include <stdint.h>

struct hr__events {
    struct hr__draft draft;
    bool begun; /* an event precedes the next one */
};

/* `kind`: "X" a slice, "C" counters, "i" a mark, "M" a name. thread < 0: no thread. */
void hr__event_begin(struct hr__events *events, const char *kind, int process, int64_t thread);
/* Add a member. Times are written in microseconds. */
void hr__event_number(struct hr__events *events, const char *name, double value, int decimals);
void hr__event_time_ns(struct hr__events *events, const char *name, uint64_t ns);
void hr__event_text(struct hr__events *events, const char *name, const char *text);

/* Adds a whole event that names a process or thread: `what` is "process_name" or "thread_name". */
void hr__event_name(struct hr__events *events, const char *what, int process, int64_t thread,
                    const char *name);

#endif
