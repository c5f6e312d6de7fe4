/*
 * The servers of a list: items with their trailers, damaged items, servers that fail and recover,
 * bounds of a bulk request, counters, cancelling, fork. Servers are tables in memory with injected
 * failures; in the last test many threads use a real memcached that dies and is started again.
 * Tests of time limits set the clock, so that a busy machine changes nothing.
 */
#include "../test.h"

#include "cluster/peers.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cluster/peer_item.h"
#include "memcached_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS    UINT64_C(1000000)
#define ROOM  512
#define HOSTS 2

static _Atomic uint64_t set_ns; /* the time, while a test sets it; 0: the kernel's */

/* The one that the library calls, too. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    uint64_t ns = atomic_load(&set_ns);
    if (clock != CLOCK_MONOTONIC || !ns)
        return (int)syscall(SYS_clock_gettime, clock, out);
    *out = hr__timespec(ns);
    return 0;
}

static void stop_clock(void)
{
    atomic_store(&set_ns, hr__now_ns());
}

static void advance_ms(int ms)
{
    atomic_fetch_add(&set_ns, (uint64_t)ms * MS);
}

struct peers_entry {
    char key[HR__PEER_KEY + 1];
    uint8_t *bytes;
    size_t length;
};

/* A server of a test, found by its port. */
struct fake {
    pthread_mutex_t lock; /* guards the entries */
    struct peers_entry entries[ROOM];
    int count;
    atomic_int fails;   /* result of requests */
    atomic_int refuses; /* result of stores */
    atomic_int hangs;   /* gets wait until their deadline or a cancel */
    atomic_int each_ms; /* duration per value, in either direction, on the clock that a test sets */
    atomic_int crowd;   /* gets wait until so many have been there at once */
    atomic_int gets, puts, opened, closed, at_once, most_at_once;
    atomic_int largest_bulk;
};

static struct fake fakes[HOSTS];

struct hr__peer_client {
    struct fake *fake;
    atomic_int is_cancelled;
};

static void set_error(struct hr_error *error, int code)
{
    if (!code)
        return;
    error->code = code;
    snprintf(error->message, sizeof error->message, "the server failed with %d", code);
}

static int fake_open(struct hr__peer_client **out, const struct hr__peer_wish *wish,
                     struct hr_error *error)
{
    *out = hr__alloc(HR__TAG_CACHE, 1, sizeof **out);
    if (!*out)
        return -ENOMEM;
    (*out)->fake = &fakes[wish->port - 1];
    atomic_fetch_add(&(*out)->fake->opened, 1);
    return 0;
}

static void fake_close(struct hr__peer_client **client)
{
    atomic_fetch_add(&(*client)->fake->closed, 1);
    hr__free(*client);
    *client = NULL;
}

static struct peers_entry *find(struct fake *f, const char *key)
{
    for (int i = 0; i < f->count; i++)
        if (!strcmp(f->entries[i].key, key))
            return &f->entries[i];
    return NULL;
}

static void enter(struct fake *f, size_t count)
{
    int now = atomic_fetch_add(&f->at_once, 1) + 1, most = atomic_load(&f->most_at_once);
    while (now > most && !atomic_compare_exchange_weak(&f->most_at_once, &most, now))
        ;
    if ((int)count > atomic_load(&f->largest_bulk))
        atomic_store(&f->largest_bulk, (int)count);
}

/* Sets the clock to when the next value has passed, at the server's speed, or returns -ETIMEDOUT.
 */
static int pass(struct fake *f, uint64_t deadline_ns)
{
    int ms = atomic_load(&f->each_ms);
    if (!ms)
        return 0;
    advance_ms(ms);
    return hr__now_ns() > deadline_ns ? -ETIMEDOUT : 0;
}

