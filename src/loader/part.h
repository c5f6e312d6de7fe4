/*
 * What hangs on a loader's core: two tables of functions, in each of which what is absent is
 * NULL. create.c fills them in; the core asks the tables and never which part is there.
 *
 * `_locked`: called with the loader's lock held, and it stays held. `_unlocking`: likewise, but
 * the function may release it for a while.
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

/* Who takes part in the window and the reads: the hosts of a cache (hosts/), or the publishing
 * of batches for somebody else (publisher.c). */
struct hr__part {
    /* Starts its threads, after the loader's own. Errors: -EAGAIN, -ENOMEM; `join` follows. */
    int (*start)(struct hr_loader *l, struct hr_error *error);
    /* The loader stops: wakes its threads; then waits for them. */
    void (*stop_locked)(struct hr_loader *l);
    void (*join)(struct hr_loader *l);
    /* After all threads have ended; in a forked child. */
    void (*destroy)(struct hr_loader *l);
    void (*abandon)(struct hr_loader *l);

    /* Before the window is dropped for another epoch: waits for what is under way, and allows
     * nothing more until begin_locked. */
    void (*pause)(struct hr_loader *l);
    /* l->plan is another one. */
    void (*begin_locked)(struct hr_loader *l);
    /* Non-zero where a batch may be opened. */
    int (*can_open_locked)(const struct hr_loader *l);
    /* Memory for batch `number` of the plan, in place of a slot: 0; -EAGAIN: not now; or an error,
     * which ends the epoch. */
    int (*open)(struct hr_loader *l, uint64_t number, struct hr_batch **out,
                struct hr_error *error);
    /* An opening has ended; `is_broken`: no batch can be opened any more. */
    void (*opened_locked)(struct hr_loader *l, int is_broken);
    void (*ready_locked)(struct hr_loader *l, const struct hr_batch *batch);
    /* Takes back the jobs of the window that are in no thread's hands. */
    void (*cancel_locked)(struct hr_loader *l);
    /* Non-zero while the epoch's end has to wait; wakes the consumer when that changes. */
    int (*holds_end_locked)(struct hr_loader *l);

    /* In place of the loader's consumer and workers. */
    void (*notify_consumer_locked)(struct hr_loader *l);
    void (*notify_workers_locked)(struct hr_loader *l, int count);
    /* Samples can be claimed, or staging has room again. */
    void (*wake_locked)(struct hr_loader *l);

    /* Claims what can be claimed and puts it where it belongs. `may_wait` as hr__claim_unlocking.
     * Non-zero: there was no slot for the next batch, and the caller looks again soon. */
    int (*deal_unlocking)(struct hr_loader *l, int may_wait);
    /* What fetchers read next, charged to the staging budget, or NULL; and whether a sample of
     * the window is to be read and has room. */
    struct hr__job *(*next_read_locked)(struct hr_loader *l);
    int (*has_read_locked)(const struct hr_loader *l);
    /* A job came back. Non-zero: the part takes it. */
    int (*landed_locked)(struct hr_loader *l, struct hr__job *job);
    /* No fetcher is left. */
    void (*readers_gone_locked)(struct hr_loader *l);
};

/* Who keeps what was read: a cache of this host (caching.c), or several hosts'. */
struct hr__keeper {
    /* Before threads start: in a child that was forked since, makes a cache of its own. */
    int (*enter)(struct hr_loader *l, struct hr_error *error);
    void (*begin_epoch)(struct hr_loader *l);
    void (*destroy)(struct hr_loader *l);
    void (*abandon)(struct hr_loader *l);

    /* A worker begins with a sample. */
    void (*note_place)(struct hr_loader *l, const struct hr__job *job);
    /* Takes what was read and prepared: job->sample.read. Failures are no errors. */
    void (*offer)(struct hr_loader *l, struct hr__job *job, uint64_t index,
                  const struct hr__cost *cost);
    /* A sample was prepared in so much time. */
    void (*prepared)(struct hr_loader *l, uint64_t index, uint64_t ns);
    /* What was found of a sample is no good. */
    void (*forget)(struct hr_loader *l, const struct hr__job *job, uint64_t index);
    /* The worker's time. Where it is absent nothing is measured. */
    void (*note_locked)(struct hr_loader *l, const struct hr__cost *cost);

    /* Non-zero where a worker has something to convert now: between two samples; `idle`: it has
     * nothing else to do. */
    int (*should_convert_locked)(struct hr__thread *self);
    int (*may_convert_locked)(struct hr_loader *l, int idle);
    /* Converts one item, if one waits. */
    void (*convert_unlocking)(struct hr__thread *self);
};

#endif
