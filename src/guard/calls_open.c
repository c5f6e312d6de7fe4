/*
 * Wraps the functions that open files: open, fopen, mkstemp and their relatives. See guard.h.
 */
#include "guard/calls.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static int writes(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) ||
           (flags & O_TMPFILE) == O_TMPFILE;
}

/* Opens an unchanged path. A symbolic link may lead to something the run changed although none of
 * its names shows it, so it is not followed at first. A path that is no link costs no extra
 * call. */
static int open_as_is(int folder, const char *path, int flags, mode_t mode)
{
    struct hr__guard_place place;
    int saved = errno;
    if (writes(flags) || (flags & (O_NOFOLLOW | O_PATH)) || !hr__guard_is_changed())
        return (int)KERNEL(SYS_openat, folder, path, flags, mode);
    int fd = (int)KERNEL(SYS_openat, folder, path, flags | O_NOFOLLOW, mode);
    if (fd >= 0 || (errno != ELOOP && errno != ENOTDIR))
        return fd;
    errno = saved;
    int code = hr__guard_see_behind(folder, path, &place);
    if (code < 0)
        return hr__guard_fail(code);
    return code ? (int)KERNEL(SYS_openat, folder, path, flags, mode)
                : (int)KERNEL(SYS_openat, AT_FDCWD, place.path, flags, mode);
}

static int open_guarded(int folder, const char *path, int flags, mode_t mode)
{
    struct hr__guard_place place;
    int fd = -1, saved = errno;
    int code = writes(flags) && !(flags & O_PATH)
                   ? hr__guard_open(folder, path, flags, mode, &fd)
                   : hr__guard_see(folder, path, !(flags & O_NOFOLLOW), &place);
    if (code < 0)
        return hr__guard_fail(code);
    errno = saved;
    if (code == HR__GUARD_AS_IS)
        return open_as_is(folder, path, flags, mode);
    return fd >= 0 ? fd : (int)KERNEL(SYS_openat, AT_FDCWD, place.path, flags, mode);
}

/* Fetches the mode argument, if there is one. */
#define MODE(flags)                                                                                \
    mode_t mode = 0;                                                                               \
    if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) {                                   \
        va_list list;                                                                              \
        va_start(list, flags);                                                                     \
        mode = va_arg(list, mode_t);                                                               \
        va_end(list);                                                                              \
    }

