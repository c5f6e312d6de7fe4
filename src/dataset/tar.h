/*
 * Tar files as datasets: one pass over the headers finds where each image is;
 * images are then read at random like any other sample.
 *
 * Two layouts are known. WebDataset's: members whose paths are the same up to the
 * first dot of the name belong to one sample, side by side; one is an image and
 * one, ".cls", holds the label as a number. And an image folder's: no ".cls"
 * anywhere, and the directory of an image is its class.
 */
#ifndef HR_DATASET_TAR_H
#define HR_DATASET_TAR_H

#include "base/executor.h"
#include "dataset/catalog.h"
#include "dataset/progress.h"

/* Non-zero where a file that begins so (512 bytes are enough) is a tar file. */
int hr__tar_recognise(const void *bytes, size_t length);

/*
 * Looks through the tar files at `paths`, several at once, and makes a catalog
 * with ranges of their images: in the order of the files and of the members in
 * them. On success *out is the caller's. Errors name the file and the member:
 * -EBADMSG: damaged or cut off; -ENOTSUP: compressed, or not tar; -EINVAL: an image
 * without a label, two images or labels of one sample; -ENODATA: no image;
 * -ECANCELED; -ENOMEM; those of open and read. Blocks on I/O.
 */
int hr__tar_index(struct hr__catalog **out, char *const *paths, size_t count,
                  const struct hr__executor *executor, struct hr__progress *progress,
                  struct hr_error *error);

#endif
