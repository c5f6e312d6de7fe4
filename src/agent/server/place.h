/*
 * The memory of a queue: a ring of places for chunks, in shared memory, the header that tells
 * jobs what lies there, and the control blocks of the cursors that take from it (agent/share.h).
 *
 * A place is used again when no cursor needs or holds what lies in it. Who is slow is waited
 * for as long as the cursor that is furthest ahead has enough; when that runs short, what
 * others hold is left to them and the place gets a spare piece of data, and who has not taken
 * his samples yet loses them (is expelled), unless the stream waits for everybody.
 *
 * The loop of the agent makes and changes it; acquire, drop, publish and ahead are called by
 * the crew. One lock guards all of it, held for microseconds, and never while memory is taken; it
 * is a leaf. `ahead` is asked for each sample, under the crew's lock, and takes none: it reads
 * what is atomic, and a cursor that goes waits until nobody reads.
 *
 * Samples of an epoch, from some position on, are a *span* of sequence numbers. The present
 * one and some before it are remembered, for cursors that still take from them.
 */
#ifndef HR_AGENT_SERVER_PLACE_H
#define HR_AGENT_SERVER_PLACE_H

#include "agent/share.h"
#include "loader/publisher.h"

#include <headrace/base.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Spans that are remembered, the present one included. */
#define HR__SPANS 4

/* What a queue's memory is made for. */
struct hr__places_wish {
    uint64_t queue;         /* its number */
    size_t sample_bytes;    /* of one sample's images */
    uint64_t batch_samples; /* of the first job */
    uint64_t window;        /* batches that the ring holds */
    bool is_pushed;         /* each chunk is one batch of an order of the job's own */
    bool is_waiting;        /* nobody is expelled */
    /* Tells the loop to look (hr__places_look). Any thread, under the lock: it only notes it. */
    void (*tell)(void *arg);
    void *arg;
};

/* Positions of an epoch that lie in the queue, one behind the other. */
struct hr__span {
    uint64_t epoch;
    uint64_t position;  /* of the order, at `first` */
    uint64_t first;     /* sequence */
    uint64_t end;       /* sequence behind the last sample of the epoch */
    uint64_t published; /* sequence: everything before it is, or was, there */
    bool is_halted;     /* nothing comes behind `published` */
};

/* One job's place in a queue. What is atomic is read without the lock by hr__places_ahead. */
struct hr__place_cursor {
    struct hr__place_cursor *_Atomic next;
    struct hr__control *control; /* shared with the job */
    int file;                    /* of the control block; -1: closed */
    _Atomic uint64_t base;       /* sequence where it was placed last; HR__SEQUENCE_NONE: never */
    _Atomic uint64_t end;        /* of its span */
    uint64_t past[2];       /* what it held when it was placed last, from and up to a sequence */
    uint64_t batch_samples; /* constant */
    uint64_t floor;         /* as told in the control block */
    _Atomic bool is_taking; /* what it has not taken is kept for it */
    bool is_last;           /* it needs nothing behind the epoch that it is in */
    bool is_expelled;       /* the loop has not seen it yet */
};

/* A sample's record: that it stands in for a bad one, or that the queue ended with it. */
struct hr__place_record {
    struct hr__place_record *next;
    bool is_halt;
    bool has_sample;       /* index, path and reason are set */
    uint64_t sequence;     /* of the sample */
    uint64_t index;        /* in the dataset */
    struct hr_error error; /* of a halt */
    const char *path;      /* in the same block */
    const char *reason;    /* likewise */
};

struct hr__place; /* of the ring */

struct hr__places {
    /* Constant. */
    struct hr__places_wish wish;
    uint64_t chunk_samples, chunk_bytes, places, ring_samples, control_bytes;
    struct hr__header *header; /* shared, read-only for jobs */
    uint8_t *data;             /* the same */
    int header_file, data_file;
    int room; /* eventfd: a job has moved on */

    pthread_mutex_t lock; /* guards everything below, and what is written to the header */
    struct hr__place *ring;
    int64_t *labels, *indices; /* of each place's chunk while it is prepared */
    uint64_t pieces;           /* of data that exist */
    uint64_t *spare;           /* pieces in no place */
    uint64_t spares;
    struct hr__leased *leased; /* pieces in no place that a cursor holds */
    uint64_t leased_count;
    struct hr__place_cursor *_Atomic cursors;
    _Atomic uint32_t readers;         /* threads that go through the cursors without the lock */
    _Atomic uint64_t published;       /* of the present span */
    struct hr__span spans[HR__SPANS]; /* the present one first */
    int span_count;
    uint64_t acquired;                /* the highest number of a chunk that was, and 1 */
    uint64_t tail;                    /* sequence, as on the header */
    _Atomic bool is_stopped;          /* no chunk is opened */
    _Atomic bool is_awaited;          /* a job waits for what comes behind the present span */
    bool is_short;                    /* a chunk was refused for want of room */
    struct hr__place_record *records; /* oldest first */
    struct hr__place_record *records_last;
    struct hr__place_record *unsent;   /* the first that no job was told; head waits for it */
    struct hr__place_record last_halt; /* of a halt for which there was no memory */
};

/* Samples a chunk: the fewest, from 8 on, that fill whole pages; or the batch. Pure. */
uint64_t hr__places_chunk(size_t sample_bytes, uint64_t batch_samples, uint64_t page_bytes);

/* Memory is taken at once. On success *out is the caller's. It is stopped. Errors: -ENOMEM and
 * -ENOSPC say how much was refused; -EMFILE; -EFBIG. Blocks while pages are made. */
