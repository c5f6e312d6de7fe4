/* Sets the kernel's memory policies and affinities; see numa.h. */
#include "base/numa.h"

#include "base/machine.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of the kernel's interface, <linux/mempolicy.h>. */
#define DEFAULT_POLICY     0
#define PREFERRED_POLICY   1
#define INTERLEAVED_POLICY 3

/* What HEADRACE_NUMA asks for. */
#define AUTOMATIC (-1)
#define OFF       (-2)

static int setting(void)
{
    const char *text = getenv("HEADRACE_NUMA");
    char *end;
    if (text && (!strcmp(text, "off") || !strcmp(text, "0")))
        return OFF;
    if (!text || strncmp(text, "node", 4) || text[4] < '0' || text[4] > '9')
        return AUTOMATIC;
    unsigned long node = strtoul(text + 4, &end, 10);
    return *end || node >= HR__NODES_MAX ? AUTOMATIC : (int)node;
}

static int core_count(const char *root, int node)
{
    size_t bytes;
    cpu_set_t *cores = hr__cores_of_node(root, node, &bytes);
    int count = cores ? CPU_COUNT_S(bytes, cores) : 0;
    CPU_FREE(cores);
    return count;
}

/* Returns whether memory may be bound to the node. */
static int is_usable(const char *root, int node)
{
    uint64_t nodes = hr__nodes_usable(root);
    int wish = setting();
    if (node < 0 || node >= HR__NODES_MAX || !(nodes >> node & 1) || wish == OFF)
        return 0;
    return wish == node || (wish == AUTOMATIC && (nodes & (nodes - 1)));
}

struct hr__home hr__numa_home_at(const char *root, int node)
{
    return is_usable(root, node) ? (struct hr__home){.node = node} : HR__NO_HOME;
}

struct hr__home hr__numa_home(const char *root, const char *bus_id, int processes)
{
    int wish = setting(), node = wish, peers = 0;
    if (wish == OFF)
        return HR__NO_HOME;
    if (wish == AUTOMATIC) {
        uint64_t nodes = hr__nodes_usable(root);
        if (!(nodes & (nodes - 1)))
            return HR__NO_HOME;
        node = bus_id ? hr__device_node(root, bus_id) : -1;
        peers = node >= 0 ? hr__device_peers(root, bus_id) : 0;
        if (node < 0)
            node = hr__nodes_own(root);
    }
    struct hr__home home = hr__numa_home_at(root, node);
    /* At most as many consumers are at home here as the node has such devices. */
    int sharers = peers && peers < processes ? peers : processes;
    if (home.node >= 0)
        home.cores = core_count(root, home.node) / (sharers > 0 ? sharers : 1) - 1;
    if (home.cores < 0)
        home.cores = 0;
    return home;
}

/* Sets the policy of the whole pages in the range. */
static void set_policy(void *memory, size_t bytes, int policy, int node)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)memory + bytes) & ~(page - 1);
    unsigned long nodes = node < 0 ? 0 : 1ul << node;
    if (begin < end)
        syscall(SYS_mbind, begin, end - begin, policy, node < 0 ? NULL : &nodes,
                node < 0 ? 0ul : 8 * sizeof nodes + 1, 0u);
}

void hr__numa_bind(void *memory, size_t bytes, int node)
{
    if (node >= 0)
        set_policy(memory, bytes, PREFERRED_POLICY, node);
}

void hr__numa_unbind(void *memory, size_t bytes, int node)
{
    if (node >= 0)
        set_policy(memory, bytes, DEFAULT_POLICY, -1);
}

void hr__numa_enter(const char *root, const struct hr__home *home, int number)
{
    size_t bytes;
    unsigned long nodes = 1ul << (home->node & 63);
    if (home->node < 0)
        return;
    syscall(SYS_set_mempolicy, PREFERRED_POLICY, &nodes, 8 * sizeof nodes + 1);
    cpu_set_t *cores = number < home->cores ? hr__cores_of_node(root, home->node, &bytes) : NULL;
    if (cores)
        (void)!sched_setaffinity(0, bytes, cores);
    CPU_FREE(cores);
}

struct hr__home hr__numa_spread(const char *root, int number)
{
    uint64_t nodes = hr__nodes_usable(root);
    int cores[HR__NODES_MAX] = {0}, threads[HR__NODES_MAX] = {0}, least = -1;
    if (setting() != AUTOMATIC || !(nodes & (nodes - 1)))
        return HR__NO_HOME;
    for (int node = 0; node < HR__NODES_MAX; node++)
        cores[node] = nodes >> node & 1 ? core_count(root, node) : 0;
    for (int i = 0; i <= number; i++) {
        least = -1;
        for (int node = 0; node < HR__NODES_MAX; node++)
            if (cores[node] && (least < 0 || (long)threads[node] * cores[least] <
                                                 (long)threads[least] * cores[node]))
                least = node;
        if (least < 0)
            return HR__NO_HOME;
        threads[least]++;
    }
    return (struct hr__home){.node = least, .cores = number + 1};
}

void hr__numa_interleave(void *memory, uint64_t bytes)
{
    unsigned long nodes = hr__nodes_usable("");
    if (nodes & (nodes - 1) && setting() != OFF)
        syscall(SYS_mbind, memory, bytes, INTERLEAVED_POLICY, &nodes, 8 * sizeof nodes + 1, 0u);
}
