/*
 * The C library's functions that the guard wraps, and what the guard's wrappers share.
 *
 * NEXT(name) is the C library's own function of that name. All are looked up when the library is
 * loaded; if another library's constructor calls one before that, it is looked up then.
 */
#ifndef HR_GUARD_CALLS_H
#define HR_GUARD_CALLS_H

#include "guard/guard.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>

#define EXPORT __attribute__((visibility("default")))

/* guard/guard_names.h, written by meson.build, defines HR__GUARD_CALLS(X) as X(open)
 * X(openat) ... */
#include "guard/guard_names.h"

#define HR__GUARD_INDEX(name) HR__GUARD_CALL_##name,
enum hr__guard_call { HR__GUARD_CALLS(HR__GUARD_INDEX) HR__GUARD_CALL_COUNT };

void *hr__guard_next(enum hr__guard_call call);
#define NEXT(name) ((__typeof__(&name))hr__guard_next(HR__GUARD_CALL_##name))

/* Sets errno from a negative errno and returns -1. */
static inline int hr__guard_fail(int code)
{
    errno = -code;
    return -1;
}

/* Older programs call these; current headers no longer declare them. */
int __xstat(int version, const char *path, struct stat *out);
int __lxstat(int version, const char *path, struct stat *out);
int __fxstatat(int version, int folder, const char *path, struct stat *out, int flags);
int __xstat64(int version, const char *path, struct stat64 *out);
int __lxstat64(int version, const char *path, struct stat64 *out);
int __fxstatat64(int version, int folder, const char *path, struct stat64 *out, int flags);
int __xmknod(int version, const char *path, mode_t mode, dev_t *device);
int __xmknodat(int version, int folder, const char *path, mode_t mode, dev_t *device);

/* Programs built with _FORTIFY_SOURCE call these. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);
char *__realpath_chk(const char *path, char *out, size_t room);
ssize_t __readlink_chk(const char *path, char *out, size_t size, size_t room);
ssize_t __readlinkat_chk(int folder, const char *path, char *out, size_t size, size_t room);
char *__getcwd_chk(char *out, size_t size, size_t room);

#endif
