/*
 * Keeps memory and threads on the NUMA node of whom they serve.
 *
 * A consumer's *home* is the node of its device, or else the node that has all of its cores. Memory
 * that it is to read is bound there by preference: if the node is full, the kernel takes memory of
 * another one. There is no home on a machine with one node, or if the consumer may run on several
 * and has no device; then none of these functions makes a system call.
 *
 * HEADRACE_NUMA in the environment decides: `auto` (default), `off`, or `node1`, which makes that
 * node every consumer's home.
 */
#ifndef HR_BASE_NUMA_H
#define HR_BASE_NUMA_H

#include <stddef.h>
#include <stdint.h>

/* A consumer's home, and how many of its threads may stay on that node's cores. */
struct hr__home {
    int node;  /* -1: none; then nothing is bound */
    int cores; /* its share of the node's cores, less one for itself; other threads run anywhere */
};

#define HR__NO_HOME ((struct hr__home){.node = -1})

/*
 * Finds a consumer's home, from this thread's affinity. `root`: as in base/machine.h. `bus_id`: of
 * the consumer's device on PCI; NULL: it has none, or it is unknown. `processes`: how many
 * consumers share the machine, at least 1: those with devices of this node share its cores, too.
 */
struct hr__home hr__numa_home(const char *root, const char *bus_id, int processes);

/* Returns the home at a node that another process found: the node, if this process can use it and
 * HEADRACE_NUMA allows it. */
struct hr__home hr__numa_home_at(const char *root, int node);

/* Binds the whole pages of [memory, memory + bytes) to a node; pages that exist do not move.
 * Without effect if node < 0 or the kernel refuses, as some containers do. */
void hr__numa_bind(void *memory, size_t bytes, int node);

/* Undoes hr__numa_bind, for memory that goes back to malloc. */
void hr__numa_unbind(void *memory, size_t bytes, int node);

/* Makes the calling thread take new memory from its consumer's node, and lets it run on the node's
 * cores only if `number`, its number among such threads, is below the home's share. */
void hr__numa_enter(const char *root, const struct hr__home *home, int number);

/* Returns the home of worker `number` of a pool that serves consumers of all nodes: the nodes get
 * workers in proportion to their cores. */
struct hr__home hr__numa_spread(const char *root, int number);

/* Interleaves memory over all nodes: readers may run on any of them. */
void hr__numa_interleave(void *memory, uint64_t bytes);

#endif
