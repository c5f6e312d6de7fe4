/* Writing all bytes of a buffer, and replacing a file atomically. */
#ifndef HR_BASE_WRITE_FILE_H
#define HR_BASE_WRITE_FILE_H

#include <headrace/base.h>

#include <stddef.h>
#include <sys/types.h>

/* Writes all of `bytes`; continues after partial writes and interrupts. Returns 0 or a negative
 * errno. */
int hr__write_all(int fd, const void *bytes, size_t length);

/*
 * Replaces a file atomically: writes a temporary file beside it, syncs it and renames it. The
 * temporary file has no name until it is complete, if the file system can do that: a process that
 * ends meanwhile leaves nothing behind. `mode`: permissions of the new file, less the umask.
 * Returns 0 or a negative errno.
 */
HR_NODISCARD int hr__replace_file(const char *path, const void *bytes, size_t length, mode_t mode);

/*
 * Writes a file that a user named: replaces it like hr__replace_file. If `path` is a symbolic link,
 * its target is replaced and the link stays. A path that is not a regular file (a pipe, /dev/null)
 * is written directly; "-" is standard output. Errors: the -errno of the failed call.
 */
HR_NODISCARD int hr__write_file(const char *path, const char *text, size_t length,
                                struct hr_error *error);

#endif
