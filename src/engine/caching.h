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
#ifndef HR_ENGINE_CACHING_H
#define HR_ENGINE_CACHING_H

#include "cache/cache.h"
#include "cache/worth.h"

#include <headrace/base.h>

struct hr_loader;
struct hr__thread;

struct hr__caching {
    struct hr__cache *cache; /* NULL: none. Constant from create on */

    /* Guarded by the loader's lock. */
    struct hr__worth worth;
    enum hr_form form;      /* to convert to: what was asked for, or chosen last */
    uint64_t working_ns;    /* of all workers: preparing, reading, converting */
    uint64_t converting_ns; /* of them, converting; those in hand as expected */
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

/* Makes the cache that the options ask for. Errors: -ENOMEM. */
int hr__caching_create(struct hr_loader *l, struct hr_error *error);

/* Offers a sample's bytes, which it copies, after what it took in `cost`. Takes
 * the loader's lock for a moment. Failures are no errors: it is just not cached. */
void hr__caching_offer(struct hr_loader *l, uint64_t index, const void *bytes,
                       const struct hr__cost *cost);

/* The worker's time, and of a hit what preparing it took. */
void hr__caching_note_locked(struct hr_loader *l, const struct hr__cost *cost);

/* Non-zero where a worker should convert now; `idle`: it has nothing else to do. */
int hr__caching_may_convert_locked(struct hr_loader *l, int idle);

/* The same for a worker between two samples. */
int hr__caching_should_convert_locked(struct hr__thread *self);

/* Converts one item, if one waits. Releases the lock meanwhile. */
void hr__caching_convert_locked(struct hr__thread *self);

#endif
