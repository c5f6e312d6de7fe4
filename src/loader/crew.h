/*
 * A crew: worker threads that serve many loaders of one process, for the agent.
 *
 * A loader with a crew (a publisher, publisher.h) starts no workers of its own. It has its own
 * fetchers, which mostly sleep. A worker takes its next sample from the most urgent publisher: the
 * one whose consumers have the fewest batches ready ahead of them; among equals, the one served
 * longest ago. On a machine with several NUMA nodes each worker stays on one, and takes from a
 * publisher of another node only if that has a batch less ready than those of its own. Workers
 * choose by hints that they read without the publishers' locks: a worker visits a publisher whose
 * hint says that there is work, and now and then finds none.
 *
 * Locks: a worker holds the list of publishers for reading while it chooses, beside other workers,
 * and takes no publisher's lock under it. Waking
 * workers takes no lock, so it may be done under any lock: a worker that goes to sleep first counts
 * itself as a sleeper, then checks all hints once more, then sleeps on a futex word that every
 * wake-up increments.
 */
#ifndef HR_LOADER_CREW_H
#define HR_LOADER_CREW_H

#include <headrace/base.h>

#include <stdint.h>

struct hr__crew;
struct hr_loader;

/* Starts `threads` workers, at least 1. On success *out is the caller's. Errors: -EAGAIN, -ENOMEM;
 * then no thread is left running. */
int hr__crew_create(struct hr__crew **out, int threads, struct hr_error *error);

/* Waits for the workers to end. All loaders must have left the crew. Accepts NULL. */
void hr__crew_destroy(struct hr__crew **crew);

int hr__crew_threads(const struct hr__crew *crew);

/* Add a publisher to the crew; remove it. leave waits until no worker has a sample of the publisher
 * or is in one of its callbacks; the publisher must already be stopping. leave does nothing if the
 * publisher never joined. Any thread, without locks. Errors: -ENOMEM. */
int hr__crew_join(struct hr__crew *crew, struct hr_loader *loader, struct hr_error *error);
void hr__crew_leave(struct hr__crew *crew, struct hr_loader *loader);

/* Wakes up to `count` more workers, because a publisher's hint now says that there is work. Any
 * thread, under any lock; never blocks, and costs one load if no worker is idle. */
void hr__crew_wake(struct hr__crew *crew, int count);

/* A callback that reports what workers do, for a trace. Set once, before the first loader joins.
 * Called on the worker after each sample, without locks. */
struct hr__crew_event {
    uint64_t begin_ns, end_ns; /* as from hr__now_ns */
    int worker;
    const struct hr_loader *loader;
    uint64_t index;   /* of the sample, in the dataset */
    uint64_t read_ns; /* part of that time: fetching on the worker */
};
typedef void (*hr__crew_watch_fn)(void *arg, const struct hr__crew_event *event);
void hr__crew_watch(struct hr__crew *crew, hr__crew_watch_fn watch, void *arg);

#endif
