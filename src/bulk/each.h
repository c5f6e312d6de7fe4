/*
 * Work on each sample of a dataset by the threads of a pool: until all are done, one fails, or the
 * caller's progress function cancels.
 */
#ifndef HR_BULK_EACH_H
#define HR_BULK_EACH_H

#include "bulk/pool.h"
#include "dataset/progress.h"

#include <pthread.h>
#include <stdatomic.h>

struct hr__each {
    size_t count;      /* of samples */
    const char *stage; /* of the progress: "caching" */
    const char *what;  /* for messages: "filling the cache" */
    const char *left;  /* what a message of a cancelled run adds */
    /* The work of one thread: makes its tools and calls hr__each_take. */
    void (*thread)(void *arg, size_t number);
    /* Works on a sample with the tools of a thread. An error ends the run. */
    int (*work)(void *arg, void *tools, size_t index, struct hr_error *why);
    void *arg;

    /* Of the run. */
    struct hr__progress progress;
    _Atomic size_t next;  /* next sample to take */
    pthread_mutex_t lock; /* guards `stop`, and what the work shares */
    struct hr_error stop; /* error that ends the run; code 0: none */
};

/* Runs on all threads of the pool, and destroys it. Errors: that of the work; -ECANCELED. */
int hr__each_run(struct hr__each *each, struct hr__pool **pool, hr_progress_fn progress,
                 void *progress_arg, struct hr_error *error);

/* Takes samples until there are no more; if r is an error, of making the tools, ends the run. */
void hr__each_take(struct hr__each *each, void *tools, int r, struct hr_error *why);

#endif
