/*
 * The cost of a cache hit: CPU time to look up an item of a shared segment and pin it.
 *
 *   cache_hit DIRECTORY [ITEMS [INDEXED]]
 *
 * Makes two private segments below DIRECTORY (on an in-memory file system) and removes them at the
 * end. One has an index for INDEXED items (10 million) and holds ITEMS (1 million) small ones, so
 * that lookups miss the processor's caches as with a large dataset, and checksums cost almost
 * nothing. The other has items of an image's size, for which a hit with its checksum and XXH3 alone
 * over the same bytes are measured. A third one is full and has half of EVICTED samples (1
 * million), of which two users with orders of their own decide what to evict. Keys come in random
 * order, rounds alternate, and the medians are printed as one line of JSON. A hit counts as copied
 * unless its bytes are in the segment's arena.
 */
#include "base/clock.h"
#include "cache/directory.h"
#include "cache/store_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    ROUNDS = 9,
    LARGE_ITEMS = 4000,
    LARGE_BYTES = 86000,
    SMALL_BYTES = 64,
    LOOKUPS = 400000,
    EVICTED = 1000000,
    DECISIONS = 100000
};

struct cache_hit_bench {
    struct hr__store *store;
    struct hr__segment *segment; /* the store's */
    uint64_t items;
    size_t length;
    uint64_t copied; /* hits whose bytes were outside the arena */
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "cache_hit: %s: %s\n", what, why);
    exit(3);
}

static struct hr__key key_of(uint64_t item)
{
    return hr__key_of(&item, sizeof item, 0);
}

/* `run` distinguishes the segments. */
static void make(struct cache_hit_bench *b, const char *run, uint64_t indexed)
{
    struct hr_error error = {0};
    uint64_t each = (b->length + HR__SEGMENT_ALIGN - 1) / HR__SEGMENT_ALIGN * HR__SEGMENT_ALIGN;
    struct hr__cache_spec spec = {
        .size_bytes = b->items * each, .share_bytes = b->items * each, .form = HR_FORM_ENCODED};
    struct hr__segment_wish wish = {
        .spec = &spec, .run = run, .dataset = "benchmark", .items = indexed};
    if (hr__directory_open(&b->segment, &wish, &error))
        die("a segment", error.message);
    if (hr__store_create(&b->store, b->segment, &error))
        die("a store", error.message);
}

