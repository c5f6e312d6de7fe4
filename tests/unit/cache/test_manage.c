/* Inspecting and dropping caches. */
#include "../test.h"

#include "base/memory.h"
#include "cache/directory.h"
#include "cache/info.h"

#include <headrace/cache.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char place[64], logged[2048];

static void log_line(void *arg, enum hr_log_level level, const char *message)
{
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", message);
}

static int set_up(void **state)
{
    snprintf(place, sizeof place, "/dev/shm/headrace-test-XXXXXX");
    hr_log_set(log_line, NULL);
    return mkdtemp(place) && !setenv("HEADRACE_SHM", place, 1) ? 0 : -1;
}

static int tear_down(void **state)
{
    return rmdir(place);
}

static struct hr_cache *open_one(const char *spec, const char *identity, uint64_t fill_bytes)
{
    struct hr_cache_options options;
    struct hr_cache *cache;
    struct hr_error error;
    hr_cache_options_default(&options);
    options.spec = spec;
    options.identity = identity;
    options.items = 100;
    if (hr_cache_open(&cache, &options, &error))
        fail_msg("%s", error.message);
    if (fill_bytes) {
        char *bytes = calloc(1, fill_bytes);
        struct hr_cache_piece piece = {bytes, fill_bytes};
        assert_int_equal(hr_cache_put(cache, "k", 1, &piece, 1), 1);
        free(bytes);
    }
    return cache;
}

static void make(const char *spec, const char *identity, uint64_t bytes)
{
    struct hr_cache *cache = open_one(spec, identity, bytes);
    hr_cache_close(&cache);
}

static size_t list(struct hr_cache_info out[8])
{
    struct hr_cache_list *all;
    struct hr_error error;
    if (hr_cache_list_create(&all, &error))
        fail_msg("%s", error.message);
    size_t count = hr_cache_list_count(all);
    assert_true(count <= 8);
    for (size_t i = 0; i < count; i++) {
        out[i].size = sizeof *out;
        hr_cache_list_get(all, i, &out[i]);
        assert_int_equal(out[i].size, sizeof *out);
    }
    hr_cache_list_destroy(&all);
    hr_cache_list_destroy(&all);
    return count;
}

static void test_list(void **state)
{
    struct hr_cache_info infos[8];
    assert_int_equal(list(infos), 0);
    make("shm:b?size=1MiB", "x", 1000);
    make("shm:a?size=8MiB&share=0.5", "y", 3 << 20);
    make("shm:a?size=8MiB", "x", 0);
    struct hr_cache *own = open_one("1MiB", "z", 100);
    assert_int_equal(list(infos), 4);
    const char *expected[][2] = {{"", "z"}, {"a", "x"}, {"a", "y"}, {"b", "x"}};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(infos[i].name, expected[i][0]);
        assert_string_equal(infos[i].dataset, expected[i][1]);
        assert_int_equal(infos[i].damaged, 0);
        assert_int_equal(infos[i].users, i == 0);
        assert_ptr_equal(strstr(infos[i].path, place), infos[i].path);
    }
    assert_int_equal(infos[0].pids[0], getpid());
    assert_int_equal(infos[2].budget_bytes, 4 << 20);
    assert_int_equal(infos[2].size_bytes, 8 << 20);
    assert_int_equal(infos[2].used_bytes, 3 << 20);
    assert_int_equal(infos[2].items[0], 1);
    assert_true(infos[2].allocated_bytes >= 3 << 20);
    uint64_t nodes = 0;
    for (int i = 0; i < HR_CACHE_NODES; i++)
        nodes += infos[2].node_bytes[i];
    assert_in_range(nodes, 0, infos[2].allocated_bytes);
    /* Listing allocates nothing. */
    struct hr_cache_info again[8];
    assert_int_equal(list(again), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(again[i].allocated_bytes, infos[i].allocated_bytes);
    hr_cache_close(&own);
    assert_int_equal(list(infos), 3);
    /* A program of another version gets the members that it knows. */
    struct hr_cache_list *all;
    struct {
        size_t size;
        char name[64];
        char behind[8];
    } small = {.size = 72, .behind = "behind"};
    assert_int_equal(hr_cache_list_create(&all, NULL), 0);
    hr_cache_list_get(all, 2, (struct hr_cache_info *)(void *)&small);
    assert_string_equal(small.name, "b");
    assert_string_equal(small.behind, "behind");
    hr_cache_list_destroy(&all);
    assert_int_equal(hr_cache_drop("a", NULL, 0, NULL, NULL, NULL), 0);
    assert_int_equal(hr_cache_drop("b", NULL, 0, NULL, NULL, NULL), 0);
    assert_int_equal(list(infos), 0);
}

