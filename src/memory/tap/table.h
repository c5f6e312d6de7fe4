/*
 * Live blocks by their address, for any number of threads.
 *
 * 64 shards, each an open-addressing table under a lock of its own, in memory of its own
 * mapping: nothing here allocates, so that it can be used from within an allocator. A filter of
 * counters answers "surely not here" with one load, which is what most frees ask.
 *
 * Zeroed memory is an empty table: a forked child whose page was wiped begins anew, whoever
 * held a lock in the parent. (On Linux a zeroed pthread_mutex_t is an unlocked one.)
 */
#ifndef HR_MEMORY_TAP_TABLE_H
#define HR_MEMORY_TAP_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HR__TAP_SHARDS  64
#define HR__TAP_FILTER  16384                     /* counters */
#define HR__TAP_LARGEST ((UINT64_C(1) << 55) - 1) /* bytes of a block that can be kept */

struct hr__tap_entry {
    uint64_t address; /* not 0 */
    uint64_t bytes;   /* at most HR__TAP_LARGEST */
    uint8_t device;
    uint8_t is_told; /* whoever listens knows of it */
};

struct hr__tap_slot {
    uint64_t address; /* 0: empty */
    uint64_t rest;    /* bytes << 9 | device << 1 | is_told */
};

struct hr__tap_shard {
    pthread_mutex_t lock; /* guards what follows */
    struct hr__tap_slot *slots;
    size_t capacity; /* a power of two; 0: no slots yet */
    size_t count;    /* at most half of it */
} __attribute__((aligned(64)));

struct hr__tap_table {
    atomic_uint filter[HR__TAP_FILTER]; /* blocks whose addresses fall there */
    struct hr__tap_shard shards[HR__TAP_SHARDS];
};

static inline uint64_t hr__tap_mix(uint64_t address)
{
    return (address >> 4) * UINT64_C(0x9e3779b97f4a7c15);
}

/* 0: no block lives at the address. The load need not be ordered: who asks about a block got
 * its address from whoever put it in. */
static inline int hr__tap_table_may_have(const struct hr__tap_table *table, uint64_t address)
{
    const atomic_uint *counter = &table->filter[hr__tap_mix(address) >> 50];
    return atomic_load_explicit(counter, memory_order_relaxed) != 0;
}

/* Puts a block in. 1: instead of one that lived there, now in *old; 0: none did; -ENOMEM: it
 * is not in. */
int hr__tap_table_put(struct hr__tap_table *table, const struct hr__tap_entry *entry,
                      struct hr__tap_entry *old);

/* Takes a block out: 1, and it is in *out; 0: none lives there. */
int hr__tap_table_take(struct hr__tap_table *table, uint64_t address, struct hr__tap_entry *out);

/* Looks a block up: likewise. */
int hr__tap_table_find(struct hr__tap_table *table, uint64_t address, struct hr__tap_entry *out);

/* Calls fn for each block, with the lock of its shard held: fn must not come back here. What fn
 * leaves in is_told is kept. */
void hr__tap_table_each(struct hr__tap_table *table,
                        void (*fn)(void *arg, struct hr__tap_entry *entry), void *arg);

/* Empties it; nobody else uses it by then. */
void hr__tap_table_clear(struct hr__tap_table *table);

#endif
