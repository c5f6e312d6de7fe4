/*
 * Keeps files in the page cache for a while.
 *
 * Kernels evict unmapped pages long before memory runs short (proactive reclaim, DAMON, a
 * hypervisor's balloon), and bytes that then have to be read again would count as fetched. Kernels
 * evict mapped pages only when nothing else is left, and locked pages never. So each file is
 * mapped, populated and, within the limits, locked; then its descriptor is closed. A file that
 * cannot be mapped is only read, and the kernel may evict it.
 *
 * Other parts of the process need lockable memory and mappings too. So this uses at most half of
 * the memory that the process may lock, unless that is unlimited, and half of its mappings. Child
 * processes do not inherit the mappings, so they do not keep pages that were released.
 */
#include "storage/residency.h"

#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/versioned.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USUAL_MAPPINGS 65530 /* the kernel's default of vm.max_map_count */

struct held_file {
    void *start;
    size_t length;
};

struct hr_storage_hold {
    struct held_file *files;
    size_t count;
    size_t most_files;        /* limit on `count` */
    uint64_t most_lock_bytes; /* like the next two: in whole pages */
    uint64_t mapped_bytes, locked_bytes;
    size_t page_bytes;
    struct hr_storage_held sum;
    bool was_unheld;                  /* sum.problem describes a file that is not held */
    struct hr__filesystem filesystem; /* of `device` */
    dev_t device;
    bool any; /* filesystem is known */
};

/* ---- limits ---- */

/* Returns half of the mappings that a process may have. */
static size_t most_mappings(void)
{
    char text[32];
    hr__read_text("/proc/sys/vm/max_map_count", text, sizeof text);
    size_t most = strtoull(text, NULL, 10);
    return (most ? most : USUAL_MAPPINGS) / 2;
}

static bool may_lock_anything(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
    return !syscall(SYS_capget, &header, data) &&
           data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK);
}

