/*
 * A cursor: one queue as a job sees it (see share.h). Samples are taken from it by sequence
 * number, and become batches in one of two ways: leased, in place (lease.c), or copied.
 *
 * The data is mapped privately, so that a job may write to its batches. A *window* is one such
 * mapping: room for the ring twice in a row, into which places are mapped as batches need
 * them, and again where a place's samples lie elsewhere in the file than before. A *lease* is
 * a batch that lies in a window. Whatever a job keeps: a window is never changed under a lease.
 * Where the next batch needs memory that a lease has, a new window is made, and the former is
 * left to its leases.
 *
 * Pages that no lease covers are never private, so that they always show what the agent wrote:
 * those that a job wrote to are given back with its last lease on them. A lease whose first or
 * last page is private already when it is made, because a neighbour was written to before our
 * samples were there, gets its part of the page copied.
 *
 * Whether a job has written to a batch is asked when four have been released, or when their
 * memory is needed: one system call for all, in the usual case. Of a job that does write, it
 * is asked at each release, so that what it changed is given back at once.
 *
 * Leases that are kept for almost as long as the ring is are made the job's own: private
 * copies, for which the agent need not keep anything any more. So a job may keep all its
 * batches, and neither stops its queue nor holds more than about a ring of shared memory.
 *
 * Locks: `lock` guards what is said below. One thread, the consumer's, takes; leases may be
 * released on any thread. Header and files are the agent's, whose mistakes must not crash a
 * job: lengths are checked against the files, which cannot shrink (seals).
 *
 * A forked child may go on reading the leases that it has until its parent releases them; it
 * neither gives back pages nor writes to the control block.
 */
#ifndef HR_AGENT_CLIENT_CURSOR_H
#define HR_AGENT_CLIENT_CURSOR_H

#include "agent/client/pages.h"
#include "agent/share.h"
#include "loader/ring.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct hr__notice;
struct hr__window;
struct hr__wire_halt;

/* What a header says once and for all, checked. */
struct hr__cursor_shape {
    uint64_t sample_bytes, chunk_samples, chunk_bytes, places, data_bytes;
    uint64_t ring_samples; /* places x chunk_samples */
    uint64_t places_offset, samples_offset, header_bytes;
    int is_gapless;
};

struct hr__cursor {
    atomic_uint refs; /* its attachment's, and one for each lease */
    int pid;          /* of the process that it is of */

    /* The attachment's: */
    struct hr__cursor *next_cursor;
    uint32_t number;     /* in its connection */
    uint32_t connection; /* number of the connection that gave it */
    int is_alone;
    struct hr__notice *told;    /* about samples that stand in for bad ones, by sequence */
    struct hr__wire_halt *halt; /* what ended the queue; NULL: nothing was told */

    /* Constant. */
    struct hr__cursor_shape shape;
    struct hr_tensor_spec spec;
    const struct hr__header *header;
    size_t header_mapped, control_mapped; /* bytes */
    struct hr__control *control;
    int data, bell; /* files: of the samples; to ring when mark moves on */
    struct hr__pages pages;
    int only_copies; /* this process's memory is locked: nothing can be leased */

    uint64_t data_size; /* of the file, when the consumer last looked */

    pthread_mutex_t lock;      /* guards what follows */
    struct hr__window *window; /* for the next lease; NULL: none yet */
    struct hr__lease *shared;  /* leases that the agent keeps memory for, in any window */
    uint64_t next;             /* sequence: taken before it */
    uint64_t pending;          /* sequence: taken from here on, and no lease yet;
                                  HR__SEQUENCE_NONE: nothing */
    uint64_t mark;             /* as in the control block */
    uint32_t held;             /* leases */
    uint64_t faults;           /* of the process, when they were last counted */
    struct hr__lease *resting; /* released; their pages are not looked at yet */
    uint32_t resting_count;
    int is_changing;         /* this job writes to its batches */
    uint32_t unchanged;      /* batches in a row that it did not write to, while it is */
    struct hr__lease *spare; /* memory for the next lease, or NULL */
    uint64_t owned;          /* leases that were made the job's own, ever */
    uint64_t windows;        /* made, ever */
};

/*
 * What the header says of samples that are there. It has to be read before they are taken:
 * from then on the agent may leave their memory to us and use the header's entries for others.
 */
struct hr__seen {
    int64_t *labels, *indices; /* of each sample */
    size_t noted;              /* those with an `instead` */
    int64_t *instead;          /* the bad one it stands in for, itself where it is damaged, or -1 */
    uint64_t *offsets;         /* of each chunk's images in the file: hr__cursor_chunks of them */
    size_t replaced;           /* samples that stand in for others */
};

/* A batch in place. */
struct hr__lease {
    struct hr_batch batch;
    size_t bytes; /* of this block */
    struct hr__cursor *cursor;
    struct hr__window *window;
    struct hr__lease *previous, *next;               /* in the window */
    struct hr__lease *previous_shared, *next_shared; /* in the cursor: shared, or resting */
    uint64_t from, to;                               /* sequence */
    struct hr__seen seen;                            /* in the same block */
    uintptr_t begin, end;                            /* addresses */
    uint64_t faults;     /* of the process, some time before it was made */
    int is_edge_private; /* its first or last page may be private, faults or not */
    int is_own;          /* all of its pages are private */
    int is_leaving;      /* a thread is releasing it */
};

