/*
 * Pages of a private mapping of a shared file: find those that this process has changed, so that
 * they are private copies; drop such copies; make copies on purpose.
 *
 * A page becomes private when it is written to, and that always takes a page fault. So if the
 * process has had no fault since some moment, no page has become private since, and no page needs
 * checking. The kernel's fault counter is exact: it is the sum of the threads' own counters.
 *
 * Private pages are found with ioctl PAGEMAP_SCAN (Linux 6.7), else with /proc/self/pagemap (bit
 * 61, Documentation/admin-guide/mm/pagemap.rst). Without either, any page may be private.
 *
 * Locked memory (mlockall) cannot be used this way: locking makes every page private.
 */
#ifndef HR_AGENT_CLIENT_PAGES_H
#define HR_AGENT_CLIENT_PAGES_H

#include <stddef.h>
#include <stdint.h>

struct hr__pages {
    int file;     /* /proc/self/pagemap of this process; -1: not available */
    int can_scan; /* the kernel has PAGEMAP_SCAN */
    size_t page_bytes;
};

/* Never fails: without the file, hr__pages_is_private returns -1. */
void hr__pages_open(struct hr__pages *pages);
void hr__pages_close(struct hr__pages *pages);

/* Returns the page faults of all threads of the process so far. */
uint64_t hr__pages_faults(void);

/* Returns 1 if the page at `page` is private, 0 if not, -1 if unknown. Any thread. */
int hr__pages_is_private(const struct hr__pages *pages, const void *page);

/* Drops the private copies in a range of whole pages, so that it shows the file again. Threads that
 * read the range meanwhile may see either. Returns non-zero if there were copies, or if that is
 * unknown. Any thread. */
int hr__pages_drop(const struct hr__pages *pages, void *begin, size_t bytes);

/* Makes every page of the range private, keeping its contents. Other threads may read and write it
 * meanwhile; no write is lost. Errors: -ENOMEM. */
int hr__pages_own(const struct hr__pages *pages, void *begin, size_t bytes);

#endif