static int fake_get(struct hr__peer_client *client, struct hr__peer_value *values, size_t count,
                    uint64_t deadline_ns, struct hr_error *error)
{
    struct fake *f = client->fake;
    int r = atomic_load(&f->fails);
    enter(f, count);
    atomic_fetch_add(&f->gets, 1);
    while (atomic_load(&f->most_at_once) < atomic_load(&f->crowd))
        test_pause_ms(1);
    while (!r && atomic_load(&f->hangs)) {
        test_pause_ms(1);
        r = atomic_load(&client->is_cancelled) ? -ECANCELED
            : hr__now_ns() >= deadline_ns      ? -ETIMEDOUT
                                               : 0;
    }
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < count && !r; i++) {
        struct peers_entry *e = find(f, values[i].key);
        if (!e)
            continue;
        r = pass(f, deadline_ns);
        if (r)
            break;
        values[i].bytes = hr__alloc(HR__TAG_CACHE, e->length + HR__PEER_SLACK, 1);
        memcpy(values[i].bytes, e->bytes, e->length);
        memset(values[i].bytes + e->length, 0x5a, HR__PEER_SLACK);
        values[i].length = e->length;
    }
    pthread_mutex_unlock(&f->lock);
    atomic_fetch_sub(&f->at_once, 1);
    set_error(error, r);
    return r;
}

static int fake_put(struct hr__peer_client *client, struct hr__peer_store *stores, size_t count,
                    uint64_t deadline_ns, struct hr_error *error)
{
    struct fake *f = client->fake;
    int r = atomic_load(&f->fails);
    enter(f, count);
    atomic_fetch_add(&f->puts, 1);
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < count; i++) {
        struct hr__peer_store *s = &stores[i];
        if (!r)
            r = pass(f, deadline_ns);
        s->result = r ? r : atomic_load(&f->refuses);
        if (s->result)
            continue;
        struct peers_entry *e = find(f, s->key);
        if (!e) {
            assert_true(f->count < ROOM);
            e = &f->entries[f->count++];
        }
        strcpy(e->key, s->key);
        free(e->bytes);
        e->length = s->length + s->tail_length;
        e->bytes = malloc(e->length + 1);
        memcpy(e->bytes, s->bytes, s->length);
        memcpy(e->bytes + s->length, s->tail, s->tail_length);
    }
    pthread_mutex_unlock(&f->lock);
    atomic_fetch_sub(&f->at_once, 1);
    set_error(error, r);
    return r;
}

static int fake_about(struct hr__peer_client *client, struct hr__peer_about *about,
                      uint64_t deadline_ns, struct hr_error *error)
{
    int r = atomic_load(&client->fake->fails);
    about->limit_bytes = 77;
    set_error(error, r);
    return r;
}

static void fake_cancel(struct hr__peer_client *client)
{
    atomic_store(&client->is_cancelled, 1);
}

static const struct hr__peer_ops fake_ops = {"fake",   fake_open,  fake_close, fake_get,
                                             fake_put, fake_about, fake_cancel};

static void fill(struct hr__hosts *hosts, struct hr__host *list)
{
    memset(hosts, 0, sizeof *hosts);
    memset(list, 0, HOSTS * sizeof *list);
    for (int i = 0; i < HOSTS; i++) {
        snprintf(list[i].name, sizeof list[i].name, "host%d:%d", i, i + 1);
        snprintf(list[i].address, sizeof list[i].address, "host%d", i);
        list[i].port = (uint16_t)(i + 1);
    }
    hosts->hosts = list;
    hosts->count = HOSTS;
    hosts->self = -1;
    hosts->timeout_ms = 1000;
}

static struct hr__peers *begin_with(uint32_t timeout_ms)
{
    struct hr__hosts hosts;
    struct hr__host list[HOSTS];
    struct hr__peers *peers;
    atomic_store(&set_ns, 0);
    memset(fakes, 0, sizeof fakes);
    for (int i = 0; i < HOSTS; i++)
        pthread_mutex_init(&fakes[i].lock, NULL);
    fill(&hosts, list);
    hosts.timeout_ms = timeout_ms;
    assert_int_equal(hr__peers_create(&peers, &hosts, &fake_ops, NULL), 0);
    return peers;
}

