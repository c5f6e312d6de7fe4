/*
 * Where segments are: files of /dev/shm/headrace-UID/, or of
 * /dev/shm/headrace-gGID/ for a group, which only the owner or the group may enter.
 * HEADRACE_SHM names another place than /dev/shm (tests; a tmpfs of its own).
 *
 *   NAME.DIGEST      kept; DIGEST: 32 hexadecimal digits of the dataset's identity
 *   run+RUN.DIGEST   private to a run
 *
 * Making, opening and removing files happens under a lock of the directory (flock,
 * ended by the kernel with its holder), so that nobody removes a segment between
 * another's opening it and becoming its user. The directory is removed when it is
 * empty, so that nothing is left of caches that are gone.
 *
 * Nothing here depends on clocks: last uses are numbered.
 */
#ifndef HR_CACHE_DIRECTORY_H
#define HR_CACHE_DIRECTORY_H

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
 * Opens the segment, or makes it; a damaged or outdated one that nobody uses is dropped
 * and made anew, and that is logged. On success *out is the caller's, for
 * hr__directory_close. Errors: as hr_cache_open. Blocks for moments.
 */
int hr__directory_open(struct hr__segment **out, const struct hr__segment_wish *wish,
                       struct hr_error *error);

/* Ends the use. The last user of a private segment removes it. Accepts NULL. */
void hr__directory_close(struct hr__segment **segment);

/*
 * Called by a segment that wants `bytes` more of memory: where its name's size, all segments
 * counted, allows it, after dropping unused segments where need be (logged), calls
 * take(segment, arg) under the directory's lock and returns what that returns. Errors:
 * -ENOSPC: the size does not allow it; -EAGAIN: the directory is locked too long.
 */
int hr__directory_make_room(struct hr__segment *segment, uint64_t bytes,
                            int (*take)(struct hr__segment *segment, void *arg), void *arg);

/* Removes private segments that nobody uses: of runs that were killed. Best effort. */
void hr__directory_sweep(void);

#endif
