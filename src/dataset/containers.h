/*
 * The container files of a dataset, open for reading.
 *
 * Descriptors are opened when first asked for, are the dataset's, and stay open
 * until it ends, so that whoever reads needs no lock and no reference. Their
 * number is bounded by a share of the process's limit: containers beyond it are
 * looked at once and then read by path, an open for each sample.
 */
#ifndef HR_DATASET_CONTAINERS_H
#define HR_DATASET_CONTAINERS_H

#include "dataset/catalog.h"

struct hr__containers;

/*
 * For the containers of `catalog`, which stays in place; `base` is what their
 * paths are relative to. Opens nothing. On success *out is the caller's.
 * Errors: -ENOMEM.
 */
int hr__containers_create(struct hr__containers **out, const struct hr__catalog *catalog,
                          const char *base);

/* Closes all; accepts NULL. */
void hr__containers_destroy(struct hr__containers **containers);

/* Gives container `i` a descriptor that is open already (without O_DIRECT), which
 * is taken over. Before others see the dataset. */
void hr__containers_give(struct hr__containers *containers, size_t i, int fd);

/* A path that can be opened; owned by the containers. */
const char *hr__containers_path(const struct hr__containers *containers, size_t i);

/*
 * The descriptor of container `i`, with O_DIRECT where `direct` asks and the file
 * system has it, in *fd; -1: too many are open, read it by its path. Any thread,
 * no lock; the first call for a container blocks on I/O.
 * Errors: those of open; -ESTALE: its size or time is no longer what the catalog
 * says; -EMFILE tells to raise the limit; -ENXIO: not a regular file.
 */
int hr__containers_open(struct hr__containers *containers, size_t i, int direct, int *fd,
                        struct hr_error *error);

#endif