static uint64_t most_locked(void)
{
    struct rlimit limit;
    if (may_lock_anything() || getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur / 2;
}

/* ---- one file ---- */

static void note_unheld(struct hr_storage_hold *hold, const char *path, const char *text)
{
    if (!hold->was_unheld)
        hr__resident_problem(hold->sum.problem, sizeof hold->sum.problem, path, text);
    hold->was_unheld = true;
}

static void note_unlocked(struct hr_storage_hold *hold, const char *path)
{
    char text[128];
    if (hold->sum.problem[0])
        return;
    if (hold->most_lock_bytes == UINT64_MAX)
        snprintf(text, sizeof text, "the kernel does not lock it in memory");
    else
        snprintf(text, sizeof text,
                 "is not locked in memory: half of what may be locked is %llu bytes (ulimit -l)",
                 (unsigned long long)hold->most_lock_bytes);
    hr__resident_problem(hold->sum.problem, sizeof hold->sum.problem, path, text);
}

/* Returns why one more file cannot be mapped, or NULL if it can. */
static const char *refusal(const struct hr_storage_hold *hold, uint64_t length, uint64_t most_bytes)
{
    if (hold->filesystem.own_cache)
        return "its file system keeps its files in memory";
    if (hold->mapped_bytes > most_bytes || length > most_bytes - hold->mapped_bytes)
        return "more than is to be held in memory";
    if (hold->count >= hold->most_files)
        return "more files than a process may map (sysctl vm.max_map_count)";
    return length > SIZE_MAX ? hr__errno_text(EFBIG) : NULL;
}

static bool lock(struct hr_storage_hold *hold, const struct held_file *file)
{
    uint64_t most = hold->most_lock_bytes;
    if (hold->locked_bytes > most || file->length > most - hold->locked_bytes ||
        mlock(file->start, file->length))
        return false;
    hold->locked_bytes += file->length;
    return true;
}

/* Maps and locks an open file. `files` must have room for it. */
static void map_file(struct hr_storage_hold *hold, const char *path, int fd, uint64_t most_bytes)
{
    struct stat status;
    uint64_t page = hold->page_bytes;
    if (fstat(fd, &status) || !status.st_size)
        return;
    uint64_t size = (uint64_t)status.st_size, length = (size + page - 1) / page * page;
    const char *why = refusal(hold, length, most_bytes);
    struct held_file file = {.length = (size_t)length, .start = MAP_FAILED};
    if (!why) {
        file.start = mmap(NULL, file.length, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        why = file.start == MAP_FAILED ? hr__errno_text(errno) : NULL;
    }
    if (why) {
        note_unheld(hold, path, why);
        return;
    }
    (void)madvise(file.start, file.length, MADV_DONTFORK);
    bool locked = lock(hold, &file);
    if (!locked)
        note_unlocked(hold, path);
    hold->files[hold->count++] = file;
    hold->mapped_bytes += file.length;
    hold->sum.held_bytes += size;
    hold->sum.locked_bytes += locked ? size : 0;
}

static void learn_filesystem(struct hr_storage_hold *hold, int fd, dev_t device)
{
    if (hold->any && hold->device == device)
        return;
    hr__filesystem_look(&hold->filesystem, fd, device);
    hold->device = device;
    hold->any = true;
}

/* Opens a regular file. Returns the descriptor, -1 if it cannot be opened, or -EINTR. */
static int open_file(struct hr_storage_hold *hold, const char *path, struct stat *status)
{
    int fd = hr__resident_open(path, status);
    if (fd >= 0)
        learn_filesystem(hold, fd, status->st_dev);
    else if (fd != -EINTR)
        note_unheld(hold, path, hr__errno_text(fd));
    return fd >= 0 || fd == -EINTR ? fd : -1;
}

/* ---- all files ---- */

/* Reads the files into memory that are not there. `absent` has room for all paths. */
static int read_absent(struct hr_storage_hold *hold, const char *const *paths, size_t count,
                       const char **absent, struct hr_error *error)
{
    struct hr_storage_residency now = {.size = sizeof now};
    struct hr__resident resident;
    struct stat status;
    size_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        int fd = open_file(hold, paths[i], &status);
        if (fd == -EINTR)
            return hr__fail(error, fd, "a signal came while files were examined");
        if (fd < 0)
            continue;
        hold->sum.files++;
        hold->sum.bytes += (uint64_t)status.st_size;
        hr__resident_look(&resident, fd, &status, &hold->filesystem);
        if (resident.known == HR__RESIDENT_UNKNOWN || resident.bytes < (uint64_t)status.st_size)
            absent[missing++] = paths[i];
        close(fd);
    }
    return hr_storage_preread(absent, missing, &now, error);
}

static int map_files(struct hr_storage_hold *hold, const char *const *paths, size_t count,
                     uint64_t most_bytes, struct hr_error *error)
{
    struct stat status;
    for (size_t i = 0; i < count; i++) {
        int fd = open_file(hold, paths[i], &status);
        if (fd == -EINTR)
            return hr__fail(error, fd, "a signal came while files were mapped");
        if (fd < 0)
            continue;
        map_file(hold, paths[i], fd, most_bytes);
        close(fd);
    }
    return 0;
}

static struct hr_storage_hold *begin(void)
{
    struct hr_storage_hold *hold = hr__alloc(HR__TAG_STORAGE, 1, sizeof *hold);
    if (!hold)
        return NULL;
    hold->most_files = most_mappings();
    hold->most_lock_bytes = most_locked();
    hold->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    hold->sum.size = sizeof hold->sum;
    return hold;
}

/* Unmaps all but the first `count` files. */
static void unmap_files(struct hr_storage_hold *hold, size_t count)
{
    while (hold->count > count) {
        struct held_file *file = &hold->files[--hold->count];
        munmap(file->start, file->length);
    }
}

/* Restores the state before a failed call. Memory allocated since then is kept. */
static void go_back(struct hr_storage_hold *hold, const struct hr_storage_hold *before)
{
    struct held_file *files = hold->files;
    unmap_files(hold, before->count);
    *hold = *before;
    hold->files = files;
}

int hr_storage_hold(const char *const *paths, size_t count, uint64_t most_bytes,
                    struct hr_storage_hold **hold, struct hr_error *error)
{
    int r = hr__resident_check_paths(paths, count, error);
    if (r)
        return r;
    struct hr_storage_hold *held = *hold ? *hold : begin();
    const char **absent = hr__alloc(HR__TAG_STORAGE, count ? count : 1, sizeof *absent);
    struct hr_storage_hold before = {.files = NULL};
    if (held)
        before = *held;
    r = !held || !absent || hr__reserve(HR__TAG_STORAGE, &held->files, held->count + count)
            ? -ENOMEM
            : 0;
    if (r)
        hr__fail(error, r, "no memory for a list of %zu files", count);
    if (!r)
        r = read_absent(held, paths, count, absent, error);
    if (!r)
        r = map_files(held, paths, count, most_bytes, error);
    hr__free(absent);
    if (!r)
        *hold = held;
    else if (*hold)
        go_back(held, &before);
    else
        hr_storage_release(&held);
    return r;
}

int hr_storage_hold_look(const struct hr_storage_hold *hold, struct hr_storage_held *held,
                         struct hr_error *error)
{
    struct hr_storage_held sum = hold->sum;
    int r = hr__versioned_take(&sum, sizeof sum, held, "struct hr_storage_held", error);
    if (!r)
        hr__versioned_give(held, &hold->sum, sizeof hold->sum);
    return r;
}

void hr_storage_release(struct hr_storage_hold **hold)
{
    if (!*hold)
        return;
    unmap_files(*hold, 0);
    hr__free((*hold)->files);
    hr__free(*hold);
    *hold = NULL;
}
