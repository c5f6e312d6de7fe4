/* A loader's counters. */
#ifndef HR_LOADER_COUNTERS_H
#define HR_LOADER_COUNTERS_H

#include <headrace/loader.h>

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct hr__histogram {
    _Atomic uint64_t count, sum_ns;
    _Atomic uint64_t buckets[HR_HISTOGRAM_BUCKETS];
};

/* Counters since the loader was made. Relaxed atomics, because nothing is concluded from one about
 * another. A loader has several sets, and a thread counts in that of its core: many cores that
 * change one line of memory would wait for each other. A set by itself means nothing; the sums do,
 * also of counters that fall, because they wrap. All members are counters or histograms. */
struct hr__counters {
    _Atomic uint64_t samples, batches, bad_samples, padded_samples, bytes_read, wait_ns, step_ns;
    _Atomic uint64_t cache_hits, converted, conversion_ns;
    _Atomic uint64_t disk_hits, disk_bytes;
    _Atomic uint64_t staged_bytes;
    _Atomic uint64_t damaged_samples, scaled_samples;
    _Atomic uint64_t own_hits, own_bytes, peer_hits, peer_bytes;
    _Atomic uint64_t stored, stored_bytes, refused, read_ahead;
    struct hr__histogram fetch, prepare, wait;
};

#define HR__COUNTER_SETS 32u

/* The number of the set for the core on which this thread runs now. */
static inline unsigned hr__counter_set(void)
{
    int core = sched_getcpu();
    return core < 0 ? 0 : (unsigned)core % HR__COUNTER_SETS;
}

/* Adds up the counter at `offset` of struct hr__counters. */
static inline uint64_t hr__counters_sum(const struct hr__counters sets[HR__COUNTER_SETS],
                                        size_t offset)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < HR__COUNTER_SETS; i++)
        sum += atomic_load_explicit(
            (const _Atomic uint64_t *)(const void *)((const char *)&sets[i] + offset),
            memory_order_relaxed);
    return sum;
}

static inline void hr__count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline void hr__uncount(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_sub_explicit(counter, n, memory_order_relaxed);
}

static inline void hr__histogram_add(struct hr__histogram *h, uint64_t ns)
{
    int bucket = ns ? 63 - __builtin_clzll(ns) : 0;
    if (bucket >= HR_HISTOGRAM_BUCKETS)
        bucket = HR_HISTOGRAM_BUCKETS - 1;
    hr__count(&h->count, 1);
    hr__count(&h->sum_ns, ns);
    hr__count(&h->buckets[bucket], 1);
}

#endif
