/*
 * The ring of slots: batch memory that is prepared, handed out, released and used again.
 *
 * A ring has a planned number of slots. It grows when the consumer holds so many slots that the
 * planned batches ahead cannot be prepared. A slot that becomes idle is freed if the slots that the
 * consumer does not hold are more than planned. So a ring that had to grow shrinks again, without
 * an allocation at every batch.
 *
 * A slot that was handed out is pending after its last release, until the fence recorded at that
 * time is done (accelerator.h).
 *
 * The ring is reference-counted, by its loader and by each batch handed out, so batches may outlive
 * the loader.
 */
#ifndef HR_LOADER_RING_H
#define HR_LOADER_RING_H

#include "base/numa.h"
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
struct hr__batch_rows;
struct hr__row_table;

/* One slot, or a batch whose memory has another owner (attach.h). The memory lives as long as the
 * slot, the view's fields from opening to release, the work fields from opening to delivery. */
struct hr_batch {
    const struct hr__batch_owner *owner; /* takes the batch back when the last reference is gone */
    const struct hr_tensor_spec *spec;   /* of one sample; lives as long as the batch */
    struct hr__ring *ring;               /* NULL: the batch is no slot */
    struct hr_batch *next;               /* in the ring's lists, or in the loader's window */
    atomic_uint refs;                    /* references of consumers; 0 until it is handed out */

    void *images;                /* batch_size samples, for each view; 64-byte aligned or better */
    int64_t *labels;             /* batch_size */
    int64_t *indices;            /* batch_size: indices in the dataset */
    uint64_t *positions;         /* batch_size: positions in the epoch's order */
    struct hr__batch_rows *rows; /* NULL: the dataset has none */
    int64_t *extents; /* of a padded recipe: spec->dims for each sample, the shape of what may be
                         other than zero in its place; NULL: places are full */

    uint8_t *masks; /* batch_size x height x width, in the memory of the images; NULL: none */
    int64_t *mask_extents; /* of a padded recipe: height and width of each; else NULL */

    struct hr__fence fence; /* covers copies from the images */
    int recorded;           /* non-zero: the fence covers the last use */

    size_t count;    /* samples in the batch */
    size_t padding;  /* how many of them, at the end, are repeats */
    size_t replaced; /* how many of them are stand-ins */
    int is_mixed;    /* by MixUp or CutMix */
    double own;      /* if it is mixed: share of each sample's own label */
    uint64_t epoch;
    uint64_t number; /* of the batch in its epoch */

    /* Work: guarded by the loader's lock. */
    struct hr__epoch *plan;          /* the epoch it belongs to; a reference */
    struct hr__publisher *publisher; /* NULL: a slot; else the batch is a chunk of this publisher */
    uint64_t chunk;                  /* number of the chunk */
    size_t claimed;                  /* samples taken by fetchers or workers, from place 0 on */
    size_t done;                     /* samples finished */
    int cancelled;                   /* non-zero: its epoch was dropped */
    uint64_t opened_ns;              /* when it was opened; only with hosts */
    struct hr__job *fetched;         /* jobs that are read and wait for a worker, oldest first */
    struct hr__job *fetched_last;
    struct hr__bad *skipped; /* records of bad and damaged samples, sorted by place */
    size_t bad;              /* number of bad samples */
    struct hr_error error;   /* the failure at the lowest place; code 0: none */
    size_t error_place;      /* the place of that failure */
    struct hr__bad *failed;  /* the sample that failed there; NULL: not a sample's fault */
};

/* One view's place in the images of a batch. */
struct hr__ring_view {
    struct hr_tensor_spec spec; /* of one sample */
    size_t offset; /* of the first sample, in bytes from the images; a multiple of 64 */
};

struct hr__ring_options {
    const struct hr_recipe *recipe; /* its views are the images of a sample */
    struct hr__row_table *rows;     /* of the samples; NULL: they have none */
    int masks;                      /* samples have masks */
    size_t batch_size;              /* samples per slot */
    size_t planned;                 /* slots */
    int pinned;                     /* page-locked memory, with fences */
    int processes;                  /* that share this machine with this one, itself included */
};

/* Statistics of the ring. Each field is read on its own, not as a consistent set. */
struct hr__ring_counts {
    uint64_t slots; /* existing now */
    uint64_t grown; /* slots ever made beyond the plan */
    uint64_t slot_bytes;
};

/* Makes a ring without slots. Finds the consumer's home (base/numa.h): call it on the consumer's
 * thread. *out holds the loader's reference. Errors: -ENOMEM; -ENOTSUP for
 * pinned; -EINVAL: a batch too large to address. */
int hr__ring_create(struct hr__ring **out, const struct hr__ring_options *options,
                    struct hr_error *error);

/* Returns where a sample's tensor of one view belongs, in a batch that is a slot. */
void *hr__batch_place(const struct hr_batch *batch, size_t view, size_t place);

/* Returns the number of views that a batch has images of. */
size_t hr__batch_views(const struct hr_batch *batch);

/* Drops the loader's reference. Frees every slot that is not handed out, once its fence is done:
 * blocks for pending copies. Accepts NULL. */
void hr__ring_close(struct hr__ring **ring);

/* The same in a forked child: takes no lock and does not wait. */
void hr__ring_abandon(struct hr__ring **ring);

/* Sets the process that uses the ring, so that a forked child can be recognized. */
void hr__ring_set_owner(struct hr__ring *ring, int pid);

/*
 * Takes a slot to fill. Never waits for other threads, but may take the time to make a slot.
 * `grow`: make a slot beyond the plan if none is free. *beyond is set to the number of slots beyond
 * the plan if there have never been so many at once.
 * Errors: -EAGAIN: none free; -EBUSY: none free, but copies from some are still in progress;
 * -ENOMEM, -ENOTSUP from making one.
 */
int hr__ring_acquire(struct hr__ring *ring, int grow, struct hr_batch **out, size_t *beyond,
                     struct hr_error *error);

/* Gives back a slot that was not handed out. */
void hr__ring_return(struct hr_batch *batch);

/* Sets the extents of masks to those of their images, where these came from elsewhere. */
void hr__batch_set_mask_extents(struct hr_batch *batch);

/* Hands a slot to the consumer, with one reference to the slot and one to the ring. */
void hr__ring_deliver(struct hr_batch *batch);

/* Returns where the consumer is at home; its slots are bound there. */
struct hr__home hr__ring_home(const struct hr__ring *ring);

/* Changes the planned number of slots by `more`, which may be negative: for batches that are held
 * for long. Any thread. */
void hr__ring_plan(struct hr__ring *ring, int more);

void hr__ring_counts(const struct hr__ring *ring, struct hr__ring_counts *counts);

#endif
