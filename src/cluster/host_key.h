/*
 * What an item is known by on all hosts, whose copies of a dataset may lie under different
 * paths: the dataset (names and sizes of all its samples), the sample's place in it (path
 * below the root; piece of a container), its size and, unless asked otherwise, its
 * modification time, as they are when it is asked for. What else tells one state of a file
 * from another differs between hosts; it stands beside the item (peer_item.h).
 *
 * The dataset is part of it because servers are shared: the training and the validation
 * images have the same names below their roots, and some the same sizes and times.
 */
#ifndef HR_CLUSTER_HOST_KEY_H
#define HR_CLUSTER_HOST_KEY_H

#include "dataset/stamp.h"

#include <headrace/dataset.h>

#include <stdint.h>

/* Digests of all samples, in their order: names and labels; sizes; modification times. Apart,
 * so that a difference can be named. */
struct hr__host_digest {
    uint64_t names[2], sizes[2], times[2];
    uint64_t dataset[2]; /* names and sizes of the dataset with the catalog: of subsets, their
                            parent's; part of every key */
    int with_mtime;      /* the caller's: modification times are part of keys */
};

/* Looks at each sample; after hr_dataset_wait_sizes. Errors: -EAGAIN: the sizes are not known
 * yet; -ENAMETOOLONG; -ENOMEM. */
int hr__host_digest(struct hr__host_digest *out, const struct hr_dataset *dataset,
                    struct hr_error *error);

/* Non-zero where the key says what the item is, whatever becomes of the file: a piece of a
 * container with a checksum. Pure. */
int hr__host_key_is_exact(const struct hr_dataset *dataset, uint64_t index);

/* The key of a file with that stamp (unless it is exact). `digest` is of this dataset. Any
 * thread; does not allocate, no I/O. 0, or -ENAMETOOLONG. */
int hr__host_key(uint64_t key[2], const struct hr__host_digest *digest,
                 const struct hr_dataset *dataset, uint64_t index, const struct hr__stamp *stamp);

#endif
