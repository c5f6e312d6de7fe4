/*
 * Reads a foreign file from front to back, plain or gzipped, which its first bytes show.
 *
 * Parsers take bytes one by one. A read error is kept, so that a parser checks for it only where
 * the bytes end. Not for several threads at once.
 */
#ifndef HR_MEMORY_IMPORT_INPUT_H
#define HR_MEMORY_IMPORT_INPUT_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr__input {
    const char *name;          /* for messages; borrowed */
    void *file;                /* zlib's; NULL: all is in memory */
    uint8_t *buffer;           /* owned */
    const uint8_t *next, *end; /* what of it is to be read */
    uint64_t passed;           /* bytes before `end` */
    int code;                  /* negative errno: reading failed, and the bytes end there */
    char what[96];             /* then: in words */
};

/* `path` is borrowed until it is closed. Errors: of the file; -EINVAL: no regular file; -ENOMEM. */
int hr__input_open(struct hr__input *in, const char *path, struct hr_error *error);

/* Bytes in memory, borrowed. */
void hr__input_memory(struct hr__input *in, const char *name, const void *bytes, size_t length);

/* Accepts what was never opened, when it is zeroed. */
void hr__input_close(struct hr__input *in);

/* More bytes in next..end: 1, or 0: there are none (see `code`). */
int hr__input_fill(struct hr__input *in);

/* The next byte, which stays or is taken; -1: there is none. */
static inline int hr__input_peek(struct hr__input *in)
{
    return in->next < in->end || hr__input_fill(in) ? *in->next : -1;
}

static inline int hr__input_get(struct hr__input *in)
{
    return in->next < in->end || hr__input_fill(in) ? *in->next++ : -1;
}

/* The offset of the next byte, after unpacking. */
static inline uint64_t hr__input_at(const struct hr__input *in)
{
    return in->passed - (uint64_t)(in->end - in->next);
}

/* Takes `length` bytes; 0 where there are not as many. */
int hr__input_read(struct hr__input *in, void *out, size_t length);

/* Says why there are no more bytes: reading failed, or the file ends within `what`. */
int hr__input_ended(const struct hr__input *in, const char *what, struct hr_error *error);

#endif
