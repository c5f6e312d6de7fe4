/*
 * Renames and links. An original that gets another path is not copied: a symbolic link in the
 * scratch folder names it (HR__GUARD_MARK). For an original folder, there is such a link for each
 * file below it. See guard.h.
 */
#include "guard/calls.h"
#include "guard/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE  2
#endif

/* Source and destination of a change. */
struct ends {
    struct hr__guard_path from, to;
    struct hr__guard_place from_place, to_place;
};

static int find_ends(const struct hr__guard_pair *pair, int follow, struct ends *out)
{
    if (!hr__guard_state || !pair->from || !pair->to || !*pair->from || !*pair->to)
        return HR__GUARD_AS_IS;
    int code = hr__guard_resolve(pair->from_folder, pair->from, follow, &out->from);
    if (!code)
        code = hr__guard_resolve(pair->to_folder, pair->to, 0, &out->to);
    if (code)
        return code;
    hr__guard_locate(&out->from, &out->from_place);
    hr__guard_locate(&out->to, &out->to_place);
    return out->from_place.kind == HR__GUARD_ABSENT ? -ENOENT : 0;
}

static int sys_rename(const char *from, const char *to, unsigned flags)
{
    return KERNEL(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags) ? -errno : 0;
}

/* Makes a name in new/ stand for an original; if that is a symbolic link, copies the link. */
static int point_at(const char *original, mode_t mode, const struct hr__guard_path *path)
{
    char target[HR__GUARD_PATH + sizeof HR__GUARD_MARK];
    char work[HR__GUARD_PATH], to[HR__GUARD_PATH];
    int code = hr__guard_work_path(work);
    if (code || (code = hr__guard_scratch_path(to, "/new", path->text)))
        return code;
    if (S_ISLNK(mode)) {
        long length = KERNEL(SYS_readlinkat, AT_FDCWD, original, target, sizeof target - 1);
        if (length < 0)
            return -errno;
        target[length] = '\0';
    } else {
        snprintf(target, sizeof target, "%s%s", HR__GUARD_MARK, original);
    }
    hr__guard_note_name(path);
    if (KERNEL(SYS_symlinkat, target, AT_FDCWD, work))
        return -errno;
    code = sys_rename(work, to, 0);
    if (code)
        KERNEL(SYS_unlinkat, AT_FDCWD, work, 0);
    return code;
}

/* ---- folders ---- */

/* Adds one name of an original folder to new/. */
static int fill_one(struct hr__guard_path *path, const char *name);

