/* Values by key: put, get, waiting for another process, and the rules for forked children. */
#include "../test.h"

#include "cache/directory.h"
#include "cache/run.h"

#include <headrace/cache.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPEC "shm:values?size=4MiB"

static char place[64];

static int set_up(void **state)
{
    snprintf(place, sizeof place, "/dev/shm/headrace-test-XXXXXX");
    return mkdtemp(place) && !setenv("HEADRACE_SHM", place, 1) ? 0 : -1;
}

static int tear_down(void **state)
{
    return rmdir(place);
}

static struct hr_cache *open_spec(const char *spec)
{
    struct hr_cache_options options;
    struct hr_cache *cache;
    struct hr_error error;
    hr_cache_options_default(&options);
    options.spec = spec;
    options.identity = "values of a test";
    options.items = 1000;
    if (hr_cache_open(&cache, &options, &error))
        fail_msg("%s", error.message);
    return cache;
}

static int put(struct hr_cache *cache, const char *key, const char *value)
{
    struct hr_cache_piece pieces[2] = {
        {value, strlen(value) / 2}, {value + strlen(value) / 2, strlen(value) - strlen(value) / 2}};
    return hr_cache_put(cache, key, strlen(key), pieces, 2);
}

static int has(struct hr_cache *cache, const char *key, const char *expected, int wait_ms)
{
    struct hr_cache_value value;
    int r = hr_cache_get(cache, key, strlen(key), wait_ms, &value);
    if (r == 1) {
        assert_int_equal(value.length, strlen(expected));
        assert_memory_equal(value.bytes, expected, value.length);
        assert_int_equal((uintptr_t)value.bytes % 64, 0);
    }
    hr_cache_value_clear(&value);
    assert_null(value.bytes);
    return r;
}

static void drop(void)
{
    assert_int_equal(hr_cache_drop("values", NULL, 0, NULL, NULL, NULL), 0);
}

static void test_put_and_get(void **state)
{
    struct hr_cache *cache = open_spec(SPEC);
    assert_int_equal(has(cache, "a", "", 1000), 0);
    assert_int_equal(put(cache, "a", "value of a"), 1);
    assert_int_equal(put(cache, "a", "another"), 0);
    assert_int_equal(has(cache, "a", "value of a", 0), 1);
    assert_int_equal(has(cache, "b", "", 0), 0);
    hr_cache_give_up(cache, "b", 1);
    assert_int_equal(has(cache, "b", "", 0), 0);
    assert_int_equal(put(cache, "b", ""), 0);
    assert_int_equal(has(cache, "b", "", 0), 0);
    assert_int_equal(put(cache, "b", "b"), 1);
    assert_int_equal(has(cache, "b", "b", 0), 1);

    /* More pieces than fit on the stack. */
    struct hr_cache_piece pieces[40];
    char text[41] = "";
    for (int i = 0; i < 40; i++) {
        text[i] = (char)('0' + i);
        pieces[i] = (struct hr_cache_piece){&text[i], 1};
    }
    assert_int_equal(hr_cache_put(cache, "c", 1, pieces, 40), 1);
    assert_int_equal(has(cache, "c", text, 0), 1);

    /* Impossible values. */
    pieces[0].length = pieces[1].length = UINT64_C(1) << 31;
    assert_int_equal(hr_cache_put(cache, "d", 1, pieces, 2), -EFBIG);
    pieces[1].length = SIZE_MAX;
    assert_int_equal(hr_cache_put(cache, "d", 1, pieces, 2), -EFBIG);

    struct hr_cache_info info = {.size = sizeof info};
    hr_cache_get_info(cache, &info);
    assert_string_equal(info.name, "values");
    assert_string_equal(info.dataset, "values of a test");
    assert_int_equal(info.budget_bytes, 4 << 20);
    assert_int_equal(info.size_bytes, 4 << 20);
    assert_int_equal(info.items[0], 3);
    assert_int_equal(info.hits, 3);
    assert_int_equal(info.misses, 4);
    assert_int_equal(info.saved_bytes, 10 + 1 + 40);
    assert_int_equal(info.users, 1);
    assert_int_equal(info.pids[0], getpid());
    assert_true(info.allocated_bytes > info.used_bytes);
    assert_true(info.huge_bytes <= info.allocated_bytes);
    assert_int_equal(info.damaged, 0);

    /* The values and the counters stay. */
    hr_cache_close(&cache);
    assert_null(cache);
    hr_cache_close(&cache);
    cache = open_spec(SPEC);
    assert_int_equal(has(cache, "a", "value of a", 0), 1);
    hr_cache_get_info(cache, &info);
    assert_int_equal(info.hits, 4);
    hr_cache_close(&cache);
    drop();
}

