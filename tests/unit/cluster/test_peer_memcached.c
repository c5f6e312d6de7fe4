/*
 * Clients of a real memcached, over a Unix socket and over TCP: stored values come back, in bulk
 * and singly; each kind of refusal has its own error and leaves the connection usable; restarts,
 * stops and cancels end requests as documented.
 */
#include "../test.h"

#include "cluster/peer.h"

#include "base/clock.h"
#include "base/memory.h"
#include "memcached_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

struct peer_memcached_fixture {
    struct memcached server;
    struct hr__peer_client *client;
    struct hr_error error;
};

static uint64_t in_ms(uint64_t ms)
{
    return hr__now_ns() + ms * MS;
}

/* For tests with an authfile: the server's option, and the user who logs in. */
static const char *option, *user, *password;

static int begin(struct peer_memcached_fixture *f, int is_tcp, int mebibytes)
{
    memset(f, 0, sizeof *f);
    if (memcached_start_with(&f->server, is_tcp, mebibytes, option)) {
        print_message("no memcached on this machine, or no such address\n");
        return -1;
    }
    const struct hr__peer_wish wish = {
        .address = f->server.address, .port = f->server.port, .user = user, .password = password};
    assert_int_equal(hr__peer_ops.open(&f->client, &wish, &f->error), 0);
    return 0;
}

static void end(struct peer_memcached_fixture *f)
{
    hr__peer_ops.close(&f->client);
    assert_null(f->client);
    memcached_stop(&f->server);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
}

static uint8_t *pattern(size_t length, unsigned seed)
{
    uint8_t *bytes = malloc(length + 1);
    uint32_t x = seed * 2654435761u + 1;
    for (size_t i = 0; i < length; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(x >> 24);
    }
    return bytes;
}

/* Stores value `i` under its key: a pattern in two parts. */
static int put_one(struct peer_memcached_fixture *f, unsigned i, size_t length)
{
    uint8_t *bytes = pattern(length, i);
    size_t head = length > 32 ? length - 32 : 0;
    struct hr__peer_store store = {.bytes = bytes,
                                   .length = head,
                                   .tail = bytes + head,
                                   .tail_length = length - head,
                                   .result = 1};
    snprintf(store.key, sizeof store.key, "hr1:%032x", i);
    int r = hr__peer_ops.put(f->client, &store, 1, in_ms(60000), &f->error);
    free(bytes);
    return r ? r : store.result;
}

static void expect(const struct hr__peer_value *value, unsigned i, size_t length)
{
    uint8_t *bytes = pattern(length, i);
    assert_non_null(value->bytes);
    assert_int_equal(value->length, length);
    assert_memory_equal(value->bytes, bytes, length);
    free(bytes);
}

static void ask(struct hr__peer_value *values, unsigned first, unsigned count)
{
    memset(values, 0, count * sizeof *values);
    for (unsigned i = 0; i < count; i++)
        snprintf(values[i].key, sizeof values[i].key, "hr1:%032x", first + i);
}

/* Lengths around the sizes of buffers, and up to some megabytes. */
static size_t length_of(unsigned i)
{
    static const size_t lengths[] = {1,    2,    31,    32,     33,     4096,    8100,
                                     8150, 8191, 8192,  8193,   16384,  65536,   102400,
                                     1,    5000, 16000, 999999, 130000, 3000000, 0};
    return lengths[i % (sizeof lengths / sizeof *lengths)];
}

static void round_trip(int is_tcp)
{
    struct peer_memcached_fixture f;
    struct hr__peer_value values[64];
    if (begin(&f, is_tcp, 64))
        skip();
    for (unsigned i = 0; i < 42; i++)
        if (i != 7)
            assert_int_equal(put_one(&f, i, length_of(i)), 0);
    for (int again = 0; again < 3; again++) {
        ask(values, 0, 60);
        assert_int_equal(hr__peer_ops.get(f.client, values, 60, in_ms(60000), &f.error), 0);
        for (unsigned i = 0; i < 60; i++) {
            if (i < 42 && i != 7)
                expect(&values[i], i, length_of(i));
            else
                assert_null(values[i].bytes);
            if (values[i].bytes)
                memset(values[i].bytes + values[i].length, 0xa5, HR__PEER_SLACK);
            hr__free(values[i].bytes);
        }
        ask(values, 13, 1);
        assert_int_equal(hr__peer_ops.get(f.client, values, 1, in_ms(60000), &f.error), 0);
        expect(&values[0], 13, length_of(13));
        hr__free(values[0].bytes);
    }
    end(&f);
}

