/* What the recorder keeps, for the file that makes a text of it. */
#ifndef HR_AGENT_SERVER_TRACE_INSIDE_H
#define HR_AGENT_SERVER_TRACE_INSIDE_H

#include "agent/server/trace.h"

#include <pthread.h>
#include <stdatomic.h>

/* Notes of a recording at most, 48 bytes each; what comes after is counted as lost. */
#define HR__TRACE_NOTES ((size_t)1 << 18)

/* One worker's. */
struct hr__trace_ring {
    struct hr__crew_event *events; /* NULL: nobody has recorded yet */
    uint64_t count;                /* written; the worker's while it is busy */
    _Alignas(64) atomic_bool is_busy;
};

enum hr__trace_what {
    HR__TRACE_PUBLISHED, /* who: queue */
    HR__TRACE_TOOK,      /* the others: cursor */
    HR__TRACE_RELEASED,
    HR__TRACE_WAITED, /* for length_ns, until at_ns or shortly before */
    HR__TRACE_QUEUE,  /* samples: ready; sequence: held */
};

struct hr__trace_note {
    enum hr__trace_what what;
    uint64_t at_ns, length_ns;
    uint64_t who;
    uint64_t samples, sequence;
};

struct hr__trace_queue {
    const struct hr_loader *loader; /* an address only: it may be gone */
    uint64_t number;
    uint64_t since_ns; /* before, that address may have been another queue's */
    char title[160];
};

/* A cursor, as it was when it was looked at last. */
struct hr__trace_known {
    uint64_t number, queue;
    int pid, rank;
    char program[64];
    uint64_t mark, next, wait_ns, ready, held;
};

struct hr__trace {
    int workers;
    size_t capacity; /* events of each ring */
    struct hr__trace_ring *rings;
    atomic_bool is_on;
    atomic_int is_taken;       /* from start to write or cancel */
    uint64_t begin_ns, end_ns; /* of the recording */
    pthread_mutex_t lock;      /* guards what follows while is_on */
    struct hr__trace_note *notes;
    size_t note_count;
    struct hr__trace_queue *queues;
    size_t queue_count, queue_capacity;
    struct hr__trace_known *cursors;
    size_t cursor_count, cursor_capacity;
    uint64_t lost; /* notes */
};

/* The recording, stopped, as JSON. */
int hr__trace_text(const struct hr__trace *trace, char **json, struct hr_error *error);

#endif
