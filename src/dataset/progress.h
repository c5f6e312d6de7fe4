/*
 * Progress and cancellation of one long call.
 *
 * Any thread counts; only the thread that made the call runs the caller's
 * callback, so that it may touch what belongs to that thread (a terminal, an
 * interpreter, its signal handlers).
 */
#ifndef HR_DATASET_PROGRESS_H
#define HR_DATASET_PROGRESS_H

#include <headrace/dataset.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct hr__progress {
    hr_progress_fn fn; /* may be NULL */
    void *arg;
    pthread_t owner;   /* the one thread that calls fn */
    const char *stage; /* static text */
    uint64_t total;    /* 0: not known */
    uint64_t last_ns;  /* when fn was called last; owner only */
    _Atomic uint64_t done;
    _Atomic int cancelled;
};

/* Belongs to the calling thread from here on. */
void hr__progress_init(struct hr__progress *progress, hr_progress_fn fn, void *arg);

/* Begins a stage; owner only, while no other thread counts. */
void hr__progress_stage(struct hr__progress *progress, const char *stage, uint64_t total);

/* Counts; runs the callback where it is due and this is the owner. Any thread. */
void hr__progress_add(struct hr__progress *progress, uint64_t count);

/* Ends the stage with one last callback. Owner only. Returns 0 or -ECANCELED. */
int hr__progress_end(struct hr__progress *progress);

/* Asks the work to stop soon. Any thread. */
void hr__progress_cancel(struct hr__progress *progress);

/* Non-zero once somebody asked. Any thread. */
int hr__progress_cancelled(struct hr__progress *progress);

#endif
