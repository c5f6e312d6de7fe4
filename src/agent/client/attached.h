/*
 * A loader whose batches an agent prepares: the state that attach.c, session.c and turn.c share.
 *
 *   attach.c   the operations that the loader calls (loader/attach.h)
 *   position.c the position in the epoch
 *   session.c  the connection: messages, cursors, and reconnecting when an agent has ended
 *   turn.c     the next batch: take, wait, lease, copy
 *   pushed.c   batches of an external order
 *   cursor.c   a queue as the job sees it; lease.c, pages.c: batches in its memory
 *
 * It has no thread of its own. The consumer's thread sends and receives messages, and only when
 * no samples are ready: taking ready samples needs no message. Batches are released on any
 * thread, and that touches their cursor only.
 *
 * Three numbers describe where we are. A *position* counts samples of the epoch's order, over
 * all ranks. An *index* counts this rank's samples since the epoch began, or was restored, at
 * cut.start: position = cut.start + index x ranks. A *sequence* counts samples of a queue:
 * sequence = base + index, with a base for each cursor.
 *
 * With external_order each chunk of the queue is one batch that the caller pushed. Batch n of the
 * epoch has the indices from n x batch_size on, and may be shorter than batch_size. Pushed batches
 * are kept until they are delivered, in case another agent has to prepare them (pushed.c).
 */
#ifndef HR_AGENT_CLIENT_ATTACHED_H
#define HR_AGENT_CLIENT_ATTACHED_H

#include "agent/client/cursor.h"
#include "agent/wire.h"
#include "loader/inside.h"
#include "loader/schedule.h"

/* Gives up after this many agents that ended before a batch came. */
#define HR__FUTILE_MAX 3

/* The agent's reason for a bad sample. */
struct hr__notice {
    struct hr__notice *next;
    uint64_t sequence;
    char reason[];
};

enum hr__session_state {
    HR__CLOSED = 0, /* no connection */
    HR__GREETING,   /* HELLO was sent */
    HR__ATTACHING,  /* ATTACH was sent */
    HR__ATTACHED,   /* attached, without a request for a place */
    HR__SEEKING,    /* SEEK was sent */
    HR__PLACED,     /* `cursor` has the next samples */
};

/* Used by the consumer's thread only, except atomic fields and what `lock` guards. */
struct hr__attached {
    struct hr_loader *loader;
    int socket;          /* -1: none */
    uint32_t connection; /* number of the present connection */
    enum hr__session_state state;
    int is_hung_up;          /* the connection has ended or is unusable */
    struct hr_error garbled; /* an invalid message since the last batch; code 0: none */
    int is_garbled;          /* it came over this connection: the agent may still run, and write */
    int is_expelled;         /* the samples in `cursor` are lost to us */
    int futile;              /* agents that ended since the last batch */
    struct hr_error broken;  /* error that ended the session until the next start; code 0: none */

    pthread_mutex_t lock;       /* guards `cursor` against hr_loader_get_stats */
    struct hr__cursor *cursor;  /* NULL: none in this epoch yet */
    struct hr__cursor *cursors; /* of this connection; holds a reference to each */
    struct hr__cursor *main;    /* the cursor that we were expelled from; NULL: none */
    uint64_t base, main_base;   /* sequence of index 0 in `cursor`, in `main` */
    uint64_t asked;             /* index at which we last asked to return to `main` */

    uint32_t seek_number; /* number of the last request */
    uint64_t epoch_ns;    /* when WAITING came in answer to it; 0: it did not, or was reported */
    struct hr__wire_waiting others; /* its contents: where the other jobs were */
    int is_placed;      /* we have joined the stream, or were restored: our epochs are its own */
    uint64_t own_epoch; /* the epoch asked for, while is_known is 0 */
    uint64_t ahead;     /* the stream's epoch number minus ours */

    int is_started;        /* an epoch was started */
    int is_known;          /* our place in the stream is known: epoch, cut and the fields below */
    int over;              /* this epoch has no more batches */
    uint64_t epoch;        /* the stream's */
    struct hr__cut cut;    /* from the position where we began */
    uint64_t batches;      /* from there on */
    uint64_t first_number; /* number of the first batch, as reported in hr_batch */
    uint64_t samples;      /* of this rank, from there on */
    uint64_t delivered;    /* batches */

