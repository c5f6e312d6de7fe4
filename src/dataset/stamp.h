/*
 * Detects changes of a sample's file, so that a cache never serves old data.
 *
 * A stamp comes from one statx: size, modification time, and a digest of inode number and ctime,
 * which nobody can set back. Some file systems keep no ctime (read-only images return the
 * modification time again, in whole seconds). If ctime has no fraction of a second, the digest is
 * 0, meaning unknown. Then the content decides: a digest of the size and of samples of the bytes.
 *
 * A sample with a mask is kept as one item (pair.h), so its stamp is of both files: `bytes` is the
 * pair's, the times are the later ones, and `change` is unknown if it is of one of the two.
 */
#ifndef HR_DATASET_STAMP_H
#define HR_DATASET_STAMP_H

#include "dataset/catalog.h"

#include <headrace/dataset.h>

/* An upper bound for the steps of file systems' clocks (4 ms and 10 ms are usual). A file written
 * less than this ago may be written again without its times changing. */
#define HR__STAMP_FRESH_NS INT64_C(20000000)

struct hr__stamp {
    int64_t bytes;
    int64_t mtime_ns; /* ns since 1970 */
    uint64_t change;  /* digest of inode number and ctime; 0: unknown */
    int64_t ctime_ns; /* 0: unknown */
    uint64_t mask;    /* digest of the stamp of the sample's mask; 0: it has none */
};

/* Takes the stamp of `name` in the open directory `fd`, or of `fd` itself if `name` is "".
 * `catalog` is the catalog of the sample. Any thread. Blocks. Errors: those of statx; -EISDIR. */
int hr__stamp_look(struct hr__stamp *out, struct hr__catalog *catalog, int fd, const char *name);

/* Takes the stamp of sample `index` now: of its file, or of its container. An object has the stamp
 * that was listed: its read finds out whether that still holds. Any thread; does not allocate.
 * Blocks. Errors: those above and of opening a container; -ENAMETOOLONG; -ENODATA: an object that
 * was not listed. */
int hr__stamp_now(struct hr__stamp *out, const struct hr_dataset *dataset, uint64_t index);

/* Returns the stamp of sample `index` from the scan: 1, or 0 if it is not known (yet) or the sample
 * is a piece of a container. Any thread, no I/O. */
int hr__stamp_believed(struct hr__stamp *out, const struct hr_dataset *dataset, uint64_t index);

/* Returns non-zero if the file changed so recently that a change after the stamp was taken might
 * not show in its times. Reads the clock. */
int hr__stamp_is_fresh(const struct hr__stamp *stamp);

/* Digest of size, modification time, change and the mask's; never 0. Pure. */
uint64_t hr__stamp_digest(const struct hr__stamp *stamp);

/* Digest of the length and the bytes: all bytes up to 64 KiB; of longer content three blocks of 4
 * KiB, at the beginning, in the middle and at the end. Never 0. Pure. */
uint64_t hr__content_digest(const void *bytes, size_t length);

/* Digest of an image's content and its mask's; the image's alone if `mask` is 0. Pure. */
uint64_t hr__content_of_pair(uint64_t image, uint64_t mask);

/* Computes the same digest of sample `index`, with its mask, from storage, and reads only those
 * bytes. Any thread. Blocks. Errors: of opening and reading; -ENODATA: the file is shorter than
 * before; -ENOMEM; -ENOTSUP: an object, whose ETag tells more. */
int hr__content_look(uint64_t *out, const struct hr_dataset *dataset, uint64_t index);

#endif
