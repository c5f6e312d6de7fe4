/*
 * What segment.c and segment_books.c share: where locks are, the steps at which tests
 * kill, and how a transaction changes an entry.
 */
#ifndef HR_CACHE_SEGMENT_INSIDE_H
#define HR_CACHE_SEGMENT_INSIDE_H

#include "cache/segment.h"

/* Bytes of the file that locks are on: the first is that of the books, the others are
 * the users'. Never to change: other versions ask by them whether a segment is in use. */
#define HR__SEGMENT_LOCKS     (UINT64_C(1) << 62)
#define HR__SEGMENT_BOOK_LOCK 0
#define HR__SEGMENT_USER_LOCK 1

enum hr__segment_steps {
    HR__STEP_CREATED, /* the file has its size, and nothing in it */
    HR__STEP_FILLED,  /* all but that it is ready */
    HR__STEP_LOCKED,  /* of a transaction: the lock is held */
    HR__STEP_COPIED,  /* this process has a copy of the books */
    HR__STEP_WRITTEN, /* the caller's changes are in the spare books, just before they happen */
    HR__STEP_CURRENT, /* they have happened, but not in the index */
    HR__STEP_ENTRY,   /* the entry's fields are written, its word is not */
    HR__STEP_WORD,    /* and its word is */
    HR__STEP_APPLIED, /* all is done, the lock is held */
    HR__STEP_RING,    /* the ring's tail has moved, its bytes are being overwritten */
    HR__STEP_BYTES,   /* the bytes are in place, the books do not know */
    HR__STEPS
};

/* fcntl with a lock on `count` bytes of HR__SEGMENT_LOCKS + from: 0 or a negative errno;
 * with F_OFD_GETLK 1 and the first locked byte of others in *found, or 0. */
int hr__segment_lock_byte(int fd, int command, int type, uint64_t from, uint64_t count,
                          uint64_t *found);

#endif
