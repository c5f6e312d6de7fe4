/*
 * Lists an image folder in a bucket ("s3://bucket/prefix") into a catalog.
 *
 * Keys are read as paths: the first directory below the prefix is the class, as in a folder on a
 * disk, and the samples are those that the same files on a disk would give, in the same order.
 * Sizes, times and ETags come with the names, so no object is asked for alone.
 */
#ifndef HR_DATASET_OBJECTS_H
#define HR_DATASET_OBJECTS_H

#include "base/executor.h"
#include "dataset/catalog.h"
#include "dataset/progress.h"
#include "storage/http.h"

struct hr__objects_folder {
    struct hr__http_client *http;
    const char *url; /* of the folder; a slash at its end means nothing */
    int is_sound;    /* samples are sounds, not images */
};

/*
 * Lists the folder: first its classes, then the classes in parallel. On success the caller owns
 * *out, whose sizes are known. Errors: -ENODATA: no class; -EINVAL: a key that is no path; those of
 * hr__http_list; -ECANCELED; -ENOMEM. Blocks.
 */
int hr__objects_list(struct hr__catalog **out, const struct hr__objects_folder *folder,
                     const struct hr__executor *executor, struct hr__progress *progress,
                     struct hr_error *error);

/* Returns non-zero if the folder still has the catalog's classes, and the first objects of a few
 * random directories are as in it. Asks for one page each. Blocks. */
int hr__objects_same(const struct hr__catalog *catalog, const struct hr__objects_folder *folder);

/* Returns the URL without slashes at its end; the caller frees it with hr__free. NULL: out of
 * memory. */
char *hr__objects_root(const char *url);

#endif