static void test_drop(void **state)
{
    struct hr_cache_info infos[8];
    struct hr_error error;
    uint64_t freed, left;
    assert_int_equal(hr_cache_drop("a", NULL, 0, &freed, &left, &error), -ENOENT);
    assert_non_null(strstr(error.message, "there is no cache a"));
    make("shm:a?size=128MiB", "x", 1 << 20);
    make("shm:a?size=128MiB", "y", 2 << 20);
    struct hr_cache *used = open_one("shm:a?size=128MiB", "y", 0);
    assert_int_equal(hr_cache_drop("a", "z", 0, &freed, &left, &error), -ENOENT);
    assert_non_null(strstr(error.message, "cache a holds no samples of z"));
    assert_int_equal(hr_cache_drop("a", "x", 0, &freed, &left, &error), 0);
    assert_in_range(freed, 1 << 20, 64 << 20);
    assert_int_equal(left, 0);
    assert_int_equal(hr_cache_drop("a", NULL, 0, &freed, &left, &error), 0);
    assert_int_equal(freed, 0);
    assert_int_equal(left, 1);
    assert_int_equal(list(infos), 1);
    /* Dropping by force: its users continue. */
    assert_int_equal(hr_cache_drop("a", NULL, 1, &freed, &left, &error), 0);
    assert_int_equal(freed, 0);
    assert_int_equal(left, 0);
    assert_int_equal(list(infos), 0);
    struct hr_cache_value value;
    assert_int_equal(hr_cache_get(used, "k", 1, 0, &value), 1);
    assert_int_equal(value.length, 2 << 20);
    hr_cache_value_clear(&value);
    hr_cache_close(&used);
}

static void test_damaged(void **state)
{
    struct hr_cache_info infos[8];
    uint64_t freed;
    struct hr_cache *cache = open_one("shm:a?size=4MiB", "x", 1 << 20);
    infos[0].size = sizeof infos[0];
    hr_cache_get_info(cache, &infos[0]);
    int fd = open(infos[0].path, O_RDWR);
    assert_int_equal(ftruncate(fd, 100000), 0);
    close(fd);
    hr_cache_get_info(cache, &infos[0]);
    assert_int_equal(infos[0].damaged, 1);
    assert_int_equal(list(infos), 1);
    assert_int_equal(infos[0].damaged, 1);
    assert_string_equal(infos[0].name, "a");
    assert_string_equal(infos[0].dataset, "");
    assert_non_null(strstr(infos[0].problem, "is cut off"));
    assert_true(infos[0].allocated_bytes > 0);
    assert_int_equal(infos[0].users, 1);
    assert_int_equal(infos[0].budget_bytes, 0);
    hr_cache_close(&cache);
    assert_int_equal(hr_cache_drop("a", "x", 0, &freed, NULL, NULL), -ENOENT);
    assert_int_equal(hr_cache_drop("a", NULL, 0, &freed, NULL, NULL), 0);
    assert_true(freed > 0);
    assert_int_equal(list(infos), 0);
}

/* Listing removes a killed run's segment. A group's directory with wrong permissions is logged and
 * skipped; the user's own one is an error. */
