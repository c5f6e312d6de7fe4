/*
 * A fake agent, run by a thread of the test, for loaders of this process that attach to it. It
 * answers their messages and publishes samples in queues (fake_queue.h); the bytes of a sample are
 * a function of its index and the epoch. The test sets faults before it starts the agent.
 *
 * The tests are linked with --wrap: hr__launch_connect and hr__launch_auto pass one end of a new
 * connection to the fake agent, and hr__statement_write writes a text that it does not parse.
 */
#ifndef HR_TEST_AGENT_FAKE_AGENT_H
#define HR_TEST_AGENT_FAKE_AGENT_H

#include "fake_queue.h"

#include "agent/wire.h"

#include <stdatomic.h>

struct fake_agent_options {
    uint64_t samples; /* of the dataset */
    struct hr_tensor_spec spec;
    uint64_t join_epoch, join_position; /* of the stream, for new jobs */
    int waits_first;                    /* send WAITING before the first PLACED */
    uint64_t expel_at;     /* expel the job from the main queue when it has taken so many samples of
                              an epoch, and place it alone; 0: never */
    uint64_t return_at;    /* and return it to the main queue from this sample on */
    uint64_t die_after;    /* number of chunks before it dies; 0: at ATTACH */
    int deaths;            /* number of connections in which it dies */
    int garbles;           /* number of connections whose WELCOME is of another version */
    int garbled_cursors;   /* number of PLACED messages, after the first, that are garbled, too */
    uint64_t bad_every;    /* every bad_every-th index is bad; 0: none */
    int64_t halt_index;    /* the queue ends at this sample; -1: never */
    int refuses;           /* refuse ATTACH with -EINVAL */
    atomic_int is_silent;  /* do not send ATTACHED while this is set */
    int pause_us;          /* sleep before each chunk */
    int stops_after;       /* chunks that it publishes per connection; 0: all */
    uint64_t ring_samples; /* 0: window x batch */
};

/* What happened: read it after the end, or at any time if atomic. */
struct fake_agent_seen {
    atomic_int connections, seeks, first_seeks, leaves, alone_cursors, main_cursors;
    atomic_int hung_up; /* connections that the job closed */
    _Atomic uint64_t last_seek_epoch, last_seek_position;
    _Atomic uint64_t overwritten;  /* chunks written after the job closed the connection */
    struct hr__wire_attach attach; /* the last one; read it with fake_agent_attach */
};

extern struct fake_agent_options fake_agent;
extern struct fake_agent_seen fake_agent_seen;

/* Resets options and observations. No thread may be running. */
void fake_agent_reset(uint64_t samples, const struct hr_tensor_spec *spec);

/* Waits for all connections to end. */
void fake_agent_join(void);

/* Returns the last job's ATTACH message. */
struct hr__wire_attach fake_agent_attach(void);

/* Returns the byte that fills a sample. */
unsigned char fake_sample_byte(uint64_t epoch, uint64_t index, uint64_t byte);

#endif
