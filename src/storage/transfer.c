/*
 * The steps of reading one whole file or a range of one; see transfer.h.
 *
 * One read normally suffices: it asks for more than the file's size, so a result of exactly that
 * size means the end was reached, and growth is noticed without a second call. Descriptors are
 * opened O_NONBLOCK, so that a FIFO or device in the place of a file is refused instead of waited
 * for. Direct reads of a range read whole aligned pieces and then move the range to the front.
 *
 * Reads that must leave nothing in the page cache use RWF_DONTCACHE (Linux 6.14). If the kernel
 * lacks it, they take cached bytes with RWF_NOWAIT and read the file directly if not all of it is
 * cached. If cachestat (Linux 6.5; only for files that the process owns or may write) reports that
 * nothing of the file is cached, it is read directly at once, which saves finding, copying and
 * dropping pages.
 */
#include "storage/transfer.h"

#include "base/clock.h"
#include "storage/cachestat.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80
#endif

/* Alignment of offsets, lengths and addresses for O_DIRECT: a page satisfies every common device.
 * If it does not, the read fails and is repeated buffered. */
#define DIRECT_ALIGNMENT 4096

/* First buffer for a file that reports size 0 (/proc, or an empty file). */
#define UNSIZED_BYTES 4096

/* Most bytes per read call; the kernel's limit is just below 2 GiB. */
#define REQUEST_MOST (UINT64_C(1) << 30)

/* Bytes of buffers kept for reuse: enough for one round of reads of 1 MiB, in their class of sizes.
 * The page faults of new buffers cost as much as receiving the bytes. */
#define RETAIN_BYTES_PER_READ ((size_t)1280 << 10)
#define RETAIN_BYTES_MOST     ((size_t)32 << 20)

/* Consecutive interrupted or would-block results before they count as an error. */
#define RETRIES_MOST 64

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

struct hr__blocks *hr__transfer_pool(unsigned depth)
{
    size_t retain = depth * RETAIN_BYTES_PER_READ;
    return hr__blocks_create(HR__TAG_STORAGE, DIRECT_ALIGNMENT,
                             retain < RETAIN_BYTES_MOST ? retain : RETAIN_BYTES_MOST);
}

int hr__transfer_open_flags(const struct hr__transfer *t)
{
    return O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (t->direct ? O_DIRECT : 0);
}

enum hr__transfer_step hr__transfer_fail(struct hr__transfer *t, int result)
{
    hr__free(t->bytes);
    t->bytes = NULL;
    if (t->borrowed)
        t->fd = -1;
    t->read->result = result;
    t->read->completed_ns = hr__now_ns();
    return HR__STEP_DONE;
}

/* The largest whole file that may be read. */
static uint64_t limit_of(const struct hr__transfer *t)
{
    uint64_t own = t->read->max_bytes, most = t->rules->max_bytes;
    return own && own < most ? own : most;
}

/* Grows the buffer to `capacity` bytes and keeps its contents. */
static int reserve(struct hr__transfer *t, size_t capacity)
{
    struct hr__blocks *pool = t->rules->pool;
    uint8_t *bytes = pool ? hr__blocks_alloc(pool, capacity)
                          : hr__alloc_aligned_to(HR__TAG_STORAGE, capacity, 0, DIRECT_ALIGNMENT);
    if (!bytes)
        return -ENOMEM;
    if (t->length)
        memcpy(bytes, t->bytes, t->length);
    hr__free(t->bytes);
    t->bytes = bytes;
    t->capacity = capacity;
    return 0;
}

/* Moves a range's bytes to the front of the buffer. */
static void trim(struct hr__transfer *t)
{
    size_t skip = (size_t)(t->read->offset - t->start);
    t->length = (size_t)t->read->expected;
    if (skip)
        memmove(t->bytes, t->bytes + skip, t->length);
}

static enum hr__transfer_step finish(struct hr__transfer *t)
{
    if (t->read->is_range)
        trim(t);
    if (t->capacity - t->length < HR__READ_SLACK && reserve(t, t->length + HR__READ_SLACK))
        return hr__transfer_fail(t, -ENOMEM);
    memset(t->bytes + t->length, 0, HR__READ_SLACK);
    struct hr__read *read = t->read;
    read->bytes = t->bytes;
    read->length = t->length;
    read->result = 0;
    read->completed_ns = hr__now_ns();
    t->bytes = NULL;
    if (t->borrowed)
        t->fd = -1;
    return HR__STEP_DONE;
}

/* Starts again from the beginning, with a descriptor of our own. */
static enum hr__transfer_step restart(struct hr__transfer *t, int direct)
{
    t->direct = direct;
    t->rw_flags = t->was_cold ? RWF_DONTCACHE : 0;
    t->was_cold = 0;
    if (!t->borrowed)
        t->stale_fd = t->fd;
    t->borrowed = 0;
    t->fd = -1;
    t->length = 0;
    hr__free(t->bytes);
    t->bytes = NULL;
    return HR__STEP_OPEN;
}

