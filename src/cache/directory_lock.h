/*
 * The directories that segments are in, open and locked; directory.h says which there
 * are and why they are locked.
 *
 * A directory that is not what it should be, because somebody else made it, is refused
 * and never repaired. One that is empty is removed under its lock; who then finds that
 * it holds the lock of a directory that is gone begins anew.
 *
 * Lines of the log wait until the lock is given back.
 */
#ifndef HR_CACHE_DIRECTORY_LOCK_H
#define HR_CACHE_DIRECTORY_LOCK_H

#include "base/own_fd.h"

#include <headrace/base.h>

#include <stdint.h>

/* The directory of the owner, where a group is asked for. */
#define HR__DIRECTORY_OWN (-1)

/* Waits for a lock: of opening, and of whoever keeps a sample waiting. */
#define HR__DIRECTORY_PATIENCE_NS UINT64_C(10000000000)
#define HR__DIRECTORY_HURRY_NS    UINT64_C(1000000000)

struct hr__directory_note;

/* A locked directory. Not to be moved while it is. */
struct hr__directory {
    struct hr__own_fd own;
    char path[256];
    struct hr__directory_note *notes; /* lines for the log, the last one first */
};

/* Where the directories of all users and groups are. Static storage, or the environment's. */
const char *hr__directory_place(void);

/* The number of a group by its name, or the digits of its number; "" is
 * HR__DIRECTORY_OWN. Errors: -EINVAL: no such group; -EACCES: this process is no member. */
int hr__directory_group(const char *name, int64_t *group, struct hr_error *error);

/* Non-zero where this process is a member. */
int hr__directory_is_member(int64_t group);

/*
 * Locks the directory of a group, or this user's; makes it where `make`. Waits
 * HR__DIRECTORY_PATIENCE_NS at most. Errors: -ENOENT: it is not there; -EACCES: somebody
 * else's, or open to others; -EAGAIN: locked too long. On success hr__directory_unlock.
 */
int hr__directory_lock(struct hr__directory *d, int64_t group, int make, struct hr_error *error);

/* The same of a directory that is open. */
int hr__directory_lock_again(struct hr__directory *d, int fd, uint64_t patience_ns);

/* Adds a line to the log, once the lock is given back. */
void hr__directory_note(struct hr__directory *d, enum hr_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Removes the directory if it is empty, and gives the lock back. */
void hr__directory_unlock(struct hr__directory *d);

#endif