static void test_socket(void **state)
{
    round_trip(0);
}

static void test_tcp(void **state)
{
    round_trip(1);
}

static void test_tcp6(void **state)
{
    round_trip(6);
}

/* Large values one after the other: answers arrive while the rest is still being sent. */
static void test_bulk_put(void **state)
{
    struct peer_memcached_fixture f;
    struct hr__peer_store stores[64];
    struct hr__peer_value values[64];
    uint8_t *bytes = pattern(300000, 1);
    if (begin(&f, 1, 64))
        skip();
    for (unsigned i = 0; i < 64; i++) {
        stores[i] = (struct hr__peer_store){
            .bytes = bytes, .length = 300000 - i, .tail = &i, .tail_length = 0, .result = 1};
        snprintf(stores[i].key, sizeof stores[i].key, "hr1:%032x", i);
    }
    assert_int_equal(hr__peer_ops.put(f.client, stores, 64, in_ms(60000), &f.error), 0);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(stores[i].result, 0);
    ask(values, 0, 64);
    assert_int_equal(hr__peer_ops.get(f.client, values, 64, in_ms(60000), &f.error), 0);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(values[i].length, 300000 - i);
        assert_memory_equal(values[i].bytes, bytes, values[i].length);
        hr__free(values[i].bytes);
    }
    free(bytes);
    end(&f);
}

/* With -M a full server refuses items, with -I items that are too large. Either way the
 * connection's next requests are answered, and items stored before are there. */
static void test_refusals(void **state)
{
    struct peer_memcached_fixture f;
    struct hr__peer_value value;
    unsigned stored = 0, refused = 0;
    if (begin(&f, 0, 16))
        skip();
    for (unsigned i = 0; i < 40; i++) {
        /* Both memcached's slabs and its chained chunks, which refuse with different messages. */
        int r = put_one(&f, i, i % 2 ? 900000 : 90000);
        assert_true(!r || r == -ENOSPC);
        stored += !r;
        refused += r == -ENOSPC;
    }
    for (unsigned i = 40; i < 240; i++) {
        int r = put_one(&f, i, 90000);
        assert_true(!r || r == -ENOSPC);
        refused += r == -ENOSPC;
    }
    assert_true(stored >= 20);
    assert_true(refused >= 50);
    assert_int_equal(put_one(&f, 100, (8 << 20) + 1), -E2BIG);
    assert_int_equal(put_one(&f, 101, 20 << 20), -E2BIG);
    ask(&value, 0, 1);
    assert_int_equal(hr__peer_ops.get(f.client, &value, 1, in_ms(60000), &f.error), 0);
    expect(&value, 0, 90000);
    hr__free(value.bytes);

    /* Stored and refused items in one request. */
    uint8_t *bytes = pattern(20 << 20, 5);
    struct hr__peer_store stores[3] = {
        {.key = "a", .bytes = bytes, .length = 100, .tail = "", .result = 1},
        {.key = "b", .bytes = bytes, .length = 20 << 20, .tail = "", .result = 1},
        {.key = "c", .bytes = bytes, .length = 100, .tail = "", .result = 1}};
    assert_int_equal(hr__peer_ops.put(f.client, stores, 3, in_ms(60000), &f.error), 0);
    assert_int_equal(stores[1].result, -E2BIG);
    assert_int_equal(stores[0].result, stores[2].result);
    free(bytes);
    end(&f);
}

static void test_about(void **state)
{
    struct peer_memcached_fixture f;
    struct hr__peer_about about;
    if (begin(&f, 0, 64))
        skip();
    assert_int_equal(put_one(&f, 1, 1000), 0);
    assert_int_equal(hr__peer_ops.about(f.client, &about, in_ms(60000), &f.error), 0);
    assert_true(about.version[0] >= '1' && about.version[0] <= '9');
    assert_int_equal(about.limit_bytes, 64 << 20);
    assert_int_equal(about.item_max_bytes, 8 << 20);
    assert_int_equal(about.items, 1);
    assert_int_equal(about.evicts, 0);
    assert_true(about.used_bytes >= 1000);
    assert_int_equal(put_one(&f, 2, 1000), 0);
    end(&f);
}

