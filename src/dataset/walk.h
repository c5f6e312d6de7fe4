/*
 * Listing an image folder into a catalog.
 *
 * Samples, classes and their order are those of torchvision's ImageFolder (see
 * walk.c). Directories of one depth are listed in parallel; the result depends
 * only on what is on storage.
 */
#ifndef HR_DATASET_WALK_H
#define HR_DATASET_WALK_H

#include "base/executor.h"
#include "dataset/catalog.h"
#include "dataset/progress.h"

/* A directory changed less than this before it was listed may change again
 * without its times moving: file systems keep times in steps of up to 2 s. */
#define HR__RACY_NS 2000000000

/*
 * Walks the folder at `path`. On success *out is the caller's; its `untrusted`
 * is set where its directories' times cannot tell of a later change: a
 * directory that changed within HR__RACY_NS of its listing, a link whose target
 * could not be looked at. Sizes are not looked at.
 * Errors: as hr_dataset_open_folder; empty classes are no error here. Blocks.
 */
int hr__walk(struct hr__catalog **out, const char *path, const struct hr__executor *executor,
             struct hr__progress *progress, struct hr_error *error);

/* Non-zero when the class directories under the open directory `fd` are still
 * exactly the catalog's. Blocks. */
int hr__walk_same_classes(int fd, const struct hr__catalog *catalog);

#endif
