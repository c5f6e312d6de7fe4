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
 * the root; the piece of a container), and the stamp of its file or container: size,
 * modification time, inode number and ctime (dataset/stamp.h). Where a file system keeps no
 * time of changes it has a digest of the content instead. A file that changed is another item.
 */
#ifndef HR_CACHE_IDENTITY_H
#define HR_CACHE_IDENTITY_H

#include "cache/segment.h"
#include "dataset/stamp.h"

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

/* The key. Any thread; does not allocate, and does no I/O unless stamp->change is 0: then as
 * hr__content_look. 0, -ENAMETOOLONG, or those. */
int hr__identity_key(struct hr__key *out, const struct hr__identity *identity,
                     const struct hr_dataset *dataset, uint64_t index,
                     const struct hr__stamp *stamp);

#endif