/* Adds everything that an original folder shows to new/. `path` is modified and restored. */
static int fill(struct hr__guard_path *path)
{
    char made[HR__GUARD_PATH];
    struct stat st;
    int code = hr__guard_scratch_path(made, "/new", path->text);
    if (code || (code = hr__guard_make_parents(path)))
        return code;
    if (KERNEL(SYS_newfstatat, AT_FDCWD, path->text, &st, 0))
        return -errno;
    if (KERNEL(SYS_mkdirat, AT_FDCWD, made, st.st_mode & 07777) && errno != EEXIST)
        return -errno;
    hr__guard_note_name(path);
    DIR *folder = NEXT(opendir)(path->text);
    if (!folder)
        return -errno;
    const struct dirent *entry;
    while (!code && (entry = NEXT(readdir)(folder)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            code = fill_one(path, entry->d_name);
    NEXT(closedir)(folder);
    return code;
}

static int fill_one(struct hr__guard_path *path, const char *name)
{
    struct stat there, original;
    char made[HR__GUARD_PATH];
    size_t before = path->length;
    int code = hr__guard_append(path, name, strlen(name));
    if (code)
        return code;
    if (!hr__guard_is_gone(path) && !(code = hr__guard_scratch_path(made, "/new", path->text)) &&
        !KERNEL(SYS_newfstatat, AT_FDCWD, path->text, &original, AT_SYMLINK_NOFOLLOW)) {
        if (S_ISDIR(original.st_mode))
            code = fill(path);
        else if (KERNEL(SYS_newfstatat, AT_FDCWD, made, &there, AT_SYMLINK_NOFOLLOW))
            code = point_at(path->text, original.st_mode, path);
    }
    path->length = before;
    path->text[before] = '\0';
    return code;
}

static int was_original(const struct hr__guard_path *path)
{
    struct stat st;
    return !hr__guard_is_gone(path) &&
           !KERNEL(SYS_newfstatat, AT_FDCWD, path->text, &st, AT_SYMLINK_NOFOLLOW);
}

/* ---- renaming ---- */

/* Checks the kernel's rules for what exists at both ends. */
static int check_rename(const struct ends *ends, unsigned flags)
{
    int is_there = ends->to_place.kind != HR__GUARD_ABSENT;
    int from_folder = S_ISDIR(ends->from_place.stat.st_mode);
    int to_folder = is_there && S_ISDIR(ends->to_place.stat.st_mode);
    size_t length = ends->from.length;
    if (flags & ~(unsigned)RENAME_NOREPLACE)
        return -EINVAL;
    if (is_there && (flags & RENAME_NOREPLACE))
        return -EEXIST;
    if (from_folder && is_there && !to_folder)
        return -ENOTDIR;
    if (!from_folder && to_folder)
        return -EISDIR;
    if (from_folder && ends->to.length > length && ends->to.text[length] == '/' &&
        !memcmp(ends->to.text, ends->from.text, length))
        return -EINVAL;
    if (to_folder && strcmp(ends->from.text, ends->to.text) && !hr__guard_is_empty(&ends->to))
        return -ENOTEMPTY;
    int code = hr__guard_check_parent(&ends->from);
    return code ? code : hr__guard_check_parent(&ends->to);
}

/* Renames within the guarded folders. */
static int rename_here(struct ends *ends)
{
    char from[HR__GUARD_PATH], to[HR__GUARD_PATH];
    int is_folder = S_ISDIR(ends->from_place.stat.st_mode);
    int code = hr__guard_make_parents(&ends->to);
    if (code || (code = hr__guard_scratch_path(from, "/new", ends->from.text)) ||
        (code = hr__guard_scratch_path(to, "/new", ends->to.text)))
        return code;
    hr__guard_note_name(&ends->from);
    hr__guard_note_name(&ends->to);
    int had_original = was_original(&ends->from);
    if (is_folder && had_original && (code = fill(&ends->from)))
        return code;
    /* The old contents must not reappear under what replaces the folder. */
    if (is_folder && was_original(&ends->to) && (code = hr__guard_mark_gone(&ends->to)))
        return code;
    if (is_folder || ends->from_place.kind != HR__GUARD_ORIGINAL)
        code = sys_rename(from, to, 0);
    else
        code = point_at(ends->from_place.path, ends->from_place.stat.st_mode, &ends->to);
    return code || !had_original ? code : hr__guard_mark_gone(&ends->from);
}

/* Renames between a guarded folder and an exempt one: copies a file, as mv does. */
static int rename_over(struct ends *ends, int from_is_exempt)
{
    if (!S_ISREG(ends->from_place.stat.st_mode) || !from_is_exempt)
        return -EXDEV;
    struct hr__guard_place place = ends->from_place;
    char old[HR__GUARD_PATH];
    int code = hr__guard_scratch_path(old, "/new", ends->to.text);
    if (code)
        return code;
    KERNEL(SYS_unlinkat, AT_FDCWD, old, 0);
    place.kind = HR__GUARD_LINKED; /* makes the copy replace what exists */
    code = hr__guard_copy_up(&ends->to, &place);
    if (code)
        return code == -EFBIG ? -EXDEV : code;
    return KERNEL(SYS_unlinkat, AT_FDCWD, ends->from.text, 0) ? -errno : 0;
}

int hr__guard_rename(const struct hr__guard_pair *pair, unsigned flags)
{
    struct ends ends;
    int code = find_ends(pair, 0, &ends);
    if (code)
        return code;
    int from_exempt = hr__guard_is_exempt(&ends.from), to_exempt = hr__guard_is_exempt(&ends.to);
    if (from_exempt && to_exempt) {
        code = sys_rename(ends.from.text, ends.to.text, flags);
        if (!code && ends.to_place.kind == HR__GUARD_ABSENT)
            hr__guard_note_made(&ends.to);
        return code;
    }
    if ((code = check_rename(&ends, flags)))
        return code;
    if (!strcmp(ends.from.text, ends.to.text))
        return 0;
    return from_exempt || to_exempt ? rename_over(&ends, from_exempt) : rename_here(&ends);
}

int hr__guard_link(const struct hr__guard_pair *pair, int follow)
{
    struct ends ends;
    char to[HR__GUARD_PATH];
    int code = find_ends(pair, follow, &ends);
    if (code)
        return code;
    int from_exempt = hr__guard_is_exempt(&ends.from), to_exempt = hr__guard_is_exempt(&ends.to);
    if (from_exempt && to_exempt) {
        code = KERNEL(SYS_linkat, AT_FDCWD, ends.from.text, AT_FDCWD, ends.to.text, 0) ? -errno : 0;
        if (!code)
            hr__guard_note_made(&ends.to);
        return code;
    }
    if (ends.to_place.kind != HR__GUARD_ABSENT)
        return -EEXIST;
    if (S_ISDIR(ends.from_place.stat.st_mode))
        return -EPERM;
    if (from_exempt != to_exempt)
        return -EXDEV;
    if ((code = hr__guard_check_parent(&ends.to)) || (code = hr__guard_make_parents(&ends.to)) ||
        (code = hr__guard_scratch_path(to, "/new", ends.to.text)))
        return code;
    hr__guard_note_name(&ends.to);
    if (ends.from_place.kind != HR__GUARD_SCRATCH)
        return point_at(ends.from_place.path, ends.from_place.stat.st_mode, &ends.to);
    return KERNEL(SYS_linkat, AT_FDCWD, ends.from_place.path, AT_FDCWD, to, 0) ? -errno : 0;
}
