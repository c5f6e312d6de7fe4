/*
 * What of some files lies in memory, and how fast storage delivers the rest.
 *
 * Files are dropped from the page cache one by one, which needs no privilege but the
 * right to read them; pages that a process has mapped, or that lie in a file system without
 * storage below (tmpfs), stay, and are counted. The kernel tells what lies in memory only to
 * a file's owner and to who may write to it: other files are counted as unknown, not guessed
 * at.
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
    uint64_t resident_bytes; /* of these, in the page cache; of no file more than it is long,
                                so that `bytes` means all of it, 0 none */
    uint64_t dirty_bytes;    /* of these, not yet written to storage, as far as is known */
    uint64_t failed;         /* files that could not be looked at */
    char problem[256];       /* of the first of them, or else of `unknown`; "" */
    char filesystem[32];     /* of the first file: "ext4", "tmpfs", "nfs4", "fuse.sshfs"; ""
                                unknown */
    int in_memory;           /* non-zero: some files lie where there is no storage below
                                (tmpfs) */
    int network;             /* non-zero: bytes of some files come over a network (or from a
                                process: FUSE), where the server's memory cannot be dropped */
    uint64_t unknown;        /* of `files`, those of which nobody says what lies in memory */
};

/*
 * `paths`: `count` paths, of regular files; one that is there twice counts twice. Files that
 * cannot be opened are counted, not errors. Each may block for storage. Errors: -EINVAL,
 * -ENOMEM, -EINTR (a signal). Safe from several threads.
 */
/* How much lies in memory. Reads nothing. */
HR_API HR_NODISCARD int hr_storage_check(const char *const *paths, size_t count,
                                         struct hr_storage_residency *residency,
                                         struct hr_error *error);
/* Drops the files from the page cache (dirty ones are written out first), then checks. What
 * stays is tried once more in the end. */
HR_API HR_NODISCARD int hr_storage_drop(const char *const *paths, size_t count,
                                        struct hr_storage_residency *residency,
                                        struct hr_error *error);
/* Reads the files into the page cache, then checks. */
HR_API HR_NODISCARD int hr_storage_preread(const char *const *paths, size_t count,
                                           struct hr_storage_residency *residency,
                                           struct hr_error *error);

/* Files that are kept in the page cache. */
struct hr_storage_hold;

struct hr_storage_held {
    size_t size;           /* sizeof, set by the caller */
    uint64_t files;        /* that could be opened */
    uint64_t bytes;        /* of them */
    uint64_t held_bytes;   /* of these, mapped: they go only where memory is short */
    uint64_t locked_bytes; /* of these, locked: they do not go */
    char problem[256];     /* of the first file that is not held, or else not locked; "" */
};

/*
 * Reads into memory what of the files is not there, and keeps it there until
 * hr_storage_release, against a kernel that takes pages of files out of memory which no
 * process has mapped, though it is not short. `paths` as above; `*hold`: NULL, or what this
 * function gave before, to which the files are added.
 *
 * As much is held as may be: at most `most_bytes` in all (in whole pages), half of the
 * mappings a process may have (vm.max_map_count), and locked at most half of what it may lock
 * (RLIMIT_MEMLOCK; anything with CAP_IPC_LOCK). The rest is only read. Locked memory cannot
 * be used for anything else: a quarter of what is available is a careful `most_bytes`. No
 * descriptor stays open, and child processes hold nothing.
 *
 * Held files are not dropped by hr_storage_drop, in no process. They may be changed and
 * removed as ever. A hold is the caller's, for one thread at a time; holds of several
 * processes, or of the same files, do not mind each other. May block for storage. Errors:
 * as above, and `*hold` is as it was.
 */
HR_API HR_NODISCARD int hr_storage_hold(const char *const *paths, size_t count, uint64_t most_bytes,
                                        struct hr_storage_hold **hold, struct hr_error *error);
/* What is held. Errors: -EINVAL. */
HR_API HR_NODISCARD int hr_storage_hold_look(const struct hr_storage_hold *hold,
                                             struct hr_storage_held *held, struct hr_error *error);
/* Lets go of them and sets *hold to NULL; accepts NULL in it. They stay in memory as long as
 * the kernel likes. */
HR_API void hr_storage_release(struct hr_storage_hold **hold);

#define HR_STORAGE_PARTS 4

struct hr_storage_rate {
    size_t size;           /* sizeof, set by the caller */
    uint64_t reads, bytes; /* reads: files, of large ones pieces */
    double elapsed_s, bytes_per_s, reads_per_s;
    int exhausted;                  /* non-zero: all files were read before `seconds` were over */
    uint64_t failed;                /* files, or pieces, that could not be read */
    int part_count;                 /* of HR_STORAGE_PARTS equal parts of `seconds`, those that
                                       were over before the files were */
    double parts[HR_STORAGE_PARTS]; /* bytes/s of each: how much the rate varies */
    double steady_bytes_per_s;      /* the slope of the bytes that came over time: a throttled disk
                                       delivers in lumps, of which bytes_per_s may count one too
                                       many or too few */
};

/*
 * Reads whole files (large ones in pieces of up to 1 MiB) at `depth` reads in flight, 1 to
 * 1024, for about `seconds`, once each, in the given order: around the page cache where
 * that can be done (io_uring, and a file system with O_DIRECT), so that nothing is warmed;
 * else through it, by asking for `depth` files ahead and dropping each before and behind.
 * Errors: as above; -ENODATA: no file could be read.
 */
HR_API HR_NODISCARD int hr_storage_measure(const char *const *paths, size_t count, int depth,
                                           double seconds, struct hr_storage_rate *rate,
                                           struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