static struct hr__peers *begin(void)
{
    return begin_with(1000);
}

static void end(struct hr__peers *peers)
{
    hr__peers_destroy(&peers);
    for (int i = 0; i < HOSTS; i++) {
        assert_int_equal(fakes[i].opened, fakes[i].closed);
        for (int e = 0; e < fakes[i].count; e++)
            free(fakes[i].entries[e].bytes);
        pthread_mutex_destroy(&fakes[i].lock);
    }
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
}

static uint8_t byte_of(unsigned i, size_t at)
{
    return (uint8_t)((i * 31 + at * 7 + at / 251) & 255);
}

static struct hr__peer_item item_of(unsigned i, size_t length)
{
    struct hr__peer_item item = {.key = {0x1234567890abcdef, i},
                                 .bytes = malloc(length + 1),
                                 .length = length,
                                 .form = (enum hr_form)(i % HR_FORMS),
                                 .source_bytes = length + 1 + i,
                                 .result = 99};
    for (size_t b = 0; b < length; b++)
        item.bytes[b] = byte_of(i, b);
    return item;
}

static int store(struct hr__peers *peers, int host, unsigned i, size_t length)
{
    struct hr__peer_item item = item_of(i, length);
    size_t stored = hr__peers_store(peers, host, &item, 1);
    free(item.bytes);
    assert_int_equal(stored, !item.result);
    return item.result;
}

/* Returns 1 if the item came and is right, 0 for a miss. */
static int fetch(struct hr__peers *peers, int host, unsigned i, size_t length)
{
    struct hr__peer_item item = {.key = {0x1234567890abcdef, i}, .bytes = (uint8_t *)"junk"};
    size_t found = hr__peers_fetch(peers, host, &item, 1);
    assert_int_equal(found, item.bytes != NULL);
    if (!found)
        return 0;
    assert_int_equal(item.length, length);
    assert_int_equal(item.form, i % HR_FORMS);
    assert_int_equal(item.source_bytes, length + 1 + i);
    for (size_t b = 0; b < length; b++)
        assert_int_equal(item.bytes[b], byte_of(i, b));
    for (size_t b = 0; b < HR__PEER_SLACK; b++)
        assert_int_equal(item.bytes[length + b], 0);
    hr__free(item.bytes);
    return 1;
}

static void test_items(void **state)
{
    struct hr__peers *peers = begin();
    struct hr__peers_counts counts;
    static const size_t lengths[] = {0, 1, 31, 32, 33, 1000, 100000};
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(store(peers, 1, i, lengths[i]), 0);
    for (unsigned i = 0; i < 7; i++) {
        assert_true(fetch(peers, 1, i, lengths[i]));
        assert_false(fetch(peers, 0, i, lengths[i]));
    }
    assert_false(fetch(peers, 1, 8, 1));
    hr__peers_counts(peers, 1, &counts);
    assert_int_equal(counts.stored, 7);
    assert_int_equal(counts.stored_bytes, 101097);
    assert_int_equal(counts.fetched, 7);
    assert_int_equal(counts.fetched_bytes, 101097);
    assert_int_equal(counts.missed, 1);
    assert_int_equal(counts.requests, 15);
    assert_int_equal(counts.failures, 0);
    assert_int_equal(counts.is_up, 1);
    assert_string_equal(counts.problem, "");
    assert_true(counts.request_ns > 0);
    assert_memory_equal(fakes[1].entries[2].key, "hr1:1234567890abcdef0000000000000002", 37);
    end(peers);
}

