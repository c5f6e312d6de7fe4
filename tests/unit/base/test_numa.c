/* Homes on topologies made by the test, and what of binding a machine with any nodes allows. */
#include "../test.h"
#include "fake_root.h"

#include "base/machine.h"
#include "base/numa.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREFERRED_POLICY 1
#define OF_ADDRESS       2 /* MPOL_F_ADDR */

/* System calls of numa.c, counted. */
static int calls;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    calls++;
    return __real_syscall(number, a, b, c, d, e, f);
}

/* Returns the policy of the thread (address NULL) or of an address; -1: the kernel does not say. */
static int policy_of(void *address, unsigned long *nodes)
{
    int policy = -1;
    *nodes = 0;
    if (__real_syscall(SYS_get_mempolicy, &policy, nodes, 8 * sizeof *nodes + 1, address,
                       address ? OF_ADDRESS : 0))
        return -1;
    return policy;
}

static int my_cores(void)
{
    return hr__cores_usable("/nowhere");
}

/* Two nodes with memory; the first has all cores of this thread, `second` those of the other. */
static void make_nodes(const char *root, const char *second)
{
    fake_file(root, "sys/devices/system/node/has_memory", "0-1\n");
    fake_file(root, "sys/devices/system/node/node0/cpulist", "0-1023\n");
    fake_file(root, "sys/devices/system/node/node1/cpulist", second);
}

static void test_one_node(void **state)
{
    const char *root = *state;
    fake_file(root, "sys/devices/system/node/has_memory", "0\n");
    fake_file(root, "sys/devices/system/node/node0/cpulist", "0-1023\n");
    fake_device(root, "0000:3b:00.0", 0, "0x030200");
    calls = 0;
    struct hr__home home = hr__numa_home(root, "0000:3b:00.0", 1);
    assert_int_equal(home.node, -1);
    assert_int_equal(hr__numa_home(root, NULL, 1).node, -1);
    assert_int_equal(hr__numa_home_at(root, 0).node, -1);
    assert_int_equal(hr__numa_spread(root, 0).node, -1);
    hr__numa_bind(calloc, 1 << 20, home.node);
    hr__numa_unbind(calloc, 1 << 20, home.node);
    hr__numa_enter(root, &home, 0);
    assert_int_equal(calls, 0);
}

static void test_homes(void **state)
{
    const char *root = *state;
    make_nodes(root, "\n");
    fake_device(root, "0000:3b:00.0", 1, "0x030200");
    fake_device(root, "0000:5e:00.0", 0, "0x030200");
    fake_device(root, "0000:5f:00.0", 0, "0x030200");
    fake_device(root, "0000:60:00.0", -1, "0x030200");
    /* The device decides, else the node that has all cores. */
    assert_int_equal(hr__numa_home(root, "0000:3b:00.0", 1).node, 1);
    assert_int_equal(hr__numa_home(root, "0000:5E:00.0", 1).node, 0);
    assert_int_equal(hr__numa_home(root, "0000:60:00.0", 1).node, 0);
    assert_int_equal(hr__numa_home(root, NULL, 1).node, 0);
    assert_int_equal(hr__numa_home_at(root, 1).node, 1);
    assert_int_equal(hr__numa_home_at(root, 2).node, -1);
    assert_int_equal(hr__numa_home_at(root, -1).node, -1);
    /* Of the consumers of the machine, as many share the node as it has devices; each leaves a
     * core to itself. */
    assert_int_equal(hr__numa_home(root, "0000:5e:00.0", 1).cores, my_cores() - 1);
    int half = my_cores() / 2;
    assert_int_equal(hr__numa_home(root, "0000:5e:00.0", 8).cores, half ? half - 1 : 0);
    assert_int_equal(hr__numa_home(root, NULL, 2 * my_cores()).cores, 0);
    assert_int_equal(hr__numa_home(root, "0000:3b:00.0", 1).cores, 0);
}

/* Cores on both nodes and no device: no home. */
static void test_divided_cores(void **state)
{
    const char *root = *state;
    size_t bytes;
    char list[64], rest[64];
    cpu_set_t *mine = hr__cores_affinity(&bytes);
    int first = 0, count = CPU_COUNT_S(bytes, mine);
    while (!CPU_ISSET_S((size_t)first, bytes, mine))
        first++;
    CPU_FREE(mine);
    if (count < 2)
        skip();
    snprintf(list, sizeof list, "%d\n", first);
    snprintf(rest, sizeof rest, "%d-1023\n", first + 1);
    make_nodes(root, rest);
    fake_file(root, "sys/devices/system/node/node0/cpulist", list);
    assert_int_equal(hr__numa_home(root, NULL, 1).node, -1);
    /* A pool's workers are spread in proportion. */
    int of_node[2] = {0};
    for (int i = 0; i < 2 * count; i++) {
        struct hr__home home = hr__numa_spread(root, i);
        assert_in_range(home.node, 0, 1);
        assert_true(home.cores > i);
        of_node[home.node]++;
    }
    assert_int_equal(of_node[0], 2);
    assert_int_equal(of_node[1], 2 * count - 2);
}

