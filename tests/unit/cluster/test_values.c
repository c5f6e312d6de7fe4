/*
 * A program's own values on real memcached servers: they come back under their key and identity
 * alone, budgets and item limits hold, and a forked child finds nothing.
 */
#include "../test.h"

#include "base/memory.h"
#include "memcached_fixture.h"

#include <headrace/cache.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct memcached servers[2];

static int start(void **state)
{
    for (int i = 0; i < 2; i++)
        if (memcached_start(&servers[i], 0, 64))
            return 0;
    return 0;
}

static int stop(void **state)
{
    for (int i = 0; i < 2; i++)
        if (servers[i].pid)
            memcached_stop(&servers[i]);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    return 0;
}

static int open_values(struct hr_cache **out, const char *options, const char *identity,
                       struct hr_error *error)
{
    struct hr_cache_options o;
    char spec[512];
    if (!servers[1].pid)
        skip();
    snprintf(spec, sizeof spec, "memcached:%s,%s?timeout=30s&%s", servers[0].address,
             servers[1].address, options);
    hr_cache_options_default(&o);
    o.spec = spec;
    o.identity = identity;
    o.items = 1000;
    return hr_cache_open(out, &o, error);
}

static struct hr_cache *values_of(const char *options, const char *identity)
{
    struct hr_cache *cache;
    struct hr_error error = {0};
    if (open_values(&cache, options, identity, &error))
        fail_msg("%s", error.message);
    return cache;
}

/* Stores a value of `length` bytes, in three pieces. */
static int put(struct hr_cache *cache, int number, size_t length)
{
    char *bytes = malloc(length + 1);
    assert_non_null(bytes);
    memset(bytes, number, length);
    struct hr_cache_piece pieces[] = {
        {bytes, length / 3}, {NULL, 0}, {bytes + length / 3, length - length / 3}};
    int r = hr_cache_put(cache, &number, sizeof number, pieces, 3);
    free(bytes);
    return r;
}

static int has(struct hr_cache *cache, int number, size_t length)
{
    struct hr_cache_value value;
    int r = hr_cache_get(cache, &number, sizeof number, 0, &value);
    if (r) {
        assert_int_equal(value.length, length);
        for (size_t i = 0; i < length; i++)
            assert_int_equal(((const uint8_t *)value.bytes)[i], number);
        assert_true(hr_cache_value_is_whole(cache, &value));
    }
    hr_cache_value_clear(&value);
    return r;
}

static void test_put_and_get(void **state)
{
    struct hr_cache *cache = values_of("size=16MiB", "a"), *again = values_of("size=16MiB", "a"),
                    *other = values_of("size=16MiB", "b");
    struct hr_cache_info info = {.size = sizeof info};
    for (int i = 0; i < 50; i++) {
        assert_int_equal(has(cache, i, 1000), 0);
        assert_int_equal(put(cache, i, 1000), 1);
    }
    for (int i = 0; i < 50; i++) {
        assert_int_equal(has(again, i, 1000), 1);
        assert_int_equal(has(other, i, 1000), 0);
    }
    assert_int_equal(put(cache, 99, 0), 0);
    hr_cache_give_up(cache, "x", 1);
    hr_cache_get_info(again, &info);
    assert_string_equal(info.name, "memcached");
    assert_string_equal(info.dataset, "a");
    assert_int_equal(info.items[0], 50);
    assert_int_equal(info.hits, 50);
    assert_int_equal(info.budget_bytes, 32 << 20);
    hr_cache_close(&cache);
    hr_cache_close(&again);
    hr_cache_close(&other);
}

static void test_limits(void **state)
{
    struct hr_cache *cache = values_of("size=100kB", "limits");
    struct hr_cache_info info = {.size = sizeof info};
    int stored = 0;
    memcached_restart(&servers[0]);
    memcached_restart(&servers[1]);
    for (int i = 0; i < 50; i++)
        stored += put(cache, i, 10000);
    assert_in_range(stored, 10, 20);
    for (int i = 0; i < 50; i++)
        stored -= has(cache, i, 10000);
    assert_int_equal(stored, 0);
    hr_cache_get_info(cache, &info);
    assert_in_range(info.refused, 30, 40);
    hr_cache_close(&cache);
    cache = values_of("size=64MiB", "limits");
    assert_int_equal(put(cache, 77, 9 << 20), -EFBIG);
    assert_int_equal(has(cache, 77, 9 << 20), 0);
    hr_cache_close(&cache);
}

static void test_refused_options(void **state)
{
    static const char *const options[] = {"size=1MiB&form=planes", "size=1MiB&mtime=no", "self=0"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct hr_cache *cache;
        struct hr_error error = {0};
        assert_int_equal(open_values(&cache, options[i], "a", &error), -EINVAL);
        assert_true(error.message[0]);
        assert_null(cache);
    }
}

static void test_a_child(void **state)
{
    struct hr_cache *cache = values_of("size=16MiB", "child");
    int status;
    put(cache, 1, 100);
    pid_t pid = fork();
    if (!pid) {
        int is_wrong = has(cache, 1, 100) || put(cache, 2, 100);
        hr_cache_close(&cache);
        _exit(is_wrong);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(has(cache, 1, 100), 1);
    assert_int_equal(has(cache, 2, 100), 0);
    hr_cache_close(&cache);
}

static void test_dead_servers(void **state)
{
    struct hr_cache *cache = values_of("size=16MiB", "dead");
    put(cache, 1, 100);
    memcached_kill(&servers[0], SIGKILL);
    memcached_kill(&servers[1], SIGKILL);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(has(cache, i, 100), 0);
        assert_int_equal(put(cache, i, 100), 0);
    }
    hr_cache_close(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_and_get),     cmocka_unit_test(test_limits),
        cmocka_unit_test(test_refused_options), cmocka_unit_test(test_a_child),
        cmocka_unit_test(test_dead_servers),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
