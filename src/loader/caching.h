/*
 * The loader's cache: what is admitted, and when workers convert.
 *
 * A sample that was read and prepared without an error is offered to the cache:
 * in its final form, or to wait there for a conversion. Workers convert one item
 * at a time: whenever they have nothing else to do; and, when they always have,
 * on a tenth of their time, in one go at the moment when nothing is left to take
 * of the batch that the consumer gets next. src/cache/worth.h has the rules.
 *
 * Batches do not depend on any of this: all forms have the same pixels.
 */
#ifndef HR_LOADER_CACHING_H
#define HR_LOADER_CACHING_H

#include "cache/cache.h"
#include "cache/worth.h"

#include <headrace/base.h>

struct hr__cache_spec;
struct hr_loader;
struct hr__job;
struct hr__thread;

struct hr__caching {
    struct hr__cache *cache;     /* NULL: none. Constant while threads run */
    struct hr__cache_spec *spec; /* what was asked for; NULL: none */
    int form_asked;              /* enum hr_form or HR_FORM_AUTO */
    struct hr_dataset *whole;    /* whose samples it may hold: the loader's, or its parent */
    int pid;                     /* of the process that made the cache */

    /* Guarded by the loader's lock. */
    struct hr__worth worth;
    enum hr_form form;      /* to convert to: what was asked for, or chosen last */
    uint64_t working_ns;    /* of all workers: preparing, reading, converting */
    uint64_t converting_ns; /* of them, converting; those in hand as expected */
    uint64_t offers;        /* so far */
    int64_t total_bytes;    /* of all samples of `whole`; HR_SIZE_UNKNOWN: not known yet */
};

/* What one sample took. Times are CPU time of the worker, which other programs on
 * the machine hardly change; only reads that had to wait for storage are told by the
 * clock. All 0 in a loader without a cache. */
struct hr__cost {
    enum hr_form form;   /* of its bytes */
    uint64_t prepare_ns; /* 0: it failed */
    uint64_t read_ns;    /* 0: it was cached, or a fetcher read it */
    uint64_t working_ns; /* of the worker, from beginning to end */
    size_t read_bytes;   /* 0: it was cached */
};

/* Makes the cache that the options ask for. Errors: -EINVAL: the options; those of
 * hr_cache_open. */
int hr__caching_create(struct hr_loader *l, struct hr_error *error);

/* Before threads start: in a child that was forked since, makes one of its own. Errors:
 * the same. */
int hr__caching_enter(struct hr_loader *l, struct hr_error *error);

/* Before an epoch begins: what has become known of the dataset. */
void hr__caching_begin_epoch(struct hr_loader *l);

/* After the threads have ended. */
void hr__caching_destroy(struct hr_loader *l);

/* In a child that was forked from the threads' process. */
void hr__caching_abandon(struct hr_loader *l);

/* Tells the cache where the loader stands, for each sample that a worker begins with. */
void hr__caching_note_place(struct hr_loader *l, const struct hr__job *job);

/* See hr__cache_claim; without a cache ALONE. What is claimed already is YOURS. */
enum hr__claim hr__caching_claim(struct hr_loader *l, uint64_t index,
                                 struct hr__cache_ticket *ticket);

/* Ends a claim without an offer; nothing where there is none. */
void hr__caching_unclaim(struct hr_loader *l, struct hr__cache_ticket *ticket);

/* Offers a sample's bytes, which it copies, after what it took in `cost`, and ends its
 * claim. Takes the loader's lock for a moment. Failures are no errors: it is just not
 * cached. */
void hr__caching_offer(struct hr_loader *l, uint64_t index, const void *bytes,
                       const struct hr__cost *cost, struct hr__cache_ticket *ticket);

/* Bytes of budget that samples take which are not cached, as they are: of `samples` with
 * `bytes` on storage, all together. Pure. */
uint64_t hr__caching_missing(const struct hr__cache_counts *now, uint64_t samples, double bytes);

/* The worker's time, and of a hit what preparing it took. */
void hr__caching_note_locked(struct hr_loader *l, const struct hr__cost *cost);

/* Non-zero where a worker should convert now; `idle`: it has nothing else to do. */
int hr__caching_may_convert_locked(struct hr_loader *l, int idle);

/* The same for a worker between two samples. */
int hr__caching_should_convert_locked(struct hr__thread *self);

/* Converts one item, if one waits. Releases the lock meanwhile. */
void hr__caching_convert_locked(struct hr__thread *self);

#endif
