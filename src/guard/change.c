/*
 * Opens for writing, creates, changes and removes, all in the scratch folder. See guard.h.
 *
 * The originals' permissions apply: what the script may not do to them, it may not do here.
 */
#include "guard/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>

static int sys_at(const char *path, int flags, mode_t mode)
{
    int fd = (int)KERNEL(SYS_openat, AT_FDCWD, path, flags, mode);
    return fd < 0 ? -errno : fd;
}

static int sys_unlink(const char *path, int flags)
{
    return KERNEL(SYS_unlinkat, AT_FDCWD, path, flags) ? -errno : 0;
}

/* Resolves a path to be changed: HR__GUARD_AS_IS, 0 with the path in *out, or -errno. */
static int meant_by(int folder, const char *path, int follow, struct hr__guard_path *out)
{
    if (!hr__guard_state || !path || !*path || hr__guard_is_system(path))
        return HR__GUARD_AS_IS;
    return hr__guard_resolve(folder, path, follow, out);
}

/* ---- folders ---- */

int hr__guard_make_parents(const struct hr__guard_path *path)
{
    char made[HR__GUARD_PATH];
    int code = hr__guard_scratch_path(made, "/new", path->text);
    if (code)
        return code;
    char *end = strrchr(made, '/'), *begin = made + strlen(made) - path->length;
    *end = '\0';
    if (!KERNEL(SYS_mkdirat, AT_FDCWD, made, 0700) || errno == EEXIST)
        return 0;
    for (char *at = begin; at < end; at++) {
        at += 1 + strcspn(at + 1, "/");
        *at = '\0';
        if (KERNEL(SYS_mkdirat, AT_FDCWD, made, 0700) && errno != EEXIST)
            return -errno;
        if (at < end)
            *at-- = '/';
    }
    return 0;
}

int hr__guard_check_parent(const struct hr__guard_path *path)
{
    struct hr__guard_path parent;
    struct hr__guard_place place;
    int code = hr__guard_parent(path, &parent);
    if (code)
        return code;
    hr__guard_locate(&parent, &place);
    if (place.kind == HR__GUARD_ABSENT)
        return -ENOENT;
    if (!S_ISDIR(place.stat.st_mode))
        return -ENOTDIR;
    return KERNEL(SYS_faccessat, AT_FDCWD, place.path, W_OK) ? -errno : 0;
}

/* ---- copies ---- */