static void fill(struct cache_hit_bench *b)
{
    uint8_t *bytes = malloc(b->length);
    if (!bytes)
        die("memory", strerror(errno));
    for (size_t i = 0; i < b->length; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    for (uint64_t i = 0; i < b->items; i++) {
        memcpy(bytes, &i, sizeof i);
        struct hr__store_piece piece = {bytes, b->length};
        struct hr__store_offer offer = {.key = key_of(i),
                                        .pieces = &piece,
                                        .piece_count = 1,
                                        .length = b->length,
                                        .source_bytes = b->length,
                                        .form = HR_FORM_ENCODED,
                                        .sample = (uint32_t)i + 1};
        if (!hr__store_offer(b->store, &offer))
            die("an item", "refused");
    }
    free(bytes);
}

/* Order in which items are looked up: the same for every round and method. */
static uint64_t item_at(const struct cache_hit_bench *b, uint64_t i)
{
    return i * UINT64_C(0x9e3779b97f4a7c15) % b->items;
}

/* Returns the CPU nanoseconds of a lookup, pin and release. */
static double hits(struct cache_hit_bench *b, uint64_t lookups, const struct hr__key *keys)
{
    const uint8_t *arena = b->segment->arena;
    uint64_t start = hr__thread_cpu_ns();
    for (uint64_t i = 0; i < lookups; i++) {
        struct hr__cache_item item;
        if (!hr__store_find(b->store, &keys[i], &item) || item.length != b->length)
            die("an item", "not found");
        b->copied += item.bytes < arena || item.bytes >= arena + b->segment->layout.arena_bytes;
        hr__store_clear(&item);
    }
    return (double)(hr__thread_cpu_ns() - start) / (double)lookups;
}

static double checksums(const struct cache_hit_bench *b, uint64_t lookups,
                        const uint8_t *const *bytes)
{
    uint64_t sum = 0;
    uint64_t start = hr__thread_cpu_ns();
    for (uint64_t i = 0; i < lookups; i++)
        sum ^= XXH3_64bits(bytes[i], b->length);
    double ns = (double)(hr__thread_cpu_ns() - start) / (double)lookups;
    if (sum == 42) /* use the sums, so that they are computed */
        fputs("", stderr);
    return ns;
}

/* Two users of a full segment, with orders of their own, of which each tells an epoch. */
static void make_orders(struct cache_hit_bench *b, struct cache_hit_bench *other)
{
    struct cache_hit_bench *both[] = {b, other};
    for (int user = 0; user < 2; user++) {
        struct hr__store *store = both[user]->store;
        struct hr__cache_progress at = {.stream = 1u + (unsigned)user, .samples = EVICTED};
        hr__store_note_place(store, &at);
        hr__store_begin_uses(store);
        for (uint64_t i = 0; i < EVICTED; i++)
            hr__store_add_use(store, i * (user ? 611953 : 746773) % EVICTED);
        hr__store_end_uses(store);
    }
    uint64_t now_ns = hr__now_ns();
    atomic_store(&b->store->is_full, 1);
    for (int looks = 0; looks < 3; looks++) {
        hr__store_use(b->store, (uint64_t)looks);
        hr__store_use(other->store, (uint64_t)looks);
        hr__store_look_around(b->store, now_ns += 100000000);
    }
    if (b->store->orders.count != 2)
        die("two users", "do not count");
}

/* Returns the CPU nanoseconds of finding one item to evict. */
static double decisions(struct hr__store *store)
{
    uint64_t start = hr__thread_cpu_ns();
    for (int i = 0; i < DECISIONS; i++) {
        struct hr__victim victim;
        hr__store_next_begin(store);
        double next = hr__store_next_use(store, (uint64_t)i);
        if (!hr__store_find_victim(store, &victim) || victim.when < 0 || next < 0)
            die("an item to evict", "not found");
        /* As if it had been evicted. */
        for (int v = 0; v < HR__VICTIMS; v++)
            if (store->orders.victims[v].index == victim.index)
                store->orders.victims[v] = (struct hr__victim){.when = -1};
    }
    return (double)(hr__thread_cpu_ns() - start) / DECISIONS;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

static struct hr__key *make_keys(const struct cache_hit_bench *b, uint64_t lookups)
{
    struct hr__key *keys = malloc(lookups * sizeof *keys);
    if (!keys)
        die("memory", strerror(errno));
    for (uint64_t i = 0; i < lookups; i++)
        keys[i] = key_of(item_at(b, i));
    return keys;
}

/* Finds the place of each key's item. */
static const uint8_t **find_bytes(struct cache_hit_bench *b, uint64_t lookups,
                                  const struct hr__key *keys)
{
    const uint8_t **bytes = malloc(lookups * sizeof *bytes);
    struct hr__cache_item item;
    if (!bytes)
        die("memory", strerror(errno));
    for (uint64_t i = 0; i < lookups; i++) {
        if (!hr__store_find(b->store, &keys[i], &item))
            die("an item", "not found");
        bytes[i] = item.bytes;
        hr__store_clear(&item);
    }
    return bytes;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: cache_hit DIRECTORY [ITEMS [INDEXED]]\n");
        return 2;
    }
    if (setenv("HEADRACE_SHM", argv[1], 1))
        die(argv[1], strerror(errno));
    struct cache_hit_bench small = {.items = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000,
                                    .length = SMALL_BYTES};
    uint64_t indexed = argc > 3 ? strtoull(argv[3], NULL, 10) : 10000000;
    struct cache_hit_bench full = {.items = EVICTED / 2, .length = SMALL_BYTES}, other = full;
    struct cache_hit_bench large = {.items = LARGE_ITEMS, .length = LARGE_BYTES};
    if (!small.items || small.items > indexed)
        die("ITEMS", "there must be some, and not more than INDEXED");
    make(&small, "small", indexed);
    make(&large, "large", LARGE_ITEMS);
    uint64_t slots = small.segment->layout.index_slots;
    fill(&small);
    fill(&large);
    make(&full, "full", EVICTED);
    make(&other, "full", EVICTED);
    fill(&full);
    make_orders(&full, &other);

    struct hr__key *few = make_keys(&small, LOOKUPS), *many = make_keys(&large, LARGE_ITEMS);
    const uint8_t **bytes = find_bytes(&large, LARGE_ITEMS, many);
    double hit[ROUNDS], whole[ROUNDS], sum[ROUNDS], decide[ROUNDS];
    small.copied = large.copied = 0;
    for (int r = 0; r < ROUNDS; r++) {
        hit[r] = hits(&small, LOOKUPS, few);
        whole[r] = hits(&large, LARGE_ITEMS, many);
        sum[r] = checksums(&large, LARGE_ITEMS, bytes);
        decide[r] = decisions(full.store);
    }
    printf("{\"hit_us\": %.4f, \"hit_with_checksum_us\": %.4f, \"checksum_us\": %.4f, "
           "\"item_bytes\": %d, \"copied\": %llu, \"items\": %llu, \"indexed\": %llu, "
           "\"index_bytes_per_item\": %.2f, \"decision_us\": %.4f}\n",
           median(hit) / 1e3, median(whole) / 1e3, median(sum) / 1e3, LARGE_BYTES,
           (unsigned long long)(small.copied + large.copied), (unsigned long long)small.items,
           (unsigned long long)indexed, (double)slots * sizeof(struct hr__entry) / (double)indexed,
           median(decide) / 1e3);
    free(few);
    free(many);
    free(bytes);
    hr__store_destroy(&small.store);
    hr__store_destroy(&large.store);
    hr__store_destroy(&full.store);
    hr__store_destroy(&other.store);
    return 0;
}
