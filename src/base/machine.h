/*
 * What the machine has, as far as this process may use it: cores, memory, NUMA nodes, devices.
 *
 * Everything is read when it is asked for, because limits change, from small files of /proc and
 * /sys. `root` is the folder below which these files are: "" for the machine itself; tests name
 * another one. What is missing or malformed there counts as unknown or unlimited. Any thread may
 * call these functions. base/cpu.h knows the instruction sets, base/numa.h acts on nodes.
 */
#ifndef HR_BASE_MACHINE_H
#define HR_BASE_MACHINE_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

/* ---- control groups ---- */

/*
 * Calls `visit` with the folder of each control group that may limit this process through
 * `controller` ("cpu", "memory"), from its own one up to the root. `version` is 1 or 2. Containers
 * usually mount the group's own files at the root, so a folder may be missing or be another one
 * than /proc/self/cgroup says: one that is not visible is no limit.
 */
typedef void (*hr__group_fn)(void *arg, const char *folder, int version);
void hr__groups_visit(const char *root, const char *controller, hr__group_fn visit, void *arg);

/* Finds the path of the group in the text of /proc/self/cgroup, for a version 1 controller, or for
 * version 2 if `controller` is NULL. Returns 1, or 0 if there is none or it is too long. Pure. */
int hr__group_path(const char *text, const char *controller, char *out, size_t capacity);

/* ---- cores ---- */

/* Returns the number of cores this process may use: the smaller of its CPU affinity and the quotas
 * of its control groups, rounded up; at least 1. */
int hr__cores_usable(const char *root);

/* Returns the set of cores this thread may run on and its size in bytes, or NULL if unknown. Free
 * it with CPU_FREE. */
cpu_set_t *hr__cores_affinity(size_t *bytes);

/* Writes the name of the processor as /proc/cpuinfo has it, or else the architecture. */
void hr__processor_name(const char *root, char *out, size_t capacity);

/* Takes the next range of a list such as "0-3,8" and moves *list behind it. Returns 1, or 0 at the
 * end or at a malformed range. Pure. */
int hr__range_next(const char **list, unsigned *first, unsigned *last);

/* ---- memory ---- */

/* In bytes; UINT64_MAX: unknown or no limit. */
struct hr__memory_limits {
    uint64_t files_free, files_total; /* of the file system asked for */
    uint64_t available;               /* what the kernel could provide (MemAvailable) */
    uint64_t total;                   /* the machine's memory */
    uint64_t group_limit;             /* the lowest limit of all control groups */
    char group_file[300];             /* the file it is read from */
    uint64_t group_left;              /* the least memory that any group has left; file pages count
                                         as left as far as the kernel would reclaim them */
    uint64_t left_limit;              /* the limit of that group */
    char left_file[300];              /* the file it is read from */
    uint64_t group_pages;             /* the most file pages that the groups' limits allow, beside
                                         memory that cannot be reclaimed */
};

/* Reads the limits on memory. `directory`: a folder on the file system to report on, or -1. */
void hr__memory_limits_read(struct hr__memory_limits *out, const char *root, int directory);

/* Returns the memory that this process can use at most, and that which the page cache can fill. */
uint64_t hr__memory_usable(const struct hr__memory_limits *memory);
uint64_t hr__memory_pages(const struct hr__memory_limits *memory);

/* Returns whether the kernel evicts pages by generations (MGLRU), not from two lists. */
int hr__memory_generations(const char *root);

/* The functions below are pure and parse texts in the kernel's formats. */

/* Returns MemAvailable of /proc/meminfo in bytes; UINT64_MAX if missing. */
uint64_t hr__meminfo_available(const char *text);

/* Returns the bytes of file pages in a group's memory.stat that the kernel would reclaim: the
 * inactive ones and half of the active ones. */
uint64_t hr__group_reclaimable(const char *text, int version);

/* Parses a memory limit file: a number, or "max". */
uint64_t hr__group_limit(const char *text);

/* ---- NUMA nodes and devices ---- */

/* Nodes above this one are ignored. */
#define HR__NODES_MAX 64

/* Returns the set of nodes, bit n for node n, that have memory which this process may use. */
uint64_t hr__nodes_usable(const char *root);

/* Returns the cores of a node that this thread may run on, like hr__cores_affinity; NULL if there
 * are none or it is unknown. */
cpu_set_t *hr__cores_of_node(const char *root, int node, size_t *bytes);

/* Returns the node that has all cores of this thread's affinity; -1: they are on several. */
int hr__nodes_own(const char *root);

/* Returns the node of a PCI device, by its bus id ("0000:3B:00.0", in upper or lower case); -1:
 * unknown. */
int hr__device_node(const char *root, const char *bus_id);

/* Returns the number of PCI devices like this one (vendor and class) on its node, itself included;
 * 0: unknown. */
int hr__device_peers(const char *root, const char *bus_id);

#endif
