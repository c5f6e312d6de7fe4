/*
 * Page-cache residency: query, evict, preload.
 *
 * cachestat(2) (Linux 6.5) returns a file's page counts in one call, with dirty pages separate. If
 * it is missing, or the file system is layered (open files have no pages of their own there;
 * overlayfs always reports none), mincore(2) on a mapping is used, which reads nothing in. Both
 * hide the counts from processes that neither own the file nor may write to it: cachestat fails,
 * and mincore reports everything as resident, so it is not called then.
 *
 * A page that another CPU has just read can still be in that CPU's list and escape eviction, as can
 * a page whose read is in progress. So files with pages left are evicted again after all other
 * files.
 */
#include "storage/residency.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "storage/cachestat.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Pages per mincore call. */
#define MINCORE_PAGES 16384

/* When reading files into memory: how many files to request ahead, and how many bytes of each. The
 * kernel's readahead covers the rest of large files. */
#define PREREAD_AHEAD     32
#define PREREAD_ASK_BYTES ((off_t)4 << 20)

#define PREREAD_BYTES ((size_t)256 << 10)

int hr__resident_open(const char *path, struct stat *status)
{
    /* Opening a FIFO or a tape has side effects, so check the type before opening. */
    if (stat(path, status))
        return -errno;
    if (!S_ISREG(status->st_mode))
        return S_ISDIR(status->st_mode) ? -EISDIR : -ENXIO;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    int r = fstat(fd, status) ? -errno : S_ISREG(status->st_mode) ? 0 : -ENXIO;
    if (!r)
        return fd;
    close(fd);
    return r;
}

static uint64_t at_most(uint64_t pages, const struct stat *status)
{
    uint64_t bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return bytes < (uint64_t)status->st_size ? bytes : (uint64_t)status->st_size;
}

/* Returns whether mincore reports the truth for this file. */
static bool may_ask(int fd, const struct stat *status)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return status->st_uid == geteuid() || !faccessat(AT_FDCWD, path, W_OK, AT_EACCESS);
}

static void look_by_mapping(struct hr__resident *resident, int fd, const struct stat *status)
{
    unsigned char pages[MINCORE_PAGES];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), window = MINCORE_PAGES * page;
    uint64_t size = (uint64_t)status->st_size, found = 0;
    if (!may_ask(fd, status))
        return;
    for (uint64_t at = 0; at < size; at += window) {
        size_t length = size - at < window ? (size_t)(size - at) : window;
        void *map = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, (off_t)at);
        if (map == MAP_FAILED)
            return;
        int r = mincore(map, length, pages);
        munmap(map, length);
        if (r)
            return;
        for (size_t i = 0; i < (length + page - 1) / page; i++)
            found += pages[i] & 1;
    }
    resident->known = HR__RESIDENT_PAGES;
    resident->bytes = at_most(found, status);
}

void hr__resident_look(struct hr__resident *resident, int fd, const struct stat *status,
                       const struct hr__filesystem *filesystem)
{
    struct hr__cachestat pages = {0};
    *resident = (struct hr__resident){0};
    if (filesystem->own_cache)
        return;
    if (filesystem->layered || hr__cachestat(fd, &pages)) {
        look_by_mapping(resident, fd, status);
        return;
    }
    resident->known = HR__RESIDENT_ALL;
    resident->bytes = at_most(pages.cached, status);
    resident->dirty_bytes = at_most(pages.dirty + pages.under_writeback, status);
}

int hr__resident_drop(int fd, const struct hr__resident *before,
                      const struct hr__filesystem *filesystem)
{
    int clean = before->known == HR__RESIDENT_ALL && !before->dirty_bytes;
    int r = 0;
    /* On local storage writing the pages suffices; it needs no journal commit and no server. Pages
     * that cannot be written stay, and the next query reports them. */
    if (!clean && !filesystem->in_memory) {
        r = before->known == HR__RESIDENT_ALL && !filesystem->network && !filesystem->layered
                ? sync_file_range(fd, 0, 0,
                                  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                      SYNC_FILE_RANGE_WAIT_AFTER)
                : fdatasync(fd);
        if (r && errno != EINTR)
            r = fdatasync(fd);
        if (r && errno == EINTR)
            return -EINTR;
    }
    return posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == EINTR ? -EINTR : 0;
}

void hr__resident_problem(char *out, size_t capacity, const char *path, const char *text)
{
    char shown[160];
    const size_t most = 130;
    size_t length = strlen(path);
    int cut = length > most;
    hr__printable(shown, sizeof shown, cut ? path + length - most : path);
    snprintf(out, capacity, "%s%s: %s", cut ? "..." : "", shown, text);
}