EXPORT int open(const char *path, int flags, ...)
{
    MODE(flags);
    return open_guarded(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
    MODE(flags);
    return open_guarded(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
    MODE(flags);
    return open_guarded(folder, path, flags, mode);
}

EXPORT int openat64(int folder, const char *path, int flags, ...)
{
    MODE(flags);
    return open_guarded(folder, path, flags | O_LARGEFILE, mode);
}

EXPORT int creat(const char *path, mode_t mode)
{
    return open_guarded(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

EXPORT int creat64(const char *path, mode_t mode)
{
    return open_guarded(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC | O_LARGEFILE, mode);
}

EXPORT int __open_2(const char *path, int flags)
{
    return open_guarded(AT_FDCWD, path, flags, 0);
}

EXPORT int __open64_2(const char *path, int flags)
{
    return open_guarded(AT_FDCWD, path, flags | O_LARGEFILE, 0);
}

EXPORT int __openat_2(int folder, const char *path, int flags)
{
    return open_guarded(folder, path, flags, 0);
}

EXPORT int __openat64_2(int folder, const char *path, int flags)
{
    return open_guarded(folder, path, flags | O_LARGEFILE, 0);
}

EXPORT int shm_open(const char *name, int flags, mode_t mode)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "/dev/shm/%s", name + strspn(name, "/"));
    if (length < 0 || (size_t)length >= sizeof path)
        return hr__guard_fail(-ENAMETOOLONG);
    return open_guarded(AT_FDCWD, path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode);
}

/* ---- stdio ---- */

static int flags_of(const char *mode)
{
    int flags = strchr(mode, '+') ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
    if (mode[0] != 'r')
        flags |= O_CREAT | (mode[0] == 'a' ? O_APPEND : O_TRUNC);
    flags |= strchr(mode, 'x') ? O_EXCL : 0;
    return flags | (strchr(mode, 'e') ? O_CLOEXEC : 0);
}

/* Opens the file, then makes a stream from the descriptor. */
static FILE *open_stream(const char *path, const char *mode)
{
    int fd = open_guarded(AT_FDCWD, path, flags_of(mode) | O_LARGEFILE, 0666);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, mode);
    if (fd >= 0 && !stream)
        close(fd);
    return stream;
}

static FILE *open_file(const char *path, const char *mode)
{
    if (hr__guard_state && (writes(flags_of(mode)) || hr__guard_is_changed()))
        return open_stream(path, mode);
    return NEXT(fopen64)(path, mode);
}

EXPORT FILE *fopen(const char *restrict path, const char *restrict mode)
{
    return open_file(path, mode);
}

EXPORT FILE *fopen64(const char *restrict path, const char *restrict mode)
{
    return open_file(path, mode);
}

static FILE *open_again(const char *path, const char *mode, FILE *stream)
{
    char physical[64];
    if (!hr__guard_state || !path)
        return NEXT(freopen64)(path, mode, stream);
    int fd = open_guarded(AT_FDCWD, path, flags_of(mode) | O_LARGEFILE | O_CLOEXEC, 0666);
    if (fd < 0) {
        int saved = errno;
        fclose(stream);
        return errno = saved, NULL;
    }
    /* The file exists now; the descriptor leads to its real place. */
    snprintf(physical, sizeof physical, "/proc/self/fd/%d", fd);
    stream =
        NEXT(freopen64)(physical, mode[0] == 'w' ? (strchr(mode, '+') ? "r+" : "w") : mode, stream);
    close(fd);
    return stream;
}

EXPORT FILE *freopen(const char *restrict path, const char *restrict mode, FILE *restrict stream)
{
    return open_again(path, mode, stream);
}

EXPORT FILE *freopen64(const char *restrict path, const char *restrict mode, FILE *restrict stream)
{
    return open_again(path, mode, stream);
}

/* ---- new names ---- */

/* Replaces the six X of a template before its last `suffix` characters until `make` succeeds. */
static int make_unique(char *pattern, int suffix, int (*make)(const char *path, int flags),
                       int flags)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t length = strlen(pattern);
    if (suffix < 0 || length < 6 + (size_t)suffix ||
        memcmp(pattern + length - 6 - (size_t)suffix, "XXXXXX", 6))
        return hr__guard_fail(-EINVAL);
    for (int tries = 0; tries < 1000; tries++) {
        unsigned char drawn[6];
        if (getrandom(drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
            return -1;
        for (size_t i = 0; i < 6; i++)
            pattern[length - 6 - (size_t)suffix + i] = letters[drawn[i] % 62];
        int made = make(pattern, flags);
        if (made >= 0 || errno != EEXIST)
            return made;
    }
    return hr__guard_fail(-EEXIST);
}

static int make_file(const char *path, int flags)
{
    return open_guarded(AT_FDCWD, path, flags | O_RDWR | O_CREAT | O_EXCL | O_LARGEFILE, 0600);
}

static int make_folder(const char *path, int flags)
{
    (void)flags;
    return mkdir(path, 0700);
}

EXPORT int mkstemp(char *pattern)
{
    return make_unique(pattern, 0, make_file, 0);
}

EXPORT int mkstemp64(char *pattern)
{
    return make_unique(pattern, 0, make_file, 0);
}

EXPORT int mkstemps(char *pattern, int suffix)
{
    return make_unique(pattern, suffix, make_file, 0);
}

EXPORT int mkstemps64(char *pattern, int suffix)
{
    return make_unique(pattern, suffix, make_file, 0);
}

EXPORT int mkostemp(char *pattern, int flags)
{
    return make_unique(pattern, 0, make_file, flags & ~O_ACCMODE);
}

EXPORT int mkostemp64(char *pattern, int flags)
{
    return make_unique(pattern, 0, make_file, flags & ~O_ACCMODE);
}

EXPORT int mkostemps(char *pattern, int suffix, int flags)
{
    return make_unique(pattern, suffix, make_file, flags & ~O_ACCMODE);
}

EXPORT int mkostemps64(char *pattern, int suffix, int flags)
{
    return make_unique(pattern, suffix, make_file, flags & ~O_ACCMODE);
}

EXPORT char *mkdtemp(char *pattern)
{
    return make_unique(pattern, 0, make_folder, 0) < 0 ? NULL : pattern;
}
