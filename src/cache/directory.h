/*
 * The directories of segments. Segments are files of /dev/shm/headrace-UID/, or for a group of
 * /dev/shm/headrace-gGID/, which only the owner or the group may enter. HEADRACE_SHM names another
 * place than /dev/shm (tests; a separate tmpfs).
 *
 *   NAME.DIGEST      kept; DIGEST: 32 hexadecimal digits of the dataset's identity and
 *                    the format's version, so that versions never share a segment
 *   run+RUN.DIGEST   private to a run
 *
 * A cache on disk has a directory of its own, which its text names; its segments are disk.DIGEST.
 *
 * Files are created, opened and removed under a lock of the directory (flock; the kernel releases
 * it when its holder dies). So no process removes a segment after another has opened it and before
 * that one has become its user. An empty directory is removed, so that nothing is left of deleted
 * caches.
 *
 * Only memory for items counts against the size of a name; a segment's index and staging are extra.
 * Nothing here depends on clocks: last uses are numbered.
 */
#ifndef HR_CACHE_DIRECTORY_H
#define HR_CACHE_DIRECTORY_H

#include "cache/directory_lock.h"
#include "cache/segment.h"
#include "cache/spec.h"

/* A segment to open or create. */
struct hr__segment_wish {
    const struct hr__cache_spec *spec;
    const char *run;      /* for a private cache: hr_cache_run */
    uint8_t identity[16]; /* digest of the dataset's identity */
    const char *dataset;  /* the identity in readable form */
    uint64_t items;       /* expected number of items */
};

/*
 * Opens or creates the segment. Drops a damaged one, creates it anew, and logs this; its users keep
 * what they have mapped. On success the caller owns *out; close it with hr__directory_close.
 * Errors: as hr_cache_open; -EAGAIN: the directory stays locked too long; -EUSERS: the segment has
 * the maximum number of users. Blocks briefly.
 */
int hr__directory_open(struct hr__segment **out, const struct hr__segment_wish *wish,
                       struct hr_error *error);

/* Ends the use of a segment. The last user of a private segment removes it. Accepts NULL. */
void hr__directory_close(struct hr__segment **segment);

/*
 * Requests `bytes` more memory for a segment's items, or 0 for its staging. If the size of the
 * segment's name, over all its segments, allows it, calls take(segment, arg) under the directory's
 * lock and returns its result. `drop`: drops unused segments of the name if necessary (logged).
 * Errors: -ENOSPC: the size does not allow it, or the segment was dropped; -EAGAIN: the directory
 * stays locked too long.
 */
int hr__directory_make_room(struct hr__segment *segment, uint64_t bytes, int drop,
                            int (*take)(struct hr__segment *segment, void *arg), void *arg);

/* Removes private segments without users, left by killed runs. Best effort. */
void hr__directory_sweep(void);

/* Returns non-zero if a segment was made with this secret, or with none if it is not set. */
int hr__directory_is_secret(const struct hr__segment *segment, const struct hr__secret *secret);

/* ---- with the directory locked ---- */

/* A segment's file in the directory. */
struct hr__directory_file {
    char file[128];
    int is_private;
    int users;         /* live users, other than through the caller's descriptors */
    int code;          /* 0, or why it cannot be attached (-EBADMSG and others) */
    char problem[256]; /* the same as text */
    uint64_t last_use; /* 0 if it is damaged */
    uint64_t items;    /* bytes of memory for items; if damaged: all its memory */
    uint64_t memory;   /* bytes of memory it occupies in the file system */
    char dataset[512];
    uint64_t device, inode;
};

/* Lists the files of a kept name, or of all names if `name` is NULL, sorted by name. On success the
 * caller frees *files with hr__free. Errors: -ENOMEM, -EMFILE and others. */
int hr__directory_files(struct hr__directory *d, const char *name,
                        struct hr__directory_file **files, size_t *count);

/* Removes a file, and logs `why` unless that is NULL. Returns 0 or a negative errno. */
int hr__directory_remove(struct hr__directory *d, const struct hr__directory_file *file,
                         const char *why);

/* Like hr__directory_sweep, in a locked directory. */
void hr__directory_sweep_locked(struct hr__directory *d);

#endif