static void test_surroundings(void **state)
{
    struct hr_cache_info infos[8];
    struct hr_cache_list *all;
    struct hr_error error;
    char path[128];
    pid_t pid = fork();
    if (!pid) {
        open_one("1MiB", "x", 100);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    snprintf(path, sizeof path, "%s/headrace-%u", place, (unsigned)geteuid());
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(list(infos), 0);
    assert_int_equal(access(path, F_OK), -1);

    snprintf(path, sizeof path, "%s/headrace-g%u", place, (unsigned)getegid());
    assert_int_equal(mkdir(path, 0755), 0);
    *logged = 0;
    assert_int_equal(list(infos), 0);
    assert_non_null(strstr(logged, "is not of group"));
    assert_int_equal(rmdir(path), 0);

    snprintf(path, sizeof path, "%s/headrace-%u", place, (unsigned)geteuid());
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(hr_cache_list_create(&all, &error), -EACCES);
    assert_null(all);
    assert_int_equal(hr_cache_drop("a", NULL, 0, NULL, NULL, &error), -EACCES);
    assert_int_equal(rmdir(path), 0);
}

/* Each allocation fails in turn: the result is an error or success, nothing leaks, and nothing
 * stays locked. */
static void test_no_memory(void **state)
{
    make("shm:a?size=128MiB", "x", 1000);
    make("shm:a?size=128MiB", "y", 1000);
    uint64_t before = hr__allocated(HR__TAG_CACHE);
    int failures = 0;
    for (uint64_t n = 1; n < 50; n++) {
        struct hr_cache_list *all = NULL;
        struct hr_cache_options options;
        struct hr_cache *cache = NULL;
        struct hr_error error = {0};
        hr_cache_options_default(&options);
        options.spec = n % 2 ? "shm:a?size=128MiB" : "shm:b?size=128MiB";
        options.identity = "x";
        options.items = 100;
        hr__alloc_fail_at(n, n % 3 == 0);
        int r = hr_cache_list_create(&all, &error);
        assert_true(r == 0 || (r == -ENOMEM && *error.message));
        failures += r != 0;
        r = hr_cache_open(&cache, &options, &error);
        assert_true(r == 0 || *error.message);
        failures += r != 0;
        hr_cache_close(&cache);
        r = hr_cache_drop("b", NULL, 0, NULL, NULL, &error);
        assert_true(r == 0 || r == -ENOENT || r == -ENOMEM);
        hr__alloc_fail_at(0, 0);
        hr_cache_list_destroy(&all);
        assert_int_equal(hr__allocated(HR__TAG_CACHE), before);
    }
    assert_true(failures > 10);
    struct hr_cache_info infos[8];
    size_t count = list(infos);
    assert_true(count == 2 || count == 3);
    assert_string_equal(infos[0].dataset, "x");
    assert_string_equal(infos[1].dataset, "y");
    assert_int_equal(hr_cache_drop("a", NULL, 0, NULL, NULL, NULL), 0);
    if (count == 3)
        assert_int_equal(hr_cache_drop("b", NULL, 0, NULL, NULL, NULL), 0);
}

static void test_smaps(void **state)
{
    static const char smaps[] = "1000-2000 rw-s 00000000 00:01 5 /dev/shm/x\n"
                                "Size:                 4 kB\n"
                                "ShmemPmdMapped:     2048 kB\n"
                                "FilePmdMapped:         0 kB\n"
                                "VmFlags: rd wr sh\n"
                                "2000-4000 rw-s 00000000 00:01 5 /dev/shm/x\n"
                                "ShmemPmdMapped:     4096 kB\n"
                                "FilePmdMapped:      2048 kB\n"
                                "abc000-abd000 rw-p 00000000 00:00 0\n"
                                "ShmemPmdMapped:     8192 kB\n";
    assert_int_equal(hr__info_huge_bytes(smaps, 0x1000, 0x4000), 8 << 20);
    assert_int_equal(hr__info_huge_bytes(smaps, 0x2000, 0x4000), 6 << 20);
    assert_int_equal(hr__info_huge_bytes(smaps, 0xabc000, 0xabd000), 8 << 20);
    assert_int_equal(hr__info_huge_bytes(smaps, 0x5000, 0x6000), 0);
    assert_int_equal(hr__info_huge_bytes("", 0, UINT64_MAX), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),    cmocka_unit_test(test_drop),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_surroundings),
        cmocka_unit_test(test_smaps),   cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
