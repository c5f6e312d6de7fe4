/*
 * A queue's shared memory: a ring of places for chunks, the header that describes them to the
 * jobs, and the control block of each cursor that takes samples (layout: agent/share.h).
 *
 * A place is reused once no cursor needs or holds the samples in it. The queue waits for slow
 * jobs as long as the furthest cursor has enough samples ahead of it. When it runs short, a
 * place that is still in use is reclaimed: samples that a job holds keep their memory, and the
 * place gets a spare piece of data instead; a job that has not taken the samples yet loses them
 * (is expelled). Nobody is expelled if the stream waits for all of its jobs.
 *
 * The agent's loop creates and changes the memory; the crew calls acquire, drop, publish and
 * ahead. One lock guards all of it. It is a leaf lock, held for microseconds and never during an
 * allocation. The crew calls `ahead` for each sample, under its own lock, so `ahead` takes no
 * lock: it reads atomic fields only, and destroying a cursor waits until no thread reads them.
 *
 * A *span* is a range of sequence numbers: the samples of one epoch from some position on. The
 * present span and a few before it are remembered, for cursors that still take from them.
 */
#ifndef HR_AGENT_SERVER_PLACE_H
#define HR_AGENT_SERVER_PLACE_H

#include "agent/share.h"
#include "loader/publisher.h"

#include <headrace/base.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Number of spans remembered, including the present one. */
#define HR__SPANS 4

/* Parameters of hr__places_create. */
struct hr__places_wish {
    uint64_t queue;         /* its number */
    size_t sample_bytes;    /* of one sample's images */
    size_t record_bytes;    /* of one sample's rows, a multiple of 8, or mask; 0: neither */
    size_t dims;            /* numbers of a sample's extents */
    uint64_t batch_samples; /* of the first job */
    uint64_t window;        /* size of the ring, in batches */
    bool is_pushed;         /* the job gives the order itself: each chunk is one of its batches */
    bool is_waiting;        /* no job is expelled */
    int node;               /* NUMA node of its consumer; -1: any */
    /* Notifies the loop that the queue needs attention (hr__queues_look). Called on any thread,
     * under the lock: it must only set a flag and wake the loop. */
    void (*notify)(void *arg);
    void *arg;
};

/* Consecutive positions of one epoch that the queue holds. */
struct hr__span {
    uint64_t epoch;
    uint64_t position;  /* in the epoch's order, of the sample at `first` */
    uint64_t first;     /* sequence of the first sample */
    uint64_t end;       /* sequence after the last sample of the epoch */
    uint64_t published; /* sequence: every sample before it has been published */
    bool is_halted;     /* an error ended the span: nothing comes after `published` */
};

/* One job's cursor in a queue. hr__places_ahead reads the atomic fields without the lock. */
struct hr__place_cursor {
    struct hr__place_cursor *_Atomic next;
    struct hr__control *control; /* shared with the job */
    int file;                    /* memfd of the control block; -1: closed */
    _Atomic uint64_t base;  /* sequence where it was placed last; HR__SEQUENCE_NONE: never placed */
    _Atomic uint64_t end;   /* end of its span, a sequence */
    uint64_t past[2];       /* range of sequences that it held when it was placed last */
    uint64_t batch_samples; /* constant */
    uint64_t floor;         /* the same as in the control block */
    _Atomic bool is_taking; /* active: the samples that it has not taken yet are kept for it */
    bool is_last;           /* it needs no samples after its present epoch */
    bool is_expelled;       /* it was expelled, and the loop has not handled that yet */
};

/* An event of one sample: it replaces a bad one, or the queue ended there with an error. */
struct hr__place_record {
    struct hr__place_record *next;
    bool is_halt;          /* the queue ended; else: the sample replaces a bad one */
    bool has_sample;       /* index, path and reason are set */
    uint64_t sequence;     /* of the sample */
    uint64_t index;        /* of the bad sample in the dataset */
    struct hr_error error; /* set if is_halt */
    const char *path;      /* stored in the same allocation */
    const char *reason;    /* likewise */
};

struct hr__place; /* one place of the ring */