/* Any flipped bit makes a miss, which is logged. */
static void test_damage(void **state)
{
    struct hr__peers *peers = begin();
    struct hr__peers_counts counts;
    assert_int_equal(store(peers, 0, 4, 50), 0);
    assert_int_equal(store(peers, 0, 5, 50), 0);
    struct peers_entry *e = &fakes[0].entries[0];
    for (size_t bit = 0; bit < e->length * 8; bit++) {
        e->bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(fetch(peers, 0, 4, 50));
        e->bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    hr__peers_counts(peers, 0, &counts);
    assert_int_equal(counts.damaged, e->length * 8);
    assert_non_null(strstr(counts.problem, "host0:1 has items whose checksums differ"));
    assert_int_equal(counts.is_up, 1);
    for (size_t cut = 1; cut <= e->length; cut++) {
        e->length -= cut;
        assert_false(fetch(peers, 0, 4, 50));
        e->length += cut;
    }
    assert_true(fetch(peers, 0, 4, 50));
    /* The item of another key. */
    memcpy(e->bytes, fakes[0].entries[1].bytes, e->length);
    assert_false(fetch(peers, 0, 4, 50));
    end(peers);
}

/* A sample that now has another length on storage. */
static void test_other_source(void **state)
{
    struct hr__peers *peers = begin();
    assert_int_equal(store(peers, 0, 4, 50), 0);
    struct hr__peer_item item = {.key = {0x1234567890abcdef, 4}, .source_bytes = 54};
    assert_int_equal(hr__peers_fetch(peers, 0, &item, 1), 0);
    assert_null(item.bytes);
    item.source_bytes = 55;
    assert_int_equal(hr__peers_fetch(peers, 0, &item, 1), 1);
    hr__free(item.bytes);
    end(peers);
}

static void test_bulk(void **state)
{
    struct hr__peers *peers = begin();
    static struct hr__peer_item items[300];
    for (unsigned i = 0; i < 300; i++)
        items[i] = item_of(i, 1000);
    assert_int_equal(hr__peers_store(peers, 0, items, 300), 300);
    assert_int_equal(fakes[0].puts, 5);
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(items[i].result, 0);
        free(items[i].bytes);
        items[i].source_bytes = 0;
    }
    assert_int_equal(hr__peers_fetch(peers, 0, items, 300), 300);
    assert_int_equal(fakes[0].gets, 5);
    assert_int_equal(fakes[0].largest_bulk, 64);
    /* 3 MB each: two per request; an item larger than the limit of a request goes alone. */
    for (unsigned i = 0; i < 300; i++) {
        hr__free(items[i].bytes);
        items[i].key[1] += 1000;
        items[i].source_bytes = i == 4 ? UINT64_MAX : 3 << 20;
    }
    atomic_store(&fakes[0].gets, 0);
    assert_int_equal(hr__peers_fetch(peers, 0, items, 10), 0);
    assert_int_equal(fakes[0].gets, 6);
    end(peers);
}

static void test_refusals(void **state)
{
    struct hr__peers *peers = begin();
    struct hr__peers_counts counts;
    atomic_store(&fakes[0].refuses, -ENOSPC);
    assert_int_equal(store(peers, 0, 1, 100), -ENOSPC);
    hr__peers_counts(peers, 0, &counts);
    assert_non_null(strstr(counts.problem, "host0:1 refuses items, its memory is full"));
    atomic_store(&fakes[0].refuses, -E2BIG);
    assert_int_equal(store(peers, 0, 1, 100), -E2BIG);
    hr__peers_counts(peers, 0, &counts);
    assert_int_equal(counts.refused, 1);
    assert_int_equal(counts.too_large, 1);
    assert_int_equal(counts.failures, 0);
    assert_int_equal(counts.is_up, 1);
    assert_non_null(strstr(counts.problem, "-I"));
    end(peers);
}

