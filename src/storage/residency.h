/*
 * One file and the page cache: opening it without harm, how much of it is there, getting
 * it out. Private to the storage room.
 */
#ifndef HR_STORAGE_RESIDENCY_H
#define HR_STORAGE_RESIDENCY_H

#include "storage/filesystem.h"

#include <headrace/storage.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* What of a file lies in memory, in bytes of the file. */
struct hr__resident {
    uint64_t bytes, dirty_bytes; /* dirty: not known where `told` is HR__TOLD_PAGES */
    enum {
        HR__TOLD_NOTHING, /* not known */
        HR__TOLD_PAGES,   /* what is there, but not what is dirty */
        HR__TOLD_ALL,
    } told;
};

/* A regular file for reading; what is none is never opened, or not for long. The descriptor
 * is the caller's. Errors: -errno; -EISDIR a directory, -ENXIO something else. */
int hr__resident_open(const char *path, struct stat *status);

void hr__resident_look(struct hr__resident *resident, int fd, const struct stat *status,
                       const struct hr__filesystem *filesystem);

/* Writes out what is dirty, or may be, and drops the file. `before`: as looked at before. Pages
 * that are in use stay. 0 or -EINTR. */
int hr__resident_drop(int fd, const struct hr__resident *before,
                      const struct hr__filesystem *filesystem);

/* "PATH: what the system says", the path printable and cut at its beginning. */
void hr__resident_problem(char *out, size_t capacity, const char *path, const char *text);

/* 0, or -EINVAL as hr_storage_check says. */
int hr__resident_check_paths(const char *const *paths, size_t count, struct hr_error *error);

#endif
