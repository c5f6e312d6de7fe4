/*
 * Lists an image folder into a catalog.
 *
 * Samples, classes and their order are those of torchvision's ImageFolder (see walk.c). Directories
 * of one depth are listed in parallel; the result depends only on what is on storage.
 */
#ifndef HR_DATASET_WALK_H
#define HR_DATASET_WALK_H

#include "base/executor.h"
#include "dataset/catalog.h"
#include "dataset/progress.h"

/* A directory that changed less than this before it was listed may change again without a change of
 * its times: file systems store times in steps of up to 2 s. */
#define HR__RACY_NS 2000000000

/*
 * Walks the folder at `path`. On success the caller owns *out. Sets its `untrusted` if the
 * directories' times might not reveal a later change: a directory changed within HR__RACY_NS before
 * its listing, or a link's target could not be queried. Does not query sizes. Errors: as
 * hr_dataset_open_folder, but empty classes are no error here. Blocks.
 */
int hr__walk(struct hr__catalog **out, const char *path, const struct hr__executor *executor,
             struct hr__progress *progress, struct hr_error *error);

/* The same for a folder of sounds. */
int hr__walk_sounds(struct hr__catalog **out, const char *path, const struct hr__executor *executor,
                    struct hr__progress *progress, struct hr_error *error);

/* Returns non-zero if the class directories under the open directory `fd` are still exactly the
 * catalog's. Blocks. */
int hr__walk_same_classes(int fd, const struct hr__catalog *catalog);

#endif
