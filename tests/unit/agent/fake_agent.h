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
    uint64_t join_epoch, join_position; /* of the stream, for who is new */
    int waits_first;                    /* WAITING before the first PLACED */
    uint64_t expel_at;     /* the job is expelled from the main queue when it has taken so many of
                              an epoch, and placed alone; 0: never */
    uint64_t return_at;    /* and may be back from so many on */
    uint64_t die_after;    /* chunks; 0: at ATTACH */
    int deaths;            /* connections that it dies in */
    int garbles;           /* connections whose WELCOME is of another version */
    int garbled_cursors;   /* so many PLACED but the first are, too */
    uint64_t bad_every;    /* every so many-th index is bad; 0: none */
    int64_t halt_index;    /* the queue ends at this sample; -1: none */
    int refuses;           /* ATTACH, with -EINVAL */
    atomic_int is_silent;  /* ATTACHED does not come while it is set */
    int pause_us;          /* before each chunk */
    int stops_after;       /* publishes no more than so many chunks of a connection; 0: all */
    uint64_t ring_samples; /* 0: window x batch */
};

/* What happened, to be read when it has ended, or at any time where atomic. */
struct fake_agent_seen {
    atomic_int connections, seeks, first_seeks, leaves, alone_cursors, main_cursors;
    atomic_int hung_up; /* connections that the job ended */
    _Atomic uint64_t last_seek_epoch, last_seek_position;
    _Atomic uint64_t overwritten;  /* chunks written after a hang-up */
    struct hr__wire_attach attach; /* the last one; fake_agent_attach reads it */
};

extern struct fake_agent_options fake_agent;
extern struct fake_agent_seen fake_agent_seen;

/* Options and what was seen are set back; no thread runs. */
void fake_agent_reset(uint64_t samples, const struct hr_tensor_spec *spec);

/* Waits for all connections to end. */
void fake_agent_join(void);

/* What the last job asked for. */
struct hr__wire_attach fake_agent_attach(void);

/* The byte of a sample. */
unsigned char fake_sample_byte(uint64_t epoch, uint64_t index, uint64_t byte);

#endif
