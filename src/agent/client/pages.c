/*
 * See pages.h. Private pages are found many at a time: one system call returns up to 64 runs of
 * pages, and a batch that was changed as a whole is one run.
 */
#include "agent/client/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* From linux/fs.h of 6.7; older systems' headers lack it. */
struct scan_region {
    uint64_t start, end, categories;
};

struct page_scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

#define SCAN         _IOWR('f', 16, struct page_scan)
#define SCAN_FILE    (UINT64_C(1) << 2)
#define SCAN_PRESENT (UINT64_C(1) << 3)
#define SCAN_SWAPPED (UINT64_C(1) << 4)
#define REGIONS      64

/* Bits of a pagemap entry. */
#define MAP_FILE_BIT (UINT64_C(1) << 61)
#define MAP_SWAPPED  (UINT64_C(1) << 62)
#define MAP_PRESENT  (UINT64_C(1) << 63)
#define ENTRIES      512

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Finds up to REGIONS runs of private pages from `begin` on. *walked: where the search stopped.
 * Returns their number or a negative errno. */
static long scan(int file, uintptr_t begin, uintptr_t end, struct scan_region *regions,
                 uintptr_t *walked)
{
    struct page_scan s = {
        .size = sizeof s,
        .start = begin,
        .end = end,
        .vec = (uintptr_t)regions,
        .vec_len = REGIONS,
        /* Pages in memory or swapped out that are not the file's. */
        .category_inverted = SCAN_FILE,
        .category_mask = SCAN_FILE,
        .category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
        .return_mask = SCAN_FILE,
    };
    int n = ioctl(file, SCAN, &s);
    if (n < 0)
        return -errno;
    *walked = (uintptr_t)s.walk_end;
    return n;
}

void hr__pages_open(struct hr__pages *pages)
{
    pages->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    pages->file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    pages->can_scan = 0;
    if (pages->file < 0)
        return;
    struct scan_region regions[REGIONS];
    uintptr_t here = (uintptr_t)pages & ~(uintptr_t)(pages->page_bytes - 1), walked;
    pages->can_scan = scan(pages->file, here, here + pages->page_bytes, regions, &walked) >= 0;
}

void hr__pages_close(struct hr__pages *pages)
{
    if (pages->file >= 0)
        close(pages->file);
    pages->file = -1;
}

uint64_t hr__pages_faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

static int is_private_entry(uint64_t entry)
{
    return (entry & (MAP_PRESENT | MAP_SWAPPED)) && !(entry & MAP_FILE_BIT);
}

int hr__pages_is_private(const struct hr__pages *pages, const void *page)
{
    uint64_t entry;
    off_t at = (off_t)((uintptr_t)page / pages->page_bytes * sizeof entry);
    if (pages->file < 0 || pread(pages->file, &entry, sizeof entry, at) != sizeof entry)
        return -1;
    return is_private_entry(entry);
}

static void give_back(uintptr_t begin, uintptr_t end)
{
    void *address = (void *)begin;
    if (madvise(address, end - begin, MADV_DONTNEED) && errno == EINVAL) {
        /* Locked memory cannot be dropped. */
        munlock(address, end - begin);
        (void)madvise(address, end - begin, MADV_DONTNEED);
    }
}

/* Drops private pages with PAGEMAP_SCAN. Returns how far it came. */
static uintptr_t drop_scanned(const struct hr__pages *pages, uintptr_t begin, uintptr_t end,
                              int *found)
{
    struct scan_region regions[REGIONS];
    while (begin < end) {
        uintptr_t walked = end;
        long n = scan(pages->file, begin, end, regions, &walked);
        if (n < 0 || walked <= begin)
            break;
        *found |= n > 0;
        for (long i = 0; i < n; i++)
            give_back((uintptr_t)regions[i].start, (uintptr_t)regions[i].end);
        begin = walked;
    }
    return begin;
}

/* Drops private pages with pagemap. Returns how far it came. */
static uintptr_t drop_listed(const struct hr__pages *pages, uintptr_t begin, uintptr_t end,
                             int *found)
{
    uint64_t entries[ENTRIES];
    size_t page = pages->page_bytes;
    while (begin < end) {
        size_t count = (end - begin) / page;
        if (count > ENTRIES)
            count = ENTRIES;
        size_t bytes = count * sizeof *entries;
        if (pread(pages->file, entries, bytes, (off_t)(begin / page * sizeof *entries)) !=
            (ssize_t)bytes)
            break;
        for (size_t i = 0; i < count; i++) {
            size_t first = i;
            while (i < count && is_private_entry(entries[i]))
                i++;
            if (i == first)
                continue;
            *found = 1;
            give_back(begin + first * page, begin + i * page);
        }
        begin += count * page;
    }
    return begin;
}

int hr__pages_drop(const struct hr__pages *pages, void *begin, size_t bytes)
{
    uintptr_t at = (uintptr_t)begin, end = at + bytes;
    int found = 0;
    if (pages->file >= 0 && pages->can_scan)
        at = drop_scanned(pages, at, end, &found);
    else if (pages->file >= 0)
        at = drop_listed(pages, at, end, &found);
    if (at >= end)
        return found;
    give_back(at, end);
    return 1;
}

int hr__pages_own(const struct hr__pages *pages, void *begin, size_t bytes)
{
    while (madvise(begin, bytes, MADV_POPULATE_WRITE)) {
        if (errno == EINTR || errno == EAGAIN)
            continue;
        if (errno != EINVAL)
            return -ENOMEM;
        /* Before Linux 5.14: an atomic write that changes nothing and loses no other write. */
        for (size_t i = 0; i < bytes; i += pages->page_bytes)
            __atomic_fetch_or((unsigned char *)begin + i, 0, __ATOMIC_RELAXED);
        return 0;
    }
    return 0;
}
