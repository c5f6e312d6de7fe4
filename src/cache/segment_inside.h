/*
 * Shared by segment.c and segment_books.c: the positions of locks, the steps at which tests kill
 * the process, and how a transaction changes an entry.
 */
#ifndef HR_CACHE_SEGMENT_INSIDE_H
#define HR_CACHE_SEGMENT_INSIDE_H

#include "cache/segment.h"

/* Byte positions of the locks: the first is the lock of the books, the others are the users'. They
 * must never change, because other versions use them to check whether a segment is in use. */
#define HR__SEGMENT_LOCKS     (UINT64_C(1) << 62)
#define HR__SEGMENT_BOOK_LOCK 0
#define HR__SEGMENT_USER_LOCK 1

/* The mark: the last word of the file. */
#define HR__SEGMENT_MARK UINT64_C(0x646e652e45484352)

enum hr__segment_steps {
    HR__STEP_CREATED,  /* the file has its size, but no contents */
    HR__STEP_FILLED,   /* complete, except that it is not marked ready */
    HR__STEP_LOCKED,   /* transaction: the lock is held */
    HR__STEP_COPIED,   /* this process has a copy of the books */
    HR__STEP_WRITTEN,  /* the caller's changes are in the spare books, but not effective yet */
    HR__STEP_CURRENT,  /* they are effective, but not in the index */
    HR__STEP_ENTRY,    /* the entry's fields are written, its word is not */
    HR__STEP_WORD,     /* the entry's word is written */
    HR__STEP_APPLIED,  /* all is done, the lock is still held */
    HR__STEP_RESERVED, /* on disk: the item has its place, and no bytes */
    HR__STEP_RING,     /* the ring's tail has moved; its bytes are being overwritten */
    HR__STEP_BYTES,    /* the bytes are in place, but not in the books */
    HR__STEPS
};

/* Replaces the books. Nobody else may use the segment. */
void hr__segment_restart_books(struct hr__segment *segment, const struct hr__books *books);

/* Runs a lock command of fcntl on `count` bytes from HR__SEGMENT_LOCKS + from. Returns 0 or a
 * negative errno. F_OFD_GETLK returns 1 and the first of these bytes that others locked in *found,
 * or 0. */
int hr__segment_lock_byte(int fd, int command, int type, uint64_t from, uint64_t count,
                          uint64_t *found);

#endif
