/*
 * Checks whether there is memory for a cache. It is checked before the cache is created, because a
 * budget beyond the machine's memory would fail hours later; and before each step of growth,
 * because other programs may have taken the memory by then, and the kernel would kill processes.
 *
 * There are three limits: the free space of the shared-memory file system, the memory the kernel
 * could make available, and for each cgroup of this process its memory limit minus its usage. File
 * pages count as free there as far as the kernel would reclaim them. Memory promised to other
 * caches but not used yet is not counted.
 */
#ifndef HR_CACHE_CAPACITY_H
#define HR_CACHE_CAPACITY_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

/* In bytes; UINT64_MAX: unknown or no limit. */
struct hr__capacity {
    uint64_t files_free, files_total; /* of the shared-memory file system */
    uint64_t available;               /* what the kernel could provide (MemAvailable) */
    uint64_t total;                   /* the machine's memory */
    uint64_t group_limit;             /* the lowest limit of all cgroups */
    char group_file[300];             /* the file it is read from */
    uint64_t group_left;              /* the least memory that any cgroup has left */
    uint64_t left_limit;              /* the limit of that cgroup */
    char left_file[300];              /* the file it is read from */
};

/* Reads the limits that apply to a directory of segments, from small files of /proc and /sys. */
void hr__capacity_read(struct hr__capacity *out, int directory);

/* What a new cache needs. */
struct hr__capacity_wish {
    uint64_t bytes;       /* most memory it may take, with index and staging */
    uint64_t budget;      /* for items: what the caller requested */
    uint64_t freed_bytes; /* memory that will be freed for it */
    const char *place;    /* path of the directory */
};

/* Returns 0, or -ENOSPC with what is too small, by how much, and what to raise. Pure. */
int hr__capacity_check(const struct hr__capacity *c, const struct hr__capacity_wish *wish,
                       struct hr_error *error);

#define HR__CAPACITY_WHY 512

/*
 * Checks whether a cache may take `bytes` more now. Returns 1, or 0 with the reason and the remedy
 * in `why`. Some memory is left for the job itself, which will need more: 1/128 of the cgroup's
 * limit, between 32 MiB and 1 GiB, and the same share of the machine's memory. `directory`: of the
 * segment; -1: for anonymous memory. Reads small files of /proc and /sys.
 */
int hr__capacity_allows(int directory, uint64_t bytes, char why[HR__CAPACITY_WHY]);

/* Like hr__capacity_allows, for limits already read. Pure. */
int hr__capacity_grants(const struct hr__capacity *c, uint64_t bytes, char why[HR__CAPACITY_WHY]);

/* The functions below are pure and parse texts in the kernel's formats. */

/* Returns MemAvailable of /proc/meminfo in bytes; UINT64_MAX if missing. */
uint64_t hr__capacity_meminfo(const char *text);

/* Returns the bytes of file pages in a cgroup's memory.stat that the kernel would reclaim: the
 * inactive ones and half of the active ones. `prefix`: "total_" in version 1. */
uint64_t hr__capacity_reclaimable(const char *text, const char *prefix);

/* Finds the path of the cgroup in /proc/self/cgroup, for a version 1 controller, or for version 2
 * if `controller` is NULL. Returns 1, or 0 if there is none. */
int hr__capacity_group_path(const char *text, const char *controller, char *out, size_t capacity);

/* Parses a memory limit file: a number, or "max". */
uint64_t hr__capacity_limit(const char *text);

#endif