/* A large value is read in place; a full cache refuses values. */
static void test_full(void **state)
{
    struct hr_cache *cache = open_spec(SPEC);
    static char bytes[1 << 20];
    struct hr_cache_piece piece = {bytes, sizeof bytes};
    int kept = 0;
    for (int i = 0; i < 6; i++) {
        memset(bytes, 'a' + i, sizeof bytes);
        kept += hr_cache_put(cache, &i, sizeof i, &piece, 1);
    }
    assert_int_equal(kept, 4);
    for (int i = 0; i < 6; i++) {
        struct hr_cache_value value;
        int r = hr_cache_get(cache, &i, sizeof i, 0, &value);
        assert_int_equal(r, i < 4);
        if (r) {
            memset(bytes, 'a' + i, sizeof bytes);
            assert_memory_equal(value.bytes, bytes, sizeof bytes);
            assert_null(value.copy);
        } else {
            hr_cache_give_up(cache, &i, sizeof i);
        }
        hr_cache_value_clear(&value);
    }
    struct hr_cache_info info = {.size = sizeof info};
    hr_cache_get_info(cache, &info);
    assert_int_equal(info.used_bytes, 4 << 20);
    assert_true(info.refused >= 2);
    hr_cache_close(&cache);
    drop();
}

/* A limit that only ends waits that would hang. */
#define LONG_MS 300000

/* A maker made with `ms` below 0 waits until tell() closes this pipe. */
static int told = -1;

/* Forks a child that claims `key` and reports that. After `ms`, or when it is told to, it does what
 * `then` says: puts a value, gives up or is killed. */
