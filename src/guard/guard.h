/*
 * The guard: a library that is preloaded into a measuring run, so that whatever the script
 * writes, renames or removes happens in a scratch folder, and it still sees its own changes.
 *
 * A scratch overlay in user space. A path has a version in the scratch folder, or the original,
 * or is gone:
 *
 *   SCRATCH/new/PATH    what was written, made or renamed to PATH. A symbolic link that begins
 *                       with HR__GUARD_MARK stands for the original that it names: a file that
 *                       was renamed or linked is not copied
 *   SCRATCH/gone/HASH   the original of a path, and all below it, does not exist any more; the
 *                       path is in the file. Such a marker stays: what comes later is in new/
 *   SCRATCH/work        files that are being copied
 *   SCRATCH/state       mapped by all processes: filters that say "surely not changed"
 *   SCRATCH/exempt      folders that are let through, one a line; by the launcher
 *   SCRATCH/temp        the temporary folder, then the names that were in it at the start
 *   SCRATCH/made        paths that were made in the temporary folder itself, one a line
 *   SCRATCH/beyond      programs that were started and cannot be guarded, one a line
 *
 * So there is no state but files, and processes share it however they were started. Originals
 * are only read. Nothing allocates on the way to open, stat and exec; no lock is held.
 *
 * Reading something that was not changed costs a look into a filter by the names in its path,
 * and no system call.
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
#define HR__GUARD_NAMES  (1u << 20)         /* bits of the filter of names */
#define HR__GUARD_GONE   (1u << 16)         /* bits of the filter of paths that are gone */
#define HR__GUARD_COPIED (INT64_C(1) << 30) /* bytes: a longer file is not copied */
#define HR__GUARD_PATH   (PATH_MAX + 512)   /* a path within the scratch folder */
#define HR__GUARD_AS_IS  1                  /* the call is no business of ours */
#define HR__GUARD_COOKIE UINT64_C(0x68656164726163)

/* A system call of the guard's own: trap.c's filter knows it by a sixth argument, of which the
 * kernel takes no notice. */
#define KERNEL(...) HR__GUARD_KERNEL(__VA_ARGS__, 0L, 0L, 0L, 0L, 0L, 0L)
#define HR__GUARD_KERNEL(number, a, b, c, d, e, ...)                                               \
    syscall(number, a, b, c, d, e, HR__GUARD_COOKIE)

/* Mapped by all processes of a run. Zeroed memory is its beginning. */
struct hr__guard_state {
    atomic_uint is_changed; /* something is in new/ or gone/ */
    atomic_uint copies;     /* numbers of files in work/ */
    _Atomic uint64_t names[HR__GUARD_NAMES / 64];
    _Atomic uint64_t gone[HR__GUARD_GONE / 64];
};

/* A path as the script means it: absolute, no ".", "..", or symbolic link in it, but for its
 * last name where it was not followed. */
struct hr__guard_path {
    size_t length;
    char text[PATH_MAX];
};

enum hr__guard_kind {
    HR__GUARD_ABSENT,   /* there is nothing */
    HR__GUARD_ORIGINAL, /* as it was before the run */
    HR__GUARD_LINKED,   /* an original that has another path now */
    HR__GUARD_SCRATCH,  /* of the run */
};

/* Where a path's version really is. */
struct hr__guard_place {
    enum hr__guard_kind kind;
    struct stat stat; /* unless absent; of a symbolic link itself */
    char path[HR__GUARD_PATH];
};

/* ---- scratch.c ---- */

extern struct hr__guard_state *hr__guard_state; /* NULL: no guard was asked for */

/* Begins with a scratch folder; more than once does no harm. 1: the guard holds; 0: there is no
 * such folder. */
int hr__guard_begin(const char *scratch);

/* SCRATCH + folder + path; -ENAMETOOLONG. */
int hr__guard_scratch_path(char out[HR__GUARD_PATH], const char *folder, const char *path);

/* A path of the scratch folder's new/ as the script means it; others stay. */
void hr__guard_forget_scratch(struct hr__guard_path *path);
int hr__guard_is_scratch(const char *path);

/* Whether changes below are let through. */
int hr__guard_is_exempt(const struct hr__guard_path *path);

/* Says that something was made in the temporary folder: the launcher removes it at the end. */
void hr__guard_note_made(const struct hr__guard_path *path);
void hr__guard_note_beyond(const char *program);

int hr__guard_is_changed(void); /* anything */

/* 0: no name in the path was changed by the run. */
int hr__guard_may_differ(const char *path);
int hr__guard_may_have_name(const struct hr__guard_path *path);
void hr__guard_note_name(const struct hr__guard_path *path);

/* Marks an original as gone; 0 or -errno. */
int hr__guard_mark_gone(const struct hr__guard_path *path);
int hr__guard_is_gone(const struct hr__guard_path *path);

/* ---- view.c ---- */

/* Whether a path is one of the kernel's, which is no file that a run could harm. Some lead to
 * what has no path at all. */
int hr__guard_is_system(const char *path);

/* What the script means by a path; 0 or -errno. */
int hr__guard_resolve(int folder, const char *path, int follow, struct hr__guard_path *out);
void hr__guard_locate(const struct hr__guard_path *path, struct hr__guard_place *out);

/* For calls that only look: HR__GUARD_AS_IS, 0 and out->path is to be used, or -errno. */
int hr__guard_see(int folder, const char *path, int follow, struct hr__guard_place *out);
/* For a symbolic link with a name that was not changed, likewise: what it leads to may be. */
int hr__guard_see_behind(int folder, const char *path, struct hr__guard_place *out);
/* After the working directory changed. */
void hr__guard_note_folder(void);
int hr__guard_parent(const struct hr__guard_path *path, struct hr__guard_path *out);
int hr__guard_append(struct hr__guard_path *path, const char *name, size_t length);

/* ---- change.c: 0 (or a descriptor), HR__GUARD_AS_IS, or -errno ---- */

int hr__guard_open(int folder, const char *path, int flags, mode_t mode, int *descriptor);
/* A file that is about to be changed: its path for that; empty where it stays as it is, which
 * folders, sockets and pipes do. */
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

/* Has the kernel hand over changes that programs ask it for by themselves, without the C
 * library. 0 or -errno. Inherited by all that the process starts. */
int hr__guard_trap(void);

/* ---- list.c ---- */

int hr__guard_is_empty(const struct hr__guard_path *path);

#endif
