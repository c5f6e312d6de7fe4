/*
 * Threads of the library. A program's signal handlers belong to its own threads: a thread that the
 * library starts blocks every signal. Faults are the exception, because the thread that causes one
 * has to take it. A handler of SIGBUS keeps the process alive where a mapped file was truncated
 * (base/truncation.h), and handlers of the others report where a program crashed.
 */
#ifndef HR_BASE_THREAD_H
#define HR_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Blocks every signal but faults in the calling thread, and returns the mask that
 * pthread_sigmask(SIG_SETMASK) restores. For a library that starts threads of its own: they
 * inherit the mask. */
sigset_t hr__signals_block(void);

/* Starts a thread that blocks every signal but faults. Any thread may call it. 0, or -EAGAIN
 * where the system allows no more threads. The caller joins or detaches the thread. */
int hr__thread_create(pthread_t *out, void *(*run)(void *), void *arg);

#endif
