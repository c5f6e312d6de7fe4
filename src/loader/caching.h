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

#include <headrace/base.h>

struct hr_loader;

/* Makes the cache that the options ask for, and hangs it on the loader. `of_publishers`: it is
 * shared with the other publishers of this process. Errors: -EINVAL: the options; those of
 * hr_cache_open. */
int hr__caching_create(struct hr_loader *l, int of_publishers, struct hr_error *error);

/* Bytes of budget that samples take which are not cached, as they are: of `samples` with
 * `bytes` on storage, all together. Pure. */
uint64_t hr__caching_missing(const struct hr__cache_counts *now, uint64_t samples, double bytes);

#endif