/* Fails at 0, is tried again 0.5 s later, then 1 s after that, and is up with its first answer. */
static void test_backoff(void **state)
{
    struct hr__peers *peers = begin();
    struct hr__peers_counts counts;
    stop_clock();
    assert_int_equal(store(peers, 0, 1, 100), 0);
    assert_int_equal(store(peers, 1, 1, 100), 0);
    atomic_store(&fakes[0].fails, -ECONNREFUSED);
    assert_false(fetch(peers, 0, 1, 100));
    assert_false(hr__peers_is_up(peers, 0));
    assert_true(hr__peers_is_up(peers, 1));
    hr__peers_counts(peers, 0, &counts);
    assert_int_equal(counts.is_up, 0);
    assert_int_equal(counts.failures, 1);
    assert_string_equal(counts.problem, "the server failed with -111");
    static const int waits_ms[] = {500, 1000};
    for (int i = 0; i < 2; i++) {
        advance_ms(waits_ms[i] - 1);
        assert_false(fetch(peers, 0, 1, 100));
        assert_true(fetch(peers, 1, 1, 100));
        assert_int_equal(fakes[0].gets, 1 + i);
        advance_ms(1);
        assert_false(fetch(peers, 0, 1, 100));
        assert_int_equal(fakes[0].gets, 2 + i);
    }
    assert_int_equal(store(peers, 0, 1, 100), -EHOSTDOWN);
    /* A question for the state is sent at once, and its answer counts. */
    struct hr__peer_about about;
    struct hr_error error = {0, ""};
    assert_int_equal(hr__peers_about(peers, 0, &about, &error), -ECONNREFUSED);
    assert_string_equal(error.message, "the server failed with -111");
    atomic_store(&fakes[0].fails, 0);
    assert_int_equal(hr__peers_about(peers, 0, &about, &error), 0);
    assert_int_equal(about.limit_bytes, 77);
    assert_true(hr__peers_is_up(peers, 0));
    assert_true(fetch(peers, 0, 1, 100));
    end(peers);
}

static char logged[4096];

static void log_line(void *arg, enum hr_log_level level, const char *message)
{
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%d %s\n", (int)level, message);
}

/* A server that fails every other time is logged once, not for each failure. */
static void test_failing_on_and_off(void **state)
{
    struct hr__peers *peers = begin();
    struct hr__peers_counts counts;
    struct hr__peer_about about;
    hr_log_set(log_line, NULL);
    for (int i = 0; i < 20; i++) {
        atomic_store(&fakes[0].fails, -ETIMEDOUT);
        assert_false(fetch(peers, 0, 1, 100));
        atomic_store(&fakes[0].fails, 0);
        assert_int_equal(hr__peers_about(peers, 0, &about, NULL), 0);
    }
    hr_log_set(NULL, NULL);
    hr__peers_counts(peers, 0, &counts);
    assert_int_equal(counts.failures, 20);
    const char *first = strstr(logged, "until it answers again");
    assert_non_null(first);
    assert_null(strstr(first + 1, "until it answers again"));
    const char *back = strstr(logged, "host0:1 answers again");
    assert_non_null(back);
    assert_null(strstr(back + 1, "host0:1 answers again"));
    end(peers);
}

/* A server that sends 10 items of 400 KB in the time limit for 20 is slow, but not down, and its
 * answers are used: requests become smaller, and all items arrive. */
static void test_slow(void **state)
{
    struct hr__peers *peers = begin_with(300);
    struct hr__peers_counts counts;
    static struct hr__peer_item items[32];
    for (unsigned i = 0; i < 32; i++)
        items[i] = item_of(i, 400000);
    stop_clock();
    atomic_store(&fakes[0].each_ms, 27);
    assert_int_equal(hr__peers_store(peers, 0, items, 32), 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(items[i].result, 0);
        free(items[i].bytes);
    }
    for (int round = 0; round < 2; round++) {
        atomic_store(&fakes[0].largest_bulk, 0);
        assert_int_equal(hr__peers_fetch(peers, 0, items, 32), 32);
        assert_in_range(atomic_load(&fakes[0].largest_bulk), 1, round ? 11 : 20);
        for (unsigned i = 0; i < 32; i++)
            hr__free(items[i].bytes);
    }
    hr__peers_counts(peers, 0, &counts);
    assert_int_equal(counts.failures, 0);
    assert_int_equal(counts.is_up, 1);
    /* The server is fast again: after some requests they are as large as at first. */
    atomic_store(&fakes[0].each_ms, 0);
    atomic_store(&fakes[0].largest_bulk, 0);
    for (int round = 0; round < 200 && atomic_load(&fakes[0].largest_bulk) < 20; round++) {
        assert_int_equal(hr__peers_fetch(peers, 0, items, 32), 32);
        for (unsigned i = 0; i < 32; i++)
            hr__free(items[i].bytes);
    }
    assert_int_equal(fakes[0].largest_bulk, 20);
    /* Not one item arrives in time: that is a failure. */
    atomic_store(&fakes[0].each_ms, 500);
    assert_int_equal(hr__peers_fetch(peers, 0, items, 32), 0);
    assert_false(hr__peers_is_up(peers, 0));
    end(peers);
}

