/*
 * A loader that an agent prepares for, inside: what attach.c, session.c and turn.c share.
 *
 *   attach.c   what the loader calls (loader/attach.h), and where in the epoch we are
 *   session.c  the connection: messages, places in queues, a new agent after one that ended
 *   turn.c     the next batch: taking, waiting, lending, copying
 *   cursor.c     a queue as we see it; lease.c, pages.c: batches in its memory
 *
 * There is no thread. The consumer's thread sends and receives, when it has nothing to take:
 * what an agent has ready is taken without a word. Batches are released on any thread, which
 * touches nothing but their cursor.
 *
 * Three numbers say where we are. A *position* counts samples of the epoch's order, of all
 * ranks. An *index* counts this rank's samples since the epoch began, or was restored, at
 * cut.start: position = cut.start + index x ranks. A *sequence* counts samples of a queue:
 * sequence = base + index, with a base for each cursor.
 *
 * With external_order each chunk of the queue is one batch, which the caller pushed: batch n of
 * the epoch has the indices n x batch_size and behind, of which it may leave some out. Batches that
 * were not handed out yet are kept, for another agent (pushed.c).
 */
#ifndef HR_AGENT_CLIENT_ATTACHED_H
#define HR_AGENT_CLIENT_ATTACHED_H

#include "agent/client/cursor.h"
#include "agent/wire.h"
#include "loader/loader.h"
#include "loader/schedule.h"

/* So many agents that end before a batch has come are enough. */
#define HR__FUTILE_MAX 3

/* What the agent said about a bad sample. */
struct hr__notice {
    struct hr__notice *next;
    uint64_t sequence;
    char reason[];
};

enum hr__session_state {
    HR__CLOSED = 0, /* no connection */
    HR__GREETING,   /* HELLO was sent */
    HR__ATTACHING,  /* ATTACH was sent */
    HR__ATTACHED,   /* no place is asked for */
    HR__SEEKING,    /* SEEK was sent */
    HR__PLACED,     /* `cursor` has what comes next */
};

/* All of the consumer's thread, but what is atomic and what `lock` guards. */
struct hr__attached {
    struct hr_loader *loader;
    int socket;          /* -1: none */
    uint32_t connection; /* number of this one */
    enum hr__session_state state;
    int is_hung_up;          /* the agent has closed the connection, or it is of no use any more */
    struct hr_error garbled; /* a message that was none, since the last batch; code 0: none came */
    int is_garbled;          /* this connection had it: the agent may live, and write */
    int is_expelled;         /* what `cursor` has for us is gone */
    int futile;              /* agents that ended since the last batch */
    struct hr_error broken;  /* what ended the session until the next start; code 0: nothing */

    pthread_mutex_t lock;       /* guards `cursor` against hr_loader_get_stats */
    struct hr__cursor *cursor;  /* NULL: none in this epoch yet */
    struct hr__cursor *cursors; /* of this connection, a reference to each */
    struct hr__cursor *main;    /* where we were expelled from; NULL: unknown, or we are there */
    uint64_t base, main_base;   /* sequence of index 0 in `cursor`, in `main` */
    uint64_t asked;             /* index at which we asked for a place in `main` again */

    uint32_t seek_number; /* of the last request */
    uint64_t epoch_ns;    /* when its answer was that the others' next epoch is waited for; 0 */
    struct hr__wire_waiting others; /* where they were then */
    int is_placed;      /* our epochs are the stream's: we have joined it, or were restored */
    uint64_t own_epoch; /* that was asked for, while it is not */
    uint64_t ahead;     /* the stream's epochs less our own */

    int is_started;        /* an epoch was */
    int is_known;          /* where in the stream we are: epoch, cut and what follows them */
    int over;              /* nothing more comes in this epoch */
    uint64_t epoch;        /* the stream's */
    struct hr__cut cut;    /* from the position where we began */
    uint64_t batches;      /* from there on */
    uint64_t first_number; /* of the first, as batches are told */
    uint64_t samples;      /* of this rank from there on */
    uint64_t delivered;    /* batches handed out */

    struct hr_batch *partial; /* a slot that is being filled; NULL: none */
    size_t filled;            /* samples in it */

