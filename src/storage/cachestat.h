/* cachestat(2) of Linux 6.5, for builds with older kernel headers. */
#ifndef HR_STORAGE_CACHESTAT_H
#define HR_STORAGE_CACHESTAT_H

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* on all architectures */
#endif

/* The kernel's struct cachestat: page counts of a file. */
struct hr__cachestat {
    uint64_t cached, dirty, under_writeback, evicted, recently_evicted;
};

/* Queries the whole file. Returns 0, or -1 with errno set. */
static inline int hr__cachestat(int fd, struct hr__cachestat *pages)
{
    uint64_t offset_and_length[2] = {0};
    return (int)syscall(SYS_cachestat, fd, offset_and_length, pages, 0);
}

#endif
