/*
 * Creates, checks and locks directories of segments; see directory_lock.h.
 *
 * The lock is flock's, on an open file of our own, so it also excludes the other threads of this
 * process. Forked children do not keep it (base/own_fd.h).
 */
#include "cache/directory_lock.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PLACE "/dev/shm"

/* A line waiting to be logged. */
struct hr__directory_note {
    struct hr__directory_note *next;
    enum hr_log_level level;
    char text[600];
};

const char *hr__directory_place(void)
{
    const char *place = getenv("HEADRACE_SHM");
    return place && *place ? place : PLACE;
}

int hr__directory_is_member(int64_t group)
{
    if (group == (int64_t)getegid())
        return 1;
    int count = getgroups(0, NULL), member = 0;
    if (count <= 0)
        return 0;
    gid_t *groups = hr__alloc(HR__TAG_CACHE, (size_t)count, sizeof *groups);
    if (groups)
        count = getgroups(count, groups);
    for (int i = 0; groups && i < count; i++)
        member |= (int64_t)groups[i] == group;
    hr__free(groups);
    return member;
}

/* Finds a group by name. Returns its number, or -1. */
static int64_t find_group(const char *name)
{
    struct group entry, *found = NULL;
    size_t size = 1 << 12;
    int64_t group = -1;
    for (; size <= 1 << 24; size *= 4) {
        char *buffer = hr__alloc(HR__TAG_CACHE, size, 1);
        if (!buffer)
            break;
        int r = getgrnam_r(name, &entry, buffer, size, &found);
        if (!r && found)
            group = (int64_t)entry.gr_gid;
        hr__free(buffer);
        if (r != ERANGE)
            break;
    }
    return group;
}

int hr__directory_group(const char *name, int64_t *group, struct hr_error *error)
{
    *group = HR__DIRECTORY_OWN;
    if (!*name)
        return 0;
    *group = find_group(name);
    size_t digits = strspn(name, "0123456789");
    if (*group < 0 && !name[digits] && digits < 10)
        *group = (int64_t)strtoul(name, NULL, 10);
    if (*group < 0)
        return hr__fail(error, -EINVAL,
                        "group %s of a cache does not exist here: write one that \"id -Gn\" shows",
                        name);
    if (!hr__directory_is_member(*group))
        return hr__fail(error, -EACCES,
                        "this process is not a member of group %s of a cache: write one that \"id "
                        "-Gn\" shows, or be added to it and log in again",
                        name);
    return 0;
}

/* Creates a group's directory under a temporary name, so that it appears with its owner and group
 * set. */
static int make_shared(const char *path, gid_t group)
{
    char other[300];
    snprintf(other, sizeof other, "%s.%" PRIu64, path, hr__now_ns());
    if (mkdir(other, 0700))
        return -errno;
    int fd = open(other, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = 0;
    if (fd < 0 || fchown(fd, (uid_t)-1, group) || fchmod(fd, 02770) ||
        renameat2(AT_FDCWD, other, AT_FDCWD, path, RENAME_NOREPLACE))
        r = -errno;
    if (fd >= 0)
        close(fd);
    if (r)
        rmdir(other);
    return r == -EEXIST ? 0 : r;
}

static int make(const struct hr__directory *d, const struct hr__directory_where *where,
                struct hr_error *error)
{
    int r = 0;
    if (where->group != HR__DIRECTORY_OWN)
        r = make_shared(d->path, (gid_t)where->group);
    else if (mkdir(d->path, 0700) && errno != EEXIST)
        r = -errno;
    if (r && d->on_disk)
        return hr__fail(error, r,
                        "cannot make the directory %s for a cache: %s; name one whose parent "
                        "exists, on a disk that this process may write to",
                        d->path, hr__errno_text(r));
    if (!r)
        return 0;
    return hr__fail(error, r,
                    "cannot make the directory %s for caches: %s; a file system of memory (tmpfs) "
                    "must be mounted there that this process may write to, or HEADRACE_SHM name "
                    "another one",
                    d->path, hr__errno_text(r));
}

/* What to do if a directory cannot be used. */
static const char *way_out(const struct hr__directory *d)
{
    return d->on_disk ? "name another directory" : "name another place with HEADRACE_SHM";
}

static int check(const struct hr__directory *d, int64_t group, struct hr_error *error)
{
    struct stat st;
    if (fstat(d->own.fd, &st))
        return hr__fail(error, -errno, "cannot look at the directory %s of caches: %s", d->path,
                        hr__errno_text(errno));
    if (group == HR__DIRECTORY_OWN) {
        if (st.st_uid != geteuid())
            return hr__fail(error, -EACCES,
                            "the directory %s of caches belongs to user %u, not to this one: have "
                            "it removed, or %s",
                            d->path, (unsigned)st.st_uid, way_out(d));
        if (st.st_mode & 0077)
            return hr__fail(error, -EACCES,
                            "the directory %s of caches is open to others (mode %04o): chmod 700, "
                            "or remove it",
                            d->path, (unsigned)(st.st_mode & 07777));
    } else if ((int64_t)st.st_gid != group || (st.st_mode & 07777) != 02770) {
        return hr__fail(error, -EACCES,
                        "the directory %s of caches is not of group %" PRId64
                        " alone (it is of group %u, mode %04o): have it removed",
                        d->path, group, (unsigned)st.st_gid, (unsigned)(st.st_mode & 07777));
    }
    return 0;
}

static int open_checked(struct hr__directory *d, const struct hr__directory_where *where,
                        int may_make, struct hr_error *error)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
    int r = hr__own_fd_open(&d->own, AT_FDCWD, d->path, flags, 0);
    if (r == -ENOENT && may_make) {
        r = make(d, where, error);
        if (r)
            return r;
        r = hr__own_fd_open(&d->own, AT_FDCWD, d->path, flags, 0);
        if (r == -ENOENT) /* removed again meanwhile: the caller retries */
            return -ESTALE;
    }
    if (r == -ELOOP || r == -ENOTDIR)
        return hr__fail(error, -EACCES,
                        "%s is not a directory, but a link or a file that somebody put there: "
                        "have it removed, or %s",
                        d->path, way_out(d));
    if (r)
        return hr__fail(error, r, "cannot open the directory %s of caches: %s", d->path,
                        hr__errno_text(r));
    r = check(d, where->group, error);
    if (r)
        hr__own_fd_close(&d->own);
    return r;
}

