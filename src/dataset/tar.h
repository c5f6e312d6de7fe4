/*
 * Tar files as datasets. One pass over the headers finds the position of each image; images are
 * then read in any order, like other samples.
 *
 * Two layouts are supported. WebDataset: adjacent members whose paths are equal up to the first dot
 * of the name form a sample; one is an image and one, ".cls" unless another is named, holds the
 * label. Others are ignored. Image folder: there is no ".cls" member, and an image's directory is
 * its class.
 */
#ifndef HR_DATASET_TAR_H
#define HR_DATASET_TAR_H

#include "dataset/shard_samples.h"

/* Returns non-zero if a file that begins with these bytes (512 are enough) is a tar file. */
int hr__tar_recognise(const void *bytes, size_t length);

/*
 * Scans the tar files of `source` and makes a catalog with ranges of their
 * images, in the order of the files and of the members in them. On success the caller owns *out.
 * Messages name the file and the member. Errors: -EBADMSG: damaged or truncated; -ENOTSUP:
 * compressed, or not tar; -EINVAL: an image without a label, or two images or labels of one sample;
 * -ENODATA: no image; -ECANCELED; -ENOMEM; those of open and read. Blocks on I/O.
 */
int hr__tar_index(struct hr__catalog **out, const struct hr__shard_source *source,
                  struct hr_error *error);

#endif
