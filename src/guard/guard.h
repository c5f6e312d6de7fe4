/*
 * The guard: a library preloaded into a measuring run. Whatever the script writes, renames or
 * removes happens in a scratch folder instead, and the script still sees its own changes.
 *
 * It is a scratch overlay in user space. For each path there is a version in the scratch folder, or
 * the original applies, or the path is gone:
 *
 *   SCRATCH/new/PATH    what was written, created or renamed to PATH. A symbolic link that begins
 *                       with HR__GUARD_MARK stands for the original it names: renaming or
 *                       linking a file does not copy it
 *   SCRATCH/gone/HASH   the original of a path, and everything below it, is gone; the file holds
 *                       the path. Such a marker stays: what is created later is in new/
 *   SCRATCH/work        files being copied
 *   SCRATCH/state       filters mapped by all processes, which answer "surely not changed"
 *   SCRATCH/exempt      folders that are not guarded, one per line; written by the launcher
 *   SCRATCH/temp        the temporary folder, then the names that were in it at the start
 *   SCRATCH/made        paths created in the temporary folder itself, one per line
 *   SCRATCH/beyond      programs that were started and cannot be guarded, one per line
 *
 * So all state is in files, and processes share it however they were started. Originals are only
 * read. The path to open, stat and exec allocates no memory and holds no lock.
 *
 * Reading something unchanged costs one filter lookup per name in its path, and no system call.
 */
#ifndef HR_GUARD_GUARD_H
#define HR_GUARD_GUARD_H

#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define HR__GUARD_MARK   "//headrace-original:"
#define HR__GUARD_NAMES  (1u << 20)         /* bits in the filter of names */
#define HR__GUARD_GONE   (1u << 16)         /* bits in the filter of paths that are gone */
#define HR__GUARD_COPIED (INT64_C(1) << 30) /* bytes: longer files are not copied */
#define HR__GUARD_PATH   (PATH_MAX + 512)   /* longest path within the scratch folder */
#define HR__GUARD_AS_IS  1                  /* the guard need not change the call */
#define HR__GUARD_COOKIE UINT64_C(0x68656164726163)

/* Makes a system call for the guard itself: trap.c's filter recognizes it by a sixth argument,
 * which the kernel ignores. */
#define KERNEL(...) HR__GUARD_KERNEL(__VA_ARGS__, 0L, 0L, 0L, 0L, 0L, 0L)
#define HR__GUARD_KERNEL(number, a, b, c, d, e, ...)                                               \
    syscall(number, a, b, c, d, e, HR__GUARD_COOKIE)

/* Mapped by all processes of a run. Initially all zero. */
struct hr__guard_state {
    atomic_uint is_changed; /* something is in new/ or gone/ */
    atomic_uint copies;     /* counter that names the files in work/ */
    /* Network connections that processes began; guard.py reads it here, at byte 8. */
    atomic_uint connections;
    _Atomic uint64_t names[HR__GUARD_NAMES / 64];
    _Atomic uint64_t gone[HR__GUARD_GONE / 64];
};

/* A path as the script means it: absolute, without ".", ".." or symbolic links, except that the
 * last name may be a link that was not followed. */
struct hr__guard_path {
    size_t length;
    char text[PATH_MAX];
};

enum hr__guard_kind {
    HR__GUARD_ABSENT,   /* nothing is there */
    HR__GUARD_ORIGINAL, /* unchanged since before the run */
    HR__GUARD_LINKED,   /* an original that now has another path */
    HR__GUARD_SCRATCH,  /* created or changed by the run */
};

/* Where a path's version is stored. */
struct hr__guard_place {
    enum hr__guard_kind kind;
    struct stat stat; /* unset if absent; of a symbolic link itself */
    char path[HR__GUARD_PATH];
};

/* ---- scratch.c ---- */

extern struct hr__guard_state *hr__guard_state; /* NULL: the guard is off */

/* Opens the scratch folder; may be called again. Returns 1 if the guard is on, 0 if there is no
 * such folder. */
int hr__guard_begin(const char *scratch);

