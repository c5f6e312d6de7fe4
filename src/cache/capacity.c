/* Compares what a cache takes with the limits on memory; see capacity.h. */
#include "cache/capacity.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>

#define UNKNOWN UINT64_MAX

/* Formats "23.5 GiB" or "512 MiB", rounded down so that the user can use it as a size. */
static const char *text_of(char out[32], uint64_t bytes)
{
    if (bytes >= UINT64_C(10) << 30)
        snprintf(out, 32, "%.1f GiB",
                 (double)(bytes / (UINT64_C(1) << 30) * 10 +
                          bytes % (UINT64_C(1) << 30) * 10 / (1 << 30)) /
                     10);
    else if (bytes >= UINT64_C(10) << 20)
        snprintf(out, 32, "%llu MiB", (unsigned long long)(bytes >> 20));
    else
        snprintf(out, 32, "%llu KiB", (unsigned long long)(bytes >> 10));
    return out;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UNKNOWN - b ? UNKNOWN : a + b;
}

int hr__capacity_check(const struct hr__memory_limits *c, const struct hr__capacity_wish *wish,
                       struct hr_error *error)
{
    char budget[32], takes[32], there[32], total[32];
    text_of(budget, wish->budget);
    text_of(takes, wish->bytes);
    unsigned long long gib = (unsigned long long)((wish->bytes + (UINT64_C(1) << 30)) >> 30);
    if (wish->bytes > plus(c->files_free, wish->freed_bytes))
        return hr__fail(
            error, -ENOSPC,
            "a cache of %s, which takes up to %s of shared memory, does not fit into the file "
            "system of %s: %s of its %s are free; enlarge it (mount -o remount,size=%lluG "
            "/dev/shm; Docker: --shm-size=%llug; Kubernetes: an emptyDir of medium Memory at "
            "/dev/shm), or write a smaller size",
            budget, takes, wish->place, text_of(there, plus(c->files_free, wish->freed_bytes)),
            text_of(total, c->files_total), gib, gib);
    if (wish->bytes > c->group_limit)
        return hr__fail(
            error, -ENOSPC,
            "a cache of %s, which takes up to %s of memory, is more than this process's "
            "control group may use: %s says %s; raise that limit (Docker: --memory; "
            "Kubernetes: resources.limits.memory; Slurm: --mem), or write a smaller "
            "size",
            budget, takes, c->group_file, text_of(there, c->group_limit));
    if (wish->bytes > plus(c->available, wish->freed_bytes))
        return hr__fail(error, -ENOSPC,
                        "a cache of %s, which takes up to %s of memory, is more than this machine "
                        "has available: %s; end what else uses memory, drop other caches (headrace "
                        "cache list), or write a smaller size",
                        budget, takes, text_of(there, plus(c->available, wish->freed_bytes)));
    return 0;
}

/* Returns how much of `total` bytes a cache leaves for everything else. */
static uint64_t reserve_of(uint64_t total)
{
    const uint64_t least = UINT64_C(32) << 20, most = UINT64_C(1) << 30;
    uint64_t share = total / 128;
    return share < least ? least : share > most ? most : share;
}

int hr__capacity_grants(const struct hr__memory_limits *c, uint64_t bytes,
                        char why[HR__CAPACITY_WHY])
{
    char there[32], kept[32];
    uint64_t reserve = reserve_of(c->left_limit);
    if (bytes > c->files_free) {
        snprintf(
            why, HR__CAPACITY_WHY,
            "%s are free in the file system of shared memory; enlarge it, or drop other caches",
            text_of(there, c->files_free));
        return 0;
    }
    if (c->group_left != UNKNOWN && plus(bytes, reserve) > c->group_left) {
        snprintf(why, HR__CAPACITY_WHY,
                 "the control group has %s left, of which %s are kept for the job itself; raise "
                 "%.250s (Docker: --memory; Kubernetes: resources.limits.memory; Slurm: --mem)",
                 text_of(there, c->group_left), text_of(kept, reserve), c->left_file);
        return 0;
    }
    reserve = c->total == UNKNOWN ? 0 : reserve_of(c->total);
    if (c->available != UNKNOWN && plus(bytes, reserve) > c->available) {
        snprintf(why, HR__CAPACITY_WHY,
                 "the machine has %s available, of which %s are kept for the job itself; end what "
                 "else uses memory, or drop other caches (headrace cache list)",
                 text_of(there, c->available), text_of(kept, reserve));
        return 0;
    }
    return 1;
}

int hr__capacity_allows(int directory, uint64_t bytes, char why[HR__CAPACITY_WHY])
{
    struct hr__memory_limits c;
    hr__memory_limits_read(&c, "", directory);
    return hr__capacity_grants(&c, bytes, why);
}