/* Returns non-zero if the directory is still the one at its path. */
static int is_there(const struct hr__directory *d)
{
    struct stat ours, there;
    return !fstat(d->own.fd, &ours) && !lstat(d->path, &there) && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

int hr__directory_lock(struct hr__directory *d, const struct hr__directory_where *where,
                       int may_make, struct hr_error *error)
{
    *d = (struct hr__directory){.own = HR__OWN_FD_NONE, .on_disk = *where->disk != 0};
    int length;
    if (d->on_disk)
        length = snprintf(d->path, sizeof d->path, "%s", where->disk);
    else if (where->group == HR__DIRECTORY_OWN)
        length = snprintf(d->path, sizeof d->path, "%s/headrace-%u", hr__directory_place(),
                          (unsigned)geteuid());
    else
        length = snprintf(d->path, sizeof d->path, "%s/headrace-g%" PRId64, hr__directory_place(),
                          where->group);
    if (length >= (int)sizeof d->path)
        return hr__fail(error, -ENAMETOOLONG, "the place of caches, HEADRACE_SHM, is too long: %s",
                        hr__directory_place());
    uint64_t end = hr__now_ns() + HR__DIRECTORY_PATIENCE_NS;
    do {
        int r = open_checked(d, where, may_make, error);
        if (r == -ESTALE)
            continue;
        if (r)
            return r;
        int locked = !flock(d->own.fd, LOCK_EX | LOCK_NB);
        if (locked && is_there(d))
            return 0;
        hr__own_fd_close(&d->own);
        if (!locked)
            pause_ns(2000000);
    } while (hr__now_ns() < end);
    return hr__fail(
        error, -EAGAIN,
        "the directory %s of caches has been locked by another process for 10 seconds, "
        "which may have been stopped: find it with \"fuser -v %s\", and continue or end it",
        d->path, d->path);
}

int hr__directory_lock_again(struct hr__directory *d, int fd, int on_disk, uint64_t patience_ns)
{
    *d = (struct hr__directory){.own = HR__OWN_FD_NONE, .on_disk = on_disk};
    int r = hr__own_fd_open(&d->own, fd, ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (r)
        return r;
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", d->own.fd);
    ssize_t length = readlink(link, d->path, sizeof d->path - 1);
    d->path[length < 0 ? 0 : length] = 0;
    uint64_t end = hr__now_ns() + patience_ns;
    while (flock(d->own.fd, LOCK_EX | LOCK_NB)) {
        if (hr__now_ns() >= end) {
            hr__own_fd_close(&d->own);
            return -EAGAIN;
        }
        pause_ns(500000);
    }
    return 0;
}

void hr__directory_note(struct hr__directory *d, enum hr_log_level level, const char *format, ...)
{
    struct hr__directory_note *note = hr__alloc(HR__TAG_CACHE, 1, sizeof *note);
    if (!note)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(note->text, sizeof note->text, format, args);
    va_end(args);
    note->level = level;
    note->next = d->notes;
    d->notes = note;
}

/* The list begins with the newest line; log it in the original order. */
static void log_notes(struct hr__directory_note *notes)
{
    struct hr__directory_note *ordered = NULL;
    while (notes) {
        struct hr__directory_note *next = notes->next;
        notes->next = ordered;
        ordered = notes;
        notes = next;
    }
    while (ordered) {
        struct hr__directory_note *next = ordered->next;
        hr__log(ordered->level, "%s", ordered->text);
        hr__free(ordered);
        ordered = next;
    }
}

void hr__directory_unlock(struct hr__directory *d)
{
    if (d->own.fd < 0)
        return;
    if (!d->on_disk && is_there(d))
        rmdir(d->path); /* succeeds if it is empty */
    /* Unlock explicitly: a child of vfork has a copy of the descriptor until it calls exec. */
    flock(d->own.fd, LOCK_UN);
    hr__own_fd_close(&d->own);
    log_notes(d->notes);
    d->notes = NULL;
}
