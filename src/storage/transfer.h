/*
 * A state machine that reads one file, or a range of one, into memory. It does no I/O itself: both
 * the io_uring and the pread backend drive it, so they give the same results, and tests can feed it
 * rare results.
 *
 * The driver executes the step, reports its result, and repeats until HR__STEP_DONE. A file is read
 * up to its end at the time of reading: if it has grown since it was opened, the new bytes are read
 * too; if it has shrunk, the result is what is left. A range is read completely or not at all.
 * Private to the storage room.
 */
#ifndef HR_STORAGE_TRANSFER_H
#define HR_STORAGE_TRANSFER_H

#include "base/memory.h"
#include "storage/reader.h"

#include <sys/types.h>

/* Zero bytes after the file's bytes. */
#define HR__READ_SLACK 64

enum hr__transfer_step {
    HR__STEP_OPEN, /* open read->path with hr__transfer_open_flags, report with _opened */
    HR__STEP_READ, /* read hr__transfer_request bytes, report with _got */
    HR__STEP_DONE, /* read->result is set; close `fd` unless it is -1; the transfer is over */
};

/* Settings shared by all transfers of a reader. */
struct hr__transfer_rules {
    uint64_t max_bytes;      /* longer files fail with -EFBIG */
    int direct;              /* try O_DIRECT */
    struct hr__blocks *pool; /* buffer pool from hr__transfer_pool; NULL: none */
};

struct hr__transfer {
    struct hr__read *read;
    const struct hr__transfer_rules *rules;
    int fd;           /* -1: not open */
    int borrowed;     /* `fd` belongs to the caller: do not close it */
    int stale_fd;     /* close it before the next step; -1: none */
    int direct;       /* O_DIRECT is in use or will be tried */
    int rw_flags;     /* RWF_* flags for the reads */
    int look;         /* check after opening whether the file is in memory */
    int was_cold;     /* the file was not in memory, so try O_DIRECT first */
    int blocking;     /* the kernel asked for it: do not try non-blocking again */
    unsigned retries; /* operations that were interrupted or would have blocked */
    uint64_t start;   /* file offset of bytes[0] */
    uint64_t size;    /* bytes wanted from there: the file's size when it was opened, or the bytes
                       * up to the end of the range */
    uint8_t *bytes;   /* free with hr__free */
    size_t capacity;  /* of `bytes` */
    size_t length;    /* bytes read so far; the next read continues there */
};

/* Creates a buffer pool suitable for a reader of this depth. Returns NULL if out of memory. */
struct hr__blocks *hr__transfer_pool(unsigned depth);

/* Starts a transfer and returns its first step: HR__STEP_OPEN; for a range of an open file
 * HR__STEP_READ; or HR__STEP_DONE if the file cannot be read at all. Clears the results in `read`.
 * The rules must outlive the transfer. */
enum hr__transfer_step hr__transfer_begin(struct hr__transfer *transfer, struct hr__read *read,
                                          const struct hr__transfer_rules *rules);

int hr__transfer_open_flags(const struct hr__transfer *transfer);

/* `result`: a descriptor, which the transfer then owns, or a negative errno. */
enum hr__transfer_step hr__transfer_opened(struct hr__transfer *transfer, int result);

/* Returns how many bytes to read, into bytes + length. */
size_t hr__transfer_request(const struct hr__transfer *transfer);

/* Returns the file offset to read them from. */
static inline uint64_t hr__transfer_offset(const struct hr__transfer *transfer)
{
    return transfer->start + transfer->length;
}

/* `result`: bytes read, 0 at the end of the file, or a negative errno. */
enum hr__transfer_step hr__transfer_got(struct hr__transfer *transfer, ssize_t result);

/* Ends the transfer with `result` and frees the bytes. The driver still closes the descriptor. */
enum hr__transfer_step hr__transfer_fail(struct hr__transfer *transfer, int result);

/* Runs a whole transfer on the calling thread with open, pread and close. */
void hr__transfer_run(struct hr__read *read, const struct hr__transfer_rules *rules);

#endif
