/*
 * An interface for running work in parallel on the caller's threads.
 *
 * Only loader, bulk and agent start threads. Lower rooms with parallel work (scanning a folder)
 * take an executor from their caller.
 */
#ifndef HR_BASE_EXECUTOR_H
#define HR_BASE_EXECUTOR_H

#include <stddef.h>

struct hr__executor {
    int threads; /* calls that may run at once, including the caller's */
    void *self;
    /* Calls fn(arg, i) for every i in [0, n) on up to `threads` threads, and returns when all calls
     * have returned. Not reentrant. */
    void (*run)(void *self, size_t n, void (*fn)(void *arg, size_t i), void *arg);
};

/* Runs everything on the calling thread. */
extern const struct hr__executor hr__executor_serial;

#endif