struct hr__places {
    /* Constant. */
    struct hr__places_wish wish;
    uint64_t chunk_samples, chunk_bytes, places, ring_samples, control_bytes;
    struct hr__header *header; /* shared, read-only for jobs */
    uint8_t *data;             /* likewise */
    int header_file, data_file;
    int room; /* eventfd that jobs write to when they have released samples */

    pthread_mutex_t lock; /* guards everything below, and writes to the header */
    struct hr__place *ring;
    int64_t *labels, *indices; /* of each place's chunk while it is prepared */
    int64_t *extents;          /* likewise: wish.dims for each sample; 0: not padded */
    uint64_t pieces;           /* number of chunk-sized pieces of data allocated so far */
    uint64_t *spare;           /* pieces that belong to no place and are free */
    uint64_t spares;
    struct hr__leased *leased; /* pieces that belong to no place and that a cursor holds */
    uint64_t leased_count;
    struct hr__place_cursor *_Atomic cursors;
    _Atomic uint32_t readers;         /* threads that walk the cursors without the lock */
    _Atomic uint64_t published;       /* of the present span */
    struct hr__span spans[HR__SPANS]; /* the present one first */
    int span_count;
    uint64_t acquired;                /* 1 + the highest chunk number acquired so far */
    uint64_t tail;                    /* sequence, as in the header */
    _Atomic bool is_stopped;          /* no new chunk may be acquired */
    _Atomic bool is_awaited;          /* a job waits for what follows the present span */
    bool is_short;                    /* a chunk was refused because the ring was full */
    struct hr__place_record *records; /* oldest first */
    struct hr__place_record *records_last;
    struct hr__place_record *unsent;   /* the first one not sent to the jobs yet; `head` stays
                                          behind it */
    struct hr__place_record last_halt; /* used for a halt if there is no memory for a record */
};

/* Returns the samples of a chunk: the smallest number, 8 to 64 and at most batch_samples, that
 * fills whole pages, or batch_samples if there is none. Pure. */
uint64_t hr__places_chunk(size_t sample_bytes, uint64_t batch_samples, uint64_t page_bytes);

/* Allocates the ring's memory at once. On success *out is the caller's, and it is stopped. Errors:
 * -ENOMEM and -ENOSPC, with the amount refused; -EMFILE; -EFBIG. Blocks while pages are made. */
int hr__places_create(struct hr__places **out, const struct hr__places_wish *wish,
                      struct hr_error *error);

/* Call it once the queue has ended and all cursors are destroyed. Jobs keep what they have mapped.
 * Accepts NULL. */
void hr__places_destroy(struct hr__places **places);

/* The operations of hr__publisher_ops. `acquire` may have to allocate memory, when a slow job keeps
 * the old piece; it does so without the lock, so only one thread at a time may call it. The result
 * of `ahead` is a hint. */
int hr__places_acquire(struct hr__places *places, uint64_t number, struct hr__chunk *out);
void hr__places_drop(struct hr__places *places, uint64_t number);
void hr__places_publish(struct hr__places *places, const struct hr__chunk_done *done);
double hr__places_ahead(struct hr__places *places);

/* Refuses new chunks until hr__places_go_on. Returns a number for the first chunk of the next span:
 * greater than any that was acquired or that a cursor waits for. */
uint64_t hr__places_stop(struct hr__places *places);

/* Allows chunks of the present span again. Returns true if they were refused before; the caller
 * then calls hr__publisher_room. */
bool hr__places_go_on(struct hr__places *places);

/* Begins a span: the queue was started at chunk number `first`, for `samples` samples of `epoch`
 * from `position` on. It stays stopped until hr__places_go_on, called once a job is placed: without
 * a cursor that takes, samples would be overwritten. */
void hr__places_begin(struct hr__places *places, uint64_t epoch, uint64_t position, uint64_t first,
                      uint64_t samples);

/* Sets whether a job waits for what follows the present span. */
void hr__places_await(struct hr__places *places, bool is_awaited);

void hr__places_set_waiting(struct hr__places *places, bool is_waiting);

/* Writes the present span to *out. Returns false if there is none yet. */
bool hr__places_span(struct hr__places *places, struct hr__span *out);

/* Finds the lowest sequence that an active cursor of the present span takes next. Returns false if
 * there is no such cursor. */
bool hr__places_back(struct hr__places *places, uint64_t *sequence);

