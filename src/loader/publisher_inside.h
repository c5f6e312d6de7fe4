/* The inside of a publisher, shared by publisher.c, chunk.c and crew.c. */
#ifndef HR_LOADER_PUBLISHER_INSIDE_H
#define HR_LOADER_PUBLISHER_INSIDE_H

#include "loader/inside.h"
#include "loader/publisher.h"

#include <pthread.h>
#include <stdatomic.h>

/* The additional state of a loader that is a publisher (publisher.h). */
struct hr__publisher {
    struct hr_loader *loader;
    struct hr__crew *crew;
    const struct hr__publisher_ops *ops;
    void *self;                /* first argument of the functions of ops */
    struct hr__chunk_bad *bad; /* batch_size: bad samples of the chunk being published */

    /* Hints that the crew's workers read without the loader's lock. */
    atomic_int has_work;     /* there may be a sample to take, or a chunk to publish */
    atomic_int may_convert;  /* an idle worker may find an item to convert */
    _Atomic uint64_t ask_ns; /* when the first delayed job is due; UINT64_MAX: none */

    /* Guarded by the loader's lock. */
    uint64_t room_asked;    /* how often hr__publisher_room was called */
    int no_room;            /* the last acquire found no room, and room_asked has not changed
                               since */
    int turn;               /* the first batch of the window may be publishable */
    int publishing;         /* a thread is in the publish callback; it also publishes the chunks
                               that follow */
    int starting;           /* a thread in start or destroy waits for that to end */
    pthread_cond_t quiet;   /* signalled when no thread publishes any more */
    struct hr_batch *spare; /* unused batch structures of chunks */
};

/* chunk.c */

/* Makes the batch structure of chunk `number` and acquires its memory. Returns 0, -EAGAIN, or
 * acquire's error. */
int hr__chunk_open(struct hr_loader *l, uint64_t number, struct hr_batch **out,
                   struct hr_error *error);
void hr__chunk_free(struct hr_batch *batch);

/* Publishes the complete batches at the front of the window, unless another thread already does. */
void hr__publisher_publish(struct hr__publisher *publisher);

#endif
