/*
 * Errands: what takes long, on a thread of its own, so that the agent's loop goes on: opening
 * datasets, making, starting and ending lanes. An errand is a member of whatever it is about;
 * that must live until `done` was called.
 */
#ifndef HR_AGENT_SERVER_ERRAND_H
#define HR_AGENT_SERVER_ERRAND_H

#include <headrace/base.h>

#include <pthread.h>

struct hr__errand {
    struct hr__errand *next; /* in the list of those that are back */
    struct hr__errands *errands;
    pthread_t thread;
    void (*run)(struct hr__errand *self);  /* on its thread */
    void (*done)(struct hr__errand *self); /* on the loop's */
};

struct hr__errands {
    pthread_mutex_t lock; /* guards `back` */
    struct hr__errand *back;
    int wake; /* eventfd of the loop: not ours */
    int out;  /* errands under way, the loop's */
};

void hr__errands_init(struct hr__errands *errands, int wake);

/* None is under way. */
void hr__errands_end(struct hr__errands *errands);

/* Starts it: run and done are set. Where no thread can be made it is run at once, and done is
 * called by the next hr__errands_collect all the same. */
void hr__errand_start(struct hr__errands *errands, struct hr__errand *errand);

/* Calls `done` of those that are back. */
void hr__errands_collect(struct hr__errands *errands);

#endif
