/*
 * List files: one sample per line, "path<TAB>label" or "path label".
 */
#ifndef HR_DATASET_LIST_H
#define HR_DATASET_LIST_H

#include "dataset/catalog.h"

/*
 * Parses `text` of `length` bytes (any bytes). Lines end with LF or CR LF. A UTF-8 byte order mark
 * at the start, empty lines and lines that begin with '#' are ignored. If a line has tabs, the path
 * is everything before the last one; otherwise blanks before the label are not part of the path.
 * `name` is the file's name, for messages. On success the caller owns *out, whose keys are the
 * paths as written. Errors: -EINVAL, with file and line in the message; -ENODATA; -ENOMEM.
 */
int hr__list_parse(struct hr__catalog **out, const char *text, size_t length, const char *name,
                   struct hr_error *error);

/* Reads the file at `path` and parses it. Errors: also those of open and read. */
int hr__list_read(struct hr__catalog **out, const char *path, struct hr_error *error);

/* Makes a catalog of the given paths, which may be none; `labels` may be NULL. Errors: -EINVAL (an
 * empty path), -ENOMEM. */
int hr__list_from_paths(struct hr__catalog **out, const char *const *paths, const int64_t *labels,
                        size_t count, struct hr_error *error);

#endif
