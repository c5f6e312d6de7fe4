/*
 * Waiting until a word of memory changes (futex(2)). The waker stores the new value first, then
 * wakes. The waiter passes the value it last saw, so it cannot miss a wake-up.
 *
 * `shared`: non-zero if other processes map the word too.
 */
#ifndef HR_BASE_FUTEX_H
#define HR_BASE_FUTEX_H

#include "base/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* No deadline. */
#define HR__FUTEX_EVER UINT64_MAX

/* Sleeps while *word equals `seen`, until `until_ns` (on the clock of hr__now_ns) at the latest.
 * Returns 0 if woken or if *word differs from `seen`; -EINTR if a signal handler ran (with a
 * deadline, even under SA_RESTART); -ETIMEDOUT after `until_ns`. */
static inline int hr__futex_wait(const atomic_uint *word, unsigned seen, uint64_t until_ns,
                                 int shared)
{
    struct timespec until = hr__timespec(until_ns);
    /* WAIT_BITSET takes an absolute time on the monotonic clock. */
    int command = FUTEX_WAIT_BITSET | (shared ? 0 : FUTEX_PRIVATE_FLAG);
    if (!syscall(SYS_futex, word, command, seen, until_ns == HR__FUTEX_EVER ? NULL : &until, NULL,
                 FUTEX_BITSET_MATCH_ANY))
        return 0;
    return errno == EAGAIN ? 0 : -errno;
}

/* Wakes up to `count` threads that sleep on the word. */
static inline void hr__futex_wake(atomic_uint *word, int count, int shared)
{
    syscall(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), count, NULL, NULL, 0);
}

#endif
