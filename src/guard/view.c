/*
 * Resolves paths to what the script means, and finds which version exists. See guard.h.
 */
#include "guard/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define MOST_LINKS 40

/* The working directory exists only in the scratch folder: a relative path may lead out of it. */
static atomic_int is_in_scratch;

static int sys_lstat(const char *path, struct stat *out)
{
    return KERNEL(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static ssize_t sys_readlink(const char *path, char *out, size_t room)
{
    ssize_t length = KERNEL(SYS_readlinkat, AT_FDCWD, path, out, room - 1);
    if (length < 0)
        return -errno;
    out[length] = '\0';
    return length;
}

void hr__guard_note_folder(void)
{
    char path[PATH_MAX];
    int saved = errno;
    long length = KERNEL(SYS_getcwd, path, sizeof path);
    atomic_store(&is_in_scratch, length > 0 && hr__guard_is_scratch(path));
    errno = saved;
}

int hr__guard_append(struct hr__guard_path *path, const char *name, size_t length)
{
    size_t slash = path->length > 1;
    if (path->length + slash + length >= sizeof path->text)
        return -ENAMETOOLONG;
    if (slash)
        path->text[path->length++] = '/';
    memcpy(path->text + path->length, name, length);
    path->length += length;
    path->text[path->length] = '\0';
    return 0;
}

static void drop_last(struct hr__guard_path *path)
{
    while (path->length > 1 && path->text[--path->length] != '/')
        ;
    path->text[path->length] = '\0';
}

int hr__guard_parent(const struct hr__guard_path *path, struct hr__guard_path *out)
{
    if (path->length < 2)
        return -EBUSY;
    *out = *path;
    drop_last(out);
    return 0;
}

static int set_path(struct hr__guard_path *out, const char *text)
{
    out->length = strlen(text);
    if (out->length >= sizeof out->text)
        return -ENAMETOOLONG;
    memmove(out->text, text, out->length + 1);
    return 0;
}

int hr__guard_path_of(int descriptor, struct hr__guard_path *out)
{
    char name[40];
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    ssize_t length = sys_readlink(name, out->text, sizeof out->text);
    if (length < 0)
        return -EBADF;
    out->length = (size_t)length;
    return out->text[0] == '/' ? 0 : -ENOENT;
}

/* Starts at a descriptor's folder or at the working directory. */
static int begin_at(int folder, struct hr__guard_path *out)
{
    if (folder != AT_FDCWD) {
        int code = hr__guard_path_of(folder, out);
        if (code)
            return code;
    } else {
        if (KERNEL(SYS_getcwd, out->text, sizeof out->text) < 0)
            return -errno;
        if (out->text[0] != '/')
            return -ENOENT;
        out->length = strlen(out->text);
    }
    hr__guard_forget_scratch(out);
    return 0;
}

/* Reads a symbolic link: returns its length, 0: not a link, -ENOENT: nothing is there. */
static ssize_t read_link(const struct hr__guard_path *path, char *out, size_t room)
{
    char physical[HR__GUARD_PATH];
    if (hr__guard_may_have_name(path)) {
        int code = hr__guard_scratch_path(physical, "/new", path->text);
        if (code)
            return code;
        ssize_t length = sys_readlink(physical, out, room);
        if (length > 0)
            return strncmp(out, HR__GUARD_MARK, strlen(HR__GUARD_MARK)) ? length : 0;
        if (length == -EINVAL)
            return 0;
        if (hr__guard_is_gone(path))
            return -ENOENT;
    }
    ssize_t length = sys_readlink(path->text, out, room);
    return length == -EINVAL ? 0 : length;
}

/* Puts a link's target before `after`, into `rest`. */
static int put_before(char rest[PATH_MAX], const char *target, const char *after)
{
    char joined[PATH_MAX];
    int length = snprintf(joined, sizeof joined, "%s%s%s", target, *after ? "/" : "", after);
    if (length < 0 || (size_t)length >= sizeof joined)
        return -ENAMETOOLONG;
    memcpy(rest, joined, (size_t)length + 1);
    return 0;
}

/* Appends one name, which `after` follows. Returns 1 if it is a link; its target is then in
 * `rest`. */
static int take(struct hr__guard_path *out, const char *name, size_t length, char rest[PATH_MAX])
{
    char target[PATH_MAX];
    const char *after = name + length + strspn(name + length, "/");
    int code = hr__guard_append(out, name, length);
    if (code)
        return code;
    ssize_t bytes = read_link(out, target, sizeof target);
    if (bytes == -ENOENT && !*after)
        return 0;
    if (bytes <= 0)
        return (int)bytes;
    drop_last(out);
    if (target[0] == '/')
        set_path(out, "/");
    code = put_before(rest, target, after);
    return code ? code : 1;
}

int hr__guard_resolve(int folder, const char *path, int follow, struct hr__guard_path *out)
{
    char rest[PATH_MAX];
    int links = 0, code = path[0] == '/' ? set_path(out, "/") : begin_at(folder, out);
    if (code || (code = put_before(rest, path, "")))
        return code;
    for (const char *at = rest; *(at += strspn(at, "/"));) {
        size_t length = strcspn(at, "/");
        int is_last = !at[length];
        if (length == 2 && at[0] == '.' && at[1] == '.')
            drop_last(out);
        else if (length != 1 || at[0] != '.') {
            if (is_last && !follow) {
                if ((code = hr__guard_append(out, at, length)))
                    return code;
                break;
            }
            if ((code = take(out, at, length, rest)) < 0)
                return code;
            if (code) {
                if (++links > MOST_LINKS)
                    return -ELOOP;
                at = rest;
                continue;
            }
        }
        at += length;
    }
    hr__guard_forget_scratch(out);
    return 0;
}

/* Looks for the version in new/. Returns 1 if it exists and counts; it is then in *out. */
static int locate_new(const struct hr__guard_path *path, struct hr__guard_place *out)
{
    size_t mark = strlen(HR__GUARD_MARK);
    if (hr__guard_scratch_path(out->path, "/new", path->text) || sys_lstat(out->path, &out->stat))
        return 0;
    out->kind = HR__GUARD_SCRATCH;
    if (S_ISLNK(out->stat.st_mode)) {
        char target[PATH_MAX + 32];
        ssize_t length = sys_readlink(out->path, target, sizeof target);
        if (length > 0 && !strncmp(target, HR__GUARD_MARK, mark)) {
            memcpy(out->path, target + mark, (size_t)length - mark + 1);
            out->kind = sys_lstat(out->path, &out->stat) ? HR__GUARD_ABSENT : HR__GUARD_LINKED;
        }
        return 1;
    }
    struct stat original;
    /* The folder in new/ exists only for its contents: the original counts. */
    return !(S_ISDIR(out->stat.st_mode) && !hr__guard_is_gone(path) &&
             !sys_lstat(path->text, &original) && S_ISDIR(original.st_mode));
}

void hr__guard_locate(const struct hr__guard_path *path, struct hr__guard_place *out)
{
    int may_differ = hr__guard_may_have_name(path);
    if (may_differ && locate_new(path, out))
        return;
    if (may_differ && hr__guard_is_gone(path)) {
        out->kind = HR__GUARD_ABSENT; /* out->path stays the one in new/, where nothing is */
        return;
    }
    memcpy(out->path, path->text, path->length + 1);
    out->kind = sys_lstat(out->path, &out->stat) ? HR__GUARD_ABSENT : HR__GUARD_ORIGINAL;
}

int hr__guard_is_system(const char *path)
{
    return !strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5);
}

int hr__guard_see(int folder, const char *path, int follow, struct hr__guard_place *out)
{
    struct hr__guard_path meant;
    if (!hr__guard_state || !path || !*path || hr__guard_is_system(path))
        return HR__GUARD_AS_IS;
    if (!hr__guard_may_differ(path) && !(path[0] != '/' && atomic_load(&is_in_scratch)))
        return HR__GUARD_AS_IS;
    int saved = errno, code = hr__guard_resolve(folder, path, follow, &meant);
    if (!code)
        hr__guard_locate(&meant, out);
    errno = saved;
    return code;
}

int hr__guard_see_behind(int folder, const char *path, struct hr__guard_place *out)
{
    struct hr__guard_path meant;
    if (!hr__guard_is_changed() || hr__guard_is_system(path))
        return HR__GUARD_AS_IS;
    int saved = errno, code = hr__guard_resolve(folder, path, 1, &meant);
    if (!code)
        hr__guard_locate(&meant, out);
    if (!code && (out->kind == HR__GUARD_ORIGINAL ||
                  (out->kind == HR__GUARD_ABSENT && !hr__guard_is_gone(&meant))))
        code = HR__GUARD_AS_IS;
    errno = saved;
    return code;
}
