/*
 * Reads a foreign file from front to back, plain or gzipped; the first bytes decide which.
 *
 * Parsers take bytes one by one. A read error is kept, so that a parser checks for it only where
 * the bytes end. Not thread-safe.
 */
#ifndef HR_BASE_INPUT_H
#define HR_BASE_INPUT_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr__input {
    const char *name;          /* for messages; borrowed */
    void *file;                /* zlib's; NULL: reading from memory */
    uint8_t *buffer;           /* owned */
    const uint8_t *next, *end; /* the unread part of it */
    uint64_t passed;           /* decompressed bytes before `end` */
    uint64_t length;           /* of all; 0: unknown, because it is compressed */
    int code;                  /* negative errno: reading failed, and the bytes end there */
    char what[96];             /* then: its description */
};

/* `path` is borrowed until hr__input_close. Errors: those of the file; -EISDIR: a folder; -EINVAL:
 * not a regular file; -ENOMEM. */
int hr__input_open(struct hr__input *in, const char *path, struct hr_error *error);

/* Reads from memory, borrowed. */
void hr__input_memory(struct hr__input *in, const char *name, const void *bytes, size_t length);

/* Accepts a zeroed input that was never opened. */
void hr__input_close(struct hr__input *in);

/* Reads more bytes into next..end. Returns 1, or 0 at the end (see `code`). */
int hr__input_fill(struct hr__input *in);

/* Return the next byte, without or with consuming it; -1: the end. */
static inline int hr__input_peek(struct hr__input *in)
{
    return in->next < in->end || hr__input_fill(in) ? *in->next : -1;
}

static inline int hr__input_get(struct hr__input *in)
{
    return in->next < in->end || hr__input_fill(in) ? *in->next++ : -1;
}

/* Returns the offset of the next byte, after decompression. */
static inline uint64_t hr__input_at(const struct hr__input *in)
{
    return in->passed - (uint64_t)(in->end - in->next);
}

/* Reads exactly `length` bytes; returns 0 if there are fewer. */
int hr__input_read(struct hr__input *in, void *out, size_t length);

/* Reports why the bytes ended: reading failed, or the file ends within `what`. */
int hr__input_ended(const struct hr__input *in, const char *what, struct hr_error *error);

#endif
