/*
 * Pages of a private mapping of a shared file: which of them this process has changed, so that
 * they are copies of its own, giving those back, and making copies on purpose.
 *
 * A page becomes private when it is written to, and nothing but a page fault makes it so. So
 * where the process has had no fault since a moment, no page has become private since, and
 * nothing need be looked at. The kernel's counter of faults is exact: it is a sum over threads
 * of what each counts for itself.
 *
 * Which pages are private says ioctl PAGEMAP_SCAN (Linux 6.7), else /proc/self/pagemap (its
 * bit 61, Documentation/admin-guide/mm/pagemap.rst); where neither is to be had, all may be.
 *
 * Memory that is locked (mlockall) cannot be used so: locking makes every page private.
 */
#ifndef HR_AGENT_CLIENT_PAGES_H
#define HR_AGENT_CLIENT_PAGES_H

#include <stddef.h>
#include <stdint.h>

struct hr__pages {
    int file;     /* /proc/self/pagemap of this process; -1: not to be had */
    int can_scan; /* the kernel has PAGEMAP_SCAN */
    size_t page_bytes;
};

/* Never fails: without the file it knows less. */
void hr__pages_open(struct hr__pages *pages);
void hr__pages_close(struct hr__pages *pages);

/* Page faults of the process so far, of all its threads. */
uint64_t hr__pages_faults(void);

/* Of the page at `page`: 1 private, 0 not, -1 unknown. Any thread. */
int hr__pages_is_private(const struct hr__pages *pages, const void *page);

/* Gives back the private pages of a range of whole pages, so that it shows the file again.
 * Any thread; those who use the range meanwhile may see either. Non-zero where there were some,
 * or where that is unknown. */
int hr__pages_drop(const struct hr__pages *pages, void *begin, size_t bytes);

/* Makes every page of the range private, with what it shows now. Other threads may read and
 * write meanwhile, and lose nothing. Errors: -ENOMEM. */
int hr__pages_own(const struct hr__pages *pages, void *begin, size_t bytes);

#endif
