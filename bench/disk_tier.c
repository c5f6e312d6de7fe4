/*
 * The bandwidth of hits of a cache on a disk: locating, reading with many reads in flight, and
 * verifying, as a loader's fetcher and workers do, on one thread and without preparing.
 *
 *   bench_disk_tier SPEC DATASET DEPTH ROUNDS
 *
 * Fills the cache SPEC (disk:/DIRECTORY?size=...) with DATASET, then reads all of it ROUNDS times
 * in another order each, with DEPTH reads in flight. Waits for a line on standard input before each
 * round, so that a caller can measure something else in between. Prints one line of JSON for each
 * round: bytes, seconds, mean bytes of an item.
 */
#include "base/clock.h"
#include "cache/cache.h"
#include "cache/spec.h"
#include "loader/sample.h"

#include <headrace/cache.h>

#include <stdio.h>
#include <stdlib.h>

#define DEPTH_MOST 256

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_disk_tier: %s: %s\n", what, why);
    exit(3);
}

struct disk_read {
    struct hr__sample sample;
    struct hr__cache_place place;
    struct disk_read *next;
};

static void shuffle(uint64_t *order, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i++)
        order[i] = i;
    for (uint64_t i = count; i > 1; i--) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t j = (seed >> 33) % i, swapped = order[j];
        order[j] = order[i - 1];
        order[i - 1] = swapped;
    }
}

/* Puts the reads that are done in front of a list. Waits for one if the list is empty, and in any
 * case hands over to the kernel what was submitted. Returns how many there are. */
static unsigned collect(struct hr__reader *reader, struct disk_read **list)
{
    struct hr__read *done[DEPTH_MOST];
    int n = hr__reader_wait(reader, done, DEPTH_MOST, *list ? 0 : -1);
    for (int i = 0; i < n; i++) {
        struct disk_read *r = done[i]->user;
        r->next = *list;
        *list = r;
    }
    return n > 0 ? (unsigned)n : 0;
}

/* Verifies the first read of a list, and frees it. Returns the bytes. */
static uint64_t verify(struct hr__cache *cache, struct disk_read **list, struct disk_read **free)
{
    struct disk_read *r = *list;
    struct hr__read *read = &r->sample.read;
    *list = r->next;
    if (read->result || !hr__cache_verify(cache, &r->place, read->bytes, read->length))
        die("an item", "is not as it was written");
    uint64_t bytes = read->length;
    hr__read_drop(read);
    r->next = *free;
    *free = r;
    return bytes;
}

static uint64_t read_all(struct hr__cache *cache, const uint64_t *order, uint64_t count,
                         unsigned depth)
{
    static struct disk_read reads[2 * DEPTH_MOST];
    struct disk_read *free = NULL, *done = NULL;
    struct hr__reader *reader;
    struct hr__reader_options options = {.depth = depth};
    struct hr_error error;
    uint64_t bytes = 0;
    unsigned in_flight = 0;
    if (hr__reader_create(&reader, &options, &error))
        die("a reader", error.message);
    for (unsigned i = 0; i < 2 * depth; i++) {
        reads[i].next = free;
        free = &reads[i];
    }
    for (uint64_t i = 0; i < count || in_flight || done;) {
        while (free && in_flight < depth && i < count) {
            struct disk_read *r = free;
            if (!hr__cache_locate(cache, order[i++], &r->place))
                die("a sample", "is not in the cache: is it large enough?");
            free = r->next;
            r->sample.read.user = r;
            hr__sample_aim_at(&r->sample, &r->place);
            if (hr__reader_submit(reader, &r->sample.read))
                die("a read", "was refused");
            in_flight++;
        }
        /* As in a loader, where workers verify, the next reads are in flight meanwhile: what is
         * done makes room for others first. */
        unsigned more = collect(reader, &done);
        in_flight -= more;
        if (done && (!more || !free || i == count))
            bytes += verify(cache, &done, &free);
    }
    hr__reader_destroy(&reader);
    return bytes;
}

int main(int argc, char **argv)
{
    struct hr_dataset *dataset;
    struct hr_dataset_options options;
    struct hr__cache_spec spec;
    struct hr__cache *cache;
    struct hr_error error = {0};
    char line[16];
    if (argc != 5)
        die("usage", "bench_disk_tier SPEC DATASET DEPTH ROUNDS");
    unsigned depth = (unsigned)atoi(argv[3]);
    if (depth < 1 || depth > DEPTH_MOST)
        die("DEPTH", "must be from 1 to 256");
    hr_dataset_options_default(&options);
    if (hr_dataset_open(&dataset, argv[2], &options, &error) ||
        hr_cache_warm(dataset, argv[1], 0, NULL, NULL, NULL, &error) ||
        hr__cache_spec_parse(&spec, argv[1], &error) ||
        hr__cache_create_shared(&cache, dataset, &spec, NULL, &error))
        die(argv[1], error.message);
    uint64_t count = hr_dataset_count(dataset);
    uint64_t *order = calloc(count, sizeof *order);
    if (!order)
        die("an order", "out of memory");
    for (int round = 0; round < atoi(argv[4]) && fgets(line, sizeof line, stdin); round++) {
        shuffle(order, count, (uint64_t)round + 1);
        uint64_t start_ns = hr__now_ns();
        uint64_t bytes = read_all(cache, order, count, depth);
        double seconds = (double)(hr__now_ns() - start_ns) / 1e9;
        printf("{\"bytes\": %llu, \"seconds\": %.6f, \"item_bytes\": %.0f}\n",
               (unsigned long long)bytes, seconds, (double)bytes / (double)count);
        fflush(stdout);
    }
    free(order);
    hr__cache_destroy(&cache);
    hr_dataset_unref(&dataset);
    return 0;
}