static void test_expiry(void **state)
{
    struct peer_memcached_fixture f;
    struct hr__peer_value value;
    struct hr__peer_store store = {
        .key = "k", .bytes = "abc", .length = 3, .tail = "", .expires_s = 1};
    if (begin(&f, 0, 64))
        skip();
    assert_int_equal(hr__peer_ops.put(f.client, &store, 1, in_ms(60000), &f.error), 0);
    int left = 1;
    while (left) {
        const struct timespec pause = {0, 10 * MS};
        memset(&value, 0, sizeof value);
        strcpy(value.key, "k");
        assert_int_equal(hr__peer_ops.get(f.client, &value, 1, in_ms(60000), &f.error), 0);
        left = value.bytes != NULL;
        hr__free(value.bytes);
        nanosleep(&pause, NULL);
    }
    end(&f);
}

/* A server that restarts between two requests makes neither fail. */
static void restarted(int is_tcp)
{
    struct peer_memcached_fixture f;
    struct hr__peer_value value;
    if (begin(&f, is_tcp, 64))
        skip();
    for (int again = 0; again < 3; again++) {
        assert_int_equal(put_one(&f, 3, 50000), 0);
        memcached_kill(&f.server, SIGKILL);
        memcached_restart(&f.server);
        ask(&value, 3, 1);
        assert_int_equal(hr__peer_ops.get(f.client, &value, 1, in_ms(60000), &f.error), 0);
        assert_null(value.bytes);
        memcached_kill(&f.server, SIGKILL);
        memcached_restart(&f.server);
    }
    memcached_kill(&f.server, SIGKILL);
    assert_int_equal(hr__peer_ops.get(f.client, &value, 1, in_ms(1000), &f.error), -ECONNREFUSED);
    assert_non_null(strstr(f.error.message, "is memcached running"));
    end(&f);
}

static void test_restart_socket(void **state)
{
    restarted(0);
}

static void test_restart_tcp(void **state)
{
    restarted(1);
}

static void test_stopped(void **state)
{
    struct peer_memcached_fixture f;
    struct hr__peer_value value;
    if (begin(&f, 1, 64))
        skip();
    assert_int_equal(put_one(&f, 3, 50000), 0);
    memcached_kill(&f.server, SIGSTOP);
    ask(&value, 3, 1);
    assert_int_equal(hr__peer_ops.get(f.client, &value, 1, in_ms(200), &f.error), -ETIMEDOUT);
    memcached_kill(&f.server, SIGCONT);
    assert_int_equal(hr__peer_ops.get(f.client, &value, 1, in_ms(60000), &f.error), 0);
    expect(&value, 3, 50000);
    hr__free(value.bytes);
    end(&f);
}

static void *cancel_soon(void *arg)
{
    const struct timespec pause = {0, 50 * MS};
    nanosleep(&pause, NULL);
    hr__peer_ops.cancel(arg);
    return NULL;
}

static void test_cancel(void **state)
{
    struct peer_memcached_fixture f;
    struct hr__peer_value value;
    pthread_t thread;
    if (begin(&f, 0, 64))
        skip();
    assert_int_equal(put_one(&f, 3, 50000), 0);
    memcached_kill(&f.server, SIGSTOP);
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, f.client), 0);
    ask(&value, 3, 1);
    assert_int_equal(hr__peer_ops.get(f.client, &value, 1, in_ms(120000), &f.error), -ECANCELED);
    pthread_join(thread, NULL);
    memcached_kill(&f.server, SIGCONT);
    assert_int_equal(hr__peer_ops.get(f.client, &value, 1, in_ms(1000), &f.error), -ECANCELED);
    assert_int_equal(put_one(&f, 3, 1), -ECANCELED);
    end(&f);
}

/* The file for a server's -Y. */
static char authfile[64], with_authfile[72];

static void begin_authfile(void)
{
    strcpy(authfile, "/tmp/hr-authfile-XXXXXX");
    int fd = mkstemp(authfile);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_int_equal(write(fd, "other:word\nme:se:cret\n", 22), 22);
    close(fd);
    snprintf(with_authfile, sizeof with_authfile, "-Y%s", authfile);
    option = with_authfile;
    user = "me";
    password = "se:cret";
}

