/*
 * Wraps functions that create, change and remove what a path names. See guard.h.
 *
 * Calls that the guard does not change go to the kernel directly, because the C library's function
 * would be trapped (trap.c).
 */
#include "guard/calls.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

#define FOLLOW(flags) (!((flags)&AT_SYMLINK_NOFOLLOW))

static int done(int code)
{
    return code < 0 ? hr__guard_fail(code) : code;
}

/* ---- making ---- */

/* Where to create something: `path` is in the scratch folder, or the path given. */
struct guard_making {
    char at[HR__GUARD_PATH];
    int folder;
    const char *path;
};

static int make(int folder, const char *path, struct guard_making *out)
{
    int code = hr__guard_make(folder, path, out->at);
    out->folder = code ? folder : AT_FDCWD;
    out->path = code ? path : out->at;
    return code < 0 ? hr__guard_fail(code) : 0;
}

EXPORT int mkdirat(int folder, const char *path, mode_t mode)
{
    struct guard_making to;
    return make(folder, path, &to) ? -1 : (int)KERNEL(SYS_mkdirat, to.folder, to.path, mode);
}

EXPORT int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

EXPORT int symlinkat(const char *target, int folder, const char *path)
{
    struct guard_making to;
    return make(folder, path, &to) ? -1 : (int)KERNEL(SYS_symlinkat, target, to.folder, to.path);
}

EXPORT int symlink(const char *target, const char *path)
{
    return symlinkat(target, AT_FDCWD, path);
}

EXPORT int mknodat(int folder, const char *path, mode_t mode, dev_t device)
{
    struct guard_making to;
    return make(folder, path, &to) ? -1
                                   : (int)KERNEL(SYS_mknodat, to.folder, to.path, mode, device);
}

EXPORT int mknod(const char *path, mode_t mode, dev_t device)
{
    return mknodat(AT_FDCWD, path, mode, device);
}

EXPORT int mkfifoat(int folder, const char *path, mode_t mode)
{
    return mknodat(folder, path, (mode & 07777) | S_IFIFO, 0);
}

EXPORT int mkfifo(const char *path, mode_t mode)
{
    return mkfifoat(AT_FDCWD, path, mode);
}

EXPORT int __xmknod(int version, const char *path, mode_t mode, dev_t *device)
{
    (void)version;
    return mknod(path, mode, *device);
}

EXPORT int __xmknodat(int version, int folder, const char *path, mode_t mode, dev_t *device)
{
    (void)version;
    return mknodat(folder, path, mode, *device);
}

EXPORT int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    struct hr__guard_pair pair = {from_folder, from, to_folder, to};
    int code = done(hr__guard_link(&pair, flags & AT_SYMLINK_FOLLOW));
    return code <= 0 ? code : (int)KERNEL(SYS_linkat, from_folder, from, to_folder, to, flags);
}

EXPORT int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* ---- removing and renaming ---- */

EXPORT int unlinkat(int folder, const char *path, int flags)
{
    int code = done(hr__guard_remove(folder, path, flags & AT_REMOVEDIR));
    return code <= 0 ? code : (int)KERNEL(SYS_unlinkat, folder, path, flags);
}

EXPORT int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

EXPORT int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

EXPORT int remove(const char *path)
{
    int saved = errno;
    if (!unlink(path))
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    errno = saved;
    return rmdir(path);
}

EXPORT int shm_unlink(const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "/dev/shm/%s", name + strspn(name, "/"));
    return length > 0 && (size_t)length < sizeof path ? unlink(path) : hr__guard_fail(-EINVAL);
}

