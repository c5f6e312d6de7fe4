/*
 * What the private backings, with and without eviction, do with an entry: they tell by its file's
 * stamp whether an item is still the file's, and reserve the entry for the thread that fills it.
 */
#ifndef HR_CACHE_PRIVATE_ENTRY_H
#define HR_CACHE_PRIVATE_ENTRY_H

#include "cache/cache.h"
#include "dataset/stamp.h"

#include <stdatomic.h>

/* The parts of an entry that the backings share. */
struct hr__private_entry {
    _Atomic uint64_t word; /* 0: not cached */
    _Atomic uint64_t of; /* digest of a stamp of its file: the item's if there is an item, else the
                          * last one seen; 0: none yet */
};

/* Returns the digest of the stamp that the sample's file has now; 0 if it cannot be queried.
 * Without a dataset all stamps are equal. */
uint64_t hr__private_look(const struct hr_dataset *dataset, uint64_t index,
                          struct hr__stamp *stamp);

/* Stores in the ticket which file the thread is about to read. */
void hr__private_claim(struct hr__private_entry *entry, const struct hr_dataset *dataset,
                       uint64_t index, struct hr__cache_ticket *ticket);

/* Reserves an empty entry for this thread: its word becomes `busy`. Returns non-zero if the file is
 * the same as when its read began and was not being written then. Stores the file's present state.
 */
int hr__private_take(struct hr__private_entry *entry, const struct hr_dataset *dataset,
                     const struct hr__cache_offer *given, uint64_t busy);

/* Copies the bytes of an offer. */
void hr__private_copy(uint8_t *to, const struct hr__cache_offer *given);

#endif
