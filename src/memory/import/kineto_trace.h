/*
 * Reads the memory data of a Kineto trace (torch.profiler's JSON): its [memory] events and the
 * ranges around them. The trace is read element by element, so a trace of a gigabyte needs no more
 * memory than these.
 */
#ifndef HR_MEMORY_IMPORT_KINETO_TRACE_H
#define HR_MEMORY_IMPORT_KINETO_TRACE_H

#include "base/ids.h"
#include "base/input.h"
#include "memory/import/import.h"

#include <stddef.h>
#include <stdint.h>

/* A [memory] event, or [OutOfMemory]. */
struct hr__kineto_memory {
    int64_t time_ns;
    uint64_t address;
    int64_t bytes;  /* negative: a free */
    int64_t total;  /* total allocated then, according to the trace; negative: unknown */
    uint64_t order; /* orders events at the same time */
    uint64_t thread;
    uint8_t device; /* as in events of a record; 255: beyond the supported devices */
    uint8_t is_refused;
};

enum hr__kineto_range_kind {
    HR__KINETO_OPERATOR,
    HR__KINETO_PYTHON,     /* a Python function, or a module */
    HR__KINETO_ANNOTATION, /* a step of the profiler, of an optimizer, or the user's own */
};

struct hr__kineto_range {
    uint64_t thread;
    int64_t begin_ns, end_ns;
    uint32_t name;
    uint8_t kind;
};

struct hr__kineto {
    struct hr__kineto_memory *memory; /* sorted by time */
    size_t memory_count;
    struct hr__kineto_range *ranges; /* sorted by thread, begin, longer first */
    size_t range_count;
    char **names; /* indexed by id - 1 */
    struct hr__ids name_ids;
    uint64_t unreadable;                              /* events without a time */
    int64_t base_ns;                                  /* origin of times, since 1970 */
    int64_t rank;                                     /* -1: unknown */
    int64_t pid;                                      /* of the first memory event; 0: unknown */
    uint64_t capacity_bytes[HR__IMPORT_DEVICES_MOST]; /* by device; 0: unknown */
};

/* The caller clears *out. Errors: -EBADMSG: damaged (with the position), or not a trace;
 * -EFBIG: nested too deeply; -ENOMEM. */
int hr__kineto_read(struct hr__kineto *out, struct hr__input *in, struct hr_error *error);
void hr__kineto_clear(struct hr__kineto *kineto);

#endif
