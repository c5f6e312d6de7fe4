/*
 * File descriptors that forked children must not inherit. A process holds a file lock to show that
 * it is alive. The lock belongs to the open file, so a child that inherited the descriptor would
 * keep the lock for its own lifetime. Fork handlers close these descriptors in every child. Opening
 * a descriptor and adding it to the process-wide list happen under a lock that the fork handlers
 * take, so no fork can come between the two.
 */
#ifndef HR_BASE_OWN_FD_H
#define HR_BASE_OWN_FD_H

#include <stddef.h>
#include <sys/types.h>

/* Initialise with HR__OWN_FD_NONE. */
struct hr__own_fd {
    int fd; /* -1: not open, or closed in a forked child */
    struct hr__own_fd *next;
};

#define HR__OWN_FD_NONE ((struct hr__own_fd){.fd = -1})

/* Opens a descriptor with openat (close-on-exec), or duplicates `fd`. `own` must not move until it
 * is closed. Return 0 or a negative errno. */
int hr__own_fd_open(struct hr__own_fd *own, int at, const char *path, int flags, mode_t mode);
int hr__own_fd_copy(struct hr__own_fd *own, int fd);

/* Closes the descriptor if it is open. Works in any process. */
void hr__own_fd_close(struct hr__own_fd *own);

/* Maps the file's first bytes, shared. The mapping gets an open file of its own: a child inherits
 * the mapping, and must not inherit the locks with it. If the file is truncated, the mapping turns
 * into zeros (base/truncation.h). Returns MAP_FAILED and sets errno as mmap does. */
void *hr__own_fd_map(const struct hr__own_fd *own, size_t bytes, int protection, int flags);

/* Removes a mapping. Works in any process. */
void hr__own_fd_unmap(void *memory, size_t bytes);

#endif
