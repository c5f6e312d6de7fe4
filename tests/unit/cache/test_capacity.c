/* Memory limits of a cache, computed from texts in the kernel's formats. */
#include "../test.h"

#include "cache/capacity.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

#define HAVE(free, all, can_give, limit, file)                                                     \
    {                                                                                              \
        .files_free = free, .files_total = all, .available = can_give, .group_limit = limit,       \
        .group_file = file                                                                         \
    }

static void test_meminfo(void **state)
{
    assert_int_equal(hr__capacity_meminfo("MemTotal:       24684084 kB\n"
                                          "MemFree:         1000000 kB\n"
                                          "MemAvailable:   20684084 kB\n"
                                          "Buffers:              84 kB\n"),
                     UINT64_C(20684084) * 1024);
    assert_int_equal(hr__capacity_meminfo("MemAvailable: 12 kB"), 12 * 1024);
    assert_true(hr__capacity_meminfo("XMemAvailable: 12 kB\n") == UINT64_MAX);
    assert_true(hr__capacity_meminfo("") == UINT64_MAX);
}

static void test_groups(void **state)
{
    static const char both[] = "9:name=systemd:/\n"
                               "4:cpu,memory:/data/0123\n"
                               "3:cpuset:/x\n"
                               "0::/data/a:b\n";
    char path[64];
    assert_int_equal(hr__capacity_group_path(both, "memory", path, sizeof path), 1);
    assert_string_equal(path, "/data/0123");
    assert_int_equal(hr__capacity_group_path(both, "cpu", path, sizeof path), 1);
    assert_string_equal(path, "/data/0123");
    assert_int_equal(hr__capacity_group_path(both, NULL, path, sizeof path), 1);
    assert_string_equal(path, "/data/a:b");
    assert_int_equal(hr__capacity_group_path(both, "mem", path, sizeof path), 0);
    assert_int_equal(hr__capacity_group_path(both, "cpu,memory", path, sizeof path), 0);
    assert_int_equal(hr__capacity_group_path("0::/", NULL, path, sizeof path), 1);
    assert_string_equal(path, "/");
    assert_int_equal(hr__capacity_group_path("0::/", "memory", path, sizeof path), 0);
    assert_int_equal(hr__capacity_group_path("4:memory:/a\n", NULL, path, sizeof path), 0);
    assert_int_equal(hr__capacity_group_path("nonsense\n\n:\n0", NULL, path, sizeof path), 0);
    assert_int_equal(hr__capacity_group_path("0::/longer", NULL, path, 7), 0);
}

static void test_limits(void **state)
{
    assert_int_equal(hr__capacity_limit("1073741824\n"), GIB);
    assert_true(hr__capacity_limit("max\n") == UINT64_MAX);
    assert_true(hr__capacity_limit("") == UINT64_MAX);
    assert_true(hr__capacity_limit("-1\n") == UINT64_MAX);
    assert_true(hr__capacity_limit("9223372036854771712\n") == UINT64_C(9223372036854771712));
}

