/*
 * What a cached item is known by: the identity of its dataset, and the key of its sample.
 *
 * Two datasets have one identity, and so share a segment, where they are the same files:
 *
 *   folder       its canonical path
 *   list         where its paths begin, and all of them
 *   pack         its canonical path, and the checksum of its catalog
 *   tar files    their canonical paths
 *   subset       its parent's
 *
 * The key of a sample is made of the identity, its place in the dataset (the path below
 * the root; the piece of a container), and the size and modification time that its file,
 * or the container, has: a file that changed is another item.
 */
#ifndef HR_CACHE_IDENTITY_H
#define HR_CACHE_IDENTITY_H

#include "cache/segment.h"

#include <headrace/dataset.h>

#define HR__IDENTITY_TEXT 512

struct hr__identity {
    uint8_t digest[16];
    char text[HR__IDENTITY_TEXT]; /* the same for people, printable, cut to size */
};

/* The identity of a dataset. Reads all paths of a list; asks the file system for canonical
 * paths. Errors: -ENOMEM. Blocks. */
int hr__identity_make(struct hr__identity *out, const struct hr_dataset *dataset,
                      struct hr_error *error);

/* A file system's clock moves in such steps at most: 4 ms and 10 ms are usual. A file that
 * was written less than that ago may be written again without another time. */
#define HR__STAMP_FRESH_NS INT64_C(20000000)

/* What tells one state of a file from another. */
struct hr__stamp {
    int64_t bytes;
    int64_t mtime_ns; /* since 1970 */
};

/* What the scan saw of sample `index`'s file: 1, or 0 where that is not known (yet), or it
 * is a piece of a container. Any thread, no I/O. */
int hr__stamp_believed(struct hr__stamp *out, const struct hr_dataset *dataset, uint64_t index);

/*
 * The same as it is now, of the file or the container. Any thread; does not allocate.
 * Blocks. Errors: those of stat and of opening a container; -ENAMETOOLONG.
 */
int hr__stamp_now(struct hr__stamp *out, const struct hr_dataset *dataset, uint64_t index);

/* Non-zero where the file was written so lately that a change after the stamp was taken
 * might not show in its time. Asks the clock. */
int hr__stamp_is_fresh(const struct hr__stamp *stamp);

/* The key. Any thread; does not allocate. 0, or -ENAMETOOLONG. */
int hr__identity_key(struct hr__key *out, const struct hr__identity *identity,
                     const struct hr_dataset *dataset, uint64_t index,
                     const struct hr__stamp *stamp);

#endif
