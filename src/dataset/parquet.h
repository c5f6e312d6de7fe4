/*
 * Parquet tables as datasets, above all those of Hugging Face's `datasets`. One pass over the
 * footers and the lengths of values finds the position of each image in its file; images are then
 * read in any order, like other samples.
 */
#ifndef HR_DATASET_PARQUET_H
#define HR_DATASET_PARQUET_H

#include "dataset/shard_samples.h"

/*
 * Scans the tables of `source` and makes a catalog with ranges of their images, in the order of the
 * files and rows. A sample's name is its file's, without ".parquet", and its row:
 * "train-00000-of-00002/000017.jpg". A row whose image is null is a sample of 0 bytes, which is
 * bad.
 *
 * The images are in the column source->image; else in the only column of images: a feature Image of
 * `datasets`, or a column of bytes or of structs with a member "bytes"; if there are several, in
 * the one named "image". The label is the column source->label; else the only ClassLabel of
 * `datasets`, or the column "label". Classes have names if the label is a ClassLabel.
 *
 * On success the caller owns *out. Messages name the file. Errors: -EBADMSG: damaged or truncated;
 * -ENOTSUP: no Parquet file, or images that are not stored as they are; -EINVAL: no such column, a
 * null label, or files that differ in this; -ENODATA: no image; -ECANCELED; -ENOMEM; those of open
 * and read. Blocks on I/O.
 */
int hr__parquet_index(struct hr__catalog **out, const struct hr__shard_source *source,
                      struct hr_error *error);

#endif
