/*
 * Background tasks: slow work of the agent, each on a thread of its own, so that the loop does not
 * block. Used to open datasets and to create, start and end queues. The task is a member of the
 * object that it works on; the object must live until `done` was called.
 */
#ifndef HR_AGENT_SERVER_TASK_H
#define HR_AGENT_SERVER_TASK_H

#include <headrace/base.h>

#include <pthread.h>

struct hr__task {
    struct hr__task *next; /* in the list of finished tasks */
    struct hr__tasks *tasks;
    pthread_t thread;
    void (*run)(struct hr__task *self);  /* called on the task's thread */
    void (*done)(struct hr__task *self); /* called on the loop's thread afterwards */
};

struct hr__tasks {
    pthread_mutex_t lock; /* guards `back` */
    struct hr__task *back;
    int wake; /* eventfd that wakes the loop; not ours */
    int out;  /* tasks started and not collected; used by the loop only */
};

void hr__tasks_init(struct hr__tasks *tasks, int wake);

/* No task may be running. */
void hr__tasks_end(struct hr__tasks *tasks);

/* Starts a task with `run` and `done` set. If no thread can be created, `run` is called at once;
 * `done` is called by the next hr__tasks_collect in any case. */
void hr__task_start(struct hr__tasks *tasks, struct hr__task *task);

/* Calls `done` of the finished tasks. */
void hr__tasks_collect(struct hr__tasks *tasks);

#endif
