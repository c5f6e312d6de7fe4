/*
 * Measures how fast storage delivers files that are not in memory. There are two methods:
 *
 * - Around the page cache: O_DIRECT with an io_uring reader. Cached pages do not help, and none are
 *   left behind.
 * - Through the page cache, if io_uring is refused, or the file system lacks O_DIRECT, or it
 *   accepts O_DIRECT and fills the page cache all the same (checked with a file that was not in
 *   memory). Each file is evicted, requested with POSIX_FADV_WILLNEED as many files ahead as reads
 *   should be in flight, read in order, and evicted again. Files are opened one after the other.
 *
 * Memory in flight is bounded: large files are read in pieces, which are smaller at depths beyond
 * 256. All reads that were started are completed and counted.
 *
 * Objects at URLs are read through the same reader, again from the first when they run out: a store
 * sends them anew each time.
 */
#include "storage/measure.h"
#include "storage/residency.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "storage/reader.h"
#include "storage/steady.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

/* Number of equal time bins that count arriving bytes; each part has the same number. */
#define HISTORY (256 * HR_STORAGE_PARTS)

#define SECONDS_MOST 3600

#define PIECE_MOST  (UINT64_C(1) << 20)
#define FLIGHT_MOST (UINT64_C(256) << 20)

/* Alignment of O_DIRECT that every common device accepts. */
#define DIRECT_BYTES 4096

/* Files to check, at most, to find out whether O_DIRECT leaves them out of the page cache. */
#define TRIALS 64

struct large {
    size_t index;          /* index of its path */
    uint64_t offset, size; /* position of the next piece; the file's size */
};

struct measurement {
    const char *const *paths;
    const struct hr__measured_reads *reads; /* in place of paths; NULL: files */
    size_t count;
    unsigned depth;
    uint64_t piece;              /* most bytes per read */
    uint64_t budget_ns, end_ns;  /* time allowed; start no reads after this */
    uint64_t history[HISTORY];   /* bytes that arrived, by time bin */
    struct hr_storage_rate rate; /* the counts so far */
    char problem[256];           /* describes the first failed read */
    size_t next;                 /* next path to read; count: none left */
    struct large *large;         /* large files with pieces left to read. New files wait for them,
                                  * so there are at most `depth` */
    unsigned large_count;
    struct hr__filesystem filesystem; /* file system of the file opened last */
    dev_t device;                     /* its device; 0: none yet */
};

static void note_failure(struct measurement *m, const char *path, const char *why)
{
    if (!m->problem[0])
        hr__resident_problem(m->problem, sizeof m->problem, path, why);
    m->rate.failed++;
}

static void note_read(struct measurement *m, uint64_t bytes)
{
    uint64_t left_ns = m->end_ns - hr__now_ns(); /* wraps once the time is over */
    m->rate.reads++;
    m->rate.bytes += bytes;
    if (left_ns && left_ns <= m->budget_ns)
        m->history[(m->budget_ns - left_ns) * HISTORY / m->budget_ns] += bytes;
}

static void note_parts(struct measurement *m)
{
    double each_s = (double)m->budget_ns * 1e-9 / HR_STORAGE_PARTS;
    m->rate.part_count = (int)fmin(m->rate.elapsed_s / each_s, HR_STORAGE_PARTS);
    for (int i = 0; i < m->rate.part_count; i++)
        for (int k = 0; k < HISTORY / HR_STORAGE_PARTS; k++)
            m->rate.parts[i] += (double)m->history[i * (HISTORY / HR_STORAGE_PARTS) + k] / each_s;
}

static void note_steady(struct measurement *m)
{
    double each_s = (double)m->budget_ns * 1e-9 / HISTORY;
    size_t bins = (size_t)fmin(m->rate.elapsed_s / each_s, HISTORY);
    double steady = hr__steady_rate(m->history, bins, each_s);
    m->rate.steady_bytes_per_s = steady > 0 ? steady : m->rate.bytes_per_s;
}

static int is_exhausted(const struct measurement *m)
{
    return m->next == m->count && !m->large_count;
}

