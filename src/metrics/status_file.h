/*
 * The status of a loader in a file, for headrace top: one file for each loader of this user's
 * processes, in /dev/shm/headrace-UID-loaders (HEADRACE_SHM names another place than /dev/shm),
 * which only the user may enter. It lies in memory, so that writing it never waits for a disk.
 *
 * A file is `struct hr__status_header` and the JSON. Its process holds a lock on it, which the
 * kernel releases at the process's death: a file without a lock is left of a killed process. The
 * next loader that starts removes such files.
 *
 * Everything that writes is best effort: where there is no such place, or it is full, the loader
 * works as usual and headrace top does not show it.
 */
#ifndef HR_METRICS_STATUS_FILE_H
#define HR_METRICS_STATUS_FILE_H

#include "base/own_fd.h"

#include <headrace/base.h>

#include <jansson.h>
#include <stdint.h>

/* A longer text is not written, and not read. */
#define HR__STATUS_BYTES 16384

struct hr__status_header {
    char magic[8];    /* "HRLOADER" */
    uint32_t version; /* 1; in the writer's byte order, as the rest */
    uint32_t length;  /* of the JSON that follows */
    uint64_t digest;  /* XXH3-64 of the JSON: a reader that comes during a write sees it torn */
};

/* Initialise `own` with HR__OWN_FD_NONE. */
struct hr__status_file {
    struct hr__own_fd own;
    char place[256]; /* the directory */
    char name[80];
};

/* Makes and locks a file, and removes those of killed processes. `file` must not move until it is
 * closed. */
void hr__status_file_open(struct hr__status_file *file, int number);

/* Replaces the contents. Does nothing in a forked child, whose descriptor is closed. */
void hr__status_file_write(struct hr__status_file *file, const char *text, size_t length);

/* Removes the file, and the directory if it is then empty; in a forked child, does nothing. */
void hr__status_file_close(struct hr__status_file *file);

/* Appends the contents of all files whose processes live to an array. Errors: -ENOMEM. */
HR_NODISCARD int hr__status_files_read(json_t *array);

/* Returns the JSON object in a file's bytes, owned by the caller; NULL: it is none. Pure. */
json_t *hr__status_parse(const void *bytes, size_t length);

#endif
