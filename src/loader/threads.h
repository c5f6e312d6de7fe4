/* The workers, and starting and stopping all threads of a loader. */
#ifndef HR_LOADER_THREADS_H
#define HR_LOADER_THREADS_H

#include "loader/bands.h"
#include "loader/job.h"

#include <headrace/form.h>
#include <headrace/prepare.h>

#include <pthread.h>

struct hr_loader;

struct hr__thread {
    struct hr_loader *loader;
    pthread_t id;
    int number;
    struct hr_preparer *preparer;   /* of workers */
    struct hr_converter *converter; /* of workers, from their first conversion on */
    int converting;                 /* the worker is spending its share of time on conversions */
    struct hr__bands bands;         /* of workers: the large region that it shares */
};

/* Starts a thread with all signals blocked; it runs run(thread). Errors: -EAGAIN. */
int hr__thread_start(struct hr__thread *thread, void *(*run)(void *), const char *name,
                     struct hr_error *error);

/* The steps of a worker. The first returns the next job, or NULL. */
struct hr__job *hr__next_job_unlocking(struct hr_loader *l);
int hr__has_work_locked(const struct hr_loader *l);

/* Passes a job's outcome to its batch, or puts the job aside if another process reads its
 * sample. */
void hr__finish_job_unlocking(struct hr_loader *l, struct hr__job *job,
                              struct hr__outcome *outcome);

/* Starts the threads, or joins the crew. Errors: -EAGAIN, -ENOMEM; then no thread is left
 * running. */
int hr__threads_start(struct hr_loader *l, struct hr_error *error);

/* Stops the threads and waits for them. Frees the bytes of unfinished jobs. */
void hr__threads_stop(struct hr_loader *l);

#endif
