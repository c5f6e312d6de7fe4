/*
 * Whether there is memory for a cache: before it is made, because a budget beyond what the
 * machine has would fail hours later, and at each step by which it grows, because by then
 * others may have taken what there was, and the kernel would end processes.
 *
 * Three things limit it: what is free in the file system of shared memory, what the
 * kernel could make available, and the memory limits of the control groups that this
 * process is in, less what is used of them. Pages of files count as free there as far as the
 * kernel would take them back. What other caches have been promised and do not use yet is not
 * counted.
 */
#ifndef HR_CACHE_CAPACITY_H
#define HR_CACHE_CAPACITY_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

/* In bytes; UINT64_MAX: not known, or no limit. */
struct hr__capacity {
    uint64_t files_free, files_total; /* of the file system of shared memory */
    uint64_t available;               /* what the kernel could give (MemAvailable) */
    uint64_t total;                   /* of the machine */
    uint64_t group_limit;             /* the least one of the control groups */
    char group_file[300];             /* that says so */
    uint64_t group_left;              /* the least that one of them leaves */
    uint64_t left_limit;              /* the limit of that one */
    char left_file[300];              /* that says so */
};

/* What holds for a directory of segments. Reads small files of /proc and /sys. */
void hr__capacity_read(struct hr__capacity *out, int directory);

/* What a new cache wants. */
struct hr__capacity_wish {
    uint64_t bytes;       /* that it may take, index and staging included */
    uint64_t budget;      /* of items: what the caller asked for */
    uint64_t freed_bytes; /* that will be given back for it */
    const char *place;    /* path of the directory */
};

/* 0, or -ENOSPC with what is too small, by how much, and what to raise. Pure. */
int hr__capacity_check(const struct hr__capacity *c, const struct hr__capacity_wish *wish,
                       struct hr_error *error);

#define HR__CAPACITY_WHY 512

/*
 * Whether a cache may take `bytes` more now: 1; 0, with the reason and the remedy in `why`.
 * Something is left for the job itself, which needs more memory as it goes on: 1/128 of a
 * control group's limit, from 32 MiB to 1 GiB, the same of the machine's memory. `directory`:
 * of the segment; -1: of memory that is no file. Reads small files of /proc and /sys.
 */
int hr__capacity_allows(int directory, uint64_t bytes, char why[HR__CAPACITY_WHY]);

/* The same of what was read. Pure. */
int hr__capacity_grants(const struct hr__capacity *c, uint64_t bytes, char why[HR__CAPACITY_WHY]);

/* Pure, of texts as the kernel gives them. */

/* MemAvailable of /proc/meminfo in bytes; UINT64_MAX: not there. */
uint64_t hr__capacity_meminfo(const char *text);

/* Bytes of files' pages in a control group's memory.stat that the kernel would take back: those
 * that were not used lately, and half of the others. `prefix`: "total_" in version 1. */
uint64_t hr__capacity_reclaimable(const char *text, const char *prefix);

/* The path of a control group in /proc/self/cgroup, of a version 1 controller, or of
 * version 2 where that is NULL: 1, or 0 where there is none. */
int hr__capacity_group_path(const char *text, const char *controller, char *out, size_t capacity);

/* A file of a memory limit: a number, or "max". */
uint64_t hr__capacity_limit(const char *text);

#endif
