/*
 * The ring of slots: batch memory that is prepared, handed out, released and
 * used again.
 *
 * A ring has a planned number of slots. When the consumer holds so many that
 * the planned batches ahead cannot be prepared, it grows; a slot that becomes
 * idle is kept only while the slots that the consumer does not hold are no more
 * than planned, so that a ring that had to grow shrinks again without freeing
 * and allocating at every batch.
 *
 * A slot that was handed out is pending after its last release until the fence
 * recorded then is done (see accelerator.h).
 *
 * The ring is reference-counted: by its loader and by each batch handed out, so
 * that batches outlive the loader.
 */
#ifndef HR_LOADER_RING_H
#define HR_LOADER_RING_H

#include "loader/accelerator.h"

#include <headrace/loader.h>
#include <headrace/recipe.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct hr__batch_owner;
struct hr__epoch;
struct hr__publisher;
struct hr__job;
struct hr__ring;
struct hr__bad;

/* One slot, or a batch whose memory is somebody else's (attach.h). Which fields live when: the
 * memory as long as the slot; the view's fields from opening to release; the work from opening
 * to delivery. */
struct hr_batch {
    const struct hr__batch_owner *owner; /* who gets it back with the last reference */
    const struct hr_tensor_spec *spec;   /* of one sample; lives as long as the batch */
    struct hr__ring *ring;               /* NULL: it is no slot */
    struct hr_batch *next;               /* in the ring's lists, or in the loader's window */
    atomic_uint refs;                    /* of consumers; 0 while it is not handed out */

    void *images;        /* batch_size samples, 64-byte aligned or better */
    int64_t *labels;     /* batch_size */
    int64_t *indices;    /* batch_size: samples of the dataset */
    uint64_t *positions; /* batch_size: positions of the epoch's order */

    struct hr__fence fence; /* of copies from the images */
    int recorded;           /* the fence covers the last use */

    size_t count;    /* samples in it */
    size_t padding;  /* of them, at the end, repeats */
    size_t replaced; /* of them, stand-ins */
    uint64_t epoch;
    uint64_t number; /* in the epoch */

    /* Work: guarded by the loader's lock. */
    struct hr__epoch *plan;          /* what it belongs to; a reference */
    struct hr__publisher *publisher; /* whose chunk it is (publisher.h); NULL: a slot */
    uint64_t chunk;                  /* its number */
    size_t claimed;                  /* samples taken by a fetcher or worker, from the front */
    size_t done;                     /* samples finished */
    int cancelled;                   /* its epoch was dropped */
    uint64_t opened_ns;              /* when it was opened; with hosts */
    struct hr__job *fetched;         /* read and waiting for a worker, oldest first */
    struct hr__job *fetched_last;
    struct hr__bad *skipped; /* its bad and its damaged samples, in order of place */
    size_t bad;              /* number of the bad ones */
    struct hr_error error;   /* of the failure with the lowest place; code 0: none */
    size_t error_place;      /* where that is */
    struct hr__bad *failed;  /* the sample that failed there; NULL: not a sample's fault */
};

struct hr__ring_options {
    struct hr_tensor_spec spec; /* of one sample */
    size_t batch_size;          /* samples per slot */
    size_t planned;             /* slots */
    int pinned;                 /* page-locked, with fences */
};

/* What the ring did; each is read by itself. */
struct hr__ring_counts {
    uint64_t slots; /* now */
    uint64_t grown; /* slots made beyond the plan, ever */
    uint64_t slot_bytes;
};

/* On success *out holds the loader's reference. No slot is made yet.
 * Errors: -ENOMEM; -ENOTSUP for pinned; -EINVAL: a batch too large to address. */
int hr__ring_create(struct hr__ring **out, const struct hr__ring_options *options,
                    struct hr_error *error);

/* Gives the loader's reference back. Every slot that is not handed out is freed,
 * after its fence: blocks for pending copies. Accepts NULL. */
void hr__ring_close(struct hr__ring **ring);

/* The same in a forked child: takes no lock, waits for nothing. */
void hr__ring_abandon(struct hr__ring **ring);

/* The process that uses the ring, for telling a forked child. */
void hr__ring_set_owner(struct hr__ring *ring, int pid);

/*
 * A slot to fill. Never blocks on other threads, may take the time of making a
 * slot. `grow`: beyond the plan if need be; *grown is then set to 1 where it was
 * needed. Errors: -EAGAIN: none free; -EBUSY: none free, but copies from some
 * are being completed; -ENOMEM, -ENOTSUP from making one.
 */
int hr__ring_acquire(struct hr__ring *ring, int grow, struct hr_batch **out, int *grown,
                     struct hr_error *error);

/* Gives back a slot that was not handed out. */
void hr__ring_return(struct hr_batch *batch);

/* Hands a slot to the consumer: one reference to it, and one to the ring. */
void hr__ring_deliver(struct hr_batch *batch);

/* Plans for so many slots more, or fewer where negative: for batches that are kept all
 * the time. Any thread. */
void hr__ring_plan(struct hr__ring *ring, int more);

void hr__ring_counts(const struct hr__ring *ring, struct hr__ring_counts *counts);

#endif
