/*
 * Items per second from memcached servers: one at a time and in bulk, with our client, with our
 * client including trailers and checksums (as in the loader), and with libmemcached.
 *
 *   bench_fetch ADDRESS [ADDRESS ...]
 *
 * ADDRESS: 127.0.0.1:PORT or the path of a socket, of memcached -m 256 -I 2m or more, which the
 * caller starts. Stores 256 items of 100 KiB, then fetches them in a random order on one thread,
 * method by method in turns. Prints one line of JSON: medians over ROUNDS turns of items per second
 * and of the thread's CPU time for an item. On the loopback device this is the cost of the software
 * and of the kernel's copies, not of a network.
 */
#include "cluster/peers.h"

#include "base/clock.h"
#include "base/memory.h"

#include <libmemcached/memcached.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 256, BYTES = 102400, BULK = 32, ROUNDS = 9, PASSES = 4 };

struct fetch_bench {
    struct hr__peers *peers;
    struct hr__peer_client *client;
    struct hr__blocks *blocks;
    memcached_st *other;
    uint8_t *item;
    uint32_t random;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_fetch: %s: %s\n", what, why);
    exit(3);
}

static uint64_t any(struct fetch_bench *b)
{
    b->random = b->random * 1664525u + 1013904223u;
    return (b->random >> 8) % ITEMS;
}

static struct hr__peer_item item_of(uint64_t k)
{
    return (struct hr__peer_item){.key = {7, k}, .length = BYTES, .source_bytes = BYTES};
}

static void name_key(char *out, uint64_t k)
{
    snprintf(out, HR__PEER_KEY + 1, "hr1:%016x%016x", 7, (unsigned)k);
}

static void store(struct fetch_bench *b)
{
    for (uint64_t k = 0; k < ITEMS; k++) {
        struct hr__peer_item item = item_of(k);
        item.bytes = b->item;
        if (!hr__peers_store(b->peers, 0, &item, 1))
            die("storing", "refused: is the server large enough (-m 256)?");
    }
}

/* Each fetches `count` items and returns the bytes received. */
static size_t by_peers(struct fetch_bench *b, size_t count)
{
    struct hr__peer_item items[BULK];
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        items[i] = item_of((any(b) & ~(uint64_t)(BULK - 1)) + i);
    hr__peers_fetch(b->peers, 0, items, count);
    for (size_t i = 0; i < count; i++) {
        bytes += items[i].length;
        hr__free(items[i].bytes);
    }
    return bytes;
}

static size_t by_client(struct fetch_bench *b, size_t count)
{
    struct hr__peer_value values[BULK];
    struct hr_error error;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        name_key(values[i].key, (any(b) & ~(uint64_t)(BULK - 1)) + i);
    if (hr__peer_ops.get(b->client, values, count, hr__now_ns() + 5000000000u, &error))
        die("fetching", error.message);
    for (size_t i = 0; i < count; i++) {
        bytes += values[i].length;
        hr__free(values[i].bytes);
    }
    return bytes;
}

static size_t by_libmemcached(struct fetch_bench *b, size_t count)
{
    char keys[BULK][HR__PEER_KEY + 1];
    const char *names[BULK];
    size_t lengths[BULK], bytes = 0, length;
    memcached_return_t r;
    uint32_t flags;
    for (size_t i = 0; i < count; i++) {
        name_key(keys[i], (any(b) & ~(uint64_t)(BULK - 1)) + i);
        names[i] = keys[i];
        lengths[i] = strlen(keys[i]);
    }
    if (count == 1) {
        char *value = memcached_get(b->other, names[0], lengths[0], &length, &flags, &r);
        free(value);
        return value ? length : 0;
    }
    if (memcached_mget(b->other, names, lengths, count) != MEMCACHED_SUCCESS)
        return 0;
    memcached_result_st result;
    memcached_result_create(b->other, &result);
    while (memcached_fetch_result(b->other, &result, &r)) {
        /* As the caller has to: it takes over the bytes. */
        bytes += memcached_result_length(&result);
        free(memcached_result_take_value(&result));
    }
    memcached_result_free(&result);
    return bytes;
}

