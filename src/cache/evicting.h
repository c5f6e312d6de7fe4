/*
 * A private cache that evicts: it keeps what its loaders use next.
 *
 * It is for loaders whose orders use some samples often and others seldom (samplers that draw with
 * replacement), and for several loaders of one process in one budget (training and validation). For
 * one order that uses each sample once an epoch, never evicting reads as little and costs less
 * (private.c).
 *
 * Each loader has a cache of its own, a member of a pool. The pool has the memory, and decides by
 * the next use over all members (future.h): a sample that was read is admitted if there is room, or
 * if others can be evicted whose next use is later; else it is not kept (Belady's rule, with
 * bypass).
 *
 * Nothing is staged: an item has its final form when it is offered. A reader pins the entry of its
 * sample, and the space of an evicted item is used again once no reader has it pinned, so readers
 * take no lock and never see other bytes.
 */
#ifndef HR_CACHE_EVICTING_H
#define HR_CACHE_EVICTING_H

#include "cache/cache.h"

/* Creates a pool with one member; hr__cache_create's arguments and errors. */
int hr__cache_create_evicting(struct hr__cache **out, const struct hr__cache_options *options,
                              struct hr_error *error);

/* Creates a further member of the pool of `beside`. options->budget_bytes is not used. Errors:
 * -EINVAL: `beside` does not evict; -ENOMEM; -EOVERFLOW. */
int hr__cache_join_evicting(struct hr__cache **out, struct hr__cache *beside,
                            const struct hr__cache_options *options, struct hr_error *error);

#endif
