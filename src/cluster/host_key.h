/*
 * The key of an item, the same on all hosts, even if their copies of a dataset have different
 * paths.
 *
 * A key covers the dataset (names and sizes of all its samples), the sample's place in it (path
 * below the root; piece of a container), and the file's size and, unless switched off, modification
 * time at the moment of the request. Anything else that tells one state of a file from another
 * differs between hosts; it is stored beside the item (peer_item.h).
 *
 * The key covers the dataset because datasets share servers: training and validation images have
 * the same names below their roots, and some have the same sizes and times.
 *
 * Nothing tells the size and the ETag of an object of a list before it is read, and other ranks
 * read it. So its key has a number of the run instead: the run keeps the version that it read
 * first, and finds none of earlier runs. The ETag is stored beside the item.
 */
#ifndef HR_CLUSTER_HOST_KEY_H
#define HR_CLUSTER_HOST_KEY_H

#include "dataset/stamp.h"

#include <headrace/dataset.h>

#include <stdint.h>

/* Digests of all samples, in order: names and labels; sizes; modification times; rows (0: none).
 * They are separate, so that an error can name what differs. */
struct hr__host_digest {
    uint64_t names[2], sizes[2], times[2], rows[2];
    uint64_t dataset[2]; /* names and sizes of the dataset with the catalog (for a subset, its
                            parent); part of every key */
    int with_mtime;      /* set by the caller: keys include modification times */
    uint64_t run;        /* set by the caller: random, the same on all ranks of a run; part of the
                          * keys of objects of a list */
};

/* Reads the metadata of every sample; call hr_dataset_wait_sizes first. Errors: -EAGAIN: the sizes
 * are not known yet; -ENAMETOOLONG; -ENOMEM. */
int hr__host_digest(struct hr__host_digest *out, const struct hr_dataset *dataset,
                    struct hr_error *error);

/* Bytes of a sample that is kept, the same on all ranks: HR_SIZE_UNKNOWN for an object of a list,
 * whether or not this process has read it. Pure. */
int64_t hr__host_bytes(const struct hr_dataset *dataset, uint64_t index);

/* Returns non-zero if the key alone identifies the item's content, whatever happens to the file:
 * for a piece of a container with a checksum. Pure. */
int hr__host_key_is_exact(const struct hr_dataset *dataset, uint64_t index);

/* Computes the key of a sample whose file has that stamp (unused if the key is exact). `digest` is
 * of this dataset. Any thread; no allocation, no I/O. Returns 0, or -ENAMETOOLONG. */
int hr__host_key(uint64_t key[2], const struct hr__host_digest *digest,
                 const struct hr_dataset *dataset, uint64_t index, const struct hr__stamp *stamp);

#endif