static int is_over(const struct measurement *m)
{
    return is_exhausted(m) || hr__now_ns() >= m->end_ns;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Takes the next piece of the large file found last: returns the index of its path, and sets its
 * position and length. */
static size_t take_piece(struct measurement *m, uint64_t *offset, uint64_t *length)
{
    struct large *large = &m->large[m->large_count - 1];
    size_t index = large->index;
    *offset = large->offset;
    *length = smaller(m->piece, large->size - large->offset);
    large->offset += *length;
    if (large->offset == large->size)
        m->large_count--;
    return index;
}

/* ---- around the page cache ---- */

/* One read in flight. */
struct flight {
    struct hr__read own;   /* of a file */
    struct hr__read *read; /* `own`, or the one that measured reads aim */
    size_t index;          /* index of its path */
};

/* Takes the next of the measured reads, which begin again when all were read. */
static void aim_next(struct measurement *m, struct flight *flight, unsigned slot)
{
    size_t number = m->next;
    m->next = (m->next + 1) % m->count;
    flight->read = m->reads->aim(m->reads->arg, slot, number);
    flight->read->user = flight;
}

static void take_next(struct measurement *m, struct flight *flight)
{
    *flight = (struct flight){.own = {.expected = -1, .fd = -1, .user = flight}};
    flight->read = &flight->own;
    if (m->large_count) {
        uint64_t length;
        flight->index = take_piece(m, &flight->own.offset, &length);
        flight->own.is_range = 1;
        flight->own.expected = (int64_t)length;
    } else {
        flight->index = m->next++;
    }
    flight->own.path = m->paths[flight->index];
}

/* Handles a completed read. The reader refuses large files, which are then read in pieces. */
static void take_result(struct measurement *m, struct flight *flight)
{
    struct hr__read *read = flight->read;
    struct stat status;
    if (read->result == -EFBIG && !m->reads && !read->is_range && !stat(read->path, &status) &&
        (uint64_t)status.st_size > m->piece)
        m->large[m->large_count++] =
            (struct large){.index = flight->index, .size = (uint64_t)status.st_size};
    else if (read->result)
        note_failure(m, read->path, read->reason ? read->reason : hr__errno_text(read->result));
    else
        note_read(m, read->length);
    if (read->result)
        read->bytes = NULL;
    hr__read_drop(read);
}

/* Submits the next read; if it could not be, its result is the reason. */
static void submit_next(struct measurement *m, struct hr__reader *reader, struct flight *flight,
                        unsigned slot)
{
    if (m->reads)
        aim_next(m, flight, slot);
    else
        take_next(m, flight);
    if (!flight->read->result)
        flight->read->result = hr__reader_submit(reader, flight->read);
}

static int measure_direct(struct measurement *m, struct hr__reader *reader, struct flight *flights)
{
    struct hr__read *done[HR__MEASURE_DEPTH];
    struct flight *free_ones[HR__MEASURE_DEPTH];
    unsigned free_count = 0;
    while (free_count < m->depth)
        free_ones[free_count] = &flights[free_count], free_count++;
    for (;;) {
        while (free_count && !is_over(m)) {
            struct flight *flight = free_ones[--free_count];
            submit_next(m, reader, flight, (unsigned)(flight - flights));
            if (!flight->read->result)
                continue;
            take_result(m, flight);
            free_ones[free_count++] = flight;
        }
        if (free_count == m->depth)
            return 0;
        int n = hr__reader_wait(reader, done, (int)m->depth, -1);
        if (n < 0)
            return n;
        for (int i = 0; i < n; i++) {
            struct flight *flight = done[i]->user;
            take_result(m, flight);
            free_ones[free_count++] = flight;
        }
    }
}

/* ---- through the page cache ---- */

/* A file, or a piece of one, requested from the kernel. */
struct asked {
    int fd; /* -1: nothing */
    size_t index;
    uint64_t offset, length;
};

/* Evicts all of a file. Returns 0 or -EINTR. */
static int drop_before(struct measurement *m, int fd, const struct stat *status)
{
    struct hr__resident resident;
    if (!m->device || m->device != status->st_dev)
        hr__filesystem_look(&m->filesystem, fd, status->st_dev);
    m->device = status->st_dev;
    hr__resident_look(&resident, fd, status, &m->filesystem);
    return hr__resident_drop(fd, &resident, &m->filesystem);
}

/* Opens the next file or takes the next piece, evicts the file, and requests its bytes. Returns 0
 * or -EINTR. */
static int ask_for_next(struct measurement *m, struct asked *asked)
{
    struct stat status;
    uint64_t length;
    bool begun = m->large_count != 0;
    *asked = (struct asked){.fd = -1};
    if (begun)
        asked->index = take_piece(m, &asked->offset, &asked->length);
    else
        asked->index = m->next++;
    asked->fd = hr__resident_open(m->paths[asked->index], &status);
    if (asked->fd < 0) {
        note_failure(m, m->paths[asked->index], hr__errno_text(asked->fd));
        return asked->fd == -EINTR ? -EINTR : 0;
    }
    int r = 0;
    if (!begun) {
        r = drop_before(m, asked->fd, &status);
        asked->length = (uint64_t)status.st_size;
    }
    if (asked->length > m->piece) {
        m->large[m->large_count++] =
            (struct large){.index = asked->index, .size = (uint64_t)status.st_size};
        asked->index = take_piece(m, &asked->offset, &length);
        asked->length = length;
    }
    /* Request exactly these bytes, and let nothing more be read ahead. */
    (void)posix_fadvise(asked->fd, 0, 0, POSIX_FADV_RANDOM);
    (void)posix_fadvise(asked->fd, (off_t)asked->offset, (off_t)asked->length, POSIX_FADV_WILLNEED);
    return r;
}

/* Reads the requested bytes and evicts them. Returns 0 or -EINTR. */
static int read_asked(struct measurement *m, struct asked *asked, uint8_t *buffer)
{
    uint64_t done = 0;
    ssize_t n = 1;
    if (asked->fd < 0)
        return 0;
    (void)fcntl(asked->fd, F_SETFL, 0); /* clear O_NONBLOCK, so that reads wait */
    while (done < asked->length && n > 0) {
        n = pread(asked->fd, buffer, (size_t)(asked->length - done), (off_t)(asked->offset + done));
        if (n > 0)
            done += (uint64_t)n;
    }
    int r = n < 0 ? -errno : 0;
    if (r)
        note_failure(m, m->paths[asked->index], hr__errno_text(r));
    else
        note_read(m, done);
    (void)posix_fadvise(asked->fd, (off_t)asked->offset, (off_t)asked->length, POSIX_FADV_DONTNEED);
    close(asked->fd);
    asked->fd = -1;
    return r == -EINTR ? r : 0;
}

static int measure_buffered(struct measurement *m, struct asked *asked, uint8_t *buffer)
{
    size_t begun = 0, ended = 0;
    int r = 0;
    for (size_t i = 0; i < m->depth; i++)
        asked[i].fd = -1;
    while (!r && (ended < begun || !is_over(m))) {
        while (!r && begun - ended < m->depth && !is_over(m))
            r = ask_for_next(m, &asked[begun++ % m->depth]);
        if (!r && ended < begun)
            r = read_asked(m, &asked[ended++ % m->depth], buffer);
    }
    for (size_t i = 0; i < m->depth; i++)
        if (asked[i].fd >= 0)
            close(asked[i].fd);
    return r;
}

/* ---- choosing the method ---- */

/* Returns 1 if O_DIRECT leaves this file out of the page cache, 0 if it does not, -1 if this file
 * cannot show it. */
static int try_direct(const char *path, uint8_t *page)
{
    struct stat status;
    struct hr__filesystem filesystem;
    struct hr__resident before, after;
    int verdict = -1;
    int fd = hr__resident_open(path, &status);
    if (fd < 0)
        return -1;
    hr__filesystem_look(&filesystem, fd, status.st_dev);
    hr__resident_look(&before, fd, &status, &filesystem);
    int direct = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_DIRECT);
    if (direct < 0) {
        verdict = errno == EINVAL ? 0 : -1;
    } else if (status.st_size && before.known != HR__RESIDENT_UNKNOWN && !before.bytes) {
        ssize_t n = pread(direct, page, DIRECT_BYTES, 0);
        hr__resident_look(&after, fd, &status, &filesystem);
        verdict = n < 0 ? (errno == EINVAL ? 0 : -1) : !after.bytes;
        if (after.bytes)
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    if (direct >= 0)
        close(direct);
    close(fd);
    return verdict;
}

/* If the checked files cannot show it (all are in memory), assume that O_DIRECT works. */
static bool direct_works(const char *const *paths, size_t count, uint8_t *page)
{
    int verdict = -1;
    for (size_t i = 0; i < count && i < TRIALS && verdict < 0; i++)
        verdict = try_direct(paths[i], page);
    return verdict != 0;
}

/* Measures by one of the methods. Returns 0 or -errno. */
static int run(struct measurement *m, uint8_t *buffer, struct hr_error *error)
{
    struct hr__reader_options options = {
        .depth = m->depth, .direct = !m->reads, .max_bytes = m->reads ? 0 : m->piece};
    struct hr__reader *reader = NULL;
    struct flight *flights = NULL;
    struct asked *asked = NULL;
    int r = hr__reader_create(&reader, &options, error);
    if (r)
        return r;
    int direct =
        m->reads || (hr__reader_is_io_uring(reader) && direct_works(m->paths, m->count, buffer));
    r = -ENOMEM;
    if (direct)
        flights = hr__alloc(HR__TAG_STORAGE, m->depth, sizeof *flights);
    else
        asked = hr__alloc(HR__TAG_STORAGE, m->depth, sizeof *asked);
    if (flights || asked) {
        uint64_t begin_ns = hr__now_ns();
        m->end_ns = begin_ns + m->budget_ns;
        r = direct ? measure_direct(m, reader, flights) : measure_buffered(m, asked, buffer);
        m->rate.elapsed_s = (double)(hr__now_ns() - begin_ns) * 1e-9;
    }
    hr__reader_destroy(&reader);
    for (unsigned i = 0; flights && i < m->depth; i++)
        hr__free(flights[i].own.bytes);
    hr__free(flights);
    hr__free(asked);
    return !r            ? 0
           : r == -EINTR ? hr__fail(error, r, "a signal came while storage was measured")
                         : hr__fail(error, r, "storage cannot be measured: %s", hr__errno_text(r));
}

/* Measures what `m` names, and stores the result. */
static int measure(struct measurement *m, int depth, double seconds, struct hr_storage_rate *rate,
                   struct hr_error *error)
{
    uint8_t *buffer = NULL;
    int r = hr__versioned_take(&m->rate, sizeof m->rate, rate, "struct hr_storage_rate", error);
    if (r)
        return r;
    if (depth < 1 || depth > HR__MEASURE_DEPTH)
        return hr__fail(error, -EINVAL, "depth is %d; it must be 1 to %d", depth,
                        HR__MEASURE_DEPTH);
    if (!(seconds > 0 && seconds <= SECONDS_MOST))
        return hr__fail(error, -EINVAL, "seconds is %g; it must be above 0, and at most %d",
                        seconds, SECONDS_MOST);
    m->rate = (struct hr_storage_rate){.size = sizeof m->rate};
    m->depth = (unsigned)depth;
    m->piece = smaller(PIECE_MOST, FLIGHT_MOST / m->depth);
    m->budget_ns = (uint64_t)(seconds * 1e9);
    m->large = hr__alloc(HR__TAG_STORAGE, m->depth, sizeof *m->large);
    buffer = hr__alloc_aligned_to(HR__TAG_STORAGE, PIECE_MOST, 0, DIRECT_BYTES);
    if (m->large && buffer)
        r = run(m, buffer, error);
    else
        r = hr__fail(error, -ENOMEM, "no memory for the buffers of reading");
    hr__free(m->large);
    hr__free(buffer);
    if (r)
        return r;
    if (!m->rate.reads)
        return hr__fail(error, -ENODATA, "none of %zu %s could be read%s%s", m->count,
                        m->reads ? "samples" : "files", m->problem[0] ? "; " : "", m->problem);
    m->rate.exhausted = is_exhausted(m);
    m->rate.bytes_per_s = (double)m->rate.bytes / fmax(m->rate.elapsed_s, 1e-9);
    m->rate.reads_per_s = (double)m->rate.reads / fmax(m->rate.elapsed_s, 1e-9);
    note_parts(m);
    note_steady(m);
    hr__versioned_give(rate, &m->rate, sizeof m->rate);
    return 0;
}

int hr_storage_measure(const char *const *paths, size_t count, int depth, double seconds,
                       struct hr_storage_rate *rate, struct hr_error *error)
{
    struct measurement m = {.paths = paths, .count = count};
    int r = hr__resident_check_paths(paths, count, error);
    return r ? r : measure(&m, depth, seconds, rate, error);
}

int hr__measure_reads(const struct hr__measured_reads *reads, int depth, double seconds,
                      struct hr_storage_rate *rate, struct hr_error *error)
{
    struct measurement m = {.reads = reads, .count = reads->count};
    return measure(&m, depth, seconds, rate, error);
}
