/*
 * Wraps functions that only read: passes on the path of what the script would find. See guard.h.
 */
#include "guard/calls.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

/* Calls `straight` for an unchanged path, else `instead` with place.path. */
#define LOOK(folder, path, follow, straight, instead)                                              \
    do {                                                                                           \
        struct hr__guard_place place;                                                              \
        int code = hr__guard_see(folder, path, follow, &place);                                    \
        return code < 0 ? hr__guard_fail(code) : code ? (straight) : (instead);                    \
    } while (0)

#define FOLLOW(flags) (!((flags)&AT_SYMLINK_NOFOLLOW))

/* ---- stat ---- */

static int stat_at(const char *path, void *out, int flags)
{
    return (int)KERNEL(SYS_newfstatat, AT_FDCWD, path, out, flags);
}

/* Returns the status of an unchanged path; but a symbolic link may lead to something the run
 * changed. */
static int stat_as_is(int folder, const char *path, void *out, int flags)
{
    struct hr__guard_place place;
    struct stat *found = out;
    int is_followed = FOLLOW(flags) && !(flags & AT_EMPTY_PATH) && hr__guard_is_changed();
    int extra = is_followed ? AT_SYMLINK_NOFOLLOW : 0;
    int failed = (int)KERNEL(SYS_newfstatat, folder, path, out, flags | extra);
    if (failed || !is_followed || !S_ISLNK(found->st_mode))
        return failed;
    int code = hr__guard_see_behind(folder, path, &place);
    if (code < 0)
        return hr__guard_fail(code);
    return code ? (int)KERNEL(SYS_newfstatat, folder, path, out, flags)
                : stat_at(place.path, out, flags);
}

EXPORT int stat(const char *path, struct stat *out)
{
    LOOK(AT_FDCWD, path, 1, stat_as_is(AT_FDCWD, path, out, 0), stat_at(place.path, out, 0));
}

EXPORT int stat64(const char *path, struct stat64 *out)
{
    LOOK(AT_FDCWD, path, 1, stat_as_is(AT_FDCWD, path, out, 0), stat_at(place.path, out, 0));
}

EXPORT int lstat(const char *path, struct stat *out)
{
    LOOK(AT_FDCWD, path, 0, NEXT(lstat)(path, out), stat_at(place.path, out, AT_SYMLINK_NOFOLLOW));
}

EXPORT int lstat64(const char *path, struct stat64 *out)
{
    LOOK(AT_FDCWD, path, 0, NEXT(lstat64)(path, out),
         stat_at(place.path, out, AT_SYMLINK_NOFOLLOW));
}

EXPORT int fstatat(int folder, const char *path, struct stat *out, int flags)
{
    LOOK(folder, path, FOLLOW(flags), stat_as_is(folder, path, out, flags),
         stat_at(place.path, out, flags));
}

EXPORT int fstatat64(int folder, const char *path, struct stat64 *out, int flags)
{
    LOOK(folder, path, FOLLOW(flags), stat_as_is(folder, path, out, flags),
         stat_at(place.path, out, flags));
}

EXPORT int statx(int folder, const char *restrict path, int flags, unsigned mask,
                 struct statx *restrict out)
{
    LOOK(folder, path, FOLLOW(flags), NEXT(statx)(folder, path, flags, mask, out),
         (int)KERNEL(SYS_statx, AT_FDCWD, place.path, flags, mask, out));
}

EXPORT int __xstat(int version, const char *path, struct stat *out)
{
    LOOK(AT_FDCWD, path, 1, NEXT(__xstat)(version, path, out), stat_at(place.path, out, 0));
}

EXPORT int __xstat64(int version, const char *path, struct stat64 *out)
{
    LOOK(AT_FDCWD, path, 1, NEXT(__xstat64)(version, path, out), stat_at(place.path, out, 0));
}

EXPORT int __lxstat(int version, const char *path, struct stat *out)
{
    LOOK(AT_FDCWD, path, 0, NEXT(__lxstat)(version, path, out),
         stat_at(place.path, out, AT_SYMLINK_NOFOLLOW));
}

EXPORT int __lxstat64(int version, const char *path, struct stat64 *out)
{
    LOOK(AT_FDCWD, path, 0, NEXT(__lxstat64)(version, path, out),
         stat_at(place.path, out, AT_SYMLINK_NOFOLLOW));
}

EXPORT int __fxstatat(int version, int folder, const char *path, struct stat *out, int flags)
{
    LOOK(folder, path, FOLLOW(flags), NEXT(__fxstatat)(version, folder, path, out, flags),
         stat_at(place.path, out, flags));
}

EXPORT int __fxstatat64(int version, int folder, const char *path, struct stat64 *out, int flags)
{
    LOOK(folder, path, FOLLOW(flags), NEXT(__fxstatat64)(version, folder, path, out, flags),
         stat_at(place.path, out, flags));
}

EXPORT int statfs(const char *path, struct statfs *out)
{
    LOOK(AT_FDCWD, path, 1, NEXT(statfs)(path, out), NEXT(statfs)(place.path, out));
}

EXPORT int statfs64(const char *path, struct statfs64 *out)
{
    LOOK(AT_FDCWD, path, 1, NEXT(statfs64)(path, out), NEXT(statfs64)(place.path, out));
}

EXPORT int statvfs(const char *restrict path, struct statvfs *restrict out)
{
    LOOK(AT_FDCWD, path, 1, NEXT(statvfs)(path, out), NEXT(statvfs)(place.path, out));
}

