/*
 * Starts a command that outlives the caller: a process in a session of its own, nobody's child.
 *
 * The caller may have many threads, much memory and a GPU. So nothing is copied and no fork
 * handler runs: the new process runs on the caller's memory (CLONE_VM), and the caller sleeps
 * until it has executed the command or failed. Until then it makes system calls only.
 */
#ifndef HR_AGENT_START_H
#define HR_AGENT_START_H

#include <headrace/base.h>

struct hr__start {
    const char *command; /* words separated by one '\x1f'; the first is looked up in PATH unless it
                            contains a '/' */
    int listener;        /* becomes the command's descriptor 3 */
    int log;             /* becomes its standard error */
    int idle_ms;         /* passed on: "--listener 3 --idle SECONDS" is added to the words */
};

/*
 * Starts the command in "/", with standard input and output on /dev/null and no other file of
 * ours. No signal is blocked or ignored; it may run on all cores of the cpuset; its priority is
 * normal if permitted; soft limits equal the hard ones; the umask is 022. Descriptors stay the
 * caller's. Errors: -ENOENT, -EACCES and others of exec, with the command's name; -EINVAL: no
 * words; -EAGAIN: no process can be made; -ENOMEM. Any thread. Blocks for a millisecond or two.
 */
int hr__start_detached(const struct hr__start *start, struct hr_error *error);

#endif
