/*
 * The open container files of a dataset.
 *
 * Descriptors are opened on first use. The dataset owns them and keeps them open until it is
 * destroyed, so readers need no lock and no reference. Their number is limited to a share of the
 * process's limit. Containers beyond it are checked once and then read by path, with one open per
 * sample.
 */
#ifndef HR_DATASET_CONTAINERS_H
#define HR_DATASET_CONTAINERS_H

#include "dataset/catalog.h"

struct hr__containers;

/*
 * Creates the containers of `catalog`, which must outlive them. Their paths are relative to `base`.
 * Opens no file. On success the caller owns *out. Errors: -ENOMEM.
 */
int hr__containers_create(struct hr__containers **out, const struct hr__catalog *catalog,
                          const char *base);

/* Closes all descriptors; accepts NULL. */
void hr__containers_destroy(struct hr__containers **containers);

/* Gives container `i` a descriptor that is already open (without O_DIRECT); the containers own it
 * from then on. Call this before other threads use the dataset. */
void hr__containers_give(struct hr__containers *containers, size_t i, int fd);

/* Notes the digest of the ETag of container `i`, an object. Call this before other threads use the
 * dataset. */
void hr__containers_know(struct hr__containers *containers, size_t i, uint64_t change);

/* Returns it; 0: unknown. */
uint64_t hr__containers_change(const struct hr__containers *containers, size_t i);

/* Returns a path that can be opened; the containers own it. */
const char *hr__containers_path(const struct hr__containers *containers, size_t i);

/*
 * Stores the descriptor of container `i` in *fd, or -1 if too many are open: then read it by its
 * path. With `direct`, the descriptor has O_DIRECT if the file system supports it. Any thread may
 * call this; it takes no lock. The first call for a container blocks on I/O. Errors: those of open;
 * -ESTALE if its size or time differs from the catalog; -EMFILE with advice to raise the limit;
 * -ENXIO if it is not a regular file.
 */
int hr__containers_open(struct hr__containers *containers, size_t i, int direct, int *fd,
                        struct hr_error *error);

#endif
