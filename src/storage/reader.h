/*
 * Reads whole files and ranges of files asynchronously, many at a time; objects at URLs likewise.
 *
 * A reader is used by one thread. Submit requests, which complete in any order, and collect them
 * with hr__reader_wait. The io_uring reader keeps up to `depth` requests in flight in the kernel.
 * The pread reader, for kernels and containers that refuse io_uring, executes each request during
 * submission; use several of them on several threads for parallel reads.
 */
#ifndef HR_STORAGE_READER_H
#define HR_STORAGE_READER_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr__http_client;
struct hr__reader;
struct hr__reader_backend;
struct hr__read_list;
struct hr__read;

/* Where the bytes of samples come from that are no files (reads with `sample`). Any thread. */
struct hr__sample_source {
    const struct hr__reader_backend *backend; /* storage/backend.h; its `self` is of `open` */
    /* Opens it for one reader, whose backend appends completed requests to `done`. */
    int (*open)(struct hr__sample_source *source, void **self, struct hr__read_list *done);
    _Atomic unsigned depth; /* requests that a reader should keep in flight */
    /* Gets one sample on this thread. Returns the result and stores it in read->result. */
    int (*read)(struct hr__sample_source *source, struct hr__read *read);
};

struct hr__reader_options {
    unsigned depth; /* maximum number of requests in flight, 1..1024 */
    int direct;     /* use O_DIRECT if the file system supports it */
    int no_io_uring;
    uint64_t max_bytes;               /* larger files fail with -EFBIG; 0: 2 GiB */
    struct hr__sample_source *source; /* NULL: reads files */
};

/*
 * A request to read one file or a range of it. The caller owns it and must not move it until it has
 * completed. A whole file is read up to its end at the time of reading, whatever its size was
 * before. Anything but a regular file fails without waiting: -EISDIR for a directory, -ENXIO for a
 * FIFO, socket or device.
 *
 * A range is exactly `expected` bytes at `offset`; it fails with -ENODATA if the file ends before
 * that. With `fd` >= 0 the reader neither opens, checks nor closes a file. It uses that descriptor,
 * which must be of a regular file open for reading; the caller owns it and keeps it open until the
 * read has completed. A reader with `direct` requires a descriptor opened with O_DIRECT and rounds
 * the range to the alignment O_DIRECT needs. Other readers require one without O_DIRECT, unless the
 * request says `is_direct`.
 *
 * With `http`, `path` is the URL of an object, which that client reads; `fd`, `uncached` and the
 * reader's `direct` do not apply. An object whose ETag is not `change`, or whose size is not
 * `expected`, was replaced and fails with -ESTALE. A reader serves the objects of one client.
 */
struct hr__read {
    const char *path;   /* owned by the caller. Ranges need it too: it is opened if `fd` is -1 or if
                         * O_DIRECT fails */
    int64_t expected;   /* a file's size when it was scanned, < 0: unknown; or a range's length */
    int is_range;       /* non-zero: `fd` and `offset` apply */
    int fd;             /* owned by the caller; -1: open `path` */
    int is_direct;      /* `fd` was opened with O_DIRECT, whatever the reader's other files are */
    uint64_t offset;    /* position in the file of the range's first byte */
    uint64_t max_bytes; /* a larger whole file fails with -EFBIG; 0: the reader's limit */
    int uncached; /* non-zero: do not leave pages in the page cache that were not there before.
                   * Cached pages are used and stay. A file with no cached pages is read with
                   * O_DIRECT. Ignored if the reader is direct */
    struct hr__http_client *http; /* NULL: a file */
    uint64_t change; /* of an object: digest of its ETag when it was listed; 0: unknown */
    struct {
        uint64_t index, epoch, seed;
    } sample; /* what a sample source makes; files do not need it */
    void *user;
    /* results */
    int result;     /* 0 or a negative errno */
    uint8_t *bytes; /* on success: the file's bytes, 64-byte aligned, followed by 64 zero bytes. The
                     * caller takes them and frees them with hr__free */
    size_t length;
    uint64_t version; /* of a whole object: digest of its ETag, as now told; 0: none that tells
                       * other bytes apart */
    int64_t label;    /* of a sample source */
    char *reason;     /* of a sample source or an object: why it failed, for people; NULL: `result`
                       * says it. Freed by drop */
    void (*release)(void *arg); /* NULL: `bytes` are freed with hr__free; else this is called in
                                 * place of it */
    void *release_arg;
    uint64_t submitted_ns, completed_ns;
    struct hr__read *next; /* the caller may use it while the request is not submitted */
};

/* Creates a reader; on success the caller owns *out. If io_uring is refused (seccomp, sysctl,
 * memlock), the reader falls back to pread and logs this once at HR_LOG_INFO. */
int hr__reader_create(struct hr__reader **out, const struct hr__reader_options *options,
                      struct hr_error *error);

/* Cancels the requests in flight where possible, waits for them, and frees their buffers and the
 * reader. Unfinished requests get the result -ECANCELED. */
void hr__reader_destroy(struct hr__reader **reader);

/* Returns non-zero if the reader uses io_uring. */
int hr__reader_is_io_uring(const struct hr__reader *reader);

/* Submits one request. Fails with -EAGAIN if `depth` requests are in flight. The request may
 * reach the kernel only at the next wait or flush. */
int hr__reader_submit(struct hr__reader *reader, struct hr__read *read);

/* Stores up to `capacity` completed requests in `done`. Returns how many, or a negative errno.
 * timeout_ns: 0 polls; > 0 waits at most that long for the first completion; < 0 waits without
 * limit. Returns 0 at once if nothing is in flight. */
int hr__reader_wait(struct hr__reader *reader, struct hr__read **done, int capacity,
                    int64_t timeout_ns);

/* Frees the bytes and the reason, if there are any. */
void hr__read_drop(struct hr__read *read);

/* Reads one file on the calling thread with pread, for rare reads outside the ring. Same guarantees
 * as above. Returns the result and also stores it in read->result. */
int hr__read_file(struct hr__read *read, uint64_t max_bytes);

#endif
