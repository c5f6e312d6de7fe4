/*
 * Reading a record file, whole or damaged: it returns what can be trusted, and reports what
 * cannot.
 *
 * Events come in the order of their times, whatever thread recorded them, one extent per
 * thread in memory at a time. A file that is still being written is read as far as it was
 * when it was opened.
 */
#ifndef HR_MEMORY_RECORD_RECORD_H
#define HR_MEMORY_RECORD_RECORD_H

#include <headrace/memory.h>

struct hr__record;

/* What is wrong with a file that could be read all the same. */
struct hr__record_damage {
    uint64_t extents;    /* that were left out, or cut */
    uint64_t lost_bytes; /* of the file, about */
    uint64_t first_at;   /* offset of the first damage */
    char what[160];      /* of the first, in words; "": none */
};

/* What a file says of its recording. */
struct hr__record_about {
    uint64_t start_unix_ns;
    int64_t pid;
    uint64_t lost;   /* events that the recorder could not write */
    int is_ended;    /* 0: the process was killed, or records still */
    int problem;     /* negative errno of what ended the recording early; 0: nothing */
    uint64_t events; /* in the file */
    uint64_t ran;    /* calls of operators whose time on an accelerator is known */
    uint64_t bytes;  /* of the file */
    uint32_t threads;
};

/* On success *out is the caller's. Errors: of the file; -EBADMSG: no record, or its header is
 * damaged; -ENOTSUP: of another version or byte order; -ENOMEM. */
int hr__record_open(struct hr__record **out, const char *path, struct hr_error *error);
void hr__record_close(struct hr__record **record);

void hr__record_about(const struct hr__record *record, struct hr__record_about *about);

/* As far as the file was read by now. */
const struct hr__record_damage *hr__record_damage(const struct hr__record *record);

/* The next events in the order of their times: how many are at *events, valid until the next
 * call; 0: no more; negative: -EIO, -ENOMEM. */
int hr__record_next(struct hr__record *record, const struct hr_memory_event **events,
                    struct hr_error *error);

/* From the beginning again. */
void hr__record_rewind(struct hr__record *record);

/* When a device did what a call asked for; NULL: not known. It takes logarithmic time, and less
 * where calls are asked for in their order. */
const struct hr_memory_ran *hr__record_ran(const struct hr__record *record, uint32_t device,
                                           uint32_t call);

/* A name by its id; "?": there is none. */
const char *hr__record_name(const struct hr__record *record, uint32_t id);

/* A stack by its id: its frames, and how many; 0: there is none. */
size_t hr__record_stack(const struct hr__record *record, uint32_t id,
                        const struct hr_memory_frame **frames);

/* The last value of a fact; NULL: it was not said. */
const char *hr__record_fact(const struct hr__record *record, const char *name);

/* The at-th fact, from 0, as it was written: "name=value"; NULL: there are no more. Those that
 * are damaged are "". */
const char *hr__record_fact_at(const struct hr__record *record, uint32_t at);

#endif
