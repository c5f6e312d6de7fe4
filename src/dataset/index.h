/*
 * The index file: a catalog kept on storage, so that the next open need not
 * list and look at every file again.
 *
 * A catalog is believed only after its checksum and contents have been checked
 * (catalog.h), every directory in it still is the one it was (inode, times of
 * content and of status), the root has the same classes, and a spot check of
 * files finds the same sizes and times. A catalog that is `untrusted` is never
 * written: a change within the clock step of its listing would go unseen (the
 * "racy" entries of git's index).
 */
#ifndef HR_DATASET_INDEX_H
#define HR_DATASET_INDEX_H

#include "base/executor.h"
#include "dataset/catalog.h"

/*
 * Where the index of the folder `root` is, by policy; *path is the caller's
 * (hr__free). -ENOENT where there is none (HR_INDEX_NONE, no home directory),
 * -ENOMEM.
 */
int hr__index_locate(char **path, const char *root, enum hr_index_policy policy);

/*
 * Reads and validates the index at `path` of the folder `root`. On success
 * *out is the caller's. Errors: -ESTALE: no longer true; -EBADMSG: not an
 * index, of another version, or damaged; -EPERM: written by another user;
 * -ENOENT and what open and read give. Blocks.
 */
int hr__index_load(struct hr__catalog **out, const char *path, const char *root,
                   enum hr_index_policy policy, const struct hr__executor *executor);

/*
 * Writes the catalog, whose sizes must be known, to `path`: to a temporary
 * file that only the owner may read, synchronised and renamed, so that a reader
 * sees the old one or the new one. Directories of the user cache are made.
 * Errors: -ESTALE: the catalog is untrusted; what the system gives. Blocks.
 */
int hr__index_save(struct hr__catalog *catalog, const char *path, enum hr_index_policy policy);

#endif
