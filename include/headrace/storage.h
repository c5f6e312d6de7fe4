/*
 * Page-cache residency of files (query, evict, preload), and the speed of their storage.
 *
 * Files are dropped from the page cache one by one, which needs only the right to read
 * them. Pages that a process has mapped, and files on file systems without storage
 * (tmpfs), stay and are counted. The kernel reveals residency only to a file's owner and
 * to users who may write to it; other files are counted as unknown.
 */
#ifndef HEADRACE_STORAGE_H
#define HEADRACE_STORAGE_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_storage_residency {
    size_t size;             /* sizeof, set by the caller */
    uint64_t files;          /* that could be examined */
    uint64_t bytes;          /* their size */
    uint64_t resident_bytes; /* part of `bytes` in the page cache, for each file at most its
                                length: if equal to `bytes`, all of it; 0: none */
    uint64_t dirty_bytes;    /* resident bytes not yet written to storage, as far as known */
    uint64_t failed;         /* files that could not be examined */
    char problem[256];       /* reason for the first failed file, or else for `unknown`; "" */
    char filesystem[32];     /* of the first file: "ext4", "tmpfs", "nfs4", "fuse.sshfs"; ""
                                unknown */
    int in_memory;           /* non-zero: some files are on a file system without storage
                                (tmpfs) */
    int network;             /* non-zero: some files come over a network (or from a process:
                                FUSE), where the server's own cache cannot be dropped */
    uint64_t unknown;        /* of `files`, those whose residency the kernel does not reveal */
};

/*
 * `paths`: `count` paths of regular files. A path that is given twice counts twice. Files that
 * cannot be opened are counted and are not errors. All functions may block for storage. Errors:
 * -EINVAL, -ENOMEM, -EINTR (a signal). Several threads may call them at once.
 */
/* Measures how much is resident. Reads nothing. */
HR_API HR_NODISCARD int hr_storage_check(const char *const *paths, size_t count,
                                         struct hr_storage_residency *residency,
                                         struct hr_error *error);
/* Evicts the files from the page cache (writes dirty pages to storage first), then checks.
 * Files that stay are tried once more at the end. */
HR_API HR_NODISCARD int hr_storage_drop(const char *const *paths, size_t count,
                                        struct hr_storage_residency *residency,
                                        struct hr_error *error);
/* Reads the files into the page cache, then checks. */
HR_API HR_NODISCARD int hr_storage_preread(const char *const *paths, size_t count,
                                           struct hr_storage_residency *residency,
                                           struct hr_error *error);

/* Files that are being kept in the page cache. */
struct hr_storage_hold;

struct hr_storage_held {
    size_t size;           /* sizeof, set by the caller */
    uint64_t files;        /* that could be opened */
    uint64_t bytes;        /* their size */
    uint64_t held_bytes;   /* part of `bytes` mapped: evicted only if memory is short */
    uint64_t locked_bytes; /* part of held_bytes locked: never evicted */
    char problem[256];     /* of the first file that is not held, or else not locked; "" */
};

/*
 * Reads files into the page cache and keeps them there until hr_storage_release. This
 * protects them from kernels that evict unmapped file pages although memory is not short.
 * `paths` as above; `*hold`: NULL, or an existing hold to add the files to.
 *
 * Holds as much as allowed: at most `most_bytes` in all (in whole pages) and half of the
 * mappings a process may have (vm.max_map_count). Locks at most half of what the process
 * may lock (RLIMIT_MEMLOCK; no limit with CAP_IPC_LOCK). The rest is only read. Locked
 * memory cannot be used for anything else: a quarter of the available memory is a careful
 * `most_bytes`. No descriptor stays open, and child processes hold nothing.
 *
 * hr_storage_drop cannot evict held files, in any process. They may be changed and
 * removed as usual. The caller owns a hold and may use it in one thread at a time.
 * Several processes may hold the same files. May block for storage. Errors:
 * as above, and `*hold` does not change.
 */
HR_API HR_NODISCARD int hr_storage_hold(const char *const *paths, size_t count, uint64_t most_bytes,
                                        struct hr_storage_hold **hold, struct hr_error *error);
/* Measures what is held. Errors: -EINVAL. */
HR_API HR_NODISCARD int hr_storage_hold_look(const struct hr_storage_hold *hold,
                                             struct hr_storage_held *held, struct hr_error *error);
/* Releases the files and sets *hold to NULL; accepts *hold == NULL. From then on the kernel may
 * evict them. */
HR_API void hr_storage_release(struct hr_storage_hold **hold);

#define HR_STORAGE_PARTS 4

struct hr_storage_rate {
    size_t size;           /* sizeof, set by the caller */
    uint64_t reads, bytes; /* reads: files, or pieces of large files */
    double elapsed_s, bytes_per_s, reads_per_s;
    int exhausted;                  /* non-zero: all files were read before `seconds` had passed */
    uint64_t failed;                /* files, or pieces, that could not be read */
    int part_count;                 /* number of HR_STORAGE_PARTS equal parts of `seconds` that
                                       ended before the files ran out */
    double parts[HR_STORAGE_PARTS]; /* bytes/s in each part: shows how much the rate varies */
    double steady_bytes_per_s;      /* slope of bytes read over time: a throttled disk delivers
                                       in bursts, and bytes_per_s may count one too many or
                                       one too few */
};

/*
 * Measures read throughput: reads whole files (large ones in pieces of up to 1 MiB) with
 * `depth` reads in flight, 1 to 1024, for about `seconds`, once each, in the given order.
 * Bypasses the page cache if possible (io_uring, and a file system with O_DIRECT), so that
 * no file becomes resident; otherwise reads through it with `depth` files of readahead and
 * evicts each file before and after reading it.
 * Errors: as above; -ENODATA: no file could be read.
 */
HR_API HR_NODISCARD int hr_storage_measure(const char *const *paths, size_t count, int depth,
                                           double seconds, struct hr_storage_rate *rate,
                                           struct hr_error *error);

/*
 * The same for samples of a dataset at URLs: asks the store for `count` of them, whole objects or
 * their ranges, in the order of `indices`, and again from the first when they run out. Keeps
 * `depth` requests in flight, or as many as the client of the objects finds useful if those are
 * fewer. Each request costs what it costs. Errors: as above; -ERANGE: there is no such sample;
 * -ENOTSUP: the samples are not at URLs.
 */
struct hr_dataset;
HR_API HR_NODISCARD int hr_storage_measure_samples(const struct hr_dataset *dataset,
                                                   const int64_t *indices, size_t count, int depth,
                                                   double seconds, struct hr_storage_rate *rate,
                                                   struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
