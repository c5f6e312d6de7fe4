/*
 * Page-cache residency of one file: query and evict. Opening a file for this has no side effects on
 * devices or FIFOs. Private to the storage room.
 */
#ifndef HR_STORAGE_RESIDENCY_H
#define HR_STORAGE_RESIDENCY_H

#include "storage/filesystem.h"

#include <headrace/storage.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* How many bytes of a file are in memory. */
struct hr__resident {
    uint64_t bytes, dirty_bytes; /* dirty_bytes: unknown if `known` is HR__RESIDENT_PAGES */
    enum {
        HR__RESIDENT_UNKNOWN, /* unknown */
        HR__RESIDENT_PAGES,   /* resident bytes known, dirty bytes unknown */
        HR__RESIDENT_ALL,
    } known;
};

/* Opens a regular file for reading; does not open anything else. The caller owns the descriptor.
 * Errors: -errno; -EISDIR for a directory, -ENXIO for other kinds of file. */
int hr__resident_open(const char *path, struct stat *status);

void hr__resident_look(struct hr__resident *resident, int fd, const struct stat *status,
                       const struct hr__filesystem *filesystem);

/* Writes back dirty (or possibly dirty) pages and evicts the file. `before`: the result of the last
 * query. Pages in use stay. Returns 0 or -EINTR. */
int hr__resident_drop(int fd, const struct hr__resident *before,
                      const struct hr__filesystem *filesystem);

/* Formats "PATH: system error text". The path is made printable; if too long, its beginning is
 * cut. */
void hr__resident_problem(char *out, size_t capacity, const char *path, const char *text);

/* Returns 0, or -EINVAL as hr_storage_check does. */
int hr__resident_check_paths(const char *const *paths, size_t count, struct hr_error *error);

#endif