EXPORT int renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags)
{
    struct hr__guard_pair pair = {from_folder, from, to_folder, to};
    int code = done(hr__guard_rename(&pair, flags));
    return code <= 0 ? code : (int)KERNEL(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

EXPORT int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return renameat2(from_folder, from, to_folder, to, 0);
}

EXPORT int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* ---- changing ---- */

/* What to change: a path in the scratch folder, or the path given. */
struct changing {
    char at[HR__GUARD_PATH];
    int folder;
    const char *path;
    int is_left; /* an existing folder stays unchanged, without error */
};

static int change(int code, int folder, const char *path, struct changing *out)
{
    out->folder = code ? folder : AT_FDCWD;
    out->path = code ? path : out->at;
    out->is_left = !code && !out->at[0];
    return code < 0 ? hr__guard_fail(code) : 0;
}

static int change_at(int folder, const char *path, int follow, struct changing *out)
{
    return change(hr__guard_change(folder, path, follow, out->at), folder, path, out);
}

/* Returns 1 if the descriptor itself must be changed. */
static int change_open(int descriptor, struct changing *out)
{
    int code = hr__guard_change_open(descriptor, out->at);
    return code > 0 ? code : change(code, AT_FDCWD, NULL, out);
}

EXPORT int truncate(const char *path, off_t length)
{
    struct changing it;
    if (change_at(AT_FDCWD, path, 1, &it))
        return -1;
    return it.is_left ? hr__guard_fail(-EISDIR) : (int)KERNEL(SYS_truncate, it.path, length);
}

EXPORT int truncate64(const char *path, off64_t length)
{
    return truncate(path, length);
}

EXPORT int fchmodat(int folder, const char *path, mode_t mode, int flags)
{
    struct changing it;
    if (flags & AT_SYMLINK_NOFOLLOW)
        return hr__guard_fail(-EOPNOTSUPP);
    if (change_at(folder, path, 1, &it))
        return -1;
    return it.is_left ? 0 : (int)KERNEL(SYS_fchmodat, it.folder, it.path, mode);
}

EXPORT int chmod(const char *path, mode_t mode)
{
    return fchmodat(AT_FDCWD, path, mode, 0);
}

EXPORT int fchmod(int descriptor, mode_t mode)
{
    struct changing it;
    int code = change_open(descriptor, &it);
    if (code)
        return code < 0 ? code : (int)KERNEL(SYS_fchmod, descriptor, mode);
    return it.is_left ? 0 : (int)KERNEL(SYS_fchmodat, it.folder, it.path, mode);
}

EXPORT int fchownat(int folder, const char *path, uid_t user, gid_t group, int flags)
{
    struct changing it;
    if (!(flags & AT_EMPTY_PATH) && change_at(folder, path, FOLLOW(flags), &it))
        return -1;
    if (flags & AT_EMPTY_PATH)
        return (int)KERNEL(SYS_fchownat, folder, path, user, group, flags);
    return it.is_left ? 0 : (int)KERNEL(SYS_fchownat, it.folder, it.path, user, group, flags);
}

EXPORT int chown(const char *path, uid_t user, gid_t group)
{
    return fchownat(AT_FDCWD, path, user, group, 0);
}

EXPORT int lchown(const char *path, uid_t user, gid_t group)
{
    return fchownat(AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW);
}

EXPORT int fchown(int descriptor, uid_t user, gid_t group)
{
    struct changing it;
    int code = change_open(descriptor, &it);
    if (code)
        return code < 0 ? code : (int)KERNEL(SYS_fchown, descriptor, user, group);
    return it.is_left ? 0 : (int)KERNEL(SYS_fchownat, it.folder, it.path, user, group, 0);
}

EXPORT int futimens(int descriptor, const struct timespec times[2])
{
    struct changing it;
    int code = change_open(descriptor, &it);
    if (code)
        return code < 0 ? code : (int)KERNEL(SYS_utimensat, descriptor, NULL, times, 0);
    return it.is_left ? 0 : (int)KERNEL(SYS_utimensat, it.folder, it.path, times, 0);
}

EXPORT int utimensat(int folder, const char *path, const struct timespec times[2], int flags)
{
    struct changing it;
    if (!path)
        return futimens(folder, times);
    if (change_at(folder, path, FOLLOW(flags), &it))
        return -1;
    return it.is_left ? 0 : (int)KERNEL(SYS_utimensat, it.folder, it.path, times, flags);
}

/* Converts times from microseconds; NULL stays NULL. */
static const struct timespec *finer(const struct timeval times[2], struct timespec out[2])
{
    for (int i = 0; times && i < 2; i++)
        out[i] = (struct timespec){.tv_sec = times[i].tv_sec, .tv_nsec = times[i].tv_usec * 1000};
    return times ? out : NULL;
}

EXPORT int utimes(const char *path, const struct timeval times[2])
{
    struct timespec fine[2];
    return utimensat(AT_FDCWD, path, finer(times, fine), 0);
}

EXPORT int lutimes(const char *path, const struct timeval times[2])
{
    struct timespec fine[2];
    return utimensat(AT_FDCWD, path, finer(times, fine), AT_SYMLINK_NOFOLLOW);
}

EXPORT int futimesat(int folder, const char *path, const struct timeval times[2])
{
    struct timespec fine[2];
    return utimensat(folder, path, finer(times, fine), 0);
}

EXPORT int futimes(int descriptor, const struct timeval times[2])
{
    struct timespec fine[2];
    return futimens(descriptor, finer(times, fine));
}

EXPORT int utime(const char *path, const struct utimbuf *times)
{
    struct timespec fine[2] = {{.tv_sec = times ? times->actime : 0},
                               {.tv_sec = times ? times->modtime : 0}};
    return utimensat(AT_FDCWD, path, times ? fine : NULL, 0);
}

EXPORT int setxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
    struct changing it;
    if (change_at(AT_FDCWD, path, 1, &it))
        return -1;
    return it.is_left ? 0 : (int)KERNEL(SYS_setxattr, it.path, name, value, size, flags);
}

EXPORT int lsetxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
    struct changing it;
    if (change_at(AT_FDCWD, path, 0, &it))
        return -1;
    return it.is_left ? 0 : (int)KERNEL(SYS_lsetxattr, it.path, name, value, size, flags);
}

EXPORT int fsetxattr(int descriptor, const char *name, const void *value, size_t size, int flags)
{
    struct changing it;
    int code = change_open(descriptor, &it);
    if (code)
        return code < 0 ? code : (int)KERNEL(SYS_fsetxattr, descriptor, name, value, size, flags);
    return it.is_left ? 0 : (int)KERNEL(SYS_setxattr, it.path, name, value, size, flags);
}

EXPORT int removexattr(const char *path, const char *name)
{
    struct changing it;
    if (change_at(AT_FDCWD, path, 1, &it))
        return -1;
    return it.is_left ? 0 : (int)KERNEL(SYS_removexattr, it.path, name);
}

EXPORT int lremovexattr(const char *path, const char *name)
{
    struct changing it;
    if (change_at(AT_FDCWD, path, 0, &it))
        return -1;
    return it.is_left ? 0 : (int)KERNEL(SYS_lremovexattr, it.path, name);
}

EXPORT int fremovexattr(int descriptor, const char *name)
{
    struct changing it;
    int code = change_open(descriptor, &it);
    if (code)
        return code < 0 ? code : (int)KERNEL(SYS_fremovexattr, descriptor, name);
    return it.is_left ? 0 : (int)KERNEL(SYS_removexattr, it.path, name);
}
