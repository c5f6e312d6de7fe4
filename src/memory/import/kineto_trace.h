/*
 * A Kineto trace (torch.profiler's JSON), as far as it tells of memory: what its [memory] events
 * are, and the ranges around them. Taken in element by element: a trace of a gigabyte needs no
 * more than these.
 */
#ifndef HR_MEMORY_IMPORT_KINETO_TRACE_H
#define HR_MEMORY_IMPORT_KINETO_TRACE_H

#include "memory/import/import.h"
#include "memory/import/input.h"
#include "memory/record/ids.h"

#include <stddef.h>
#include <stdint.h>

/* A [memory] event, or [OutOfMemory]. */
struct hr__kineto_memory {
    int64_t time_ns;
    uint64_t address;
    int64_t bytes;  /* negative: freed */
    int64_t total;  /* allocated then, by the trace; negative: not said */
    uint64_t order; /* of events at one time */
    uint64_t thread;
    uint8_t device; /* as in events of a record; 255: one beyond those that there may be */
    uint8_t is_refused;
};

enum hr__kineto_range_kind {
    HR__KINETO_OPERATOR,
    HR__KINETO_PYTHON,     /* a function of Python, or a module */
    HR__KINETO_ANNOTATION, /* a step of the profiler, an optimizer's, the user's own */
};

struct hr__kineto_range {
    uint64_t thread;
    int64_t begin_ns, end_ns;
    uint32_t name;
    uint8_t kind;
};

struct hr__kineto {
    struct hr__kineto_memory *memory; /* in the order of time */
    size_t memory_count, memory_room;
    struct hr__kineto_range *ranges; /* by thread, begin, and the longer first */
    size_t range_count, range_room;
    char **names; /* by id - 1 */
    uint32_t name_room;
    struct hr__ids name_ids;
    uint64_t unreadable;                              /* elements that are no JSON */
    int64_t base_ns;                                  /* that times count from, since 1970 */
    int64_t rank;                                     /* -1: not said */
    int64_t pid;                                      /* of the first memory event; 0: not said */
    uint64_t capacity_bytes[HR__IMPORT_DEVICES_MOST]; /* by device; 0: not said */
};

/* On success *out is to be cleared. Errors: -EBADMSG: damaged, with the place, or no trace;
 * -ENOMEM. */
int hr__kineto_read(struct hr__kineto *out, struct hr__input *in, struct hr_error *error);
void hr__kineto_clear(struct hr__kineto *kineto);

#endif
