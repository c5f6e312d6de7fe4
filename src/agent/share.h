/*
 * Memory that an agent and its jobs share: three kinds of anonymous files (memfd), passed over
 * the socket. Only the agent writes headers and data; a job cannot (seals), so that no job can
 * harm another. What a job writes is its own control block, and the agent believes nothing of it.
 *
 *   data   the samples of a queue: `places` places of `chunk_bytes` each, and spares. A job maps
 *          it privately (copy-on-write), twice in a row, so that a batch that runs over the
 *          ring's end is in one piece.
 *   header  what lies where, labels, indices, and how far the queue has come.
 *   control   one cursor's: what the job has taken and holds; and where the order is the job's own,
 *          the batches that it wants next.
 *
 * A *sequence* number counts samples of a queue on and on: chunk number x C + place. Chunk n lies
 * at place n % places of the ring.
 *
 * Taking and losing. A job that takes [a, b) reads what the header says of it, stores next = b,
 * then loads floor: floor > a means that it was too slow, what it wanted and what it read is
 * gone, and it stores next = a again. Once it has taken, the header may say what comes there next.
 * The agent that needs a place stores floor, then loads mark and next: what lies in [mark, next) is
 * held, and its memory is left to the job; the place gets a spare. Both use sequentially consistent
 * order, so one of them sees the other.
 *
 * An order of the job's own. Each chunk is one batch of the job's, of C samples or fewer. The job
 * writes the indices of the batch that is to be chunk n into slot n % places behind its control
 * block, then stores pushed = n + 1 and rings the eventfd. It uses a slot again when it has taken
 * the chunk that had it. When the agent answers SEEK it stores pushed = the first chunk that may be
 * pushed.
 */
#ifndef HR_AGENT_SHARE_H
#define HR_AGENT_SHARE_H

#include <headrace/recipe.h>

#include "base/round.h"

#include <stdatomic.h>
#include <stdint.h>

#define HR__SHARE_VERSION 2u
#define HR__HEADER_MAGIC  UINT64_C(0x3144524F42525248) /* "HRBOARD1", but for the byte order */
#define HR__CONTROL_MAGIC UINT64_C(0x31304B5345445248)

/* What no sample of a queue has reached yet. */
#define HR__SEQUENCE_NONE UINT64_MAX

/* What lies at a place of the ring. Written before `head` passes it. */
struct hr__header_place {
    _Atomic uint64_t number; /* of the chunk; HR__SEQUENCE_NONE: none yet */
    _Atomic uint64_t offset; /* of its images in the data; a multiple of the page size */
};

/* A sample's, at sequence % (places * chunk_samples). Written before `head` passes it. */
struct hr__header_sample {
    int64_t label;
    int64_t index;   /* of the sample really used */
    int64_t instead; /* of the bad one it stands in for; -1: of none; its own index: it is
                        damaged and was taken */
};

struct hr__header {
    /* Constant. */
    uint64_t magic;
    uint32_t version;
    uint32_t page_bytes;
    uint64_t queue;         /* number of the queue in its agent */
    uint64_t sample_bytes;  /* of one sample's images */
    uint64_t chunk_samples; /* C */
    uint64_t chunk_bytes;   /* C * sample_bytes, rounded up to pages */
    uint64_t places;        /* of the ring */
    uint64_t data_bytes;    /* that the data may grow to, spares included: what to map at most */
    uint32_t is_gapless;    /* chunk_bytes is C * sample_bytes: a batch may run over several */
    uint32_t reserved;
    uint64_t places_offset;  /* in the header, of struct hr__header_place[places] */
    uint64_t samples_offset; /* of struct hr__header_sample[places * chunk_samples] */
    uint64_t header_bytes;

    /* Changes. */
    _Alignas(64) _Atomic uint64_t head; /* sequence: everything before it, of the present epoch, is
                                           ready */
    _Atomic uint64_t halt;  /* sequence of a sample that ended the queue (its record came over the
                               socket before); HR__SEQUENCE_NONE: none */
    _Atomic uint64_t tail;  /* sequence: before it everything may be gone */
    _Atomic uint64_t epoch; /* that the queue is in */
    _Atomic uint32_t bell;  /* futex: moves on with head and halt, and when a floor moves */
    _Atomic uint32_t wants_room; /* the queue waits for places: ring when mark moves on, and before
                                    waiting for samples */
};

struct hr__control {
    uint64_t magic;
    uint32_t version;
    uint32_t reserved;

    /* The job's. */
    _Alignas(64) _Atomic uint64_t mark; /* sequence: everything before it was released */
    _Atomic uint64_t next;              /* sequence: everything before it was taken */
    _Atomic uint64_t wants;             /* sequence that it waits for; 0: it does not wait */
    _Atomic uint64_t batches, samples;  /* handed out from this cursor */
    _Atomic uint64_t wait_ns;           /* that its training waited in next */
    _Atomic uint64_t step_ns;           /* that its training was away from next */
    _Atomic uint64_t copied;            /* batches that had to be copied */
    _Atomic uint32_t batch_samples;     /* how many it takes at a time, about */
    _Atomic uint32_t held;              /* batches in its hands */
    _Atomic uint64_t pushed;            /* number of a chunk: the batches before it are there */

    /* The agent's. */
    _Alignas(64) _Atomic uint64_t floor; /* sequence: below it nothing can be taken any more */
};

/* A batch of an order of the job's own, in its slot. */
struct hr__control_batch {
    _Atomic uint64_t count; /* 1 to C */
    int64_t indices[];      /* C of them */
};

static inline uint64_t hr__control_batch_bytes(uint64_t chunk_samples)
{
    return sizeof(struct hr__control_batch) + chunk_samples * sizeof(int64_t);
}

/* The slots begin with the control block's second page. */
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