static void test_check(void **state)
{
    const struct {
        struct hr__capacity have;
        uint64_t bytes, freed;
        const char *said; /* the message; NULL: there is enough */
    } cases[] = {
        {HAVE(64 * GIB, 64 * GIB, 64 * GIB, 64 * GIB, "x"), 64 * GIB, 0, NULL},
        {HAVE(UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, ""), 64 * GIB, GIB, NULL},
        {HAVE(64 * GIB - 1, 96 * GIB, 99 * GIB, 99 * GIB, ""), 64 * GIB, 0,
         "file system of /dev/shm/x: 63.9 GiB of its 96.0 GiB are free; enlarge it (mount -o "
         "remount,size=65G /dev/shm"},
        {HAVE(60 * GIB, 96 * GIB, 99 * GIB, 99 * GIB, ""), 64 * GIB, 4 * GIB, NULL},
        {HAVE(60 * GIB, 96 * GIB, 60 * GIB, 99 * GIB, ""), 64 * GIB, 4 * GIB, NULL},
        {HAVE(99 * GIB, 99 * GIB, 63 * GIB, 99 * GIB, ""), 64 * GIB, 0,
         "machine has available: 63.0"},
        {HAVE(99 * GIB, 99 * GIB, 63 * GIB, 63 * GIB, "/sys/fs/cgroup/a/memory.max"), 64 * GIB,
         9 * GIB, "/sys/fs/cgroup/a/memory.max says 63.0 GiB; raise that limit (Docker: --memory"},
        {HAVE(64 << 20, 64 << 20, 99 * GIB, 99 * GIB, ""), 65 << 20, 0,
         "64 MiB of its 64 MiB are free; enlarge it (mount -o remount,size=1G"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__capacity_wish wish = {.bytes = cases[i].bytes,
                                         .budget = cases[i].bytes,
                                         .freed_bytes = cases[i].freed,
                                         .place = "/dev/shm/x"};
        struct hr_error error = {0};
        int r = hr__capacity_check(&cases[i].have, &wish, &error);
        assert_int_equal(r, cases[i].said ? -ENOSPC : 0);
        assert_int_equal(hr__capacity_check(&cases[i].have, &wish, NULL), r);
        if (r && !strstr(error.message, cases[i].said))
            fail_msg("case %zu: %s", i, error.message);
    }
}

static void test_reclaimable(void **state)
{
    static const char one[] = "cache 70\ntotal_cache 99\ntotal_inactive_file 40\n"
                              "total_active_file 21\nactive_file 1000\n";
    assert_int_equal(hr__capacity_reclaimable(one, "total_"), 50);
    assert_int_equal(hr__capacity_reclaimable("anon 5\ninactive_file 7\nactive_file 2", ""), 8);
    assert_int_equal(hr__capacity_reclaimable("", ""), 0);
}

/* What may be allocated now: some memory is left for the job itself. */
static void test_grants(void **state)
{
    const struct hr__capacity free = {.files_free = UINT64_MAX,
                                      .available = 20 * GIB,
                                      .total = 24 * GIB,
                                      .group_left = UINT64_MAX};
    struct hr__capacity have = free;
    char why[HR__CAPACITY_WHY] = "";
    assert_int_equal(hr__capacity_grants(&have, 20 * GIB - 192 * MIB, why), 1);
    assert_string_equal(why, "");
    assert_int_equal(hr__capacity_grants(&have, 20 * GIB - 192 * MIB + 1, why), 0);
    assert_non_null(strstr(why, "the machine has 20.0 GiB available, of which 192 MiB"));
    have.group_left = 700 * MIB;
    have.left_limit = 800 * MIB;
    strcpy(have.left_file, "/sys/fs/cgroup/a/memory.max");
    assert_int_equal(hr__capacity_grants(&have, 668 * MIB, why), 1);
    assert_int_equal(hr__capacity_grants(&have, 669 * MIB, why), 0);
    assert_non_null(strstr(why, "has 700 MiB left, of which 32 MiB are kept for the job itself; "
                                "raise /sys/fs/cgroup/a/memory.max (Docker"));
    have.files_free = MIB;
    assert_int_equal(hr__capacity_grants(&have, MIB + 1, why), 0);
    assert_non_null(strstr(why, "1024 KiB are free in the file system of shared memory"));
    have = (struct hr__capacity){UINT64_MAX, UINT64_MAX, UINT64_MAX, .total = UINT64_MAX,
                                 .group_left = UINT64_MAX};
    assert_int_equal(hr__capacity_grants(&have, UINT64_MAX, why), 1);
}

/* This machine has some memory, but not a million times as much. */
static void test_read(void **state)
{
    struct hr__capacity c;
    int fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    hr__capacity_read(&c, fd);
    close(fd);
    assert_in_range(c.available, 1 << 20, UINT64_C(1) << 50);
    assert_true(c.files_free <= c.files_total);
    assert_true(c.group_limit > 1 << 20);
    if (c.group_limit != UINT64_MAX)
        assert_ptr_equal(strstr(c.group_file, "/sys/fs/cgroup"), c.group_file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meminfo), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_limits),  cmocka_unit_test(test_check),
        cmocka_unit_test(test_read),    cmocka_unit_test(test_reclaimable),
        cmocka_unit_test(test_grants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
