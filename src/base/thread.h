/*
 * Starts the library's threads. The program's signal handlers should run on its own threads, so
 * every thread that the library starts blocks all signals except faults. The kernel delivers a
 * fault to the thread that caused it. The SIGBUS handler keeps the process alive when a mapped file
 * is truncated (base/truncation.h), and other fault handlers report where a program crashed.
 */
#ifndef HR_BASE_THREAD_H
#define HR_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Blocks every signal except faults in the calling thread. Returns the previous mask, to restore
 * with pthread_sigmask(SIG_SETMASK). Use this around calls into a library that starts threads of
 * its own, since they inherit the mask. */
sigset_t hr__signals_block(void);

/* Starts a thread that blocks every signal except faults. Any thread may call this. Returns 0, or
 * -EAGAIN if the system allows no more threads. The caller joins or detaches the thread. */
int hr__thread_create(pthread_t *out, void *(*run)(void *), void *arg);

/* Initialises a condition whose pthread_cond_timedwait takes times of CLOCK_MONOTONIC. */
void hr__cond_init(pthread_cond_t *condition);

#endif
