/*
 * A clock of a test's own, which takes the place of the kernel's for the library, too: it stands
 * still while any thread runs, and goes on to the end of the shortest sleep once all of them sleep.
 * So what happens in which order does not depend on how busy the machine is, and nobody waits.
 */
#ifndef HR_TEST_STEPPED_CLOCK_H
#define HR_TEST_STEPPED_CLOCK_H

#include <pthread.h>

struct stepped_thread {
    pthread_t thread;
    void *(*run)(void *);
    void *arg;
    int has_ended, is_joined;
};

/* Starts a thread, and waits for its end. The program starts no others. */
void stepped_start(struct stepped_thread *t, void *(*run)(void *), void *arg);
void stepped_join(struct stepped_thread *t);

/* Sleeps by this clock. */
void stepped_sleep_ms(long ms);

#endif
