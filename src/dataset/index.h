/*
 * The index file: a catalog stored in a file, so that the next open need not list and stat every
 * file again.
 *
 * A catalog from an index is used only if its checksum and contents are valid (catalog.h), every
 * directory in it is unchanged (inode, mtime and ctime), the root has the same classes, and a spot
 * check of files finds the same sizes and times. An `untrusted` catalog is never written: a change
 * within the clock step of its listing would go unnoticed (like the "racy" entries of git's index).
 */
#ifndef HR_DATASET_INDEX_H
#define HR_DATASET_INDEX_H

#include "base/executor.h"
#include "dataset/catalog.h"

/*
 * Finds the path of the index of folder `root` under a policy. The caller frees *path with
 * hr__free. Errors: -ENOENT if there is none (HR_INDEX_NONE, no home directory, beside the data of
 * a bucket), -ENOMEM.
 */
int hr__index_locate(char **path, const char *root, enum hr_index_policy policy);

/*
 * Reads and validates the index at `path` of the folder `root`. On success the caller owns *out.
 * Errors: -ESTALE: outdated; -EBADMSG: not an index, another version, or damaged; -EPERM: written
 * by another user; -ENOENT and other errors of open and read. Blocks.
 */
int hr__index_load(struct hr__catalog **out, const char *path, const char *root,
                   enum hr_index_policy policy, const struct hr__executor *executor);

struct hr__objects_folder;

/* The same for a folder in a bucket: the index is used if the bucket has the same classes, and the
 * same objects at the beginning of a few directories. Asks for some pages of the listing. */
int hr__index_load_objects(struct hr__catalog **out, const char *path,
                           const struct hr__objects_folder *folder);

/*
 * Writes the catalog, whose sizes must be known, to `path`. Writes a temporary file that only the
 * owner may read, syncs it and renames it, so readers see either the old file or the new one.
 * Creates the directories of the user cache. Errors: -ESTALE: the catalog is untrusted; errors of
 * system calls. Blocks.
 */
int hr__index_save(struct hr__catalog *catalog, const char *path, enum hr_index_policy policy);

/* Finds the path of a file in this user's cache directory: `name` is below "headrace/". The caller
 * frees *path. Errors: -ENOENT: the user has none; -ENOMEM. */
int hr__user_cache(char **path, const char *name);

/* Creates the parent directories of `path`, for the owner only. */
int hr__make_parents(const char *path);

#endif