int hr__resident_check_paths(const char *const *paths, size_t count, struct hr_error *error)
{
    if (count && !paths)
        return hr__fail(error, -EINVAL, "%zu files, but no paths", count);
    for (size_t i = 0; i < count; i++)
        if (!paths[i])
            return hr__fail(error, -EINVAL, "path %zu of %zu is NULL", i, count);
    return 0;
}

/* The state of a survey of many files. */
struct survey {
    struct hr_storage_residency sum;
    struct hr__filesystem filesystem; /* of `device` */
    dev_t device;
    bool any;        /* filesystem is known */
    bool was_failed; /* sum.problem describes a file that failed */
};

static void note_failed(struct survey *s, const char *path, int code)
{
    if (!s->was_failed)
        hr__resident_problem(s->sum.problem, sizeof s->sum.problem, path,
                             code == -EISDIR  ? "is a directory"
                             : code == -ENXIO ? "is no regular file"
                                              : hr__errno_text(code));
    s->was_failed = true;
    s->sum.failed++;
}

static void note_unknown(struct survey *s, const char *path)
{
    if (!s->sum.problem[0])
        hr__resident_problem(s->sum.problem, sizeof s->sum.problem, path,
                             s->filesystem.own_cache
                                 ? "its file system keeps its files in memory"
                                 : "the kernel reveals its residency only to its owner and to "
                                   "users who may write to it");
    s->sum.unknown++;
}

static void note(struct survey *s, const char *path, const struct stat *status,
                 const struct hr__resident *resident)
{
    s->sum.files++;
    s->sum.bytes += (uint64_t)status->st_size;
    s->sum.resident_bytes += resident->bytes;
    s->sum.dirty_bytes += resident->dirty_bytes;
    /* A file without bytes has nothing in memory. */
    if (resident->known == HR__RESIDENT_UNKNOWN && status->st_size)
        note_unknown(s, path);
}

/* Opens a file and determines its file system. Returns the descriptor, or -1 after counting the
 * file as failed. */
static int begin_file(struct survey *s, const char *path, struct stat *status)
{
    int fd = hr__resident_open(path, status);
    if (fd < 0) {
        note_failed(s, path, fd);
        return fd == -EINTR ? fd : -1;
    }
    if (s->any && s->device == status->st_dev)
        return fd;
    hr__filesystem_look(&s->filesystem, fd, status->st_dev);
    if (!s->any)
        memcpy(s->sum.filesystem, s->filesystem.name, sizeof s->sum.filesystem);
    s->any = true;
    s->device = status->st_dev;
    s->sum.in_memory |= s->filesystem.in_memory;
    s->sum.network |= s->filesystem.network;
    return fd;
}

static int check_file(struct survey *s, const char *path)
{
    struct stat status;
    struct hr__resident resident;
    int fd = begin_file(s, path, &status);
    if (fd < 0)
        return fd == -EINTR ? fd : 0;
    hr__resident_look(&resident, fd, &status, &s->filesystem);
    note(s, path, &status, &resident);
    close(fd);
    return 0;
}

/* Evicts a file and checks the result. If part of it is still in memory, sets *stayed and does not
 * count the file yet. `stayed` is NULL in the last round. */
static int drop_file(struct survey *s, const char *path, uint8_t *stayed)
{
    struct stat status;
    struct hr__resident resident;
    int fd = begin_file(s, path, &status);
    if (fd < 0)
        return fd == -EINTR ? fd : 0;
    hr__resident_look(&resident, fd, &status, &s->filesystem);
    int r = 0;
    if (resident.known == HR__RESIDENT_UNKNOWN || resident.bytes) {
        r = hr__resident_drop(fd, &resident, &s->filesystem);
        hr__resident_look(&resident, fd, &status, &s->filesystem);
    }
    if (stayed && resident.bytes && !s->filesystem.in_memory)
        *stayed = 1;
    else
        note(s, path, &status, &resident);
    close(fd);
    return r;
}

static int begin_survey(struct survey *s, const char *const *paths, size_t count,
                        const struct hr_storage_residency *residency, struct hr_error *error)
{
    int r =
        hr__versioned_take(&s->sum, sizeof s->sum, residency, "struct hr_storage_residency", error);
    if (r)
        return r;
    *s = (struct survey){.sum.size = sizeof s->sum};
    return hr__resident_check_paths(paths, count, error);
}

static int end_survey(const struct survey *s, int r, struct hr_storage_residency *residency,
                      struct hr_error *error)
{
    if (r == -EINTR)
        return hr__fail(error, r, "a signal came while files were examined");
    hr__versioned_give(residency, &s->sum, sizeof s->sum);
    return 0;
}

