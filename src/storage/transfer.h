/*
 * One file, or a range of one, on its way into memory, as a state machine without a way of doing
 * I/O of its own: the io_uring and the pread reader both drive it, so that they
 * give the same results, and tests feed it results that are rare in nature.
 *
 * The driver does what `step` says, reports the result, and goes on until
 * HR__STEP_DONE. The file's bytes are those up to its end as reading finds it:
 * a file that has grown since it was opened is read further, one that has
 * shrunk gives what is left. Of a range it is all or nothing. Private to the
 * storage room.
 */
#ifndef HR_STORAGE_TRANSFER_H
#define HR_STORAGE_TRANSFER_H

#include "base/memory.h"
#include "storage/reader.h"

#include <sys/types.h>

/* Zero bytes behind the file's bytes. */
#define HR__READ_SLACK 64

enum hr__transfer_step {
    HR__STEP_OPEN, /* open read->path with hr__transfer_open_flags, report with _opened */
    HR__STEP_READ, /* read hr__transfer_request bytes, report with _got */
    HR__STEP_DONE, /* read->result is set; close `fd` unless it is -1, then forget both */
};

/* What all transfers of a reader have in common. */
struct hr__transfer_rules {
    uint64_t max_bytes;      /* a longer file is refused with -EFBIG */
    int direct;              /* try O_DIRECT */
    struct hr__blocks *pool; /* of buffers, hr__transfer_pool's; NULL: none */
};

struct hr__transfer {
    struct hr__read *read;
    const struct hr__transfer_rules *rules;
    int fd;           /* -1: not open */
    int borrowed;     /* `fd` is the caller's: the transfer forgets it in the end */
    int stale_fd;     /* to be closed before the next step; -1: none */
    int direct;       /* O_DIRECT is still being tried */
    int rw_flags;     /* RWF_*, of the reads */
    int look;         /* whether the file is in memory is to be found out when it is open */
    int was_cold;     /* it was not, so that O_DIRECT is tried first */
    int blocking;     /* the kernel asked for it: do not try without waiting again */
    unsigned retries; /* of operations that were interrupted or would block */
    uint64_t start;   /* where in the file bytes[0] comes from */
    uint64_t size;    /* bytes wanted from there: those the file had when it was opened, or
                         up to the end of the range */
    uint8_t *bytes;   /* hr__free */
    size_t capacity;  /* of `bytes` */
    size_t length;    /* bytes read so far: where the next read goes */
};

/* A pool whose blocks suit transfers, for a reader of this depth; NULL: out of
 * memory. */
struct hr__blocks *hr__transfer_pool(unsigned depth);

/* Begins and returns the first step: HR__STEP_OPEN, but for a range of an open
 * file HR__STEP_READ, or HR__STEP_DONE where it cannot be read at all. Clears the
 * results in `read`. The rules stay where they are until the transfer is done. */
enum hr__transfer_step hr__transfer_begin(struct hr__transfer *transfer, struct hr__read *read,
                                          const struct hr__transfer_rules *rules);

int hr__transfer_open_flags(const struct hr__transfer *transfer);

/* `result`: a descriptor, which the transfer takes, or a negative errno. */
enum hr__transfer_step hr__transfer_opened(struct hr__transfer *transfer, int result);

/* Bytes to ask for, into bytes + length. */
size_t hr__transfer_request(const struct hr__transfer *transfer);

/* Where in the file to ask for them. */
static inline uint64_t hr__transfer_offset(const struct hr__transfer *transfer)
{
    return transfer->start + transfer->length;
}

/* `result`: bytes read, 0 at the end of the file, or a negative errno. */
enum hr__transfer_step hr__transfer_got(struct hr__transfer *transfer, ssize_t result);

/* Gives up with `result`; frees the bytes. The descriptor stays to be closed. */
enum hr__transfer_step hr__transfer_fail(struct hr__transfer *transfer, int result);

/* Runs the whole machine on the calling thread with open, pread and close. */
void hr__transfer_run(struct hr__read *read, const struct hr__transfer_rules *rules);

#endif
