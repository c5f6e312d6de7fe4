/*
 * The optional parts of a loader: two tables of functions that the core calls.
 *
 * A function that a part does not need is NULL. create.c fills in the tables; the core calls
 * through them and never asks which part is there.
 *
 * `_locked`: called with the loader's lock held, and keeps it. `_unlocking`: called with the lock
 * held, but may release it for a while.
 */
#ifndef HR_LOADER_PART_H
#define HR_LOADER_PART_H

#include "cache/cache.h"

#include <headrace/base.h>

#include <stdint.h>

struct hr__cost;
struct hr__job;
struct hr__thread;
struct hr_batch;
struct hr_loader;

/* A part that affects which batches are opened and who reads: a cache on several hosts (hosts/), or
 * publishing into memory of another owner (publisher.c). */
struct hr__part {
    /* Starts the part's threads, after the loader's own. Errors: -EAGAIN, -ENOMEM; the caller then
     * calls `join`. */
    int (*start)(struct hr_loader *l, struct hr_error *error);
    /* The loader stops: stop_locked wakes the part's threads, join waits for them to end. */
    void (*stop_locked)(struct hr_loader *l);
    void (*join)(struct hr_loader *l);
    /* destroy: called after all threads have ended. abandon: the same in a forked child. */
    void (*destroy)(struct hr_loader *l);
    void (*abandon)(struct hr_loader *l);

    /* Called before the window is dropped for another epoch: waits for work in progress, and starts
     * none until begin_locked. */
    void (*pause)(struct hr_loader *l);
    /* Called when l->plan was replaced. */
    void (*begin_locked)(struct hr_loader *l);
    /* Returns non-zero if a batch may be opened. */
    int (*can_open_locked)(const struct hr_loader *l);
    /* Provides memory for batch `number` of the plan, instead of a slot. Returns 0; -EAGAIN: none
     * now; or another error, which ends the epoch. */
    int (*open)(struct hr_loader *l, uint64_t number, struct hr_batch **out,
                struct hr_error *error);
    /* opened_locked: an attempt to open a batch has ended; `is_broken`: no batch can be opened any
     * more. */
    void (*opened_locked)(struct hr_loader *l, int is_broken);
    void (*ready_locked)(struct hr_loader *l, const struct hr_batch *batch);
    /* Takes back the window's jobs that no thread is working on. */
    void (*cancel_locked)(struct hr_loader *l);
    /* Returns non-zero while the epoch's end has to wait; the part wakes the consumer when that
     * changes. */
    int (*holds_end_locked)(struct hr_loader *l);

    /* Called instead of waking the loader's consumer and workers. */
    void (*notify_consumer_locked)(struct hr_loader *l);
    void (*notify_workers_locked)(struct hr_loader *l, int count);
    /* Samples can be claimed, or the staging budget has room again. */
    void (*wake_locked)(struct hr_loader *l);

    /* Claims all samples it can and queues each where it belongs. `may_wait`: as for
     * hr__claim_unlocking. Returns non-zero if no slot was free for the next batch: the caller
     * tries again soon. */
    int (*deal_unlocking)(struct hr_loader *l, int may_wait);
    /* next_read: the job that fetchers read next, charged to the staging budget, or NULL. has_read:
     * non-zero if a sample of the window waits to be read and the budget has room for it. */
    struct hr__job *(*next_read_locked)(struct hr_loader *l);
    int (*has_read_locked)(const struct hr_loader *l);
    /* A fetcher's job came back. Returns non-zero if the part takes it. */
    int (*landed_locked)(struct hr_loader *l, struct hr__job *job);
    /* Called when no fetcher is left. */
    void (*readers_gone_locked)(struct hr_loader *l);
};

/* A part that keeps samples once they were read: a cache on this host (caching.c) or on several. */
struct hr__keeper {
    /* Called before threads start. In a forked child it makes a cache of the child's own. */
    int (*enter)(struct hr_loader *l, struct hr_error *error);
    void (*begin_epoch)(struct hr_loader *l, const struct hr__epoch *plan);
    void (*destroy)(struct hr_loader *l);
    void (*abandon)(struct hr_loader *l);

    /* The samples of an external order that come next: `first` of them in this epoch. `pushed`:
     * they are a batch that was pushed. Consumer's thread. */
    void (*expect)(struct hr_loader *l, const int64_t *indices, size_t count, size_t first,
                   int pushed);

    /* A worker begins with a sample. */
    void (*note_place)(struct hr_loader *l, struct hr__job *job);
    /* Returns non-zero if an item of the form `indexed` is to be made of a file while it is
     * prepared, for `offer`. */
    int (*wants_index)(struct hr_loader *l);
    /* Offers a sample that was read and prepared (job->sample.read). Failures are not errors. */
    void (*offer)(struct hr__thread *self, struct hr__job *job, uint64_t index,
                  const struct hr__cost *cost);
    /* Reports how long preparing a sample took. */
    void (*prepared)(struct hr_loader *l, uint64_t index, uint64_t ns);
    /* The kept copy of a sample is no good: drops it. */
    void (*forget)(struct hr_loader *l, const struct hr__job *job, uint64_t index);
    /* Reports a worker's time. If NULL, the loader measures none. */
    void (*note_locked)(struct hr_loader *l, const struct hr__cost *cost);

    /* should_convert: non-zero if this worker is to convert an item now, between two samples.
     * may_convert: non-zero if an item may be converted; `idle`: the worker has nothing else to
     * do. */
    int (*should_convert_locked)(struct hr__thread *self);
    int (*may_convert_locked)(struct hr_loader *l, int idle);
    /* Converts one item, if one is waiting. */
    void (*convert_unlocking)(struct hr__thread *self);
};

#endif
