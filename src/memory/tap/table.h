/*
 * Live blocks by address, for any number of threads.
 *
 * There are 64 shards, each an open-addressing table with its own lock, in memory that it maps
 * itself: nothing here allocates, so an allocator may call it. A counting filter answers "surely
 * not here" with one load, which settles most frees.
 *
 * Zeroed memory is an empty table: a forked child whose pages were wiped starts anew, even if a
 * thread of the parent held a lock. (On Linux a zeroed pthread_mutex_t is unlocked.)
 */
#ifndef HR_MEMORY_TAP_TABLE_H
#define HR_MEMORY_TAP_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HR__TAP_SHARDS  64
#define HR__TAP_FILTER  16384                     /* counters */
#define HR__TAP_LARGEST ((UINT64_C(1) << 55) - 1) /* bytes of the largest block */

struct hr__tap_entry {
    uint64_t address; /* not 0 */
    uint64_t bytes;   /* at most HR__TAP_LARGEST */
    uint8_t device;
    uint8_t is_reported; /* the listener was notified of it */
};

struct hr__tap_slot {
    uint64_t address; /* 0: empty */
    uint64_t rest;    /* bytes << 9 | device << 1 | is_reported */
};

struct hr__tap_shard {
    pthread_mutex_t lock; /* guards the members below */
    struct hr__tap_slot *slots;
    size_t capacity; /* a power of two; 0: no slots yet */
    size_t count;    /* at most half the capacity */
} __attribute__((aligned(64)));

struct hr__tap_table {
    atomic_uint filter[HR__TAP_FILTER]; /* blocks whose addresses map to each counter */
    struct hr__tap_shard shards[HR__TAP_SHARDS];
};

static inline uint64_t hr__tap_mix(uint64_t address)
{
    return (address >> 4) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Returns 0 if no block lives at the address. The load need not be ordered: the caller got the
 * block's address from the thread that put it in. */
static inline int hr__tap_table_may_have(const struct hr__tap_table *table, uint64_t address)
{
    const atomic_uint *counter = &table->filter[hr__tap_mix(address) >> 50];
    return atomic_load_explicit(counter, memory_order_relaxed) != 0;
}

/* Adds a block. Returns 1 if it replaced one at the same address, now in *old; else 0. -ENOMEM: the
 * block was not added. */
int hr__tap_table_put(struct hr__tap_table *table, const struct hr__tap_entry *entry,
                      struct hr__tap_entry *old);

/* Removes a block. Returns 1 with the block in *out, or 0 if none lives there. */
int hr__tap_table_take(struct hr__tap_table *table, uint64_t address, struct hr__tap_entry *out);

/* Looks up a block; returns the same. */
int hr__tap_table_find(struct hr__tap_table *table, uint64_t address, struct hr__tap_entry *out);

/* Calls fn for each block while holding the lock of its shard: fn must not use the table. Changes
 * that fn makes to is_reported are stored. */
void hr__tap_table_each(struct hr__tap_table *table,
                        void (*fn)(void *arg, struct hr__tap_entry *entry), void *arg);

#endif