static void end_authfile(void)
{
    unlink(authfile);
    option = user = password = NULL;
}

/* A get by another user of the same server, and the message. */
static void refused(const char *name, const char *word, const char *expected)
{
    struct peer_memcached_fixture f;
    struct hr__peer_value value;
    user = name;
    password = word;
    assert_int_equal(begin(&f, 1, 16), 0);
    for (int again = 0; again < 2; again++) {
        ask(&value, 1, 1);
        assert_int_equal(hr__peer_ops.get(f.client, &value, 1, in_ms(60000), &f.error), -EACCES);
        assert_non_null(strstr(f.error.message, expected));
        assert_true(!word || !strstr(f.error.message, word));
    }
    assert_int_equal(put_one(&f, 1, 100), -EACCES);
    end(&f);
}

static void test_user(void **state)
{
    struct peer_memcached_fixture f;
    begin_authfile();
    if (begin(&f, 1, 16)) {
        end_authfile();
        skip();
    }
    end(&f);
    round_trip(0);
    test_refusals(state);
    test_about(state);
    test_bulk_put(state);
    restarted(1);
    test_stopped(state);
    refused("me", "mistaken", "refuses the user");
    refused("me", "se:cre", "refuses the user");
    refused("nobody", "se:cret", "refuses the user");
    refused(NULL, NULL, "set user= and password-file=");
    end_authfile();
    /* A user on a server without logins: the password is not even sent. */
    refused("me", "se:cret", "knows no users");
    user = password = NULL;
}

static unsigned count_threads(void)
{
    struct stat tasks;
    assert_int_equal(stat("/proc/self/task", &tasks), 0);
    return (unsigned)tasks.st_nlink - 2; /* without itself and its parent */
}

static void *do_nothing(void *arg)
{
    return arg;
}

/* Counts the threads of this process, except those of its test. */
static unsigned count_own_threads(void)
{
    pthread_t thread;
    /* A sanitizer starts a thread of its own with the first thread. */
    assert_int_equal(pthread_create(&thread, NULL, do_nothing, NULL), 0);
    pthread_join(thread, NULL);
    return count_threads();
}

/* Waits for the thread that looks a name up: if the process ended before that, memory of the C
 * library would be reported as a leak. */
static void wait_for_lookup(unsigned own_threads)
{
    for (int i = 0; i < 20000 && count_threads() > own_threads; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Needs no server. */
static void test_wrong_wishes(void **state)
{
    struct hr__peer_client *client = NULL;
    struct hr_error error = {0, ""};
    struct hr__peer_wish wish = {.address = "no-such-host.invalid", .port = 11211};
    struct hr__peer_value value = {.key = "a key"};
    const unsigned own_threads = count_own_threads();
    char path[200];
    memset(path, 'p', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = 0;
    assert_int_equal(hr__peer_ops.open(&client, &wish, &error), 0);
    assert_int_equal(hr__peer_ops.get(client, &value, 1, in_ms(1000), &error), -EINVAL);
    strcpy(value.key, "key");
    int r = hr__peer_ops.get(client, &value, 1, in_ms(1000), &error);
    assert_true(r == -EHOSTUNREACH || r == -ETIMEDOUT);
    assert_non_null(strstr(error.message, "no-such-host.invalid:11211"));
    hr__peer_ops.close(&client);
    wait_for_lookup(own_threads);
    wish = (struct hr__peer_wish){.address = path};
    assert_int_equal(hr__peer_ops.open(&client, &wish, &error), -EINVAL);
    assert_null(client);
    wish = (struct hr__peer_wish){.address = "/nowhere/at/all"};
    assert_int_equal(hr__peer_ops.open(&client, &wish, &error), 0);
    assert_int_equal(hr__peer_ops.get(client, &value, 1, in_ms(1000), &error), -ECONNREFUSED);
    assert_non_null(strstr(error.message, "/nowhere/at/all is not there"));
    hr__peer_ops.close(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_socket),       cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_tcp6),         cmocka_unit_test(test_bulk_put),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_about),
        cmocka_unit_test(test_expiry),       cmocka_unit_test(test_restart_socket),
        cmocka_unit_test(test_restart_tcp),  cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_cancel),       cmocka_unit_test(test_user),
        cmocka_unit_test(test_wrong_wishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