static int copy_bytes(int from, int to, int64_t bytes)
{
    if (!KERNEL(SYS_ioctl, to, FICLONE, from))
        return 0;
    if (bytes > HR__GUARD_COPIED)
        return -EFBIG;
    while (bytes > 0) {
        long n = KERNEL(SYS_sendfile, to, from, NULL, (size_t)bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (!n)
            break; /* the file was truncated meanwhile */
        bytes -= n;
    }
    return 0;
}

/* Copies a file to work/, with owner, mode and times. */
static int copy(const struct hr__guard_place *place, char work[HR__GUARD_PATH])
{
    int code = hr__guard_work_path(work);
    int from = code ? code : sys_at(place->path, O_RDONLY | O_CLOEXEC, 0);
    if (from < 0)
        return from;
    int to = sys_at(work, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    code = to < 0 ? to : copy_bytes(from, to, place->stat.st_size);
    if (!code) {
        struct timespec times[2] = {place->stat.st_atim, place->stat.st_mtim};
        (void)!KERNEL(SYS_fchown, to, place->stat.st_uid, place->stat.st_gid);
        KERNEL(SYS_fchmod, to, place->stat.st_mode & 07777);
        KERNEL(SYS_utimensat, to, NULL, times, 0);
    }
    KERNEL(SYS_close, from);
    if (to >= 0)
        KERNEL(SYS_close, to);
    if (code && to >= 0)
        sys_unlink(work, 0);
    return code;
}

int hr__guard_copy_up(const struct hr__guard_path *path, struct hr__guard_place *place)
{
    char work[HR__GUARD_PATH], to[HR__GUARD_PATH];
    int code = hr__guard_scratch_path(to, "/new", path->text);
    if (code || (code = copy(place, work)) || (code = hr__guard_make_parents(path)))
        return code;
    hr__guard_note_name(path);
    /* The copy of an original must not replace one that another process has written to
     * meanwhile. */
    long failed = place->kind == HR__GUARD_LINKED
                      ? KERNEL(SYS_renameat2, AT_FDCWD, work, AT_FDCWD, to, 0)
                      : KERNEL(SYS_linkat, AT_FDCWD, work, AT_FDCWD, to, 0);
    code = failed && errno != EEXIST ? -errno : 0;
    if (place->kind != HR__GUARD_LINKED || code)
        sys_unlink(work, 0);
    if (!code)
        hr__guard_locate(path, place);
    return code;
}

/* Recreates a symbolic link in new/, so that its owner and times can be changed. */
static int copy_link(const struct hr__guard_path *path, struct hr__guard_place *place)
{
    char target[PATH_MAX], to[HR__GUARD_PATH];
    long length = KERNEL(SYS_readlinkat, AT_FDCWD, place->path, target, sizeof target - 1);
    int code = length < 0 ? -errno : hr__guard_scratch_path(to, "/new", path->text);
    if (code || (code = hr__guard_make_parents(path)))
        return code;
    target[length] = '\0';
    hr__guard_note_name(path);
    if (KERNEL(SYS_symlinkat, target, AT_FDCWD, to) && errno != EEXIST)
        return -errno;
    hr__guard_locate(path, place);
    return 0;
}

/* Creates the version that may be changed. */
static int bring_up(const struct hr__guard_path *path, struct hr__guard_place *place)
{
    if (place->kind == HR__GUARD_SCRATCH)
        return 0;
    if (S_ISLNK(place->stat.st_mode))
        return copy_link(path, place);
    return hr__guard_copy_up(path, place);
}

/* ---- opening ---- */

/* Opens what exists. -EFBIG: the file is too long to copy. */
static int open_present(const struct hr__guard_path *path, struct hr__guard_place *place, int flags)
{
    mode_t mode = place->stat.st_mode;
    if ((flags & O_CREAT) && (flags & O_EXCL))
        return -EEXIST;
    if (S_ISDIR(mode))
        return -EISDIR;
    if (S_ISLNK(mode))
        return -ELOOP; /* the caller asked not to follow links */
    flags &= ~(O_CREAT | O_EXCL);
    if (place->kind == HR__GUARD_SCRATCH || !S_ISREG(mode))
        return sys_at(place->path, flags, 0);
    if (KERNEL(SYS_faccessat, AT_FDCWD, place->path, W_OK))
        return -errno;
    if (!(flags & O_TRUNC)) {
        int code = hr__guard_copy_up(path, place);
        return code ? code : sys_at(place->path, flags, 0);
    }
    char to[HR__GUARD_PATH];
    int code = hr__guard_scratch_path(to, "/new", path->text);
    if (code || (code = hr__guard_make_parents(path)))
        return code;
    hr__guard_note_name(path);
    if (place->kind == HR__GUARD_LINKED)
        sys_unlink(to, 0);
    int fd = sys_at(to, flags | O_CREAT, 0600);
    if (fd >= 0)
        KERNEL(SYS_fchmod, fd, mode & 07777);
    return fd;
}

/* HR__GUARD_AS_IS looks like a descriptor, so *descriptor returns that one. */
int hr__guard_open(int folder, const char *path, int flags, mode_t mode, int *descriptor)
{
    struct hr__guard_path meant;
    struct hr__guard_place place;
    int is_unnamed = (flags & O_TMPFILE) == O_TMPFILE;
    int follow = !(flags & O_NOFOLLOW) && !((flags & O_CREAT) && (flags & O_EXCL));
    int code = meant_by(folder, path, follow, &meant);
    if (code)
        return code;
    hr__guard_locate(&meant, &place);
    if (hr__guard_is_exempt(&meant)) {
        *descriptor = sys_at(meant.text, flags, mode);
        if (*descriptor >= 0 && place.kind == HR__GUARD_ABSENT)
            hr__guard_note_made(&meant);
    } else if (is_unnamed) {
        char made[HR__GUARD_PATH];
        code = hr__guard_scratch_path(made, "/work", "");
        *descriptor = code ? code : sys_at(made, flags, mode);
    } else if (place.kind != HR__GUARD_ABSENT) {
        *descriptor = open_present(&meant, &place, flags);
        /* The file is too long to copy: open it for reading if that suffices, refuse
         * writing only. */
        if (*descriptor == -EFBIG && (flags & O_ACCMODE) == O_RDWR)
            *descriptor = sys_at(place.path, (flags & ~(O_ACCMODE | O_CREAT)) | O_RDONLY, 0);
        else if (*descriptor == -EFBIG)
            *descriptor = -ENOSPC;
    } else if (!(flags & O_CREAT)) {
        return -ENOENT;
    } else {
        code = hr__guard_check_parent(&meant);
        if (code || (code = hr__guard_make_parents(&meant)) ||
            (code = hr__guard_scratch_path(place.path, "/new", meant.text)))
            return code;
        hr__guard_note_name(&meant);
        *descriptor = sys_at(place.path, flags, mode);
    }
    return *descriptor < 0 ? *descriptor : 0;
}

/* ---- changing ---- */

/* Returns whether a change leaves something as it is: a folder that existed before, or a file
 * without bytes to copy, such as a socket or pipe. */
static int is_left(const struct hr__guard_place *place)
{
    mode_t mode = place->stat.st_mode;
    return place->kind != HR__GUARD_SCRATCH && !S_ISREG(mode) && !S_ISLNK(mode);
}

static int change(const struct hr__guard_path *path, char out[HR__GUARD_PATH])
{
    struct hr__guard_place place;
    int code = 0;
    hr__guard_locate(path, &place);
    if (place.kind == HR__GUARD_ABSENT)
        return -ENOENT;
    if (hr__guard_is_exempt(path)) {
        memcpy(out, path->text, path->length + 1);
        return 0;
    }
    if (is_left(&place))
        out[0] = '\0';
    else if (!(code = bring_up(path, &place)))
        memcpy(out, place.path, strlen(place.path) + 1);
    return code == -EFBIG ? -ENOSPC : code;
}

int hr__guard_change(int folder, const char *path, int follow, char out[HR__GUARD_PATH])
{
    struct hr__guard_path meant;
    int code = meant_by(folder, path, follow, &meant);
    return code ? code : change(&meant, out);
}

int hr__guard_change_open(int descriptor, char out[HR__GUARD_PATH])
{
    struct hr__guard_path meant;
    if (!hr__guard_state || hr__guard_path_of(descriptor, &meant))
        return HR__GUARD_AS_IS;
    /* The file is in the scratch folder or was removed since: it can be changed directly. */
    if (hr__guard_is_exempt(&meant) || hr__guard_is_system(meant.text) ||
        KERNEL(SYS_faccessat, AT_FDCWD, meant.text, F_OK))
        return HR__GUARD_AS_IS;
    return change(&meant, out);
}

/* ---- making and removing ---- */

int hr__guard_make(int folder, const char *path, char out[HR__GUARD_PATH])
{
    struct hr__guard_path meant;
    struct hr__guard_place place;
    int code = meant_by(folder, path, 0, &meant);
    if (code)
        return code;
    /* The last name was followed if a slash ends the path, as in mkdir("made/"). */
    hr__guard_locate(&meant, &place);
    if (place.kind != HR__GUARD_ABSENT)
        return -EEXIST;
    if (hr__guard_is_exempt(&meant)) {
        memcpy(out, meant.text, meant.length + 1);
        hr__guard_note_made(&meant);
        return 0;
    }
    code = hr__guard_check_parent(&meant);
    if (code || (code = hr__guard_make_parents(&meant)))
        return code;
    hr__guard_note_name(&meant);
    return hr__guard_scratch_path(out, "/new", meant.text);
}

/* Removes the run's version; returns 0 also if there is none. */
static int remove_new(const struct hr__guard_path *path, int flags)
{
    char version[HR__GUARD_PATH];
    int code = hr__guard_scratch_path(version, "/new", path->text);
    if (!code)
        code = sys_unlink(version, flags);
    return code == -ENOENT || code == -ENOTDIR ? 0 : code;
}

int hr__guard_remove(int folder, const char *path, int is_folder)
{
    struct hr__guard_path meant;
    struct hr__guard_place place;
    struct stat original;
    int code = meant_by(folder, path, 0, &meant);
    if (code)
        return code;
    if (hr__guard_is_exempt(&meant))
        return sys_unlink(meant.text, is_folder ? AT_REMOVEDIR : 0);
    hr__guard_locate(&meant, &place);
    if (place.kind == HR__GUARD_ABSENT)
        return -ENOENT;
    mode_t mode = place.stat.st_mode;
    if (is_folder ? !S_ISDIR(mode) : S_ISDIR(mode))
        return is_folder ? -ENOTDIR : -EISDIR;
    if ((S_ISSOCK(mode) || S_ISFIFO(mode)) && place.kind == HR__GUARD_ORIGINAL)
        return sys_unlink(place.path, 0);
    if (is_folder && !hr__guard_is_empty(&meant))
        return -ENOTEMPTY;
    if ((code = hr__guard_check_parent(&meant)))
        return code;
    hr__guard_note_name(&meant);
    int was_there = !hr__guard_is_gone(&meant) &&
                    !KERNEL(SYS_newfstatat, AT_FDCWD, meant.text, &original, AT_SYMLINK_NOFOLLOW);
    if (was_there && (code = hr__guard_mark_gone(&meant)))
        return code;
    return remove_new(&meant, is_folder ? AT_REMOVEDIR : 0);
}
