/*
 * The board: two pages of shared memory on which the ranks of a run on one machine say how they
 * stand (balance.h), one entry each.
 *
 * A file board+RUN beside the segments of caches (cache/directory.h), which only its owner may
 * open. Who lives is told by locks that the kernel drops with a process (OFD locks, on the bytes
 * of its entry). Making, joining, leaving and removing it happens under the directory's lock: the
 * last one to leave removes it, and who opens a board removes those of runs that were killed.
 *
 * An entry is written by its owner alone, word by word; readers clamp what they find, so words of
 * two moments do no harm.
 */
#ifndef HR_LOADER_BALANCE_BOARD_H
#define HR_LOADER_BALANCE_BOARD_H

#include "loader/balance.h"

#include <headrace/base.h>

struct hr__board;

/*
 * Joins the board of a run (hr_cache_run), or makes it. On success *out is the caller's. Blocks for
 * the directory's lock. Errors: those of hr__directory_lock; -EUSERS: it is full; -EACCES,
 * -EPROTO: it is somebody else's, or of another version; -ENOSPC; -ENOMEM.
 */
int hr__board_open(struct hr__board **out, const char *run, struct hr_error *error);

/* Leaves it; the last one removes it. In a forked child it only frees the handle. Accepts NULL.
 * Blocks as open does. */
void hr__board_close(struct hr__board **board);

/* Which entry is this one's. */
int hr__board_self(const struct hr__board *board);

/* Says how this one stands. One thread at a time. */
void hr__board_say(struct hr__board *board, const struct hr__balance_rank *rank);

/* What all say: HR__BALANCE_RANKS entries. Any thread. */
void hr__board_hear(const struct hr__board *board, struct hr__balance_rank *ranks);

/* Clears the entries of processes that died, of those that have said nothing since
 * `before_ns`. A system call for each. Any thread. */
void hr__board_bury(struct hr__board *board, uint64_t before_ns);

#endif
