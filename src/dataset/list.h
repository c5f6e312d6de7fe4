/*
 * List files: one sample a line, "path<TAB>label" or "path label".
 */
#ifndef HR_DATASET_LIST_H
#define HR_DATASET_LIST_H

#include "dataset/catalog.h"

/*
 * Parses `text` of `length` bytes (any bytes). Lines end with LF or CR LF; an
 * UTF-8 byte order mark at the start is passed over, and so are empty lines and
 * those that begin with '#'. With a tab the path is everything before the last
 * one; otherwise blanks before the label are no part of it. `name` is the
 * file's, for messages. On success *out is the caller's; its keys are the paths
 * as written. Errors: -EINVAL names file and line; -ENODATA; -ENOMEM.
 */
int hr__list_parse(struct hr__catalog **out, const char *text, size_t length, const char *name,
                   struct hr_error *error);

/* Reads the file at `path` and parses it. Errors: those of open and read too. */
int hr__list_read(struct hr__catalog **out, const char *path, struct hr_error *error);

/* A catalog of given paths, maybe none; labels may be NULL. Errors: -EINVAL (an
 * empty path), -ENOMEM. */
int hr__list_from_paths(struct hr__catalog **out, const char *const *paths, const int64_t *labels,
                        size_t count, struct hr_error *error);

#endif
