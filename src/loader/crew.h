/*
 * A crew: workers that serve many loaders of one process, for the agent.
 *
 * A loader that has a crew (a publisher, publisher.h) starts no workers of its own; it has its own
 * fetchers, which mostly sleep. A worker takes its next sample from the publisher that is due
 * first: the one whose consumers have the fewest batches ready ahead of them; of equals the one
 * that was served longest ago. It goes by hints of the publishers, which are read without their
 * locks: a publisher whose hint says that there is work is visited, and found to have none now and
 * then.
 *
 * Locks: a worker holds the crew's while it chooses, and nothing is locked under it. A wake-up
 * takes no lock, so that it can be given under any: sleepers are counted first, then look
 * once more at all hints, then sleep on a word that every wake-up moves on.
 */
#ifndef HR_LOADER_CREW_H
#define HR_LOADER_CREW_H

#include <headrace/base.h>

#include <stdint.h>

struct hr__crew;
struct hr_loader;

/* `threads`: at least 1. On success *out is the caller's. Errors: -EAGAIN, -ENOMEM; then no
 * thread is left running. */
int hr__crew_create(struct hr__crew **out, int threads, struct hr_error *error);

/* Waits for the workers to end. No loader is in it any more. Accepts NULL. */
void hr__crew_destroy(struct hr__crew **crew);

int hr__crew_threads(const struct hr__crew *crew);

/* A publisher joins, and leaves: leave returns when no worker has a sample of it in hand, or is in
 * one of its callbacks; the publisher must have been told to stop. Leaving without having joined is
 * nothing. Any thread, without locks. Errors: -ENOMEM. */
int hr__crew_join(struct hr__crew *crew, struct hr_loader *loader, struct hr_error *error);
void hr__crew_leave(struct hr__crew *crew, struct hr_loader *loader);

/* Some publisher's hint says now that there is work, for `count` more workers. Any thread, under
 * any lock; never blocks, and costs one load where nobody is idle. */
void hr__crew_wake(struct hr__crew *crew, int count);

/* What workers do, for a trace: set once, before the first loader joins; called on a worker
 * after each sample, without locks. */
struct hr__crew_event {
    uint64_t begin_ns, end_ns; /* hr__now_ns */
    int worker;
    const struct hr_loader *loader;
    uint64_t index;   /* of the sample, in the dataset */
    uint64_t read_ns; /* of it, for fetching on the worker */
};
typedef void (*hr__crew_watch_fn)(void *arg, const struct hr__crew_event *event);
void hr__crew_watch(struct hr__crew *crew, hr__crew_watch_fn watch, void *arg);

#endif