struct peers_worker {
    struct hr__peers *peers;
    pthread_t thread;
    unsigned index;
    atomic_int *stop;
    atomic_size_t found;
};

static void *fetch_once(void *arg)
{
    struct peers_worker *w = arg;
    w->found = (size_t)fetch(w->peers, 0, 1, 100);
    return NULL;
}

static void start_all(struct peers_worker *workers, int count, struct hr__peers *peers,
                      void *(*run)(void *))
{
    for (int i = 0; i < count; i++) {
        workers[i].peers = peers;
        workers[i].index = (unsigned)i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run, &workers[i]), 0);
    }
}

/* As many connections as simultaneous requests, but at most 8; all requests are served. */
static void test_clients(void **state)
{
    struct hr__peers *peers = begin_with(60000);
    struct peers_worker workers[12] = {0};
    assert_int_equal(store(peers, 0, 1, 100), 0);
    assert_int_equal(fakes[0].opened, 1);
    atomic_store(&fakes[0].crowd, 8);
    start_all(workers, 12, peers, fetch_once);
    for (int i = 0; i < 12; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].found, 1);
    }
    assert_int_equal(fakes[0].opened, 8);
    assert_int_equal(fakes[0].most_at_once, 8);
    end(peers);
}

static void test_cancel(void **state)
{
    struct hr__peers *peers = begin_with(60000);
    struct peers_worker workers[12] = {0};
    assert_int_equal(store(peers, 0, 1, 100), 0);
    atomic_store(&fakes[0].hangs, 1);
    start_all(workers, 12, peers, fetch_once);
    while (atomic_load(&fakes[0].at_once) < 8)
        test_pause_ms(1);
    hr__peers_cancel(peers);
    for (int i = 0; i < 12; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].found, 0);
    }
    atomic_store(&fakes[0].hangs, 0);
    assert_int_equal(store(peers, 0, 1, 100), -ECANCELED);
    assert_false(hr__peers_is_up(peers, 0));
    end(peers);
}

/* Several hanging requests end together, and count as one failure. */
static void test_hanging(void **state)
{
    struct hr__peers *peers = begin();
    struct peers_worker workers[4] = {0};
    stop_clock();
    atomic_store(&fakes[0].hangs, 1);
    start_all(workers, 4, peers, fetch_once);
    while (atomic_load(&fakes[0].at_once) < 4)
        test_pause_ms(1);
    assert_true(hr__peers_is_up(peers, 0));
    advance_ms(1000);
    for (int i = 0; i < 4; i++)
        pthread_join(workers[i].thread, NULL);
    atomic_store(&fakes[0].hangs, 0);
    advance_ms(499);
    assert_int_equal(store(peers, 0, 1, 100), -EHOSTDOWN);
    advance_ms(1);
    assert_int_equal(store(peers, 0, 1, 100), 0);
    end(peers);
}

