/*
 * When a cache's samples are used next, by several orders: what Belady's rule asks (L. A. Belady,
 * "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2),
 * 1966).
 *
 * An order is one loader's sequence of uses. Its owner adds the uses that are known: of a shuffle,
 * the rest of this epoch and all of the next one; of a sampler, the indices that it has drawn. It
 * reports each use as it happens.
 *
 * The common clock counts the uses of all orders. Two measurements convert an order's positions to
 * it: the mean number of ticks between two uses of the order, and the ticks between the beginnings
 * of its last two epochs. So loaders may run side by side at different speeds, or in turn
 * (training, then validation). An order that stands still is expected to do so for as long again
 * as it has until now, so what it will use does not fill the cache for ever.
 *
 * A sample without a known use is expected after the last known one, as often as it was used so
 * far.
 *
 * An order also finds which of the samples that a cache keeps is used last. The known uses that are
 * next for a kept sample are a set whose largest is found at once (numbers.h); of kept samples
 * without a known use, which come after all others, some random ones are compared (residents.h).
 *
 * Pure: no real time, no I/O, no locks. The caller serialises all calls for one struct hr__future.
 */
#ifndef HR_CACHE_FUTURE_H
#define HR_CACHE_FUTURE_H

#include <headrace/base.h>

#include <stdint.h>

#define HR__NO_USE UINT32_MAX

/* The clock that several orders share. Zeroed: no use yet. */
struct hr__future {
    uint64_t clock; /* uses so far */
};

struct hr__future_order;

/* Creates an order without known uses over samples 0 to `samples` - 1, of which none is kept.
 * Memory: 20 bytes for each, and 8 for each known use. *future must exist as long as the order.
 * Errors: -ENOMEM, -EOVERFLOW: 2^32 - 1 samples or more. */
int hr__future_order_create(struct hr__future_order **out, struct hr__future *future,
                            uint64_t samples, struct hr_error *error);
void hr__future_order_destroy(struct hr__future_order **order);

/* Begins an epoch now: forgets what was known and not used. */
void hr__future_begin(struct hr__future_order *order);

/* Adds the next known use, of a sample in this epoch. Errors: -ENOMEM, -EOVERFLOW: 2^32 - 1 uses
 * are known; the order is then as before. */
HR_NODISCARD int hr__future_add(struct hr__future_order *order, uint64_t sample);

/* Marks the end of this epoch's uses: those that are added from now on are of the next epoch, which
 * need not follow at once. */
void hr__future_end_epoch(struct hr__future_order *order);

/* Reports that a sample is used now. Uses of different samples may be reported in another order
 * than they were added in, as threads come to them. */
void hr__future_use(struct hr__future_order *order, uint64_t sample);

/* Returns in how many ticks of the clock the order is expected to use the sample next. */
double hr__future_next(const struct hr__future_order *order, uint64_t sample);

/* Returns the number of a sample's next known use, and how many are known. Uses are numbered from 0
 * at the beginning of the epoch. HR__NO_USE: none is known. */
uint32_t hr__future_number(const struct hr__future_order *order, uint64_t sample);
uint32_t hr__future_known(const struct hr__future_order *order);

/* Says that a cache keeps a sample of the order, or that it does so no longer. */
void hr__future_keep(struct hr__future_order *order, uint64_t sample);
void hr__future_drop(struct hr__future_order *order, uint64_t sample);

/* Returns the kept sample that is used last, and stores in how many ticks that is. If some have no
 * known use, it is one of these that is used among the last. HR__NO_RESIDENT: none is kept. */
uint32_t hr__future_furthest(struct hr__future_order *order, double *when);

#endif
