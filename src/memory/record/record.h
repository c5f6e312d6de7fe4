/*
 * Reads a record file, intact or damaged: returns the valid part and reports the damage.
 *
 * Events are returned in order of time across all threads; one extent per thread is in memory at a
 * time. A file that is still being written is read up to its state when it was opened.
 */
#ifndef HR_MEMORY_RECORD_RECORD_H
#define HR_MEMORY_RECORD_RECORD_H

#include <headrace/memory.h>

struct hr__record;

/* Damage to a file that could still be read. */
struct hr__record_damage {
    uint64_t extents;    /* skipped or truncated */
    uint64_t lost_bytes; /* of the file, estimated */
    uint64_t first_at;   /* offset of the first damage */
    char what[160];      /* description of the first damage; "": none */
};

/* Metadata of a recording. */
struct hr__record_about {
    uint64_t start_unix_ns;
    int64_t pid;
    uint64_t lost;   /* events that the recorder could not write */
    int is_ended;    /* 0: the process was killed or is still recording */
    int problem;     /* negative errno that ended the recording early; 0: none */
    uint64_t events; /* number in the file */
    uint64_t ran;    /* operator calls whose time on an accelerator is known */
    uint64_t bytes;  /* size of the file */
    uint32_t threads;
};

/* The caller closes *out. Errors: those of the file; -EBADMSG: not a record, or its header is
 * damaged; -ENOTSUP: another version or byte order; -ENOMEM. */
int hr__record_open(struct hr__record **out, const char *path, struct hr_error *error);
void hr__record_close(struct hr__record **record);

void hr__record_about(const struct hr__record *record, struct hr__record_about *about);

/* Damage found so far. */
const struct hr__record_damage *hr__record_damage(const struct hr__record *record);

/* Returns the next events in order of time: the number of events at *events, which stay valid until
 * the next call. 0: the end. Errors: -EIO, -ENOMEM. */
int hr__record_next(struct hr__record *record, const struct hr_memory_event **events,
                    struct hr_error *error);

/* Starts again at the first event. */
void hr__record_rewind(struct hr__record *record);

/* Returns when a device executed the work of an operator call; NULL: unknown. Takes logarithmic
 * time, less if calls are looked up in order. */
const struct hr_memory_ran *hr__record_ran(const struct hr__record *record, uint32_t device,
                                           uint32_t call);

/* Returns a name by its id; "?": unknown id. */
const char *hr__record_name(const struct hr__record *record, uint32_t id);

/* Returns a stack by its id: its frames and their number; 0: unknown id. */
size_t hr__record_stack(const struct hr__record *record, uint32_t id,
                        const struct hr_memory_frame **frames);

/* Returns the last value of a fact; NULL: not recorded. */
const char *hr__record_fact(const struct hr__record *record, const char *name);

/* Returns fact number `at`, from 0, as written: "name=value". NULL: past the end; "": damaged. */
const char *hr__record_fact_at(const struct hr__record *record, uint32_t at);

#endif