static void test_records(void **state)
{
    struct hr__peers *peers = begin();
    char *text, large[8200];
    struct hr__peer_record records[100];
    char keys[100][16];
    assert_int_equal(hr__peers_read(peers, 0, "meet:1", &text), 0);
    assert_null(text);
    assert_int_equal(hr__peers_write(peers, 0, "meet:1", "hello", 5), 0);
    assert_int_equal(hr__peers_read(peers, 0, "meet:1", &text), 1);
    assert_string_equal(text, "hello");
    hr__free(text);
    memset(large, 'x', sizeof large);
    large[8192] = 0;
    assert_int_equal(hr__peers_write(peers, 0, "meet:2", large, 5), 0);
    assert_int_equal(hr__peers_read(peers, 0, "meet:2", &text), 1);
    assert_string_equal(text, large);
    hr__free(text);
    large[8192] = 'x';
    large[8193] = 0;
    assert_int_equal(hr__peers_write(peers, 0, "meet:2", large, 5), -EINVAL);
    assert_int_equal(hr__peers_write(peers, 0, large, "x", 5), -EINVAL);
    assert_int_equal(hr__peers_read(peers, 0, large, &text), -EINVAL);
    for (int i = 0; i < 100; i++) {
        snprintf(keys[i], sizeof keys[i], "r%d", i);
        records[i].key = keys[i];
        if (i % 3)
            assert_int_equal(hr__peers_write(peers, 1, keys[i], keys[i], 0), 0);
    }
    assert_int_equal(hr__peers_read_all(peers, 1, records, 100), 66);
    for (int i = 0; i < 100; i++) {
        if (i % 3)
            assert_string_equal(records[i].text, keys[i]);
        else
            assert_null(records[i].text);
        hr__free(records[i].text);
    }
    stop_clock();
    atomic_store(&fakes[1].fails, -ETIMEDOUT);
    assert_int_equal(hr__peers_read_all(peers, 1, records, 100), -ETIMEDOUT);
    assert_int_equal(hr__peers_read(peers, 1, "r1", &text), -EHOSTDOWN);
    end(peers);
}