static const struct {
    const char *name;
    size_t (*fetch)(struct fetch_bench *, size_t);
    size_t count;
} ways[] = {
    {"single", by_client, 1},
    {"bulk", by_client, BULK},
    {"items_bulk", by_peers, BULK},
    {"libmemcached_single", by_libmemcached, 1},
    {"libmemcached_bulk", by_libmemcached, BULK},
};

enum { WAYS = sizeof ways / sizeof *ways };

struct figures {
    double per_s;  /* items */
    double cpu_us; /* of this thread, per item: the same on a busy machine */
};

static struct figures turn(struct fetch_bench *b, int way)
{
    uint64_t start = hr__now_ns(), cpu = hr__thread_cpu_ns();
    size_t n = 0;
    for (; n < PASSES * ITEMS; n += ways[way].count) {
        size_t bytes = ways[way].fetch(b, ways[way].count);
        if (bytes < ways[way].count * BYTES)
            die(ways[way].name, "items are missing");
    }
    return (struct figures){.per_s = (double)n / ((double)(hr__now_ns() - start) / 1e9),
                            .cpu_us = (double)(hr__thread_cpu_ns() - cpu) / 1e3 / (double)n};
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void open_all(struct fetch_bench *b, const char *text)
{
    struct hr__host host = {.budget_bytes = 1};
    struct hr__hosts hosts = {.hosts = &host, .count = 1, .self = -1, .timeout_ms = 5000};
    struct hr_error error = {0, ""};
    if (!text)
        die("an address", "is missing");
    const char *colon = text[0] == '/' ? NULL : strrchr(text, ':');
    snprintf(host.name, sizeof host.name, "%s", text);
    snprintf(host.address, sizeof host.address, "%.*s",
             colon ? (int)(colon - text) : (int)strlen(text), text);
    host.port = colon ? (uint16_t)atoi(colon + 1) : 0;
    b->blocks = hr__blocks_create(HR__TAG_CACHE, 64, 64 << 20);
    if (!b->blocks)
        die(text, "out of memory");
    const struct hr__peer_wish wish = {
        .address = host.address, .port = host.port, .blocks = b->blocks};
    if (hr__peers_create(&b->peers, &hosts, &hr__peer_ops, &error) ||
        hr__peer_ops.open(&b->client, &wish, &error))
        die(text, error.message);
    b->other = memcached_create(NULL);
    memcached_behavior_set(b->other, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    if (host.port)
        memcached_server_add(b->other, host.address, host.port);
    else
        memcached_server_add_unix_socket(b->other, host.address);
}

static void run(const char *text)
{
    struct fetch_bench b = {.random = 1, .item = calloc(1, BYTES)};
    double rates[WAYS][ROUNDS], costs[WAYS][ROUNDS];
    for (size_t i = 0; i < BYTES; i++)
        b.item[i] = (uint8_t)(i * 31 >> 3);
    open_all(&b, text);
    store(&b);
    for (int round = -1; round < ROUNDS; round++)
        for (int way = 0; way < WAYS; way++) {
            struct figures f = turn(&b, way);
            rates[way][round < 0 ? 0 : round] = f.per_s;
            costs[way][round < 0 ? 0 : round] = f.cpu_us;
        }
    printf("{\"address\": \"%s\"", text);
    for (int way = 0; way < WAYS; way++) {
        qsort(rates[way], ROUNDS, sizeof(double), compare);
        qsort(costs[way], ROUNDS, sizeof(double), compare);
        printf(", \"%s_per_s\": %.0f, \"%s_cpu_us\": %.1f", ways[way].name, rates[way][ROUNDS / 2],
               ways[way].name, costs[way][ROUNDS / 2]);
    }
    printf("}");
    memcached_free(b.other);
    hr__peer_ops.close(&b.client);
    hr__peers_destroy(&b.peers);
    hr__blocks_destroy(&b.blocks);
    free(b.item);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_fetch ADDRESS [ADDRESS ...]\n");
        return 2;
    }
    printf("{\"bench\": \"fetch\", \"bytes\": %d, \"in_bulk\": %d, \"servers\": [", BYTES, BULK);
    for (int i = 1; i < argc; i++) {
        printf("%s", i > 1 ? ", " : "");
        run(argv[i]);
    }
    printf("]}\n");
    return 0;
}