/* Repeats the read through the page cache: O_DIRECT is refused for this file, or a short read broke
 * its alignment. */
static enum hr__transfer_step restart_buffered(struct hr__transfer *t)
{
    return restart(t, 0);
}

static int is_passing(int result)
{
    return result == -EINTR || result == -EAGAIN;
}

/* Makes room for the range; a direct read starts a little before it. */
static enum hr__transfer_step begin_range(struct hr__transfer *t)
{
    const struct hr__read *read = t->read;
    t->start = t->direct ? read->offset / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT : read->offset;
    t->size = read->offset - t->start + (uint64_t)read->expected;
    size_t room = t->direct ? round_up((size_t)t->size, DIRECT_ALIGNMENT) : (size_t)t->size;
    if (reserve(t, room + HR__READ_SLACK))
        return hr__transfer_fail(t, -ENOMEM);
    return read->expected ? HR__STEP_READ : finish(t);
}

enum hr__transfer_step hr__transfer_begin(struct hr__transfer *t, struct hr__read *read,
                                          const struct hr__transfer_rules *rules)
{
    read->result = -EINPROGRESS;
    read->bytes = NULL;
    read->length = 0;
    read->next = NULL;
    read->submitted_ns = hr__now_ns();
    read->completed_ns = 0;
    *t = (struct hr__transfer){
        .read = read, .rules = rules, .fd = -1, .stale_fd = -1, .direct = rules->direct};
    if (read->is_range && read->fd >= 0 && read->is_direct)
        t->direct = 1;
    if (read->uncached && !t->direct)
        t->rw_flags = RWF_DONTCACHE;
    t->look = t->rw_flags != 0;
    if (!read->is_range)
        return HR__STEP_OPEN;
    if (read->expected < 0 || read->offset > (uint64_t)(INT64_MAX - read->expected))
        return hr__transfer_fail(t, -EINVAL);
    if ((uint64_t)read->expected > rules->max_bytes)
        return hr__transfer_fail(t, -EFBIG);
    if (read->fd < 0)
        return HR__STEP_OPEN;
    t->fd = read->fd;
    t->borrowed = 1;
    return begin_range(t);
}

/* Returns non-zero if cachestat reports that nothing of an open file is in memory. */
static int is_cold(int fd)
{
    struct hr__cachestat pages = {0};
    return !hr__cachestat(fd, &pages) && !pages.cached;
}

/* Switches our own descriptor to O_DIRECT if possible. */
static void become_direct(struct hr__transfer *t)
{
    int flags = fcntl(t->fd, F_GETFL);
    if (flags < 0 || fcntl(t->fd, F_SETFL, flags | O_DIRECT))
        return;
    t->direct = t->was_cold = 1;
    t->rw_flags = 0;
}

enum hr__transfer_step hr__transfer_opened(struct hr__transfer *t, int result)
{
    struct stat status;
    if (is_passing(result) && t->retries++ < RETRIES_MOST)
        return HR__STEP_OPEN;
    if (result == -EINVAL && t->direct)
        return restart_buffered(t);
    if (result < 0)
        return hr__transfer_fail(t, result);
    t->fd = result;
    /* Directly rather than through the ring: an open file's attributes are in memory. Not by fstat:
     * ThreadSanitizer does not see the ring open and close files, and would take the number's next
     * use for a race. */
    if (fstatat(t->fd, "", &status, AT_EMPTY_PATH))
        return hr__transfer_fail(t, -errno);
    if (S_ISDIR(status.st_mode))
        return hr__transfer_fail(t, -EISDIR);
    if (!S_ISREG(status.st_mode))
        return hr__transfer_fail(t, -ENXIO);
    if (t->look && status.st_size && is_cold(t->fd))
        become_direct(t);
    t->look = 0;
    if (t->read->is_range)
        return begin_range(t);
    if ((uint64_t)status.st_size > limit_of(t))
        return hr__transfer_fail(t, -EFBIG);
    t->size = (uint64_t)status.st_size;
    if (!t->size && t->direct)
        return restart_buffered(t);
    size_t room = t->size ? (size_t)t->size : UNSIZED_BYTES;
    if (t->direct)
        room = round_up(room, DIRECT_ALIGNMENT);
    return reserve(t, room + HR__READ_SLACK) ? hr__transfer_fail(t, -ENOMEM) : HR__STEP_READ;
}

size_t hr__transfer_request(const struct hr__transfer *t)
{
    size_t room = t->capacity - t->length;
    /* Of a range, read no more than is wanted: the bytes after it belong to other requests. */
    if (t->read->is_range)
        room =
            (t->direct ? round_up((size_t)t->size, DIRECT_ALIGNMENT) : (size_t)t->size) - t->length;
    else if (t->direct)
        room = room / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT;
    return room < REQUEST_MOST ? room : REQUEST_MOST;
}

