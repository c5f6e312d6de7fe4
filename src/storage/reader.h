/*
 * How bytes arrive: whole files and ranges of files, many in flight.
 *
 * A reader is used by one thread. Requests are submitted, complete in any
 * order and are collected with hr__reader_wait. The io_uring reader keeps up
 * to `depth` of them in flight in the kernel; the pread reader, for kernels and
 * containers that refuse io_uring, does each at submission, so that its user
 * wants several of them on several threads.
 */
#ifndef HR_STORAGE_READER_H
#define HR_STORAGE_READER_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr__reader;

struct hr__reader_options {
    unsigned depth; /* requests in flight at most, 1..1024 */
    int direct;     /* O_DIRECT where the file system has it */
    int no_io_uring;
    uint64_t max_bytes; /* a larger file is refused with -EFBIG; 0: 2 GiB */
};

/*
 * One file to read, or a range of one; owned by the caller and in place until it
 * has come back. A file's bytes are those up to its end as reading finds it,
 * whatever size it had before. Not a regular file: -EISDIR for a directory, -ENXIO
 * for a FIFO, socket or device, never a wait.
 *
 * A range is exactly `expected` bytes at `offset`; -ENODATA: the file ends before
 * them. With `fd` >= 0 nothing is opened, looked at or closed: the descriptor, of
 * a regular file open for reading, is the caller's and stays open until the read
 * has come back. A reader that reads directly takes one with O_DIRECT and rounds
 * to what that wants; the others want one without.
 */
struct hr__read {
    const char *path; /* owned by the caller; of a range too: where O_DIRECT fails and where
                         fd is -1 it is opened */
    int64_t expected; /* bytes it had when it was scanned; < 0: unknown. Of a range: its length */
    int is_range;     /* non-zero: `fd` and `offset` count */
    int fd;           /* the caller's; -1: open `path` */
    uint64_t offset;  /* of the range's first byte in the file */
    int uncached;     /* non-zero: pages that are not in the page cache are not left there;
                         those that are there are used, and stay. A file without any there is
                         read with O_DIRECT. Without meaning where the read is direct */
    void *user;
    /* results */
    int result;     /* 0 or a negative errno */
    uint8_t *bytes; /* on success: the file's bytes, 64-byte aligned, followed by
                       64 zero bytes; the taker's, freed with hr__free */
    size_t length;
    uint64_t submitted_ns, completed_ns;
    struct hr__read *next; /* free for the caller between submit calls; used inside */
};

/* On success *out is the caller's. io_uring that is refused (seccomp, sysctl,
 * memlock) falls back to pread and is logged once at HR_LOG_INFO. */
int hr__reader_create(struct hr__reader **out, const struct hr__reader_options *options,
                      struct hr_error *error);

/* Waits for what is in flight (cancelling what can be), frees its buffers and
 * the reader. The struct hr__read of unfinished requests get -ECANCELED. */
void hr__reader_destroy(struct hr__reader **reader);

/* Non-zero where io_uring is used. */
int hr__reader_is_io_uring(const struct hr__reader *reader);

/* Hands one request over. The number in flight must be below depth
 * (-EAGAIN). Nothing may reach the kernel until the next wait or flush. */
int hr__reader_submit(struct hr__reader *reader, struct hr__read *read);

/* Completed requests into `done`, up to `capacity`; how many, or a negative
 * errno. timeout_ns: 0 polls, > 0 waits at most that long for the first, < 0
 * waits until there is one; returns 0 at once when nothing is in flight. */
int hr__reader_wait(struct hr__reader *reader, struct hr__read **done, int capacity,
                    int64_t timeout_ns);

unsigned hr__reader_in_flight(const struct hr__reader *reader);

/* One file, on the calling thread, with pread: for rare reads outside the ring.
 * Same guarantees as above; result in read->result too. */
int hr__read_file(struct hr__read *read, uint64_t max_bytes);

#endif
