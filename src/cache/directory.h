/*
 * Where segments are: files of /dev/shm/headrace-UID/, or of
 * /dev/shm/headrace-gGID/ for a group, which only the owner or the group may enter.
 * HEADRACE_SHM names another place than /dev/shm (tests; a tmpfs of its own).
 *
 *   NAME.DIGEST      kept; DIGEST: 32 hexadecimal digits of the dataset's identity and
 *                    the format's version, so that versions do not meet
 *   run+RUN.DIGEST   private to a run
 *
 * Making, opening and removing files happens under a lock of the directory (flock,
 * ended by the kernel with its holder), so that nobody removes a segment between
 * another's opening it and becoming its user. The directory is removed when it is
 * empty, so that nothing is left of caches that are gone.
 *
 * What counts against the size of a name is memory for items; a segment's index and
 * staging come on top. Nothing here depends on clocks: last uses are numbered.
 */
#ifndef HR_CACHE_DIRECTORY_H
#define HR_CACHE_DIRECTORY_H

#include "cache/directory_lock.h"
#include "cache/segment.h"
#include "cache/spec.h"

/* A segment to open or to make. */
struct hr__segment_wish {
    const struct hr__cache_spec *spec;
    const char *run;      /* of a private cache: hr_cache_run */
    uint8_t identity[16]; /* digest of the dataset's identity */
    const char *dataset;  /* the same, for people */
    uint64_t items;       /* that there will be, about */
};

/*
 * Opens the segment, or makes it. A damaged one is dropped and made anew, and that is
 * logged; who uses it keeps what it has mapped. On success *out is the caller's, for
 * hr__directory_close. Errors: as hr_cache_open; -EAGAIN: the directory is locked too long;
 * -EUSERS: it has as many users as it can have. Blocks for moments.
 */
int hr__directory_open(struct hr__segment **out, const struct hr__segment_wish *wish,
                       struct hr_error *error);

/* Ends the use. The last user of a private segment removes it. Accepts NULL. */
void hr__directory_close(struct hr__segment **segment);

/*
 * Called by a segment that wants `bytes` more of memory for items, or 0, for its staging: where its
 * name's size, all segments counted, allows it, calls take(segment, arg) under the directory's lock
 * and returns what that returns. `drop`: unused segments of the name are dropped for it where need
 * be (logged). Errors: -ENOSPC: the size does not allow it, or the segment was dropped; -EAGAIN:
 * the directory is locked too long.
 */
int hr__directory_make_room(struct hr__segment *segment, uint64_t bytes, int drop,
                            int (*take)(struct hr__segment *segment, void *arg), void *arg);

/* Removes private segments that nobody uses: of runs that were killed. Best effort. */
void hr__directory_sweep(void);

/* ---- of a locked directory ---- */

/* A file in it. */
struct hr__directory_file {
    char file[128];
    int is_private;
    int users;         /* live ones, of other descriptions than the caller's */
    int code;          /* why it cannot be attached: -EBADMSG and the like; else 0 */
    char problem[256]; /* the same in words */
    uint64_t last_use; /* 0 where it is damaged */
    uint64_t items;    /* bytes of memory for items; damaged: all of its memory */
    uint64_t memory;   /* bytes of memory that it has, by the file system */
    char dataset[512];
    uint64_t device, inode;
};

/* The files of a kept name, of all names where `name` is NULL, by name. On success
 * *files is the caller's, for hr__free. Errors: -ENOMEM, -EMFILE and the like. */
int hr__directory_files(struct hr__directory *d, const char *name,
                        struct hr__directory_file **files, size_t *count);

/* Removes a file, and notes `why` where that is not NULL. 0 or a negative errno. */
int hr__directory_remove(struct hr__directory *d, const struct hr__directory_file *file,
                         const char *why);

/* The same as hr__directory_sweep. */
void hr__directory_sweep_locked(struct hr__directory *d);

#endif
