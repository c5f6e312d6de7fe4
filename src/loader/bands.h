/*
 * Several workers on one large image.
 *
 * A worker that decodes a large region of an image which can be decoded from any row
 * (hr__decoder_share) puts it in the loader's list, and claims rows of it from the top as it goes.
 * A worker that finds no sample to take claims a band of rows at the bottom of the region that has
 * waited longest, decodes it into the region's room, and looks again for a sample. The region's
 * owner waits for the bands of others and goes on with the recipe. If any part fails, the owner
 * decodes the whole region again, alone: that decides what is wrong with it, as without help.
 *
 * Who decodes a row has no influence on its pixels. While nobody is idle, the owner decodes the
 * region in one go, as if there were no list; the list costs it a few claims of the loader's lock.
 */
#ifndef HR_LOADER_BANDS_H
#define HR_LOADER_BANDS_H

#include "codec/codec.h"

#include <stdint.h>

struct hr__thread;

/* The region that a worker shares. Guarded by the loader's lock while it is in the list. */
struct hr__bands {
    struct hr__bands *next;
    const struct hr__shared_region *shared; /* constant */
    int first, end;                         /* the rows that nobody has claimed */
    int helpers;                            /* workers that decode a band of it */
    int failed;                             /* a helper's error */
    uint64_t helped_ns;                     /* CPU time of helpers with this sample */
};

/* From now on the worker shares large regions. */
void hr__bands_begin(struct hr__thread *self);

/* Helps with a band of a region, if there is one. Returns 0 if there is none; then the lock was
 * held all the time. */
int hr__bands_help_unlocking(struct hr__thread *self);

#endif