int hr__places_create(struct hr__places **out, const struct hr__places_wish *wish,
                      struct hr_error *error);

/* No queue uses it any more; its cursors are gone. Jobs keep what they have mapped. Accepts NULL.
 */
void hr__places_destroy(struct hr__places **places);

/* What hr__publisher_ops wants. acquire takes memory where what lies there has to be left to a slow
 * job, without the lock, so one thread at a time is in it; ahead is a hint. */
int hr__places_acquire(struct hr__places *places, uint64_t number, struct hr__chunk *out);
void hr__places_drop(struct hr__places *places, uint64_t number);
void hr__places_publish(struct hr__places *places, const struct hr__chunk_done *done);
double hr__places_ahead(struct hr__places *places);

/* Opens no chunk until go_on. Returns the number that the next span's first chunk
 * may have: greater than any that was asked for. */
uint64_t hr__places_stop(struct hr__places *places);

/* Chunks of the present span are opened again: then hr__publisher_room. Returns whether they were
 * not. */
bool hr__places_go_on(struct hr__places *places);

/* The queue was started: `first` chunk, for an epoch's samples from `position` on. It stays
 * stopped until go_on, when somebody is placed: what nobody takes would be overwritten. */
void hr__places_begin(struct hr__places *places, uint64_t epoch, uint64_t position, uint64_t first,
                      uint64_t samples);

/* Somebody waits for what comes behind the present span, or not. */
void hr__places_await(struct hr__places *places, bool is_awaited);

void hr__places_set_waiting(struct hr__places *places, bool is_waiting);

/* The present span, and false where there was none yet. */
bool hr__places_span(struct hr__places *places, struct hr__span *out);

/* The furthest-back sequence of a cursor that takes from the present span; false: none does. */
bool hr__places_back(struct hr__places *places, uint64_t *sequence);

/* Cursors that take, but for `but` (may be NULL). */
int hr__places_takers(struct hr__places *places, const struct hr__place_cursor *but);

/* How far all that take have come, as a number that moves when one of them does. *is_stuck:
 * there are samples for each that has not taken its epoch's last; *is_over: all have. */
uint64_t hr__places_progress(struct hr__places *places, bool *is_stuck, bool *is_over);

/* Makes a cursor that takes nothing yet. Errors: -ENOMEM, -EMFILE. */
int hr__places_cursor_create(struct hr__places *places, struct hr__place_cursor **out,
                             uint64_t batch_samples, struct hr_error *error);

/* What it holds is nobody's any more. Accepts NULL. Then hr__publisher_room. */
void hr__places_cursor_destroy(struct hr__places *places, struct hr__place_cursor **cursor);

/* The job has the control block: its file is closed. */
void hr__places_cursor_hand_over(struct hr__places *places, struct hr__place_cursor *cursor);

/*
 * Cursors it at a position that every step-th (ranks) of which is in the queue, where that is
 * intact, or comes soon: no further ahead than the ring is long. *at: the span, *sequence: where
 * in it. Returns false where it is not there; nothing has changed then. NULL: only looks.
 */
bool hr__places_sit(struct hr__places *places, struct hr__place_cursor *cursor,
                    const uint64_t epoch_position[2], uint64_t step, struct hr__span *at,
                    uint64_t *sequence);

/*
 * Takes the batch that the job wants as chunk `number` from its control block, where it is there:
 * 1, with *count indices of chunk_samples at most, which are anything; 0: not yet; -EPROTO: what is
 * there makes no sense, or is so much that it does not fit in the ring.
 */
int hr__places_pushed(struct hr__places *places, const struct hr__place_cursor *cursor,
                      uint64_t number, int64_t *indices, size_t *count, struct hr_error *error);

/* Whether the epoch that it sits in is its last. */
void hr__places_set_last(struct hr__places *places, struct hr__place_cursor *cursor, bool is_last);

/* Keeps nothing for it any more that it has not taken. Stops where nobody else takes. */
void hr__places_rise(struct hr__places *places, struct hr__place_cursor *cursor);

/* Everybody loses what he has not taken of his epoch. */
void hr__places_expel_all(struct hr__places *places);

/* True once for a cursor that has lost its samples: it does not take any more. */
bool hr__places_was_expelled(struct hr__places *places, struct hr__place_cursor *cursor);

typedef void (*hr__place_record_fn)(void *arg, const struct hr__place_record *record);

/* Calls fn, under the lock, for each record that nobody was told yet, then shows what was held
 * back for them. */
void hr__places_tell(struct hr__places *places, hr__place_record_fn fn, void *arg);

/* The same for those that were told, from `sequence` to `end`, for a cursor that is new there. */
void hr__places_recall(struct hr__places *places, uint64_t sequence, uint64_t end,
                       hr__place_record_fn fn, void *arg);

/* A job has moved on, or a cursor has gone: true where the queue had asked for room, which it does
 * not any more. Then hr__publisher_room. */
bool hr__places_take_room(struct hr__places *places);

bool hr__places_wants_room(struct hr__places *places);

/* For people. */
struct hr__places_status {
    uint64_t epoch, position_samples, span_samples; /* published and in all, of this rank, since
                                                       the span's position */
    uint64_t span_position;
    uint64_t ready_samples; /* ahead of the cursor that is furthest ahead */
    uint64_t memory_bytes, leased_bytes;
    bool wants_room, is_stopped;
};
void hr__places_get_status(struct hr__places *places, struct hr__places_status *out);

/* What a cursor's control block says, in range. */
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