static pid_t maker(const char *key, int ms, char then)
{
    int ready[2], go[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (!pid) {
        close(go[1]);
        struct hr_cache *cache = open_spec(SPEC);
        if (has(cache, key, "", 0))
            _exit(1);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        if (ms >= 0)
            usleep((useconds_t)ms * 1000);
        else if (read(go[0], &byte, 1))
            _exit(1);
        if (then == 'k')
            raise(SIGKILL);
        if (then == 'p' && put(cache, key, "made elsewhere") != 1)
            _exit(1);
        if (then == 'g')
            hr_cache_give_up(cache, key, strlen(key));
        hr_cache_close(&cache);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    close(go[0]);
    if (ms >= 0)
        close(go[1]);
    else
        told = go[1];
    return pid;
}

static void tell(void)
{
    close(told);
    told = -1;
}

static int status_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void test_waiting(void **state)
{
    struct hr_cache *cache = open_spec(SPEC);
    pid_t pid = maker("p", 100, 'p');
    assert_int_equal(has(cache, "p", "made elsewhere", LONG_MS), 1);
    assert_int_equal(status_of(pid), 0);
    pid = maker("g", 100, 'g');
    assert_int_equal(has(cache, "g", "", LONG_MS), 0);
    assert_int_equal(status_of(pid), 0);
    assert_int_equal(put(cache, "g", "own"), 1);
    pid = maker("k", 100, 'k');
    assert_int_equal(has(cache, "k", "", LONG_MS), 0);
    assert_int_equal(put(cache, "k", "own"), 1);
    assert_int_equal(WTERMSIG(status_of(pid)), SIGKILL);
    /* No longer than `wait_ms`: the maker has not even begun. */
    pid = maker("w", -1, 'p');
    assert_int_equal(has(cache, "w", "", 20), 0);
    assert_int_equal(has(cache, "w", "", 0), 0);
    tell();
    assert_int_equal(status_of(pid), 0);
    assert_int_equal(has(cache, "w", "made elsewhere", 0), 1);
    hr_cache_close(&cache);
    drop();
}

static void on_alarm(int signal)
{
}

static void test_interrupted(void **state)
{
    struct hr_cache *cache = open_spec(SPEC);
    pid_t pid = maker("i", -1, 'p');
    signal(SIGALRM, on_alarm);
    ualarm(50000, 20000); /* repeatedly, in case a signal comes between two sleeps */
    assert_int_equal(has(cache, "i", "", LONG_MS), -EINTR);
    ualarm(0, 0);
    signal(SIGALRM, SIG_DFL);
    tell();
    assert_int_equal(has(cache, "i", "made elsewhere", LONG_MS), 1);
    assert_int_equal(status_of(pid), 0);
    hr_cache_close(&cache);
    drop();
}

/* A forked child finds and stores nothing, and its parent's cache stays intact. */
static void test_fork(void **state)
{
    struct hr_cache *cache = open_spec("4MiB");
    assert_int_equal(put(cache, "a", "value"), 1);
    pid_t pid = fork();
    if (!pid) {
        struct hr_cache_info info = {.size = sizeof info};
        int wrong = has(cache, "a", "value", 1000) || put(cache, "b", "x");
        hr_cache_give_up(cache, "b", 1);
        hr_cache_get_info(cache, &info);
        wrong |= info.users || info.budget_bytes || info.size != sizeof info;
        hr_cache_close(&cache);
        _exit(wrong || cache);
    }
    assert_int_equal(status_of(pid), 0);
    assert_int_equal(has(cache, "a", "value", 0), 1);
    hr_cache_close(&cache);
}

/* Processes of one run share a cache, which ends with the last of them. */
static void test_runs(void **state)
{
    char one[HR_CACHE_RUN], two[HR_CACHE_RUN];
    hr_cache_run(one, 1);
    hr_cache_run(two, 1);
    assert_string_equal(one, two);
    assert_true(hr__run_is_valid(one));
    hr_cache_run(two, 2);
    assert_string_not_equal(one, two);
    pid_t pid = fork();
    if (!pid) {
        char ours[HR_CACHE_RUN], parents[HR_CACHE_RUN];
        hr_cache_run(ours, 1);
        hr_cache_run(parents, 8);
        _exit(!strcmp(ours, one) || strcmp(parents, one));
    }
    assert_int_equal(status_of(pid), 0);

    assert_int_equal(hr__run_started("7 (a) b) (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "
                                     "123456 9 10"),
                     123456);
    assert_int_equal(hr__run_started("7 (x) S 1 7"), 0);
    assert_int_equal(hr__run_started(""), 0);
    assert_false(hr__run_is_valid(""));
    assert_false(hr__run_is_valid("../x"));
    assert_false(hr__run_is_valid("a.b"));
    assert_false(
        hr__run_is_valid("0123456789012345678901234567890123456789012345678901234567890123"));
}

enum { THREADS = 4, KEYS = 300 };

/* Gets or makes each key, in an order of its own. */
static void *use_all(void *arg)
{
    struct hr_cache *cache = arg;
    static _Atomic int turn;
    int first = atomic_fetch_add(&turn, 1) * 71;
    for (int i = 0; i < KEYS; i++) {
        int key = (i + first) % KEYS;
        char text[32];
        struct hr_cache_value value;
        snprintf(text, sizeof text, "value %d", key);
        struct hr_cache_piece piece = {text, sizeof text};
        int r = hr_cache_get(cache, &key, sizeof key, 100, &value);
        if (r == 1 && (value.length != sizeof text || strcmp(value.bytes, text)))
            return "wrong";
        if (!r)
            hr_cache_put(cache, &key, sizeof key, &piece, 1);
        hr_cache_value_clear(&value);
    }
    return NULL;
}

/* Threads of this process, one of which only inspects, and threads of another process. */
static void test_threads(void **state)
{
    struct hr_cache *cache = open_spec(SPEC);
    pid_t pid = fork();
    if (!pid) {
        struct hr_cache *own = open_spec(SPEC);
        void *wrong = use_all(own);
        hr_cache_close(&own);
        _exit(wrong != NULL);
    }
    pthread_t threads[THREADS];
    struct hr_cache_info info = {.size = sizeof info};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_all, cache), 0);
    for (int i = 0; i < 20; i++)
        hr_cache_get_info(cache, &info);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    assert_int_equal(status_of(pid), 0);
    hr_cache_get_info(cache, &info);
    assert_int_equal(info.items[0], KEYS);
    assert_int_equal(info.hits + info.misses, (THREADS + 1) * KEYS);
    hr_cache_close(&cache);
    drop();
}

static void test_options(void **state)
{
    struct hr_cache_options options;
    struct hr_cache *cache;
    struct hr_error error;
    const struct {
        const char *spec, *identity, *run, *said;
        uint64_t items;
    } cases[] = {
        {NULL, "x", NULL, "spec is not set", 1},
        {"1MiB", NULL, NULL, "identity is not set", 1},
        {"1MiB", "", NULL, "identity is not set", 1},
        {"1MiB", "x", NULL, "items is not set", 0},
        {"1MiB", "x", "../../x", "run is none", 1},
        {"1M", "x", NULL, "write 1MiB", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hr_cache_options_default(&options);
        options.spec = cases[i].spec;
        options.identity = cases[i].identity;
        options.run = cases[i].run;
        options.items = cases[i].items;
        assert_int_equal(hr_cache_open(&cache, &options, &error), -EINVAL);
        assert_null(cache);
        if (!strstr(error.message, cases[i].said))
            fail_msg("%s", error.message);
    }
    memset(&options, 0, sizeof options);
    assert_int_equal(hr_cache_open(&cache, &options, &error), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_and_get), cmocka_unit_test(test_full),
        cmocka_unit_test(test_waiting),     cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_fork),        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_threads),     cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
