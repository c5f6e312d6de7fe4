/*
 * A trace in Chrome's JSON ("Trace Event Format"), which Perfetto (ui.perfetto.dev) and
 * chrome://tracing open: its events, one to a line.
 *
 * A function that begins an event leaves it open: the caller adds members, and closes it with
 * "}", or what is open of "args" and the event with "}}".
 */
#ifndef HR_REPORT_EVENTS_H
#define HR_REPORT_EVENTS_H

#include "report/draft.h"

#include <stdint.h>

struct hr__events {
    struct hr__draft draft;
    bool begun; /* an event stands before the next one */
};

/* `kind`: "X" a slice, "C" counters, "i" a mark, "M" a name. thread < 0: of none. */
void hr__event_begin(struct hr__events *events, const char *kind, int process, int64_t thread);
/* Members. A time: in microseconds. */
void hr__event_number(struct hr__events *events, const char *name, double value, int decimals);
void hr__event_time_ns(struct hr__events *events, const char *name, uint64_t ns);
void hr__event_text(struct hr__events *events, const char *name, const char *text);

/* A whole event that names something: "process_name", "thread_name". */
void hr__event_name(struct hr__events *events, const char *what, int process, int64_t thread,
                    const char *name);

#endif