    /* With external_order: */
    struct hr__push *pushed, *pushed_last; /* not handed out yet, the next one first */
    struct hr__push *unsent;               /* of them, the first that the agent has not got */
    uint64_t sent;                         /* batches of the epoch before it */
    uint64_t pushed_count;
    uint64_t taken; /* samples of the batches that were handed out */
    int push_ended;

    struct hr__seen seen; /* of a piece; `instead` is one block with offsets, or NULL */

    uint32_t bell;  /* before samples were looked for */
    uint64_t wants; /* sequence that has to be ready */
    int waits_for_slot;
    uint64_t left_ns; /* when next returned; 0: never */

    _Atomic uint64_t missed, alone, reattached; /* as in struct hr_loader_stats */
    atomic_int threads;                         /* the agent's */

    struct hr__wire_attach
        attach; /* what the agent is told of the loader, but for text_bytes; large */
};

/* attach.c */

/* The caller pushes the batches. */
int hr__attached_is_pushed(const struct hr__attached *a);

/* Samples of this rank that were handed out, or copied for the next batch. */
uint64_t hr__attached_index(const struct hr__attached *a);

/* Its position: what comes next, for the agent. */
uint64_t hr__attached_position(const struct hr__attached *a);

/* An epoch of the stream begins at a position. */
void hr__attached_begin(struct hr__attached *a, uint64_t epoch, uint64_t position);

/* Gives back the slot that is being filled. */
void hr__attached_drop_partial(struct hr__attached *a);

/* session.c */

/* Connects, and is attached when it returns; asks for a place where an epoch was started.
 * Blocks while the agent opens the dataset, and calls options.progress meanwhile. Errors: those
 * of connecting; what the agent refused; -ECONNRESET; -ETIMEDOUT; -ECANCELED. */
int hr__session_open(struct hr__attached *a, struct hr_error *error);

/* Ends the connection. Batches that are held are made the job's own, because the agent may
 * then use their memory again; where memory is short for that it stays open for good. */
void hr__session_close(struct hr__attached *a);

/* The same in a forked child, which has its own end of the connection. */
void hr__session_abandon(struct hr__attached *a);

/* Asks for the place where we are. A connection that has ended shows in is_hung_up. */
void hr__session_seek(struct hr__attached *a);

/* Reads what the agent has sent, without waiting. Errors: what it refused; -EPROTO, -ENOMEM and
 * others of a place: then the connection is closed. */
int hr__session_receive(struct hr__attached *a, struct hr_error *error);

/* After is_hung_up: connects to a new agent ("auto"), which answers later. Errors:
 * -ECONNRESET, and those of connecting. */
int hr__session_recover(struct hr__attached *a, struct hr_error *error);

/* Leaves the places that are not needed any more. */
void hr__session_sweep(struct hr__attached *a);

/* Says what is waited for, once, where it has lasted for seconds. */
void hr__session_explain(struct hr__attached *a);

/* Sleeps until the agent has sent something, `until_ns` at most: 0, -EINTR, -ETIMEDOUT. */
int hr__session_wait(struct hr__attached *a, uint64_t until_ns);

/* Why the sample at `sequence` of the present cursor was bad. Forgets what was told before. */
const char *hr__session_told(struct hr__attached *a, uint64_t sequence);

/* pushed.c: of an external order */

int hr__pushed_add(struct hr_loader *loader, struct hr__push *push, struct hr_error *error);
int hr__pushed_end(struct hr_loader *loader, struct hr_error *error);

/* Gives the agent what its ring has room for, where there is a place. */
void hr__pushed_send(struct hr__attached *a);

/* All that was not handed out is to be given to the present cursor. */
void hr__pushed_send_again(struct hr__attached *a);

/* The first of them was handed out: forgets it. */
void hr__pushed_took(struct hr__attached *a);

/* Goes to where the next batch begins in the present cursor. Errors: -ENOMEM. */
int hr__pushed_line_up(struct hr__attached *a, struct hr_error *error);

/* Forgets what was not handed out. */
void hr__pushed_clear(struct hr__attached *a);

/* turn.c */

int hr__turn_next(struct hr_loader *loader, struct hr_batch **out, struct hr_error *error);

#endif