/*
 * Repeats a read that was interrupted (-EINTR), or that the file system cannot do without waiting
 * (-EAGAIN). In the second case O_NONBLOCK would make it fail for ever. It is cleared, because the
 * file is now known to be a regular file with bytes in it. A file without a size may be one of
 * /proc that waits for events: it keeps the flag, and is read on this thread, which then cannot
 * block.
 */
static enum hr__transfer_step read_again(struct hr__transfer *t, int result)
{
    if (t->retries++ >= RETRIES_MOST)
        return hr__transfer_fail(t, result);
    if (result == -EINTR)
        return HR__STEP_READ;
    if (!t->size) {
        ssize_t n = pread(t->fd, t->bytes + t->length, hr__transfer_request(t),
                          (off_t)hr__transfer_offset(t));
        if (n < 0)
            return errno == EINTR ? HR__STEP_READ : hr__transfer_fail(t, -errno);
        return hr__transfer_got(t, n);
    }
    int flags = fcntl(t->fd, F_GETFL);
    if (flags >= 0 && flags & O_NONBLOCK && fcntl(t->fd, F_SETFL, flags & ~O_NONBLOCK))
        return hr__transfer_fail(t, -errno);
    t->blocking = 1;
    return HR__STEP_READ;
}

/* Handles the bytes of a range, or its end of file. */
static enum hr__transfer_step range_got(struct hr__transfer *t, size_t got)
{
    if (t->length >= t->size)
        return finish(t);
    if (!got)
        return hr__transfer_fail(t, -ENODATA);
    if (t->direct && t->length % DIRECT_ALIGNMENT)
        return restart_buffered(t);
    return HR__STEP_READ;
}

/* Returns non-zero if this way of reading does not work: the kernel or file system lacks the flag,
 * or not all of the file is in memory. */
static int must_change_way(const struct hr__transfer *t, ssize_t result)
{
    if (t->rw_flags == RWF_DONTCACHE)
        return result == -EOPNOTSUPP || result == -EINVAL || result == -ENOTSUP;
    if (t->rw_flags != RWF_NOWAIT)
        return 0;
    return result < 0 || t->length + (uint64_t)result < t->size;
}

static enum hr__transfer_step change_way(struct hr__transfer *t)
{
    /* A file without a size is not on storage. */
    if (t->rw_flags == RWF_NOWAIT || !t->size)
        return restart(t, t->size != 0);
    t->rw_flags = RWF_NOWAIT;
    return HR__STEP_READ;
}

enum hr__transfer_step hr__transfer_got(struct hr__transfer *t, ssize_t result)
{
    if (must_change_way(t, result))
        return change_way(t);
    if (is_passing((int)result))
        return read_again(t, (int)result);
    if (result < 0)
        return result == -EINVAL && t->direct ? restart_buffered(t)
                                              : hr__transfer_fail(t, (int)result);
    t->retries = 0;
    t->length += (size_t)result;
    if (t->read->is_range)
        return range_got(t, (size_t)result);
    if (t->length > limit_of(t))
        return hr__transfer_fail(t, -EFBIG);
    if (!result || (t->size && t->length == t->size))
        return finish(t);
    if (t->direct && (t->length > t->size || t->length % DIRECT_ALIGNMENT))
        return restart_buffered(t);
    if (t->length > t->size && t->capacity - t->length < UNSIZED_BYTES &&
        reserve(t, t->capacity + t->capacity / 2 + UNSIZED_BYTES))
        return hr__transfer_fail(t, -ENOMEM);
    return HR__STEP_READ;
}

static int open_file(const struct hr__transfer *t)
{
    int fd = open(t->read->path, hr__transfer_open_flags(t));
    return fd < 0 ? -errno : fd;
}

static ssize_t read_some(const struct hr__transfer *t)
{
    struct iovec to = {t->bytes + t->length, hr__transfer_request(t)};
    ssize_t n = preadv2(t->fd, &to, 1, (off_t)hr__transfer_offset(t), t->rw_flags);
    return n < 0 ? -errno : n;
}

void hr__transfer_run(struct hr__read *read, const struct hr__transfer_rules *rules)
{
    struct hr__transfer t;
    enum hr__transfer_step step = hr__transfer_begin(&t, read, rules);
    while (step != HR__STEP_DONE) {
        step = step == HR__STEP_OPEN ? hr__transfer_opened(&t, open_file(&t))
                                     : hr__transfer_got(&t, read_some(&t));
        if (t.stale_fd >= 0)
            close(t.stale_fd);
        t.stale_fd = -1;
    }
    if (t.fd >= 0)
        close(t.fd);
}
