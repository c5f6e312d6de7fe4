/*
 * A job's side of a queue (agent/share.h): the cursor takes samples by sequence number. They
 * become a batch in one of two ways: leased, in place (lease.c), or copied.
 *
 * The data is mapped privately, so that a job may write to its batches. A *window* is one such
 * mapping, large enough for the ring twice in a row. Places are mapped into it as batches need
 * them, and mapped again if a place's samples move to another piece of the file. A *lease* is a
 * batch that lies in a window. The mapping under a lease never changes: if the next batch needs
 * addresses that a lease uses, the cursor makes a new window, and the old one lives as long as
 * its leases.
 *
 * A page that no lease covers must not be private, so that it shows what the agent writes. Pages
 * that a job has written to are dropped when the last lease on them is released. If the first or
 * last page of a new lease is private already, because the job wrote to a neighbouring batch
 * before our samples were there, the lease's part of that page is copied into it.
 *
 * We check for written pages after four leases were released, or when their addresses are
 * needed; usually one system call answers for all of them. For a job that does write to its
 * batches we check at each release, and drop the changed pages at once.
 *
 * A lease that is kept for almost a ring's length gets private copies of its pages, and the agent
 * need not keep its samples any more. So a job may keep all its batches without stopping its
 * queue, and holds about a ring of shared memory at most.
 *
 * Threads: the consumer's thread takes; any thread may release a lease. `lock` guards the fields
 * marked below. Errors of the agent in header and files must not crash a job: lengths are checked
 * against the files, which cannot shrink (seals).
 *
 * A forked child may read its leases until its parent releases them. It neither drops pages nor
 * writes to the control block.
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
struct hr__lease_window;
struct hr__wire_halt;

/* The constant fields of a header, checked. */
struct hr__cursor_shape {
    uint64_t sample_bytes, chunk_samples, chunk_bytes, places, data_bytes;
    uint64_t ring_samples; /* places x chunk_samples */
    uint64_t places_offset, samples_offset, header_bytes;
    uint64_t record_bytes, records_offset;
    int is_gapless;
};

struct hr__cursor {
    atomic_uint refs; /* one of the attachment, and one of each lease */
    int pid;          /* of the process that created it */

    /* Used by the attachment: */
    struct hr__cursor *next_cursor;
    uint32_t number;     /* in its connection */
    uint32_t connection; /* number of the connection that it belongs to */
    int is_alone;
    struct hr__notice *notices; /* notices about bad samples, sorted by sequence */
    struct hr__wire_halt *halt; /* the error that ended the queue; NULL: none received */

    /* Constant. */
    struct hr__cursor_shape shape;
    struct hr_tensor_spec spec;
    int is_padded; /* samples have extents */
    const struct hr__header *header;
    size_t header_mapped, control_mapped; /* bytes */
    struct hr__control *control;
    int data, bell; /* files: the samples; the eventfd to signal when mark advances */
    struct hr__pages pages;
    int only_copies; /* this process locks its memory (mlockall), so no batch can be leased */

    uint64_t data_size; /* size of the file when the consumer last checked */

    pthread_mutex_t lock;            /* guards what follows */
    struct hr__lease_window *window; /* for the next lease; NULL: none yet */
    struct hr__lease *shared;        /* leases for which the agent keeps memory, in any window */
    uint64_t next;                   /* sequence: all samples before it were taken */
    uint64_t pending;          /* sequence: samples from here on were taken and not leased or copied
                                  yet; HR__SEQUENCE_NONE: none */
    uint64_t mark;             /* as in the control block */
    uint32_t held;             /* leases */
    uint64_t faults;           /* page faults of the process, when last counted */
    struct hr__lease *resting; /* released leases whose pages are not checked yet */
    uint32_t resting_count;
    int is_changing;         /* the job writes to its batches */
    uint32_t unchanged;      /* batches released unchanged in a row, while is_changing */
    struct hr__lease *spare; /* memory for the next lease, or NULL */
    uint64_t owned;          /* leases copied to private pages so far */
    uint64_t windows;        /* windows made so far */
};

/*
 * The header's entries for a range of samples. Read them before taking the samples: afterwards the
 * agent may leave their memory to us and reuse the entries.
 */
struct hr__seen {
    int64_t *labels, *indices; /* of each sample */
    int64_t *extents;          /* of padded samples: spec.dims for each */
    size_t noted;              /* samples with an `instead` */
    int64_t *instead;          /* as in struct hr__header_sample */
    uint64_t *offsets;         /* of each chunk's images in the file: hr__cursor_chunks of them */
    size_t replaced;           /* samples that replace a bad one */
};

/* A batch in place, in shared memory. */
struct hr__lease {
    struct hr_batch batch;
    size_t bytes; /* size of this allocation */
    struct hr__cursor *cursor;
    struct hr__lease_window *window;
    struct hr__lease *previous, *next;               /* in the window */
    struct hr__lease *previous_shared, *next_shared; /* in the cursor's shared or resting list */
    uint64_t from, to;                               /* sequences */
    struct hr__seen seen;                            /* in the same allocation */
    uintptr_t begin, end;                            /* addresses */
    uint64_t faults;     /* page faults of the process, counted some time before it was made */
    int is_edge_private; /* its first or last page may be private whatever `faults` says */
    int is_own;          /* all of its pages are private copies */
    int is_leaving;      /* a thread is releasing it */
};

/* cursor.c */

/*
 * Creates a cursor from the files of PLACED: header, data, control block, eventfd. They become the
 * cursor's, and are closed on failure. `spec`: the expected samples; `record_bytes`: of the rows or
 * the mask of each. Errors: -EPROTO: the files are invalid; -ENOMEM, -EMFILE.
 */
