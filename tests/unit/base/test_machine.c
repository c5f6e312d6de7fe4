/* What machine.h reads: below folders made by the test, in the kernel's formats, and here. */
#include "../test.h"
#include "fake_root.h"

#include "base/machine.h"

#include <headrace/base.h>

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define GIB (UINT64_C(1) << 30)

#define MEMINFO "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nMemAvailable: 12582912 kB\n"

static void test_affinity(void **state)
{
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_in_range(hr_cores(), 1, CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(hr_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void test_quota(void **state)
{
    const char *root = *state;
    int all = hr__cores_usable(root); /* no control group */
    assert_true(all >= 1);
    fake_file(root, "proc/self/cgroup", "0::/a/b\n");
    fake_file(root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(hr__cores_usable(root), all);
    fake_file(root, "sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    assert_int_equal(hr__cores_usable(root), 1);
    fake_file(root, "sys/fs/cgroup/a/cpu.max", "99999900000 100000\n");
    assert_int_equal(hr__cores_usable(root), all);
    fake_file(root, "sys/fs/cgroup/a/cpu.max", "-1 0 nonsense\n");
    assert_int_equal(hr__cores_usable(root), all);
    /* Version 1, where the container sees its own group at the root only. */
    fake_file(root, "proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/docker/1\n");
    fake_file(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
    fake_file(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(hr__cores_usable(root), 1);
    fake_file(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(hr__cores_usable(root), all);
}

static void add_folder(void *arg, const char *folder, int version)
{
    char *list = arg;
    size_t length = strlen(list);
    snprintf(list + length, 400 - length, "%d:%s ", version, strstr(folder, "/sys/fs"));
}

/* From the group itself upwards; what is above the container's root is left out. */
static void test_group_folders(void **state)
{
    const char *root = *state;
    char list[400] = "";
    fake_file(root, "proc/self/cgroup", "0::/a/b\n5:cpu,memory:/c\n");
    hr__groups_visit(root, "memory", add_folder, list);
    assert_string_equal(list, "2:/sys/fs/cgroup/a/b 2:/sys/fs/cgroup/a 2:/sys/fs/cgroup "
                              "2:/sys/fs/cgroup/unified/a/b 2:/sys/fs/cgroup/unified/a "
                              "2:/sys/fs/cgroup/unified "
                              "1:/sys/fs/cgroup/memory/c 1:/sys/fs/cgroup/memory ");
    fake_file(root, "proc/self/cgroup", "0::/../../outside\n");
    list[0] = 0;
    hr__groups_visit(root, "cpu", add_folder, list);
    assert_string_equal(list, "2:/sys/fs/cgroup 2:/sys/fs/cgroup/unified ");
}

static void test_group_paths(void **state)
{
    static const char both[] = "9:name=systemd:/\n"
                               "4:cpu,memory:/data/0123\n"
                               "3:cpuset:/x\n"
                               "0::/data/a:b\n";
    char path[64];
    assert_int_equal(hr__group_path(both, "memory", path, sizeof path), 1);
    assert_string_equal(path, "/data/0123");
    assert_int_equal(hr__group_path(both, "cpu", path, sizeof path), 1);
    assert_string_equal(path, "/data/0123");
    assert_int_equal(hr__group_path(both, NULL, path, sizeof path), 1);
    assert_string_equal(path, "/data/a:b");
    assert_int_equal(hr__group_path(both, "mem", path, sizeof path), 0);
    assert_int_equal(hr__group_path(both, "cpu,memory", path, sizeof path), 0);
    assert_int_equal(hr__group_path("0::/", NULL, path, sizeof path), 1);
    assert_string_equal(path, "/");
    assert_int_equal(hr__group_path("0::/", "memory", path, sizeof path), 0);
    assert_int_equal(hr__group_path("4:memory:/a\n", NULL, path, sizeof path), 0);
    assert_int_equal(hr__group_path("nonsense\n\n:\n0", NULL, path, sizeof path), 0);
    assert_int_equal(hr__group_path("0::/longer", NULL, path, 7), 0);
}

static void test_meminfo(void **state)
{
    assert_int_equal(hr__meminfo_available("MemTotal:       24684084 kB\n"
                                           "MemFree:         1000000 kB\n"
                                           "MemAvailable:   20684084 kB\n"
                                           "Buffers:              84 kB\n"),
                     UINT64_C(20684084) * 1024);
    assert_int_equal(hr__meminfo_available("MemAvailable: 12 kB"), 12 * 1024);
    assert_true(hr__meminfo_available("XMemAvailable: 12 kB\n") == UINT64_MAX);
    assert_true(hr__meminfo_available("") == UINT64_MAX);
}

static void test_generations(void **state)
{
    const char *root = *state, *path = "sys/kernel/mm/lru_gen/enabled";
    const struct {
        const char *text;
        int expected;
    } cases[] = {{"0x0007\n", 1}, {"0x0001\n", 1}, {"0x0006\n", 0}, {"0x0000\n", 0}, {"", 0}};
    assert_int_equal(hr__memory_generations(root), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake_file(root, path, cases[i].text);
        assert_int_equal(hr__memory_generations(root), cases[i].expected);
    }
}

static void test_limits(void **state)
{
    assert_int_equal(hr__group_limit("1073741824\n"), GIB);
    assert_true(hr__group_limit("max\n") == UINT64_MAX);
    assert_true(hr__group_limit("") == UINT64_MAX);
    assert_true(hr__group_limit("-1\n") == UINT64_MAX);
    assert_true(hr__group_limit("9223372036854771712\n") == UINT64_C(9223372036854771712));
}

/* Memory that no group limits, then the limits of version 2. */
static void test_memory_of_groups(void **state)
{
    const char *root = *state;
    struct hr__memory_limits m;
    fake_file(root, "proc/meminfo", MEMINFO);
    fake_file(root, "proc/self/cgroup", "damaged\n");
    hr__memory_limits_read(&m, root, -1);
    assert_int_equal(hr__memory_usable(&m), 16 * GIB);
    assert_int_equal(hr__memory_pages(&m), 12 * GIB);
    assert_true(m.group_limit == UINT64_MAX && m.group_left == UINT64_MAX);
    assert_true(m.files_free == UINT64_MAX);

    fake_file(root, "proc/self/cgroup", "0::/a/b\n");
    fake_file(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
    fake_file(root, "sys/fs/cgroup/a/memory.max", "8589934592\n");
    fake_file(root, "sys/fs/cgroup/a/memory.stat", "anon 1073741824\nfile 77\nshmem 1073741824\n");
    hr__memory_limits_read(&m, root, -1);
    assert_int_equal(hr__memory_usable(&m), 8 * GIB);
    assert_int_equal(hr__memory_pages(&m), 6 * GIB);
    assert_true(m.group_left == UINT64_MAX); /* no usage is known */

    /* 5 GiB in use, of which the kernel would reclaim 1 + 2 / 2. */
    fake_file(root, "sys/fs/cgroup/a/memory.current", "5368709120\n");
    fake_file(root, "sys/fs/cgroup/a/memory.stat",
              "anon 1073741824\nshmem 1073741824\ninactive_file 1073741824\n"
              "active_file 2147483648\nslab_unreclaimable 0\n");
    hr__memory_limits_read(&m, root, -1);
    assert_int_equal(m.group_left, 5 * GIB);
    assert_int_equal(m.left_limit, 8 * GIB);
    assert_non_null(strstr(m.left_file, "/sys/fs/cgroup/a/memory.max"));
    assert_string_equal(m.left_file, m.group_file);
    assert_int_equal(hr__memory_pages(&m), 6 * GIB);

    /* More is in use than the limit, which was lowered. */
    fake_file(root, "sys/fs/cgroup/a/b/memory.max", "1073741824\n");
    fake_file(root, "sys/fs/cgroup/a/b/memory.current", "2147483648\n");
    fake_file(root, "sys/fs/cgroup/a/b/memory.stat", "anon 2147483648\n");
    hr__memory_limits_read(&m, root, -1);
    assert_int_equal(m.group_left, 0);
    assert_int_equal(hr__memory_pages(&m), 0);
    assert_int_equal(hr__memory_usable(&m), GIB);
}

static void test_memory_of_first_version(void **state)
{
    const char *root = *state;
    struct hr__memory_limits m;
    fake_file(root, "proc/meminfo", MEMINFO);
    fake_file(root, "proc/self/cgroup", "5:cpu,memory:/c\n3:devices:/\n");
    fake_file(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    hr__memory_limits_read(&m, root, -1);
    assert_int_equal(hr__memory_usable(&m), 16 * GIB);
    assert_int_equal(hr__memory_pages(&m), 12 * GIB);
    fake_file(root, "sys/fs/cgroup/memory/c/memory.limit_in_bytes", "4294967296\n");
    fake_file(root, "sys/fs/cgroup/memory/c/memory.usage_in_bytes", "2147483648\n");
    fake_file(root, "sys/fs/cgroup/memory/c/memory.stat",
              "rss 5\ntotal_rss 1073741824\ntotal_shmem 0\ntotal_inactive_file 536870912\n");
    hr__memory_limits_read(&m, root, -1);
    assert_int_equal(hr__memory_usable(&m), 4 * GIB);
    assert_int_equal(hr__memory_pages(&m), 3 * GIB);
    assert_int_equal(m.group_left, 5 * GIB / 2);
}

static void test_reclaimable(void **state)
{
    static const char one[] = "cache 70\ntotal_cache 99\ntotal_inactive_file 40\n"
                              "total_active_file 21\nactive_file 1000\n";
    assert_int_equal(hr__group_reclaimable(one, 1), 50);
    assert_int_equal(hr__group_reclaimable("anon 5\ninactive_file 7\nactive_file 2", 2), 8);
    assert_int_equal(hr__group_reclaimable("", 2), 0);
}

static void test_processor(void **state)
{
    const char *root = *state;
    char name[32];
    fake_file(root, "proc/cpuinfo", "processor\t: 0\nmodel\t\t: 17\nmodel name\t: Fast One\n");
    hr__processor_name(root, name, sizeof name);
    assert_string_equal(name, "Fast One");
    fake_file(root, "proc/cpuinfo", "processor\t: 0\nFeatures\t: fp\n\nModel\t: A Board\n");
    hr__processor_name(root, name, sizeof name);
    assert_string_equal(name, "A Board");
    fake_file(root, "proc/cpuinfo", "processor : 0\n");
    hr__processor_name(root, name, sizeof name); /* the architecture */
    assert_true(strlen(name) >= 3);
}

static void test_ranges(void **state)
{
    static const struct {
        const char *list;
        int count; /* of ranges */
        unsigned last;
    } cases[] = {
        {"0\n", 1, 0},  {"0-3,8\n", 2, 8}, {"", 0, 0},      {"x", 0, 0},
        {"3-1", 0, 0},  {"1,,2", 1, 1},    {"0-", 0, 0},    {"0-99999999999999999999", 0, 0},
        {"4-5,", 1, 5}, {"-1", 0, 0},      {"1-2-3", 1, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *list = cases[i].list;
        unsigned first, last = 0;
        int count = 0;
        while (hr__range_next(&list, &first, &last))
            count++;
        assert_int_equal(count, cases[i].count);
        assert_int_equal(last, cases[i].last);
    }
}

static void test_nodes(void **state)
{
    const char *root = *state;
    assert_int_equal(hr__nodes_usable(root), 0);
    fake_file(root, "sys/devices/system/node/online", "0-3,70\n");
    assert_int_equal(hr__nodes_usable(root), 0xf);
    fake_file(root, "sys/devices/system/node/has_memory", "0,2-3\n");
    assert_int_equal(hr__nodes_usable(root), 0xd);
    fake_file(root, "proc/self/status", "Name:\tx\nMems_allowed:\t5\nMems_allowed_list:\t2-5\n");
    assert_int_equal(hr__nodes_usable(root), 0xc);
}

/* This thread's cores, divided among nodes that do not exist. */
static void test_node_cores(void **state)
{
    const char *root = *state;
    char list[32];
    size_t bytes;
    cpu_set_t *mine = hr__cores_affinity(&bytes);
    int count = CPU_COUNT_S(bytes, mine), first = 0;
    while (!CPU_ISSET_S((size_t)first, bytes, mine))
        first++;
    CPU_FREE(mine);
    fake_file(root, "sys/devices/system/node/online", "0-1\n");
    fake_file(root, "sys/devices/system/node/node0/cpulist", "0-1023\n");
    fake_file(root, "sys/devices/system/node/node1/cpulist", "\n");
    cpu_set_t *cores = hr__cores_of_node(root, 0, &bytes);
    assert_int_equal(CPU_COUNT_S(bytes, cores), count);
    CPU_FREE(cores);
    assert_null(hr__cores_of_node(root, 1, &bytes));
    assert_null(hr__cores_of_node(root, 7, &bytes));
    assert_null(hr__cores_of_node(root, -1, &bytes));
    assert_int_equal(hr__nodes_own(root), 0);
    snprintf(list, sizeof list, "%d\n", first);
    fake_file(root, "sys/devices/system/node/node1/cpulist", list);
    cores = hr__cores_of_node(root, 1, &bytes);
    assert_int_equal(CPU_COUNT_S(bytes, cores), 1);
    CPU_FREE(cores);
    snprintf(list, sizeof list, "%d-1023\n", first + 1);
    fake_file(root, "sys/devices/system/node/node0/cpulist", list);
    assert_int_equal(hr__nodes_own(root), count == 1 ? 1 : -1);
}

static void test_devices(void **state)
{
    const char *root = *state;
    fake_device(root, "0000:3b:00.0", 1, "0x030200");
    fake_device(root, "0000:3c:00.0", 1, "0x030200");
    fake_device(root, "0000:5e:00.0", 0, "0x030200");
    fake_device(root, "0000:01:00.0", 1, "0x010802");
    fake_device(root, "0000:02:00.0", -1, "0x030200");
    assert_int_equal(hr__device_node(root, "0000:3B:00.0"), 1);
    assert_int_equal(hr__device_node(root, "0000:5e:00.0"), 0);
    assert_int_equal(hr__device_node(root, "0000:02:00.0"), -1);
    assert_int_equal(hr__device_node(root, "0000:99:00.0"), -1);
    assert_int_equal(hr__device_node(root, "../x"), -1);
    assert_int_equal(hr__device_node(root, ""), -1);
    assert_int_equal(hr__device_peers(root, "0000:3b:00.0"), 2);
    assert_int_equal(hr__device_peers(root, "0000:5E:00.0"), 1);
    assert_int_equal(hr__device_peers(root, "0000:02:00.0"), 0);
}

/* This machine has some memory, and not a million times as much. */
static void test_here(void **state)
{
    struct hr__memory_limits c;
    int fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    hr__memory_limits_read(&c, "", fd);
    close(fd);
    assert_in_range(c.available, 1 << 20, UINT64_C(1) << 50);
    assert_true(c.files_free <= c.files_total);
    assert_true(c.group_limit > 1 << 20);
    if (c.group_limit != UINT64_MAX)
        assert_ptr_equal(strstr(c.group_file, "/sys/fs/cgroup"), c.group_file);
    struct hr_machine machine = {.size = sizeof machine};
    hr_machine_get(&machine);
    assert_int_equal(machine.size, sizeof machine);
    assert_int_equal(machine.cores, hr_cores());
    assert_in_range(machine.nodes, 0, HR__NODES_MAX);
    assert_in_range(machine.memory_bytes, 1 << 26, c.total);
    assert_true(machine.page_cache_bytes <= machine.memory_bytes);
    assert_true(machine.processor[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_affinity),
        cmocka_unit_test_setup_teardown(test_quota, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_group_folders, fake_setup, fake_teardown),
        cmocka_unit_test(test_group_paths),
        cmocka_unit_test(test_meminfo),
        cmocka_unit_test_setup_teardown(test_generations, fake_setup, fake_teardown),
        cmocka_unit_test(test_limits),
        cmocka_unit_test_setup_teardown(test_memory_of_groups, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_memory_of_first_version, fake_setup, fake_teardown),
        cmocka_unit_test(test_reclaimable),
        cmocka_unit_test_setup_teardown(test_processor, fake_setup, fake_teardown),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test_setup_teardown(test_nodes, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_node_cores, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_devices, fake_setup, fake_teardown),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests_name("base-machine", tests, NULL, NULL);
}