    struct hr_batch *partial; /* the slot being filled by copies; NULL: none */
    size_t filled;            /* samples in it */

    /* With external_order: */
    struct hr__push *pushed, *pushed_last; /* pushed and not delivered, the next one first */
    struct hr__push *unsent;               /* the first of them that the agent does not have */
    uint64_t sent;                         /* batches of the epoch before `unsent` */
    uint64_t pushed_count;
    uint64_t taken; /* samples of the batches delivered */
    int push_ended;

    struct hr__seen seen; /* of one piece; `instead` and `offsets` are one allocation, or NULL */

    uint32_t bell;  /* its value before we looked for samples */
    uint64_t wants; /* sequence: we need the samples before it */
    int waits_for_slot;
    uint64_t left_ns; /* when next() last returned; 0: never */

    _Atomic uint64_t missed, alone, reattached; /* as in struct hr_loader_stats */
    atomic_int threads;                         /* the agent's */

    struct hr__wire_attach
        attach; /* describes the loader to an agent; text_bytes is not set; large */
};

/* position.c */

/* Returns non-zero if the caller pushes the batches (external_order). */
int hr__attached_is_pushed(const struct hr__attached *a);

/* Returns how many samples of this rank were delivered, or copied for the next batch. */
uint64_t hr__attached_index(const struct hr__attached *a);

/* Returns the position of the next sample. */
uint64_t hr__attached_position(const struct hr__attached *a);

/* Begins an epoch of the stream at a position. */
void hr__attached_begin(struct hr__attached *a, uint64_t epoch, uint64_t position);

/* Returns the slot that is being filled to the loader's ring. */
void hr__attached_drop_partial(struct hr__attached *a);

/* session.c */

/* Connects and waits until the loader is attached; asks for a place if an epoch was started. Blocks
 * while the agent opens the dataset, and calls options.progress meanwhile. Errors: those of
 * connecting; the agent's refusal; -ECONNRESET; -ETIMEDOUT; -ECANCELED. */
int hr__session_open(struct hr__attached *a, struct hr_error *error);

/* Closes the connection. Batches still held get private copies first, because the agent may then
 * reuse their memory; if there is no memory for that, the connection stays open for good. */
void hr__session_close(struct hr__attached *a);

/* The same in a forked child, which has a descriptor of its own for the connection. */
void hr__session_abandon(struct hr__attached *a);

/* Asks for a place at our position. If the connection has ended, is_hung_up is set. */
void hr__session_seek(struct hr__attached *a);

/* Handles the messages that have arrived, without waiting. Errors: the agent's refusal; -EPROTO,
 * -ENOMEM and others of a cursor; the connection is closed then. */
int hr__session_receive(struct hr__attached *a, struct hr_error *error);

/* After is_hung_up: connects to a new agent (if the agent is "auto"), whose answers come later.
 * Errors: -ECONNRESET, and those of connecting. */
int hr__session_recover(struct hr__attached *a, struct hr_error *error);

/* Sends LEAVE for cursors that are not needed any more, and drops them. */
void hr__session_sweep(struct hr__attached *a);

/* Logs, once, why we wait for the stream's next epoch, if that has lasted two seconds. */
void hr__session_explain(struct hr__attached *a);

/* Sleeps until a message arrives or until `until_ns`. Returns 0, -EINTR, -ETIMEDOUT. */
int hr__session_wait(struct hr__attached *a, uint64_t until_ns);

/* Returns why the sample at `sequence` of the present cursor was bad. Frees earlier reasons. */
const char *hr__session_bad_reason(struct hr__attached *a, uint64_t sequence);

/* pushed.c: external order */

int hr__pushed_add(struct hr_loader *loader, struct hr__push *push, struct hr_error *error);
int hr__pushed_end(struct hr_loader *loader, struct hr_error *error);

/* Sends all undelivered batches again, to the present cursor. */
void hr__pushed_send_again(struct hr__attached *a);

/* Frees the first pushed batch, which was delivered. */
void hr__pushed_took(struct hr__attached *a);

/* Moves the present cursor to the start of the next batch. Errors: -ENOMEM. */
int hr__pushed_line_up(struct hr__attached *a, struct hr_error *error);

/* Frees all undelivered batches. */
void hr__pushed_clear(struct hr__attached *a);

/* turn.c */

int hr__turn_next(struct hr_loader *loader, struct hr_batch **out, struct hr_error *error);

#endif