int hr__cursor_create(struct hr__cursor **out, const struct hr_tensor_spec *spec,
                      uint64_t record_bytes, int files[4], struct hr_error *error);

/* Frees a cursor that has no leases, and closes its files. */
void hr__cursor_free(struct hr__cursor *cursor);

/* Returns the number of chunks that [from, to) touches. */
size_t hr__cursor_chunks(const struct hr__cursor *cursor, uint64_t from, uint64_t to);

/* Reads the header's entries for [from, to). Errors: -ESTALE: the samples are lost; -EPROTO. */
int hr__cursor_look(struct hr__cursor *cursor, uint64_t from, uint64_t to, struct hr__seen *out,
                    struct hr_error *error);

/* Copies the rows of `count` samples to those of a batch, from `place` on, before the samples are
 * taken. Errors: as hr__cursor_look. */
int hr__cursor_rows(const struct hr__cursor *cursor, uint64_t from, size_t count,
                    struct hr__batch_rows *rows, size_t place, struct hr_error *error);

/* Copies the masks of `count` samples, likewise. */
void hr__cursor_masks(const struct hr__cursor *cursor, uint64_t from, size_t count, uint8_t *out);

/* Takes [from, to), after hr__cursor_look; `from` is the cursor's next sample. Returns 0; -ESTALE:
 * the samples are lost, and the entries that were read may be invalid. Next, lease the samples, or
 * copy them and call hr__cursor_settle. */
int hr__cursor_take(struct hr__cursor *cursor, uint64_t from, uint64_t to);

/* Returns non-zero if the sample at `from` is lost. */
int hr__cursor_is_lost(const struct hr__cursor *cursor, uint64_t from);

/* Lets go of the samples that were taken and copied. */
void hr__cursor_settle(struct hr__cursor *cursor);

/* Returns how many samples from `from` on are ready. */
uint64_t hr__cursor_ready(const struct hr__cursor *cursor, uint64_t from);

/* Copies the images of taken samples; `offsets`: those of their chunks. Errors: -EPROTO. */
int hr__cursor_copy(const struct hr__cursor *cursor, uint64_t from, size_t count,
                    const uint64_t *offsets, void *out, struct hr_error *error);

/* Reads the data's file itself, not this process's private pages. Errors: -EPROTO: the file is too
 * short. */
int hr__cursor_read(const struct hr__cursor *cursor, uint64_t offset, uint64_t bytes, void *out,
                    struct hr_error *error);

/* To wait for samples: read the bell, look for samples, then wait. hr__cursor_wait sleeps until the
 * bell differs from `bell` or until `until_ns` (hr__now_ns). `wants`: wait for the samples before
 * this sequence. If the queue waits for room it is notified that we wait. Returns 0, -EINTR,
 * -ETIMEDOUT. */
uint32_t hr__cursor_bell(const struct hr__cursor *cursor);
int hr__cursor_wait(struct hr__cursor *cursor, uint32_t bell, uint64_t wants, uint64_t until_ns);

/* Checks that batches of an external order can be pushed: a chunk has batch_samples samples, and
 * the control block has slots for the indices. Errors: -EPROTO. */
int hr__cursor_check_pushing(const struct hr__cursor *cursor, uint64_t batch_samples,
                             struct hr_error *error);

/* Writes the batch for chunk `number`, whose slot must be free. Call hr__cursor_ring afterwards. */
void hr__cursor_push(struct hr__cursor *cursor, uint64_t number, const int64_t *indices,
                     size_t count);

/* Adds to a counter of the control block, for the agent's status. Only one thread may write it. */
void hr__cursor_count(_Atomic uint64_t *counter, uint64_t more);

/* Updates the control block's mark. Returns non-zero if the agent waits for that: call
 * hr__cursor_ring then, without the lock. */
int hr__cursor_move_mark_locked(struct hr__cursor *cursor);
void hr__cursor_ring(struct hr__cursor *cursor);

/* lease.c */

/* Drops the attachment's reference; leases stay valid. Accepts NULL. Safe in a forked child. */
void hr__cursor_unref(struct hr__cursor **cursor);

/* Moves the cursor to `sequence`, the next sample to take. Leases of samples that will be taken a
 * second time get private copies of their pages. Errors: -ENOMEM. */
int hr__cursor_go_to(struct hr__cursor *cursor, uint64_t sequence, struct hr_error *error);

/* Returns non-zero if [from, to) can be leased: its images are contiguous and aligned, and it is
 * not too large for the ring. */
int hr__lease_is_possible(const struct hr__cursor *cursor, uint64_t from, uint64_t to);

/*
 * Takes samples [from, to), which are ready, and leases them; `from` is the cursor's next sample.
 * *out has a batch with images, spec, count, replaced, labels, indices and one reference;
 * hr_batch_release releases it. On errors the cursor has not moved. Errors: -ESTALE: the samples
 * are lost; -ENOTSUP: this process locks its memory, so from now on batches can only be copied;
 * -EPROTO; -ENOMEM.
 */
int hr__lease_create(struct hr__lease **out, struct hr__cursor *cursor, uint64_t from, uint64_t to,
                     struct hr_error *error);

/* Gives all leases private copies. Errors: -ENOMEM. */
int hr__lease_own_all(struct hr__cursor *cursor, struct hr_error *error);

/* Gives old leases private copies: those whose memory the agent may reuse once [from, to) and a
 * batch of the same size after it have been taken. Call it before taking, whether leased or copied.
 * Errors: -ENOMEM. */
int hr__lease_make_way(struct hr__cursor *cursor, uint64_t from, uint64_t to,
                       struct hr_error *error);

#endif