/* cursor.c */

/*
 * Takes a place with the files of PLACED: header, data, control, eventfd, which become the cursor's
 * (closed on failure too). `spec`: what its samples must be. Errors: -EPROTO: the files are
 * not what they should be; -ENOMEM, -EMFILE.
 */
int hr__cursor_create(struct hr__cursor **out, const struct hr_tensor_spec *spec, int files[4],
                      struct hr_error *error);

/* Gives the attachment's reference back; leases live on. Accepts NULL. Safe in a forked child. */
void hr__cursor_unref(struct hr__cursor **cursor);

/* What is taken next is at `sequence`. Leases of samples that will be taken a second time are
 * made the job's own. Errors: -ENOMEM. */
int hr__cursor_go_to(struct hr__cursor *cursor, uint64_t sequence, struct hr_error *error);

/* Chunks that [from, to) lies in. */
size_t hr__cursor_chunks(const struct hr__cursor *cursor, uint64_t from, uint64_t to);

/* Reads it. Errors: -ESTALE: they are gone; -EPROTO. */
int hr__cursor_look(struct hr__cursor *cursor, uint64_t from, uint64_t to, struct hr__seen *out,
                    struct hr_error *error);

/* Takes samples [from, to) that were looked at, from = where it stands: 0; -ESTALE: they are
 * gone, and so may be what was read. What was taken is leased or copied, then settled. */
int hr__cursor_take(struct hr__cursor *cursor, uint64_t from, uint64_t to);

/* Non-zero where the sample that it stands at is gone. */
int hr__cursor_is_lost(const struct hr__cursor *cursor, uint64_t from);

/* What was taken is not needed any more. */
void hr__cursor_settle(struct hr__cursor *cursor);

/* Samples that are there from `from` on. */
uint64_t hr__cursor_ready(const struct hr__cursor *cursor, uint64_t from);

/* Copies the images of taken samples, whose chunks lie at `offsets`. Errors: -EPROTO. */
int hr__cursor_copy(const struct hr__cursor *cursor, uint64_t from, size_t count,
                    const uint64_t *offsets, void *out, struct hr_error *error);

/* Reads from the data's file, whatever this process has written to its own pages. Errors:
 * -EPROTO: it ends before. */
int hr__cursor_read(const struct hr__cursor *cursor, uint64_t offset, uint64_t bytes, void *out,
                    struct hr_error *error);

/* The bell, to be read before looking for samples, and sleeping until it has moved on from
 * there, or until `until_ns` of hr__now_ns: 0, -EINTR, -ETIMEDOUT. `wants`: the sequence that
 * is waited for. A queue that wants room is told that we wait. */
uint32_t hr__cursor_bell(const struct hr__cursor *cursor);
int hr__cursor_wait(struct hr__cursor *cursor, uint32_t bell, uint64_t wants, uint64_t until_ns);

/* Whether an order of the job's own can be pushed there: batches of `batch_samples` at most are
 * chunks, and the control block has slots for them. Errors: -EPROTO. */
int hr__cursor_check_pushing(const struct hr__cursor *cursor, uint64_t batch_samples,
                             struct hr_error *error);

/* Writes the batch that is to be chunk `number`, whose slot is free; then hr__cursor_ring. */
void hr__cursor_push(struct hr__cursor *cursor, uint64_t number, const int64_t *indices,
                     size_t count);

/* Counts in the control block, for who looks at the agent. */
void hr__cursor_count(_Atomic uint64_t *counter, uint64_t more);

/* Brings the control block's mark up to date; non-zero: the agent is to be told (hr__cursor_ring,
 * without the lock). */
int hr__cursor_move_mark_locked(struct hr__cursor *cursor);
void hr__cursor_ring(struct hr__cursor *cursor);

/* lease.c */

/* Non-zero where [from, to) can be leased: it lies in one piece, and is neither too large for
 * the ring nor at an odd address. */
int hr__lease_is_possible(const struct hr__cursor *cursor, uint64_t from, uint64_t to);

/*
 * Takes and lends samples [from, to), which are there, from = where it stands: a batch with its
 * images, spec, count, replaced, labels and indices filled in and one reference;
 * hr_batch_release gives it back. Errors, after which it stands where it stood: -ESTALE: they
 * are gone; -ENOTSUP: this process locks its memory, so that from now on nothing is possible
 * but copies; -EPROTO; -ENOMEM.
 */
int hr__lease_create(struct hr__lease **out, struct hr__cursor *cursor, uint64_t from, uint64_t to,
                     struct hr_error *error);

/* Makes leases of samples from `from` on the job's own, or all (0). Errors: -ENOMEM. */
int hr__lease_own_from(struct hr__cursor *cursor, uint64_t from, struct hr_error *error);

/* Makes leases of samples that begin before `before` the job's own. Errors: -ENOMEM. */
int hr__lease_own_before(struct hr__cursor *cursor, uint64_t before, struct hr_error *error);

/* Makes leases the job's own that lie so far back that the agent may use their memory again when
 * [from, to), or a batch like it behind it, has been taken. To be called before taking, whether
 * that is leased or copied. Errors: -ENOMEM. */
int hr__lease_make_way(struct hr__cursor *cursor, uint64_t from, uint64_t to,
                       struct hr_error *error);

/* Where the cursor ends: no lease is left but resting ones. */
void hr__lease_clear(struct hr__cursor *cursor);

#endif
