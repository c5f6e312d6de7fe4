/* Writing to files: all bytes of a call, and a file whole or not at all. */
#ifndef HR_BASE_WRITE_FILE_H
#define HR_BASE_WRITE_FILE_H

#include <headrace/base.h>

#include <stddef.h>

/* Writes all of `bytes`, also where a call writes only some or a signal interrupts it. 0 or a
 * negative errno. */
int hr__write_all(int fd, const void *bytes, size_t length);

/*
 * Writes a file that appears at once: the text goes to a temporary file beside it, which is
 * synced and then takes the name. What is not a regular file (a pipe, /dev/null) is written as it
 * is; a symbolic link stays, and what it points to is replaced. "-" is standard output. Errors:
 * -errno of writing.
 */
HR_NODISCARD int hr__write_file(const char *path, const char *text, size_t length,
                                struct hr_error *error);

#endif