int hr_storage_check(const char *const *paths, size_t count, struct hr_storage_residency *residency,
                     struct hr_error *error)
{
    struct survey s;
    int r = begin_survey(&s, paths, count, residency, error);
    if (r)
        return r;
    for (size_t i = 0; i < count && !r; i++)
        r = check_file(&s, paths[i]);
    return end_survey(&s, r, residency, error);
}

int hr_storage_drop(const char *const *paths, size_t count, struct hr_storage_residency *residency,
                    struct hr_error *error)
{
    struct survey s;
    int r = begin_survey(&s, paths, count, residency, error);
    if (r)
        return r;
    uint8_t *stayed = hr__alloc(HR__TAG_STORAGE, count ? count : 1, 1);
    if (!stayed)
        return hr__fail(error, -ENOMEM, "no memory for a list of %zu files", count);
    for (size_t i = 0; i < count && !r; i++)
        r = drop_file(&s, paths[i], &stayed[i]);
    for (size_t i = 0; i < count && !r; i++)
        if (stayed[i])
            r = drop_file(&s, paths[i], NULL);
    hr__free(stayed);
    return end_survey(&s, r, residency, error);
}

/* ---- reading into memory ---- */

/* A file that was requested and waits to be read. */
struct ahead {
    int fd; /* -1: could not be opened */
    struct stat status;
    struct hr__filesystem filesystem;
};

static void ask_for(struct survey *s, struct ahead *ahead, const char *path, int *r)
{
    ahead->fd = begin_file(s, path, &ahead->status);
    if (ahead->fd == -EINTR)
        *r = ahead->fd;
    ahead->filesystem = s->filesystem;
    if (ahead->fd >= 0)
        (void)posix_fadvise(ahead->fd, 0, PREREAD_ASK_BYTES, POSIX_FADV_WILLNEED);
}

/* Reads a file requested before. Stops at its size, because some files have no end. Returns 0 or
 * -errno. */
static int read_through(const struct ahead *ahead, uint8_t *buffer)
{
    uint64_t at = 0, size = (uint64_t)ahead->status.st_size;
    while (at < size) {
        ssize_t n = pread(ahead->fd, buffer, PREREAD_BYTES, (off_t)at);
        if (n < 0 && errno == EAGAIN) {
            /* The file system cannot read without waiting, so allow it to wait. */
            int flags = fcntl(ahead->fd, F_GETFL);
            if (flags < 0 || !(flags & O_NONBLOCK) ||
                fcntl(ahead->fd, F_SETFL, flags & ~O_NONBLOCK))
                return -EAGAIN;
            continue;
        }
        if (n < 0)
            return -errno;
        if (!n)
            break;
        at += (uint64_t)n;
    }
    return 0;
}

static int preread_file(struct survey *s, struct ahead *ahead, const char *path, uint8_t *buffer)
{
    struct hr__resident resident;
    if (ahead->fd < 0)
        return 0;
    int r = read_through(ahead, buffer);
    if (r) {
        note_failed(s, path, r);
    } else {
        hr__resident_look(&resident, ahead->fd, &ahead->status, &ahead->filesystem);
        note(s, path, &ahead->status, &resident);
    }
    close(ahead->fd);
    ahead->fd = -1;
    return r == -EINTR ? r : 0;
}

int hr_storage_preread(const char *const *paths, size_t count,
                       struct hr_storage_residency *residency, struct hr_error *error)
{
    struct survey s;
    struct ahead window[PREREAD_AHEAD];
    int r = begin_survey(&s, paths, count, residency, error);
    if (r)
        return r;
    uint8_t *buffer = hr__alloc_aligned(HR__TAG_STORAGE, PREREAD_BYTES, 0);
    if (!buffer)
        return hr__fail(error, -ENOMEM, "no memory for a buffer of %zu bytes", PREREAD_BYTES);
    for (size_t i = 0; i < PREREAD_AHEAD; i++)
        window[i].fd = -1;
    size_t asked = 0;
    for (size_t i = 0; i < count && !r; i++) {
        for (; asked < count && asked < i + PREREAD_AHEAD && !r; asked++)
            ask_for(&s, &window[asked % PREREAD_AHEAD], paths[asked], &r);
        if (!r)
            r = preread_file(&s, &window[i % PREREAD_AHEAD], paths[i], buffer);
    }
    for (size_t i = 0; i < PREREAD_AHEAD; i++)
        if (window[i].fd >= 0)
            close(window[i].fd);
    hr__free(buffer);
    return end_survey(&s, r, residency, error);
}