static void test_setting(void **state)
{
    const char *root = *state;
    make_nodes(root, "\n");
    setenv("HEADRACE_NUMA", "off", 1);
    assert_int_equal(hr__numa_home(root, NULL, 1).node, -1);
    assert_int_equal(hr__numa_home_at(root, 1).node, -1);
    assert_int_equal(hr__numa_spread(root, 0).node, -1);
    setenv("HEADRACE_NUMA", "0", 1);
    assert_int_equal(hr__numa_home(root, NULL, 1).node, -1);
    setenv("HEADRACE_NUMA", "node1", 1);
    assert_int_equal(hr__numa_home(root, NULL, 1).node, 1);
    assert_int_equal(hr__numa_home_at(root, 0).node, -1);
    setenv("HEADRACE_NUMA", "node7", 1); /* there is none */
    assert_int_equal(hr__numa_home(root, NULL, 1).node, -1);
    setenv("HEADRACE_NUMA", "auto", 1);
    assert_int_equal(hr__numa_home(root, NULL, 1).node, 0);
    unsetenv("HEADRACE_NUMA");
}

/* Memory on the node that every machine has. */
static void test_binding(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned long nodes;
    char *memory = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    /* Whole pages only: what shares a page with others keeps its policy. */
    calls = 0;
    hr__numa_bind(memory + page / 2, page, 0);
    assert_int_equal(calls, 0);
    hr__numa_bind(memory + page / 2, 4 * page, 0);
    assert_int_equal(calls, 1);
    int policy = policy_of(memory + page, &nodes);
    int bound = policy == PREFERRED_POLICY;
    if (bound) {
        assert_int_equal(nodes, 1);
        assert_int_equal(policy_of(memory + 3 * page, &nodes), PREFERRED_POLICY);
        assert_int_equal(policy_of(memory, &nodes), 0);
        assert_int_equal(policy_of(memory + 4 * page, &nodes), 0);
    }
    memory[page] = 1;
    hr__numa_unbind(memory + page / 2, 4 * page, 0);
    assert_true(policy_of(memory + page, &nodes) <= 0);
    assert_int_equal(memory[page], 1);
    munmap(memory, 8 * page);
    if (!bound) {
        print_message("the kernel or the container refuses mbind\n");
        skip();
    }
}

struct entered {
    const char *root;
    int number; /* of a thread of a consumer with a share of one core */
    int policy, cores;
    unsigned long nodes;
};

static void *enter(void *arg)
{
    struct entered *e = arg;
    struct hr__home home = {.node = 0, .cores = 1};
    hr__numa_enter(e->root, &home, e->number);
    e->policy = policy_of(NULL, &e->nodes);
    e->cores = my_cores();
    return NULL;
}

/* Threads of a consumer at home on node 0, which has one core. */
static void test_threads(void **state)
{
    const char *root = *state;
    size_t bytes;
    char list[64];
    cpu_set_t *mine = hr__cores_affinity(&bytes);
    int first = 0;
    while (!CPU_ISSET_S((size_t)first, bytes, mine))
        first++;
    CPU_FREE(mine);
    snprintf(list, sizeof list, "%d\n", first);
    fake_file(root, "sys/devices/system/node/has_memory", "0-1\n");
    fake_file(root, "sys/devices/system/node/node0/cpulist", list);
    for (int number = 0; number < 2; number++) {
        struct entered e = {.root = root, .number = number};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, enter, &e), 0);
        pthread_join(thread, NULL);
        /* The second one is beyond the share: it runs anywhere, with the same memory. */
        assert_int_equal(e.cores, number ? my_cores() : 1);
        if (e.policy >= 0 && e.policy != PREFERRED_POLICY)
            print_message("the kernel or the container refuses set_mempolicy\n");
        else if (e.policy >= 0)
            assert_int_equal(e.nodes, 1);
    }
}

/* Whatever nodes this machine has, an agent's and a loader's questions have an answer. */
static void test_here(void **state)
{
    uint64_t nodes = hr__nodes_usable("");
    struct hr__home home = hr__numa_home("", NULL, 1);
    if (nodes & (nodes - 1))
        assert_true(home.node < 0 || nodes >> home.node & 1);
    else
        assert_int_equal(home.node, -1);
}

int main(void)
{
    unsetenv("HEADRACE_NUMA");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_node, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_homes, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_divided_cores, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_setting, fake_setup, fake_teardown),
        cmocka_unit_test(test_binding),
        cmocka_unit_test_setup_teardown(test_threads, fake_setup, fake_teardown),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests_name("base-numa", tests, NULL, NULL);
}
