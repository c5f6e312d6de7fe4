/*
 * Imports other tools' files as records: what the readers share.
 *
 * A reader parses the whole file first and then writes its events to a record in the order of
 * time. These formats do not record accesses, and no reader invents them.
 */
#ifndef HR_MEMORY_IMPORT_IMPORT_H
#define HR_MEMORY_IMPORT_IMPORT_H

#include "memory/import/input.h"
#include "memory/record/record.h"

#include <headrace/memory.h>

#define HR__IMPORT_FRAMES_MOST  64
#define HR__IMPORT_DEVICES_MOST 17 /* host memory and 16 accelerators */

struct hr__import {
    struct hr__input *in;
    const char *to;
    struct hr_error *error;
    const char *folder; /* of `to`, where nobody is to find it: both lose their names at once */
    int fd;             /* then: of the record; -1: not made */
    struct hr_memory_recorder *recorder; /* NULL: not begun */
    uint64_t last_ns;                    /* of what was told */
    unsigned notes;
};

/* Makes the record. what: the fact "imported from"; the time in ns since 1970 at which its
 * first moment was and the process are 0 where they are not known. Errors: of
 * hr_memory_recorder_create. */
int hr__import_begin(struct hr__import *im, const char *what, uint64_t start_unix_ns, int64_t pid);

/* Records an event. Its time is since the first moment; those that are not later than the event
 * before become so by a nanosecond, so that their order is kept. */
void hr__import_tell(struct hr__import *im, struct hr_memory_event event);

/* The id of a name that may be any bytes, cut where it is long; 0: `text` is NULL or empty. */
uint32_t hr__import_name(struct hr__import *im, const char *text);

/* What a block is, by the phases in which it is allocated and freed: what the forward pass makes
 * and the backward pass frees is an activation; what the backward pass makes and outlives it a
 * gradient; what the optimizer makes and keeps its state. is_same_pass: no other backward pass
 * began in between. */
#define HR__IMPORT_NEVER (-1)
enum hr_memory_category hr__import_category(int made, int freed, int is_same_pass);

/* A sentence that the report is to show (a fact "note ..."). */
void hr__import_note(struct hr__import *im, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

int hr__import_no_memory(const struct hr__import *im);

/* The readers. Errors: -EBADMSG, -ENODATA, -ENOMEM; of reading and of hr__import_begin. */
int hr__import_snapshot(struct hr__import *im);
int hr__import_kineto(struct hr__import *im);
int hr__import_timeline(struct hr__import *im);

/* Reads `in` by what it is into a record at `to`; name: of the file, for messages. Where it fails
 * there is no record. */
int hr__import_read(struct hr__input *in, const char *to, struct hr_error *error);

/* As hr__record_open, of any file that can be imported, too: by a record in TMPDIR that has no
 * name any more. */
int hr__import_open(struct hr__record **out, const char *path, struct hr_error *error);

#endif
