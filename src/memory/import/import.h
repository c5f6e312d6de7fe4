/*
 * Imports other tools' files as records: what the readers share.
 *
 * A reader parses the whole file first and then writes its events to a record in order of time.
 * These formats do not record accesses, and no reader invents them.
 */
#ifndef HR_MEMORY_IMPORT_IMPORT_H
#define HR_MEMORY_IMPORT_IMPORT_H

#include "base/input.h"
#include "memory/record/record.h"

#include <headrace/memory.h>

#define HR__IMPORT_FRAMES_MOST  64
#define HR__IMPORT_DEVICES_MOST 17 /* host memory and 16 accelerators */

struct hr__import {
    struct hr__input *in;
    const char *to;
    struct hr_error *error;
    const char *folder; /* folder of `to` if the record is temporary: both are unlinked at once */
    int fd;             /* then: the record's descriptor; -1: not created */
    struct hr_memory_recorder *recorder; /* NULL: not created */
    uint64_t last_ns;                    /* time of the last event */
    unsigned notes;
};

/* ---- target.c ---- */

/* Creates the record. what: the fact "imported from"; start_unix_ns: time of its first moment since
 * 1970; 0 if that or pid is unknown. Errors: those of hr_memory_recorder_create. */
int hr__import_begin(struct hr__import *im, const char *what, uint64_t start_unix_ns, int64_t pid);

/* Records an event. Its time counts from the first moment. If it is not later than the previous
 * event, it is moved to a nanosecond after it, so that the order is kept. */
void hr__import_record(struct hr__import *im, struct hr_memory_event event);

/* Returns the id of a name, which may be any bytes and is cut if long; 0: `text` is NULL or
 * empty. */
uint32_t hr__import_name(struct hr__import *im, const char *text);

/* Infers a block's category from the phases in which it is allocated and freed: an activation is
 * allocated in the forward pass and freed in the backward pass; a gradient is allocated in the
 * backward pass and outlives it; optimizer state is allocated and kept by the optimizer.
 * is_same_pass: no other backward pass began in between. */
#define HR__IMPORT_NEVER (-1)
enum hr_memory_category hr__import_category(int made, int freed, int is_same_pass);

/* Adds a sentence for the report to show (a fact "note ..."). */
void hr__import_note(struct hr__import *im, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

int hr__import_no_memory(const struct hr__import *im);

/* ---- the readers, then import.c ---- */

/* Errors: -EBADMSG, -EFBIG (nested too deeply), -ENODATA, -ENOMEM; those of reading and of
 * hr__import_begin. */
int hr__import_snapshot(struct hr__import *im);
int hr__import_kineto(struct hr__import *im);
int hr__import_timeline(struct hr__import *im);

/* Detects the format of `in` and converts it to a record at `to`. On failure there is no record. */
int hr__import_read(struct hr__input *in, const char *to, struct hr_error *error);

/* Like hr__record_open, but also accepts any importable file: converts it to a record in TMPDIR
 * that is unlinked at once. */
int hr__import_open(struct hr__record **out, const char *path, struct hr_error *error);

#endif
