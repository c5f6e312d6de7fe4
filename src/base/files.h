/* Reading and writing all bytes, and replacing a file atomically. Interrupted calls continue. */
#ifndef HR_BASE_FILES_H
#define HR_BASE_FILES_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads the beginning of a file as text, for small files like those of /proc. `out` is terminated,
 * also on failure. Returns the length, or a negative errno. */
ssize_t hr__read_text(const char *path, char *out, size_t capacity);

/* Writes this program's command line, without its folder and as far as it fits, for people. */
void hr__program_text(char *out, size_t capacity);

/* Reads up to `length` bytes at `offset`. Returns how many, which are fewer only at the end of the
 * file, or a negative errno. */
int64_t hr__read_at(int fd, void *out, size_t length, uint64_t offset);

/* Reads exactly `length` bytes at `offset`. Returns 0; -ENODATA: the file ends before; or another
 * negative errno. */
HR_NODISCARD int hr__read_exactly(int fd, void *out, size_t length, uint64_t offset);

/* Writes all of `bytes`. Returns 0 or a negative errno. */
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
