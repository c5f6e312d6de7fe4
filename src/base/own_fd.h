/*
 * Descriptors that forked children must not keep: a lock that says that a process lives
 * belongs to the open file, which a child would inherit and hold for as long as it lives
 * itself. Handlers of fork close them in every child, and nobody forks between the opening of
 * one and its entry in their list, the process's only one.
 */
#ifndef HR_BASE_OWN_FD_H
#define HR_BASE_OWN_FD_H

#include <stddef.h>
#include <sys/types.h>

/* Begins as HR__OWN_FD_NONE. */
struct hr__own_fd {
    int fd; /* -1: none, or in a forked child */
    struct hr__own_fd *next;
};

#define HR__OWN_FD_NONE ((struct hr__own_fd){.fd = -1})

/* openat, close-on-exec, and a copy of `fd`. `own` stays where it is until it is closed. 0 or a
 * negative errno. */
int hr__own_fd_open(struct hr__own_fd *own, int at, const char *path, int flags, mode_t mode);
int hr__own_fd_copy(struct hr__own_fd *own, int fd);

/* Closes it, if there is anything to close; in any process. */
void hr__own_fd_close(struct hr__own_fd *own);

/* Maps the file's first bytes, shared, by an open file of the mapping's own: a child inherits the
 * mapping, and must not inherit the locks with it. Where the file is truncated the mapping turns
 * into zeros (base/truncation.h). MAP_FAILED and errno as of mmap. */
void *hr__own_fd_map(const struct hr__own_fd *own, size_t bytes, int protection, int flags);

/* Ends a mapping, in any process. */
void hr__own_fd_unmap(void *memory, size_t bytes);

#endif