/* Returns the number of active cursors other than `but` (may be NULL). */
int hr__places_takers(struct hr__places *places, const struct hr__place_cursor *but);

/* Returns a number that changes whenever an active cursor advances. *is_stuck: samples are ready
 * for every active cursor that has not finished its epoch. *is_over: all have finished it. */
uint64_t hr__places_progress(struct hr__places *places, bool *is_stuck, bool *is_over);

/* Creates an inactive cursor. Errors: -ENOMEM, -EMFILE. */
int hr__places_cursor_create(struct hr__places *places, struct hr__place_cursor **out,
                             uint64_t batch_samples, struct hr_error *error);

/* Frees the cursor and reclaims what it held. Accepts NULL. The caller then calls
 * hr__publisher_room. */
void hr__places_cursor_destroy(struct hr__places *places, struct hr__place_cursor **cursor);

/* Closes the control block's file, once the job has received it. */
void hr__places_cursor_hand_over(struct hr__places *places, struct hr__place_cursor *cursor);

/*
 * Places the cursor at {epoch, position}, if the queue still has that position in full, or will
 * have it within a ring's length. `step`: the number of ranks; the queue has every step-th
 * position. On success *at is the span and *sequence the position's sequence. Returns false, with
 * the cursor unchanged, if the queue does not have the position. A NULL cursor only looks it up.
 */
bool hr__places_sit(struct hr__places *places, struct hr__place_cursor *cursor,
                    const uint64_t epoch_position[2], uint64_t step, struct hr__span *at,
                    uint64_t *sequence);

/*
 * Reads the batch that the job has pushed as chunk `number` from the control block. Returns 1 with
 * *count indices, chunk_samples at most, whose values are not checked; 0 if it is not there yet.
 * Errors: -EPROTO: its count is out of range, or it is further ahead than the ring is long.
 */
int hr__places_pushed(struct hr__places *places, const struct hr__place_cursor *cursor,
                      uint64_t number, int64_t *indices, size_t *count, struct hr_error *error);

/* Sets whether the cursor's present epoch is its last. */
void hr__places_set_last(struct hr__places *places, struct hr__place_cursor *cursor, bool is_last);

/* Deactivates the cursor: samples that it has not taken are no longer kept for it. Stops the queue
 * if no other cursor is active. */
void hr__places_rise(struct hr__places *places, struct hr__place_cursor *cursor);

/* Expels every cursor that has not finished its epoch. */
void hr__places_expel_all(struct hr__places *places);

/* Returns true, once, if the cursor was expelled; it is inactive from then on. */
bool hr__places_was_expelled(struct hr__places *places, struct hr__place_cursor *cursor);

typedef void (*hr__place_record_fn)(void *arg, const struct hr__place_record *record);

/* Calls fn, under the lock, for each record not sent yet, then publishes the samples that were held
 * back for these records. */
void hr__places_publish_records(struct hr__places *places, hr__place_record_fn fn, void *arg);

/* Calls fn for the records already sent, from `sequence` to `end`, for a cursor newly placed. */
void hr__places_recall(struct hr__places *places, uint64_t sequence, uint64_t end,
                       hr__place_record_fn fn, void *arg);

/* Clears the queue's request for room and returns whether there was one. Called when a job has
 * released samples or a cursor has gone; on true the caller then calls hr__publisher_room. */
bool hr__places_take_room(struct hr__places *places);

bool hr__places_wants_room(struct hr__places *places);

/* For status reports. */
struct hr__places_status {
    uint64_t epoch, position_samples, span_samples; /* samples of this rank since span_position:
                                                       published, and in all */
    uint64_t span_position;
    uint64_t ready_samples; /* published, ahead of the furthest cursor */
    uint64_t memory_bytes, leased_bytes;
    bool wants_room, is_stopped;
};
void hr__places_get_status(struct hr__places *places, struct hr__places_status *out);

/* Reads a cursor's control block, with its values clamped to what is possible. */
struct hr__place_cursor_status {
    uint64_t mark, next;
    uint64_t behind_samples; /* behind the queue's head */
    uint64_t batches, samples, wait_ns, step_ns, copied;
    uint32_t held;
    bool is_waiting;
};
void hr__places_cursor_status(struct hr__places *places, const struct hr__place_cursor *cursor,
                              struct hr__place_cursor_status *out);

#endif
