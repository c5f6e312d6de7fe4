/*
 * Sleeping on a word of memory until it moves on (futex(2)). Who moves it stores first, then
 * wakes; who sleeps says which value he saw, so that no wake-up is missed.
 *
 * `shared`: the word is in memory that other processes map, too.
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

/* No limit. */
#define HR__FUTEX_EVER UINT64_MAX

/* Sleeps while *word is `seen`, until `until_ns` (hr__now_ns) at most. 0: woken, or it was
 * another value; -EINTR: a signal handler ran, with SA_RESTART too where there is a limit;
 * -ETIMEDOUT. */
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

/* Wakes `count` of those who sleep on the word. */
static inline void hr__futex_wake(atomic_uint *word, int count, int shared)
{
    syscall(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), count, NULL, NULL, 0);
}

#endif
