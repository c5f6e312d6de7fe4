/*
 * Finding the agent of this user, and starting one where there is none.
 *
 * Who starts one binds the socket itself, under a lock beside it, and hands it to the new
 * process already listening: of many that try at once one wins, and all connect to the same
 * without waiting for it to come up. The socket's directory is the user's alone.
 */
#ifndef HR_AGENT_LAUNCH_H
#define HR_AGENT_LAUNCH_H

#include <headrace/base.h>

/* An agent that was started for this ends after so long without a job. */
#define HR__LAUNCH_IDLE_MS 5000

/*
 * Connects to the agent at `path` (NULL or "": the default socket); *out, close-on-exec, is the
 * caller's. Errors: -ENOENT, -ECONNREFUSED: none serves it; -EACCES: the socket or its
 * directory belongs to somebody else, or is open to others. Blocks for milliseconds.
 */
int hr__launch_connect(int *out, const char *path, struct hr_error *error);

/*
 * The same at the default socket, starting an agent by `command` (headrace/loader.h) where
 * none answers. The process becomes nobody's child and outlives this one. Errors: -ENOENT:
 * there is no such command; -ETIMEDOUT: another process holds the lock for over ten seconds.
 */
int hr__launch_auto(int *out, const char *command, struct hr_error *error);

/*
 * Makes a listening socket at `path`, owner-only, in a directory that is made owner-only.
 * A socket that nobody serves is replaced. Errors: -EADDRINUSE: somebody serves it; -EACCES;
 * -ENAMETOOLONG.
 */
int hr__launch_listen(int *out, const char *path, struct hr_error *error);

/*
 * The lock beside the socket `path` (NULL or "": the default one), which an agent begins and
 * ends under. Waits up to ten seconds. On success *lock is the caller's, for unlock.
 * Errors: -ETIMEDOUT: another process holds it; -EACCES, -ENAMETOOLONG and others of making
 * the directory and opening.
 */
int hr__launch_lock(int *lock, const char *path, struct hr_error *error);

/* Gives it back and sets *lock to -1; accepts -1. */
void hr__launch_unlock(int *lock);

/* Under the lock, by the agent that ends: takes away the socket, the lock's file, the log where
 * it is empty, and a default directory that is empty then. The lock stays to be unlocked. */
void hr__launch_clean(const char *path);

/* The file that takes the standard error of an agent that hr__launch_auto starts at the
 * default socket: writes it as hr_agent_default_socket does, for messages. */
size_t hr__launch_log(char *buffer, size_t capacity);

/* Non-zero where the process at the other end is of this user, or root. */
int hr__launch_is_ours(int socket);

#endif
