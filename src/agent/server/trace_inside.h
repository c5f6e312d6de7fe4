/* The recorder's data, shared by trace.c and trace_write.c. */
#ifndef HR_AGENT_SERVER_TRACE_INSIDE_H
#define HR_AGENT_SERVER_TRACE_INSIDE_H

#include "agent/server/trace.h"

#include <pthread.h>
#include <stdatomic.h>

/* Notes of one recording at most, 48 bytes each; further ones are counted as lost. */
#define HR__TRACE_NOTES ((size_t)1 << 18)

/* The events of one worker. */
struct hr__trace_ring {
    struct hr__crew_event *events; /* NULL: nothing was recorded yet */
    uint64_t count;                /* events written; the worker's while is_busy */
    _Alignas(64) atomic_bool is_busy;
};

enum hr__trace_what {
    HR__TRACE_PUBLISHED, /* `who` is a queue */
    HR__TRACE_TOOK,      /* here and below `who` is a cursor */
    HR__TRACE_RELEASED,
    HR__TRACE_WAITED, /* for length_ns; the wait ended at at_ns or shortly before */
    HR__TRACE_QUEUE,  /* `samples` are ready, `sequence` samples are held */
};

struct hr__trace_note {
    enum hr__trace_what what;
    uint64_t at_ns, length_ns;
    uint64_t who;
    uint64_t samples, sequence;
};

struct hr__trace_queue {
    const struct hr_loader *loader; /* compared as an address only: it may be gone */
    uint64_t number;
    uint64_t since_ns; /* before this time the address may have been another queue's */
    char title[160];
};

/* The state of a cursor at its last reading. */
struct hr__trace_known {
    uint64_t number, queue;
    int pid, rank;
    char program[64];
    uint64_t mark, next, wait_ns, ready, held;
};

struct hr__trace {
    int workers;
    size_t capacity; /* events in each ring */
    struct hr__trace_ring *rings;
    atomic_bool is_on;
    atomic_int is_taken;       /* set from start until write or cancel */
    uint64_t begin_ns, end_ns; /* of the recording */
    pthread_mutex_t lock;      /* guards what follows while is_on */
    struct hr__trace_note *notes;
    size_t note_count;
    struct hr__trace_queue *queues;
    size_t queue_count;
    struct hr__trace_known *cursors;
    size_t cursor_count;
    uint64_t lost; /* notes beyond HR__TRACE_NOTES, or without memory */
};

/* Returns the cursor of a number; NULL: unknown. Under the lock while recording. */
static inline struct hr__trace_known *hr__trace_find(const struct hr__trace *t, uint64_t number)
{
    for (size_t i = 0; i < t->cursor_count; i++)
        if (t->cursors[i].number == number)
            return &t->cursors[i];
    return NULL;
}

/* Writes the stopped recording as JSON. */
int hr__trace_text(const struct hr__trace *trace, char **json, struct hr_error *error);

#endif