/* A child has its parent's sockets and uses none of them; its parent continues. */
static void test_fork(void **state)
{
    struct hr__peers *peers = begin();
    assert_int_equal(store(peers, 0, 1, 100), 0);
    int gets = fakes[0].gets, status;
    pid_t child = fork();
    if (!child) {
        struct hr__peer_item item = {.key = {0x1234567890abcdef, 1}};
        struct hr__peers_counts counts;
        int wrong = hr__peers_fetch(peers, 0, &item, 1) != 0 || item.bytes;
        hr__peers_counts(peers, 0, &counts);
        hr__peers_cancel(peers);
        wrong |= fakes[0].gets != gets;
        hr__peers_destroy(&peers);
        _exit(wrong);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(fetch(peers, 0, 1, 100));
    end(peers);
}

static int create_with(const char *path, struct hr_error *error)
{
    struct hr__hosts hosts;
    struct hr__host list[HOSTS];
    struct hr__peers *peers;
    fill(&hosts, list);
    strcpy(hosts.user, "me");
    snprintf(hosts.password_file, sizeof hosts.password_file, "%s", path);
    int r = hr__peers_create(&peers, &hosts, &fake_ops, error);
    assert_true(!r == (peers != NULL));
    hr__peers_destroy(&peers);
    return r;
}

static void test_password(void **state)
{
    struct hr_error error = {0, ""};
    char path[] = "/tmp/hr-password-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(create_with("/nowhere/at/all", &error), -ENOENT);
    assert_non_null(strstr(error.message, "password-file=/nowhere/at/all"));
    assert_int_equal(create_with("/tmp", &error), -EISDIR);
    assert_int_equal(create_with(path, &error), -EINVAL);
    assert_int_equal(write(fd, "secret\nmore", 11), 11);
    assert_int_equal(create_with(path, &error), 0);
    assert_int_equal(pwrite(fd, "se ret\r", 7, 0), 7);
    assert_int_equal(create_with(path, &error), -EINVAL);
    assert_non_null(strstr(error.message, "without blanks"));
    assert_null(strstr(error.message, "ret\r"));
    assert_null(strstr(error.message, "se ret"));
    close(fd);
    unlink(path);
}

static void test_no_memory(void **state)
{
    struct hr__hosts hosts;
    struct hr__host list[HOSTS];
    struct hr__peers *peers;
    int r = -1, failed = 0;
    fill(&hosts, list);
    for (uint64_t n = 1; r && n < 50; n++) {
        struct hr_error error = {0, ""};
        hr__alloc_fail_at(n, 0);
        r = hr__peers_create(&peers, &hosts, &fake_ops, &error);
        hr__alloc_fail_at(0, 0);
        assert_true(!r || r == -ENOMEM);
        assert_true(!r == (peers != NULL));
        failed += r != 0;
        hr__peers_destroy(&peers);
        assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    }
    assert_int_equal(r, 0);
    assert_true(failed >= 2);
}

/* Stores and fetches its own items and those of others during the whole test. */
static void *work(void *arg)
{
    struct peers_worker *w = arg;
    for (unsigned n = 0; !atomic_load(w->stop); n++) {
        unsigned mine = w->index * 50 + n % 50;
        store(w->peers, 0, mine, 20000 + mine);
        struct hr__peer_item items[16];
        memset(items, 0, sizeof items);
        for (unsigned i = 0; i < 16; i++)
            items[i].key[0] = 0x1234567890abcdef, items[i].key[1] = (n * 7 + i * 13) % 200;
        atomic_fetch_add(&w->found, hr__peers_fetch(w->peers, 0, items, 16));
        for (unsigned i = 0; i < 16; i++) {
            if (!items[i].bytes)
                continue;
            unsigned k = (unsigned)items[i].key[1];
            assert_int_equal(items[i].length, 20000 + k);
            assert_int_equal(items[i].bytes[19999], byte_of(k, 19999));
            hr__free(items[i].bytes);
        }
    }
    return NULL;
}

/* Waits until the workers have found items that they have not found before. */
static void await_found(struct peers_worker *workers, int count)
{
    for (int i = 0; i < count; i++) {
        size_t before = atomic_load(&workers[i].found);
        while (atomic_load(&workers[i].found) == before)
            test_pause_ms(1);
    }
}

/* Waits until more requests have failed. */
static void await_failures(struct hr__peers *peers)
{
    struct hr__peers_counts before, now;
    hr__peers_counts(peers, 0, &before);
    do {
        test_pause_ms(1);
        hr__peers_counts(peers, 0, &now);
    } while (now.failures == before.failures);
}

static void test_storm(void **state)
{
    struct memcached server;
    struct hr__hosts hosts;
    struct hr__host list[HOSTS];
    struct hr__peers *peers;
    struct hr__peers_counts counts;
    struct peers_worker workers[4] = {0};
    atomic_int stop = 0;
    if (memcached_start(&server, 1, 64)) {
        print_message("no memcached on this machine\n");
        skip();
    }
    fill(&hosts, list);
    strcpy(list[0].address, server.address);
    list[0].port = server.port;
    hosts.timeout_ms = 300;
    assert_int_equal(hr__peers_create(&peers, &hosts, &hr__peer_ops, NULL), 0);
    for (int i = 0; i < 4; i++)
        workers[i].stop = &stop;
    start_all(workers, 4, peers, work);
    for (int round = 0; round < 2; round++) {
        await_found(workers, 4);
        memcached_kill(&server, SIGKILL);
        await_failures(peers);
        memcached_restart(&server);
        await_found(workers, 4);
        memcached_kill(&server, SIGSTOP);
        await_failures(peers);
        memcached_kill(&server, SIGCONT);
    }
    await_found(workers, 4);
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++)
        pthread_join(workers[i].thread, NULL);
    /* The server works again in the end. */
    while (store(peers, 0, 1, 20001) || !fetch(peers, 0, 1, 20001))
        test_pause_ms(20);
    hr__peers_counts(peers, 0, &counts);
    assert_int_equal(counts.damaged, 0);
    assert_int_equal(counts.is_up, 1);
    hr__peers_destroy(&peers);
    memcached_stop(&server);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_other_source),
        cmocka_unit_test(test_bulk),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_failing_on_and_off),
        cmocka_unit_test(test_backoff),
        cmocka_unit_test(test_clients),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_hanging),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_password),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_storm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
