/*
 * What of some files lies in memory, and how fast storage delivers the rest.
 *
 * Files are dropped from the page cache one by one, which needs no privilege but the
 * right to read them; pages that a process has mapped, that are dirty, or that lie in a
 * file system without storage below (tmpfs) stay, and are counted.
 */
#ifndef HEADRACE_STORAGE_H
#define HEADRACE_STORAGE_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_storage_residency {
    size_t size;             /* sizeof, set by the caller */
    uint64_t files;          /* that could be looked at */
    uint64_t bytes;          /* of them */
    uint64_t resident_bytes; /* in the page cache, in whole pages of 4,096 bytes */
    uint64_t dirty_bytes;    /* of these, not yet written to storage */
    uint64_t failed;         /* files that could not be looked at */
    char problem[256];       /* of the first of them; "" */
    char filesystem[32];     /* of the first file: "ext4", "tmpfs", "nfs4"; "" unknown */
    int in_memory;           /* non-zero: of that kind there is no storage below (tmpfs) */
    int network;             /* non-zero: bytes come over a network, where the server's
                                memory cannot be dropped */
};

/*
 * `paths`: `count` paths. Files that cannot be opened are counted, not errors. Each may
 * block for storage. Errors: -EINVAL, -ENOMEM, -ENOSYS (the kernel cannot tell what is
 * resident), -EINTR (a signal). Safe from several threads.
 */
/* How much lies in memory. */
HR_API HR_NODISCARD int hr_storage_check(const char *const *paths, size_t count,
                                         struct hr_storage_residency *residency,
                                         struct hr_error *error);
/* Drops the files from the page cache (dirty ones are written out first), then checks. */
HR_API HR_NODISCARD int hr_storage_drop(const char *const *paths, size_t count,
                                        struct hr_storage_residency *residency,
                                        struct hr_error *error);
/* Reads the files into the page cache, then checks. */
HR_API HR_NODISCARD int hr_storage_preread(const char *const *paths, size_t count,
                                           struct hr_storage_residency *residency,
                                           struct hr_error *error);

struct hr_storage_rate {
    size_t size; /* sizeof, set by the caller */
    uint64_t reads, bytes;
    double elapsed_s, bytes_per_s, reads_per_s;
    int exhausted; /* non-zero: all files were read before `seconds` were over */
};

/*
 * Reads whole files at `depth` reads in flight for about `seconds`, once each, in the
 * given order, around the page cache where the file system can (so that nothing is
 * warmed), else dropping them before and behind. Errors: as above; -ENODATA: no file
 * could be read.
 */
HR_API HR_NODISCARD int hr_storage_measure(const char *const *paths, size_t count, int depth,
                                           double seconds, struct hr_storage_rate *rate,
                                           struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
