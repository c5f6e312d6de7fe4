/*
 * Starting a command that outlives us: a process of its own session that is nobody's child.
 *
 * Who calls may have many threads, much memory and a GPU, so nothing is copied and no handler
 * runs: the kernel starts the new process on our memory and lets us go on when it has become
 * the command, or failed to. Between, it makes system calls only.
 */
#ifndef HR_AGENT_START_H
#define HR_AGENT_START_H

#include <headrace/base.h>

struct hr__start {
    const char *command; /* words apart by one '\x1f'; the first is looked up in PATH unless it
                            holds a '/' */
    int listener;        /* the command's descriptor 3 */
    int log;             /* its standard error */
    int idle_ms;         /* "--listener 3 --idle SECONDS" is added to its words */
};

/*
 * Starts it in "/", with nothing else of ours open, standard input and output on /dev/null, no
 * signal blocked or ignored, on all cores of the cpuset, at the normal priority where that is
 * permitted, soft limits at the hard ones, files made with mode 0755 at most. Descriptors stay the
 * caller's. Errors: -ENOENT, -EACCES and others of exec name the command; -EINVAL: it has no words;
 * -EAGAIN: no process can be made; -ENOMEM. Any thread. Blocks for a millisecond or two.
 */
int hr__start_detached(const struct hr__start *start, struct hr_error *error);

#endif
