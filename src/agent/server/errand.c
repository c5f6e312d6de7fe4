/* Threads for what takes long; see errand.h. */
#include "agent/server/errand.h"

#include "base/thread.h"

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

void hr__errands_init(struct hr__errands *errands, int wake)
{
    pthread_mutex_init(&errands->lock, NULL);
    errands->back = NULL;
    errands->wake = wake;
    errands->out = 0;
}

void hr__errands_end(struct hr__errands *errands)
{
    pthread_mutex_destroy(&errands->lock);
}

static void *errand_main(void *arg)
{
    struct hr__errand *errand = arg;
    struct hr__errands *errands = errand->errands;
    errand->run(errand);
    pthread_mutex_lock(&errands->lock);
    errand->next = errands->back;
    errands->back = errand;
    pthread_mutex_unlock(&errands->lock);
    uint64_t one = 1;
    /* A full counter wakes the loop as well. */
    ssize_t n = write(errands->wake, &one, sizeof one);
    (void)n;
    return NULL;
}

void hr__errand_start(struct hr__errands *errands, struct hr__errand *errand)
{
    errand->errands = errands;
    errands->out++;
    if (hr__thread_create(&errand->thread, errand_main, errand)) {
        errand->thread = pthread_self();
        errand_main(errand);
    }
}

void hr__errands_collect(struct hr__errands *errands)
{
    pthread_mutex_lock(&errands->lock);
    struct hr__errand *back = errands->back;
    errands->back = NULL;
    pthread_mutex_unlock(&errands->lock);
    while (back) {
        struct hr__errand *errand = back;
        back = errand->next;
        if (!pthread_equal(errand->thread, pthread_self()))
            pthread_join(errand->thread, NULL);
        errands->out--;
        errand->done(errand);
    }
}
