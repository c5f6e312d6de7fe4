/*
 * What an item is known by on all hosts, whose copies of a dataset may lie under different
 * paths: its place in the dataset (path below the root; piece of a container), its size and,
 * unless asked otherwise, its modification time.
 */
#ifndef HR_CACHE_HOST_KEY_H
#define HR_CACHE_HOST_KEY_H

#include <headrace/dataset.h>

#include <stdint.h>

/* The key, of what the scan saw of the file (sizes must be known: hr__dataset_total_bytes). Any
 * thread; does not allocate, no I/O. 0, or -ENAMETOOLONG. */
int hr__host_key(uint64_t key[2], const struct hr_dataset *dataset, uint64_t index, int with_mtime);

/* Digests of all samples, in their order: names and labels; sizes; modification times. Apart,
 * so that a difference can be named. Waits for the sizes. Errors: -ENOMEM, -EIO. Blocks. */
struct hr__host_digest {
    uint64_t names[2], sizes[2], times[2];
};

int hr__host_digest(struct hr__host_digest *out, struct hr_dataset *dataset,
                    struct hr_error *error);

#endif
