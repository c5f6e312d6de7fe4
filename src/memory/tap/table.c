/* Live blocks by address; see table.h. Linear probing; removing an entry moves displaced ones back
 * (Knuth, volume 3, 6.4, algorithm R). */
#include "memory/tap/table.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_CAPACITY 256 /* slots per shard: one page */

_Static_assert(1 << 14 == HR__TAP_FILTER, "hr__tap_table_may_have shifts by 64 - 14");

static struct hr__tap_shard *shard_of(struct hr__tap_table *table, uint64_t address)
{
    return &table->shards[hr__tap_mix(address) >> 44 & (HR__TAP_SHARDS - 1)];
}

static size_t home_of(const struct hr__tap_shard *shard, uint64_t address)
{
    return (size_t)(hr__tap_mix(address) >> 16) & (shard->capacity - 1);
}

static void count_in_filter(struct hr__tap_table *table, uint64_t address, int by)
{
    atomic_uint *counter = &table->filter[hr__tap_mix(address) >> 50];
    atomic_fetch_add_explicit(counter, (unsigned)by, memory_order_relaxed);
}

static uint64_t pack(const struct hr__tap_entry *entry)
{
    return entry->bytes << 9 | (uint64_t)entry->device << 1 | (entry->is_reported & 1);
}

static struct hr__tap_entry unpack(const struct hr__tap_slot *slot)
{
    return (struct hr__tap_entry){.address = slot->address,
                                  .bytes = slot->rest >> 9,
                                  .device = (uint8_t)(slot->rest >> 1),
                                  .is_reported = slot->rest & 1};
}

/* Finds the slot of an address, or the empty slot for it. The table must have slots, one of them
 * empty. */
static struct hr__tap_slot *look_locked(const struct hr__tap_shard *shard, uint64_t address)
{
    size_t at = home_of(shard, address);
    while (shard->slots[at].address && shard->slots[at].address != address)
        at = (at + 1) & (shard->capacity - 1);
    return &shard->slots[at];
}

/* Doubles the slots; returns 0 or -ENOMEM. */
static int grow_locked(struct hr__tap_shard *shard)
{
    struct hr__tap_shard old = *shard;
    size_t capacity = old.capacity ? 2 * old.capacity : FIRST_CAPACITY;
    size_t bytes = capacity * sizeof *old.slots;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    /* A child does not need it, since its table is wiped. Failure costs the child only shared
     * memory. */
    (void)madvise(memory, bytes, MADV_DONTFORK);
    shard->slots = memory;
    shard->capacity = capacity;
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].address)
            *look_locked(shard, old.slots[i].address) = old.slots[i];
    if (old.slots)
        munmap(old.slots, old.capacity * sizeof *old.slots);
    return 0;
}

int hr__tap_table_put(struct hr__tap_table *table, const struct hr__tap_entry *entry,
                      struct hr__tap_entry *old)
{
    struct hr__tap_shard *shard = shard_of(table, entry->address);
    int code = 0;
    if (entry->bytes > HR__TAP_LARGEST)
        return -ENOMEM;
    pthread_mutex_lock(&shard->lock);
    if (2 * (shard->count + 1) > shard->capacity)
        code = grow_locked(shard);
    if (!code) {
        struct hr__tap_slot *slot = look_locked(shard, entry->address);
        if (slot->address) {
            *old = unpack(slot);
            code = 1;
        } else {
            count_in_filter(table, entry->address, 1);
            shard->count++;
        }
        *slot = (struct hr__tap_slot){.address = entry->address, .rest = pack(entry)};
    }
    pthread_mutex_unlock(&shard->lock);
    return code;
}

/* Empties a slot and moves back later entries that belong further ahead. */
static void remove_locked(struct hr__tap_shard *shard, struct hr__tap_slot *slot)
{
    size_t mask = shard->capacity - 1, hole = (size_t)(slot - shard->slots);
    for (size_t at = (hole + 1) & mask; shard->slots[at].address; at = (at + 1) & mask) {
        size_t home = home_of(shard, shard->slots[at].address);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            shard->slots[hole] = shard->slots[at];
            hole = at;
        }
    }
    shard->slots[hole].address = 0;
    shard->count--;
}

static int get(struct hr__tap_table *table, uint64_t address, struct hr__tap_entry *out, int take)
{
    int is_there = 0;
    if (!address || !hr__tap_table_may_have(table, address))
        return 0;
    struct hr__tap_shard *shard = shard_of(table, address);
    pthread_mutex_lock(&shard->lock);
    struct hr__tap_slot *slot = shard->capacity ? look_locked(shard, address) : NULL;
    if (slot && slot->address) {
        is_there = 1;
        *out = unpack(slot);
        if (take) {
            remove_locked(shard, slot);
            count_in_filter(table, address, -1);
        }
    }
    pthread_mutex_unlock(&shard->lock);
    return is_there;
}

int hr__tap_table_take(struct hr__tap_table *table, uint64_t address, struct hr__tap_entry *out)
{
    return get(table, address, out, 1);
}

int hr__tap_table_find(struct hr__tap_table *table, uint64_t address, struct hr__tap_entry *out)
{
    return get(table, address, out, 0);
}

void hr__tap_table_each(struct hr__tap_table *table,
                        void (*fn)(void *arg, struct hr__tap_entry *entry), void *arg)
{
    for (size_t s = 0; s < HR__TAP_SHARDS; s++) {
        struct hr__tap_shard *shard = &table->shards[s];
        pthread_mutex_lock(&shard->lock);
        for (size_t i = 0; i < shard->capacity; i++)
            if (shard->slots[i].address) {
                struct hr__tap_entry entry = unpack(&shard->slots[i]);
                fn(arg, &entry);
                shard->slots[i].rest = pack(&entry);
            }
        pthread_mutex_unlock(&shard->lock);
    }
}
