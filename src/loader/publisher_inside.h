/* A publisher as publisher.c and crew.c see it. */
#ifndef HR_LOADER_LANE_INSIDE_H
#define HR_LOADER_LANE_INSIDE_H

#include "loader/loader.h"
#include "loader/publisher.h"

#include <pthread.h>
#include <stdatomic.h>

/* What makes a loader a publisher (publisher.h). */
struct hr__publisher {
    struct hr_loader *loader;
    struct hr__crew *crew;
    const struct hr__publisher_ops *ops;
    void *self;                /* of ops */
    struct hr__chunk_bad *bad; /* batch_size: of the chunk that is being published */

    /* What the crew's workers go by, without the loader's lock. */
    atomic_int has_work;     /* there may be a sample to take, or a turn */
    atomic_int may_convert;  /* an item may wait for a conversion by somebody idle */
    _Atomic uint64_t ask_ns; /* when the first delayed job is due; UINT64_MAX: none */

    /* Guarded by the loader's lock. */
    uint64_t room_asked;    /* times that there may have come room */
    int no_room;            /* acquire had none since */
    int turn;               /* the first of the window may be publishable */
    int publishing;         /* a thread is in the callback; it goes on with what follows */
    int starting;           /* somebody waits for that to end */
    pthread_cond_t quiet;   /* nobody publishes */
    struct hr_batch *spare; /* chunks' descriptions that are not in use */
};

/* Publishes what is complete at the window's front, unless another thread is at it. */
void hr__publisher_publish(struct hr__publisher *publisher);

#endif
