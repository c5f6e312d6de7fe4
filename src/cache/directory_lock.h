/*
 * Opens and locks the directories of segments; directory.h describes them and why they are locked.
 *
 * A directory with unexpected properties, because somebody else created it, is refused and never
 * repaired. An empty directory is removed under its lock. A process that gets the lock of a removed
 * directory starts again.
 *
 * Log lines are kept until the lock is released.
 */
#ifndef HR_CACHE_DIRECTORY_LOCK_H
#define HR_CACHE_DIRECTORY_LOCK_H

#include "base/own_fd.h"

#include <headrace/base.h>

#include <stdint.h>

/* Means the owner's directory, where a group is expected. */
#define HR__DIRECTORY_OWN (-1)

/* How long to wait for a lock: when opening, and when a sample waits for it. */
#define HR__DIRECTORY_PATIENCE_NS UINT64_C(10000000000)
#define HR__DIRECTORY_HURRY_NS    UINT64_C(1000000000)

struct hr__directory_note;

/* A locked directory. It must not be moved while locked. */
struct hr__directory {
    struct hr__own_fd own;
    char path[256];
    int on_disk;
    struct hr__directory_note *notes; /* lines for the log, newest first */
};

/* Returns the parent directory of all these directories. Static storage, or the environment's. */
const char *hr__directory_place(void);

/* Finds a group's number from its name or from digits; "" gives HR__DIRECTORY_OWN. Errors: -EINVAL:
 * no such group; -EACCES: this process is not a member. */
int hr__directory_group(const char *name, int64_t *group, struct hr_error *error);

/* Returns non-zero if this process is a member of the group. */
int hr__directory_is_member(int64_t group);

/* Which directory to lock. */
struct hr__directory_where {
    int64_t group;    /* of a group, or HR__DIRECTORY_OWN */
    const char *disk; /* "": in memory; else the path of a directory on a disk, this user's own */
};

/*
 * Locks a directory; creates it if `make`. Waits at most HR__DIRECTORY_PATIENCE_NS. Release with
 * hr__directory_unlock. Errors: -ENOENT: it does not exist; -EACCES: it belongs to somebody else,
 * or is open to others; -EAGAIN: it stays locked too long.
 */
int hr__directory_lock(struct hr__directory *d, const struct hr__directory_where *where, int make,
                       struct hr_error *error);

/* Locks a directory that is already open. */
int hr__directory_lock_again(struct hr__directory *d, int fd, int on_disk, uint64_t patience_ns);

/* Queues a log line until the lock is released. */
void hr__directory_note(struct hr__directory *d, enum hr_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Removes the directory if it is empty and in memory, and releases the lock. */
void hr__directory_unlock(struct hr__directory *d);

#endif
