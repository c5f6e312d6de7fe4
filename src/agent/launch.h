/*
 * Finds the agent of this user, and starts one if there is none.
 *
 * The starter itself binds the socket, under a lock file next to it, and passes it to the new
 * process already listening. So of many processes that start an agent at once one succeeds, and
 * all of them connect to its agent without waiting until that is ready. The socket's directory
 * belongs to the user and is closed to others.
 */
#ifndef HR_AGENT_LAUNCH_H
#define HR_AGENT_LAUNCH_H

#include <headrace/base.h>

/* An automatically started agent ends after this long without a job. */
#define HR__LAUNCH_IDLE_MS 5000

/*
 * Connects to the agent at `path` (NULL or "": the default socket). *out, close-on-exec, is the
 * caller's. Errors: -ENOENT, -ECONNREFUSED: no agent serves it; -EACCES: the socket or its
 * directory belongs to another user, or the directory is open to others; -ETIMEDOUT: the agent
 * has not accepted for two seconds. Usually blocks for milliseconds.
 */
int hr__launch_connect(int *out, const char *path, struct hr_error *error);

/*
 * Connects to the agent at the default socket. If none answers, starts one with `command`
 * (headrace/loader.h). The agent is nobody's child and outlives this process. Errors: -ENOENT:
 * there is no such command; -ETIMEDOUT: another process has held the lock for ten seconds.
 */
int hr__launch_auto(int *out, const char *command, struct hr_error *error);

/*
 * Makes a listening socket at `path` that only its owner can use, and its directory likewise.
 * Replaces a socket that no agent serves. Errors: -EADDRINUSE: an agent serves it; -EACCES;
 * -ENAMETOOLONG.
 */
int hr__launch_listen(int *out, const char *path, struct hr_error *error);

/*
 * Takes the lock of the socket `path` (NULL or "": the default one), under which agents begin and
 * end. Waits up to ten seconds. On success *lock is the caller's, for hr__launch_unlock. Errors:
 * -ETIMEDOUT: another process holds it; -EACCES, -ENAMETOOLONG and other errors of making the
 * directory and opening the file.
 */
int hr__launch_lock(int *lock, const char *path, struct hr_error *error);

/* Releases the lock and sets *lock to -1. Accepts -1. */
void hr__launch_unlock(int *lock);

/* Removes, for an agent that ends and holds the lock, the socket, the lock's file, the log if it is
 * empty, and the default directory if it is then empty. The lock must still be unlocked. */
void hr__launch_clean(const char *path);

/* Writes the path of the log to `buffer`, as hr_agent_default_socket does: the file that receives
 * standard error of the agent that hr__launch_auto starts. */
size_t hr__launch_log(char *buffer, size_t capacity);

/* Returns non-zero if the process at the other end belongs to this user or to root. */
int hr__launch_is_ours(int socket);

#endif
