/*
 * A way to run things in parallel without starting threads.
 *
 * Only loader, bulk and agent start threads; rooms below it that have parallel work (the
 * walk of a folder) take one of these from their caller.
 */
#ifndef HR_BASE_EXECUTOR_H
#define HR_BASE_EXECUTOR_H

#include <stddef.h>

struct hr__executor {
    int threads; /* how many calls may run at once, the caller's included */
    void *self;
    /* Calls fn(arg, i) for every i in [0, n), on up to `threads` threads, and
     * returns when all have returned. Not reentrant. */
    void (*run)(void *self, size_t n, void (*fn)(void *arg, size_t i), void *arg);
};

/* Runs everything on the calling thread. */
extern const struct hr__executor hr__executor_serial;

#endif
