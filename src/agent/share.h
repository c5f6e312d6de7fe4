/*
 * Memory shared by an agent and its jobs: three kinds of anonymous files (memfd), passed over the
 * socket. Only the agent can write headers and data (seals), so no job can harm another. A job
 * writes its own control block only, and the agent checks every value that it reads there.
 *
 *   data     the samples of a queue: `places` places of `chunk_bytes` each, and spare pieces. A
 *            job maps it privately (copy-on-write), twice in a row, so that a batch that crosses
 *            the ring's end is contiguous.
 *   header   of a queue: the chunk at each place, labels, indices, rows or masks, and the queue's
 *            progress.
 *   control  of one cursor: what the job has taken and holds. If the job gives the order itself
 *            (external order), also the batches that it wants next.
 *
 * A *sequence* number counts the samples of a queue across epochs: chunk number x C + index in
 * the chunk, where C is the samples of a chunk. Chunk n lies at place n % places of the ring.
 *
 * Take and lose. To take [a, b), a job reads the header's entries for it, stores next = b, then
 * loads floor. If floor > a, the job was too slow: the samples and the entries that it read are
 * invalid, and it stores next = a again. Read the entries before taking: afterwards the agent may
 * overwrite them. An agent that needs a place stores floor, then loads mark and next. The job
 * holds [mark, next) and keeps that memory; the place gets a spare piece. Both sides use
 * sequentially consistent order, so at least one of them sees the other's store.
 *
 * External order. Each chunk is one batch of the job, with C samples or fewer. The job writes the
 * indices of the batch for chunk n into slot n % places behind its control block, stores
 * pushed = n + 1, and signals the eventfd. It reuses a slot once it has taken the chunk that was
 * written there before. When the agent answers SEEK it sets pushed to the first chunk that the
 * job may push.
 */
#ifndef HR_AGENT_SHARE_H
#define HR_AGENT_SHARE_H

#include <headrace/recipe.h>

#include "base/round.h"
#include "dataset/row_table.h"

#include <stdatomic.h>
#include <stdint.h>

#define HR__SHARE_VERSION 4u
#define HR__HEADER_MAGIC  UINT64_C(0x3144524F42525248) /* "HRRBORD1" in memory, little-endian */
#define HR__CONTROL_MAGIC UINT64_C(0x31304B5345445248)

/* The sequence number that no sample has. */
#define HR__SEQUENCE_NONE UINT64_MAX

/* One place of the ring. Written before `head` passes it. */
struct hr__header_place {
    _Atomic uint64_t number; /* of the chunk there; HR__SEQUENCE_NONE: none yet */
    _Atomic uint64_t offset; /* of the chunk's images in the data; a multiple of the page size */
};

/* One sample, at sequence % (places * chunk_samples). Written before `head` passes it. */
struct hr__header_sample {
    int64_t label;
    int64_t index;   /* in the dataset, of the sample delivered */
    int64_t instead; /* index of the bad sample that it replaces; -1: it replaces none; its own
                        index: it is damaged and was delivered nevertheless */
    int64_t extents[HR_TENSOR_MAX_DIMS]; /* of a padded recipe: as in struct hr_batch; else 0 */
};

struct hr__header {
    /* Constant. */
    uint64_t magic;
    uint32_t version;
    uint32_t page_bytes;
    uint64_t queue;         /* the queue's number in its agent */
    uint64_t sample_bytes;  /* of one sample's images */
    uint64_t chunk_samples; /* C */
    uint64_t chunk_bytes;   /* C * sample_bytes, rounded up to pages */
    uint64_t places;        /* number of places in the ring */
    uint64_t data_bytes;    /* most that the data may grow to, with spare pieces: the size to map */
    uint32_t is_gapless;    /* chunk_bytes is C * sample_bytes: a batch may span several chunks */
    uint32_t reserved;
    uint64_t places_offset;  /* in this file: struct hr__header_place[places] */
    uint64_t samples_offset; /* in this file: struct hr__header_sample[places * chunk_samples] */
    uint64_t record_bytes;   /* of one sample's rows (base/row_layout.h) or mask, a byte for each
                                pixel; 0: they have neither */
    uint64_t records_offset; /* in this file: record_bytes x places x chunk_samples, which are
                                written while a chunk is prepared */
    uint64_t header_bytes;

    /* Changes. */
    _Alignas(64) _Atomic uint64_t head; /* sequence: all samples of the present epoch before it are
                                           ready */
    _Atomic uint64_t halt;  /* sequence of the sample at which the queue ended with an error; the
                               HALT message was sent before. HR__SEQUENCE_NONE: it did not end */
    _Atomic uint64_t tail;  /* sequence: samples before it may have been overwritten */
    _Atomic uint64_t epoch; /* the queue's present epoch */
    _Atomic uint32_t
        bell; /* futex: changes with head and halt, and when all cursors are expelled */
    _Atomic uint32_t wants_room; /* the queue waits for free places: signal the eventfd when mark
                                    advances, and before waiting for samples */
};

/* Returns record_bytes of a queue. */
static inline uint64_t hr__record_bytes(const struct hr_dataset *dataset,
                                        const struct hr_tensor_spec *spec)
{
    if (dataset->masks)
        return (uint64_t)spec->height * (uint64_t)spec->width;
    const struct hr__rows_layout *layout = hr__dataset_layout(dataset);
    return layout ? layout->bytes : 0;
}

struct hr__control {
    uint64_t magic;
    uint32_t version;
    uint32_t reserved;

    /* Written by the job. */
    _Alignas(64) _Atomic uint64_t mark; /* sequence: all samples before it were released */
    _Atomic uint64_t next;              /* sequence: all samples before it were taken */
    _Atomic uint64_t wants; /* sequence: the job waits for samples before it; 0: no wait */
    _Atomic uint64_t batches, samples; /* delivered from this cursor so far */
    _Atomic uint64_t wait_ns;          /* time that the training waited in next() */
    _Atomic uint64_t step_ns;          /* time that the training spent outside next() */
    _Atomic uint64_t copied;           /* batches that had to be copied */
    _Atomic uint32_t batch_samples;    /* samples that the job takes at a time, about */
    _Atomic uint32_t held;             /* batches that the job has not released */
    _Atomic uint64_t pushed;           /* chunk number: all batches before it were pushed */

    /* Written by the agent. */
    _Alignas(64) _Atomic uint64_t floor; /* sequence: samples before it can no longer be taken */
};

/* One batch of an external order, in its slot. */
struct hr__control_batch {
    _Atomic uint64_t count; /* 1 to C */
    int64_t indices[];      /* C of them */
};

static inline uint64_t hr__control_batch_bytes(uint64_t chunk_samples)
{
    return sizeof(struct hr__control_batch) + chunk_samples * sizeof(int64_t);
}

/* Size of the control file. The slots begin at its second page. */
static inline uint64_t hr__control_bytes(uint64_t page_bytes, uint64_t places,
                                         uint64_t chunk_samples)
{
    return page_bytes + hr__round_up(places * hr__control_batch_bytes(chunk_samples), page_bytes);
}

static inline struct hr__control_batch *hr__control_batch(struct hr__control *control,
                                                          uint64_t page_bytes,
                                                          uint64_t chunk_samples, uint64_t slot)
{
    char *slots = (char *)control + page_bytes;
    return (struct hr__control_batch *)(void *)(slots +
                                                slot * hr__control_batch_bytes(chunk_samples));
}

#endif
