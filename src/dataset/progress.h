/*
 * Progress and cancellation of one long call.
 *
 * Any thread may count progress. Only the thread that made the call runs the caller's callback, so
 * the callback may use what belongs to that thread (a terminal, an interpreter, its signal
 * handlers).
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
    pthread_t owner;   /* the only thread that calls fn */
    const char *stage; /* static text */
    uint64_t total;    /* 0: unknown */
    uint64_t last_ns;  /* time of the last call of fn; owner only */
    _Atomic uint64_t done;
    _Atomic int cancelled;
};

/* Initialises the struct; the calling thread becomes its owner. */
void hr__progress_init(struct hr__progress *progress, hr_progress_fn fn, void *arg);

/* Begins a stage. Owner only, while no other thread counts. */
void hr__progress_stage(struct hr__progress *progress, const char *stage, uint64_t total);

/* Adds to the count. Runs the callback if it is due and the caller is the owner. Any thread. */
void hr__progress_add(struct hr__progress *progress, uint64_t count);

/* Ends the stage with a final callback. Owner only. Returns 0 or -ECANCELED. */
int hr__progress_end(struct hr__progress *progress);

/* Requests that the work stop soon. Any thread. */
void hr__progress_cancel(struct hr__progress *progress);

/* Returns non-zero after hr__progress_cancel. Any thread. */
int hr__progress_cancelled(struct hr__progress *progress);

#endif
