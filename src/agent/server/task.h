/*
 * Tasks: what takes long, on a thread of its own, so that the agent's loop goes on: opening
 * datasets, making, starting and ending queues. A background task is a member of whatever it is
 * about; that must live until `done` was called.
 */
#ifndef HR_AGENT_SERVER_TASK_H
#define HR_AGENT_SERVER_TASK_H

#include <headrace/base.h>

#include <pthread.h>

struct hr__task {
    struct hr__task *next; /* in the list of those that are back */
    struct hr__tasks *tasks;
    pthread_t thread;
    void (*run)(struct hr__task *self);  /* on its thread */
    void (*done)(struct hr__task *self); /* on the loop's */
};

struct hr__tasks {
    pthread_mutex_t lock; /* guards `back` */
    struct hr__task *back;
    int wake; /* eventfd of the loop: not ours */
    int out;  /* tasks under way, the loop's */
};

void hr__tasks_init(struct hr__tasks *tasks, int wake);

/* None is under way. */
void hr__tasks_end(struct hr__tasks *tasks);

/* Starts it: run and done are set. Where no thread can be made it is run at once, and done is
 * called by the next hr__tasks_collect all the same. */
void hr__task_start(struct hr__tasks *tasks, struct hr__task *task);

/* Calls `done` of those that are back. */
void hr__tasks_collect(struct hr__tasks *tasks);

#endif