/* Joins SCRATCH, folder and path. Errors: -ENAMETOOLONG. */
int hr__guard_scratch_path(char out[HR__GUARD_PATH], const char *folder, const char *path);

/* Makes up a name in work/ that no other process uses. Errors: -ENAMETOOLONG. */
int hr__guard_work_path(char out[HR__GUARD_PATH]);

/* Turns a path in the scratch folder's new/ into the path the script means; leaves others alone. */
void hr__guard_forget_scratch(struct hr__guard_path *path);
int hr__guard_is_scratch(const char *path);

/* Returns whether changes below a path are not guarded. */
int hr__guard_is_exempt(const struct hr__guard_path *path);

/* Records that something was created in the temporary folder: the launcher removes it at
 * the end. */
void hr__guard_note_made(const struct hr__guard_path *path);
void hr__guard_note_beyond(const char *program);

int hr__guard_is_changed(void); /* returns whether anything was changed */

/* Returns 0 if the run changed no name in the path. */
int hr__guard_may_differ(const char *path);
int hr__guard_may_have_name(const struct hr__guard_path *path);
void hr__guard_note_name(const struct hr__guard_path *path);

/* Marks an original as gone. Returns 0 or -errno. */
int hr__guard_mark_gone(const struct hr__guard_path *path);
int hr__guard_is_gone(const struct hr__guard_path *path);

/* ---- view.c ---- */

/* Returns whether a path is in /dev, /proc or /sys: a run can harm no file there. Some of these
 * paths lead to objects that have no path at all. */
int hr__guard_is_system(const char *path);

/* Returns the kernel's path of an open file. Errors: -EBADF; -ENOENT: it has none. */
int hr__guard_path_of(int descriptor, struct hr__guard_path *out);

/* Resolves a path to what the script means. Returns 0 or -errno. */
int hr__guard_resolve(int folder, const char *path, int follow, struct hr__guard_path *out);
void hr__guard_locate(const struct hr__guard_path *path, struct hr__guard_place *out);

/* For calls that only read: returns HR__GUARD_AS_IS, 0 if the call must use out->path, or
 * -errno. */
int hr__guard_see(int folder, const char *path, int follow, struct hr__guard_place *out);
/* Likewise for a symbolic link whose own name is unchanged: its target may be changed. */
int hr__guard_see_behind(int folder, const char *path, struct hr__guard_place *out);
/* Call at the start, and after the working directory has changed. */
void hr__guard_note_folder(void);
int hr__guard_parent(const struct hr__guard_path *path, struct hr__guard_path *out);
int hr__guard_append(struct hr__guard_path *path, const char *name, size_t length);

/* ---- change.c: these return 0 (or a descriptor), HR__GUARD_AS_IS, or -errno ---- */

int hr__guard_open(int folder, const char *path, int flags, mode_t mode, int *descriptor);
/* Prepares a file for a change and returns the path to change; an empty path if the file stays
 * where it is, which is so for folders, sockets and pipes. */
int hr__guard_change(int folder, const char *path, int follow, char out[HR__GUARD_PATH]);
int hr__guard_change_open(int descriptor, char out[HR__GUARD_PATH]);
int hr__guard_make(int folder, const char *path, char out[HR__GUARD_PATH]);
int hr__guard_remove(int folder, const char *path, int is_folder);
int hr__guard_copy_up(const struct hr__guard_path *path, struct hr__guard_place *place);
int hr__guard_make_parents(const struct hr__guard_path *path);
int hr__guard_check_parent(const struct hr__guard_path *path);

/* ---- rename.c ---- */

struct hr__guard_pair {
    int from_folder;
    const char *from;
    int to_folder;
    const char *to;
};

int hr__guard_rename(const struct hr__guard_pair *pair, unsigned flags);
int hr__guard_link(const struct hr__guard_pair *pair, int follow);

/* ---- trap.c ---- */

/* Makes the kernel hand over changes that programs request by system calls of their own, without
 * the C library. Returns 0 or -errno. All processes started from here on inherit this. */
int hr__guard_trap(void);

/* ---- list.c ---- */

int hr__guard_is_empty(const struct hr__guard_path *path);

#endif
