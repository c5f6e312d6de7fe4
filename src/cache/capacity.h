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

#include "base/machine.h"

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

/* What a new cache needs. */
struct hr__capacity_wish {
    uint64_t bytes;       /* most memory it may take, with index and staging */
    uint64_t budget;      /* for items: what the caller requested */
    uint64_t freed_bytes; /* memory that will be freed for it */
    const char *place;    /* path of the directory */
};

/* Returns 0, or -ENOSPC with what is too small, by how much, and what to raise. Pure. */
int hr__capacity_check(const struct hr__memory_limits *c, const struct hr__capacity_wish *wish,
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
int hr__capacity_grants(const struct hr__memory_limits *c, uint64_t bytes,
                        char why[HR__CAPACITY_WHY]);

#endif
