/*
 * What tells one state of a sample's file from another, so that a cache serves nothing old.
 *
 * A stamp is what one statx says: size, modification time, and a digest of inode number and
 * ctime, which nobody can set back. Some file systems keep no time of changes (read-only
 * images give the modification time again, whole seconds): where ctime has no fraction of a
 * second that digest is 0, and says nothing. Then the content decides: a digest of the size
 * and of samples of the bytes.
 */
#ifndef HR_DATASET_STAMP_H
#define HR_DATASET_STAMP_H

#include "dataset/catalog.h"

#include <headrace/dataset.h>

/* A file system's clock moves in such steps at most: 4 ms and 10 ms are usual. A file that
 * was written less than that ago may be written again without another time. */
#define HR__STAMP_FRESH_NS INT64_C(20000000)

struct hr__stamp {
    int64_t bytes;
    int64_t mtime_ns; /* since 1970 */
    uint64_t change;  /* of inode number and ctime; 0: not known */
    int64_t ctime_ns; /* 0: not known */
};

/* Of `name` below the open directory `fd`, or of `fd` itself where it is "". `catalog` is
 * whose sample it is. Any thread. Blocks. Errors: those of statx; -EISDIR. */
int hr__stamp_look(struct hr__stamp *out, struct hr__catalog *catalog, int fd, const char *name);

/* The same of sample `index`: of its file, or of the container that it is a piece of. Any
 * thread; does not allocate. Blocks. Errors: those above and of opening a container;
 * -ENAMETOOLONG. */
int hr__stamp_now(struct hr__stamp *out, const struct hr_dataset *dataset, uint64_t index);

/* What the scan saw of sample `index`'s file: 1, or 0 where that is not known (yet), or it
 * is a piece of a container. Any thread, no I/O. */
int hr__stamp_believed(struct hr__stamp *out, const struct hr_dataset *dataset, uint64_t index);

/* Non-zero where the file was changed so lately that another change after the stamp was taken
 * might not show in its times. Asks the clock. */
int hr__stamp_is_fresh(const struct hr__stamp *stamp);

/* Of size, modification time and change; never 0. Pure. */
uint64_t hr__stamp_digest(const struct hr__stamp *stamp);

/* A digest of the length and of the bytes: of all up to 64 KiB, of more three blocks of 4 KiB,
 * at the beginning, in the middle and at the end. Never 0. Pure. */
uint64_t hr__content_digest(const void *bytes, size_t length);

/* The same of sample `index` as it is on storage: reads as much of it. Any thread. Blocks.
 * Errors: of opening and reading; -ENODATA: it is shorter than it was; -ENOMEM. */
int hr__content_look(uint64_t *out, const struct hr_dataset *dataset, uint64_t index);

#endif
