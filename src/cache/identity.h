/*
 * The identity of a dataset and the key of a sample, which together identify a cached item.
 *
 * Two datasets have the same identity, and so share a segment, if they are the same files. The
 * identity is made of:
 *
 *   folder       its canonical path
 *   list         the base directory of its paths, and all of them
 *   pack         its canonical path, and the checksum of its catalog
 *   tar files, Parquet tables, given ranges    the canonical paths of the files
 *   subset       its parent's
 *
 * To that come, for waveforms, form, head and decoders.
 *
 * A sample's key is made of the identity, its location in the dataset (the path below the root; the
 * piece of a container), and the stamp of its file or container: size, modification time, inode
 * number and ctime (dataset/stamp.h). On file systems without ctime a digest of the content
 * replaces it. So a file that has changed is a different item. The key of a sample with a mask is
 * made of both places, and is another one than the image's alone.
 */
#ifndef HR_CACHE_IDENTITY_H
#define HR_CACHE_IDENTITY_H

#include "cache/segment.h"
#include "dataset/stamp.h"

#include <headrace/dataset.h>

#define HR__IDENTITY_TEXT 512

struct hr__identity {
    uint8_t digest[16];
    char text[HR__IDENTITY_TEXT]; /* readable form, printable, truncated to fit */
};

/* Computes the identity of a dataset. Reads all paths of a list and resolves canonical paths.
 * Errors: -ENOTSUP: a produced dataset; -ENOMEM. Blocks. */
int hr__identity_make(struct hr__identity *out, const struct hr_dataset *dataset,
                      struct hr_error *error);

/* Adds what the items depend on besides their files: a digest, and its text. */
void hr__identity_add(struct hr__identity *identity, uint64_t variant, const char *text);

/* Computes the key. Any thread; does not allocate. Does no I/O unless stamp->change is 0: then like
 * hr__content_look. Returns 0, -ENAMETOOLONG, or the errors of hr__content_look. */
int hr__identity_key(struct hr__key *out, const struct hr__identity *identity,
                     const struct hr_dataset *dataset, uint64_t index,
                     const struct hr__stamp *stamp);

#endif