EXPORT int statvfs64(const char *restrict path, struct statvfs64 *restrict out)
{
    LOOK(AT_FDCWD, path, 1, NEXT(statvfs64)(path, out), NEXT(statvfs64)(place.path, out));
}

/* ---- access ---- */

EXPORT int access(const char *path, int mode)
{
    LOOK(AT_FDCWD, path, 1, NEXT(access)(path, mode), NEXT(access)(place.path, mode));
}

EXPORT int euidaccess(const char *path, int mode)
{
    LOOK(AT_FDCWD, path, 1, NEXT(euidaccess)(path, mode), NEXT(euidaccess)(place.path, mode));
}

EXPORT int eaccess(const char *path, int mode)
{
    LOOK(AT_FDCWD, path, 1, NEXT(eaccess)(path, mode), NEXT(eaccess)(place.path, mode));
}

EXPORT int faccessat(int folder, const char *path, int mode, int flags)
{
    LOOK(folder, path, FOLLOW(flags), NEXT(faccessat)(folder, path, mode, flags),
         NEXT(faccessat)(AT_FDCWD, place.path, mode, flags));
}

/* ---- symbolic links ---- */

/* A link that stands for an original does not look like a link to the script. */
static ssize_t read_place(const struct hr__guard_place *place, char *out, size_t room)
{
    if (place->kind == HR__GUARD_LINKED)
        return hr__guard_fail(-EINVAL);
    return NEXT(readlink)(place->path, out, room);
}

EXPORT ssize_t readlink(const char *restrict path, char *restrict out, size_t room)
{
    LOOK(AT_FDCWD, path, 0, NEXT(readlink)(path, out, room), read_place(&place, out, room));
}

EXPORT ssize_t readlinkat(int folder, const char *restrict path, char *restrict out, size_t room)
{
    LOOK(folder, path, 0, NEXT(readlinkat)(folder, path, out, room), read_place(&place, out, room));
}

EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t size, size_t room)
{
    if (size > room)
        abort();
    return readlink(path, out, size);
}

EXPORT ssize_t __readlinkat_chk(int folder, const char *path, char *out, size_t size, size_t room)
{
    if (size > room)
        abort();
    return readlinkat(folder, path, out, size);
}

EXPORT char *realpath(const char *restrict path, char *restrict out)
{
    struct hr__guard_path meant;
    struct hr__guard_place place;
    int code = hr__guard_see(AT_FDCWD, path, 1, &place);
    if (code > 0)
        return NEXT(realpath)(path, out);
    if (!code)
        code = hr__guard_resolve(AT_FDCWD, path, 1, &meant);
    if (!code && place.kind == HR__GUARD_ABSENT)
        code = -ENOENT;
    if (code)
        return errno = -code, NULL;
    return out ? memcpy(out, meant.text, meant.length + 1) : strdup(meant.text);
}

EXPORT char *canonicalize_file_name(const char *path)
{
    return realpath(path, NULL);
}

EXPORT char *__realpath_chk(const char *path, char *out, size_t room)
{
    if (room < PATH_MAX)
        abort();
    return realpath(path, out);
}

/* ---- the working directory ---- */

EXPORT int chdir(const char *path)
{
    struct hr__guard_place place;
    int code = hr__guard_see(AT_FDCWD, path, 1, &place);
    if (code < 0)
        return hr__guard_fail(code);
    code = NEXT(chdir)(code ? path : place.path);
    if (!code && hr__guard_state)
        hr__guard_note_folder();
    return code;
}

EXPORT int fchdir(int folder)
{
    int code = NEXT(fchdir)(folder);
    if (!code && hr__guard_state)
        hr__guard_note_folder();
    return code;
}

static char *without_scratch(char *text)
{
    struct hr__guard_path path;
    if (!text || !hr__guard_state || !hr__guard_is_scratch(text))
        return text;
    path.length = strlen(text);
    if (path.length >= sizeof path.text)
        return text;
    memcpy(path.text, text, path.length + 1);
    hr__guard_forget_scratch(&path);
    return memcpy(text, path.text, path.length + 1);
}

EXPORT char *getcwd(char *out, size_t size)
{
    return without_scratch(NEXT(getcwd)(out, size));
}

EXPORT char *__getcwd_chk(char *out, size_t size, size_t room)
{
    if (size > room)
        abort();
    return getcwd(out, size);
}

EXPORT char *get_current_dir_name(void)
{
    return getcwd(NULL, 0);
}

/* ---- attributes ---- */

EXPORT ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
    LOOK(AT_FDCWD, path, 1, NEXT(getxattr)(path, name, value, size),
         NEXT(getxattr)(place.path, name, value, size));
}

EXPORT ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
    LOOK(AT_FDCWD, path, 0, NEXT(lgetxattr)(path, name, value, size),
         NEXT(lgetxattr)(place.path, name, value, size));
}

EXPORT ssize_t listxattr(const char *path, char *list, size_t size)
{
    LOOK(AT_FDCWD, path, 1, NEXT(listxattr)(path, list, size),
         NEXT(listxattr)(place.path, list, size));
}

EXPORT ssize_t llistxattr(const char *path, char *list, size_t size)
{
    LOOK(AT_FDCWD, path, 0, NEXT(llistxattr)(path, list, size),
         NEXT(llistxattr)(place.path, list, size));
}
