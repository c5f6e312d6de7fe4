/*
 * A job without a loader, for tests of the agent: exchanges messages over the real socket, maps the
 * memory it receives, and takes samples by the rules of agent/share.h. Also runs an agent on a
 * thread, in a temporary directory.
 */
#ifndef HR_TEST_AGENT_PEER_H
#define HR_TEST_AGENT_PEER_H

#include "../loader/fixture.h"

#include "agent/share.h"
#include "agent/wire.h"
#include "order/order.h"

#include <pthread.h>

struct served {
    char dir[64], socket[128];
    struct hr_agent *agent;
    pthread_t thread;
    int pid;
    int result;
};

/* Starts an agent; `options` may be NULL. */
void served_start(struct served *s, const struct hr_agent_options *options);
void served_stop(struct served *s);

/* Likewise, with a folder of so many samples (fixture.h). */
void served_begin(struct served *s, struct fixture *f, int samples,
                  const struct hr_agent_options *options);
void served_end(struct served *s, struct fixture *f);

/* Waits until the agent ends by itself. */
void served_join(struct served *s);

/* Moves the clock that the agent reads. It notices at its next turn, which a message causes. */
void served_pass_hours(int hours);

/* Returns its status, parsed; the caller calls json_decref. */
struct json_t *served_status(const struct served *s);

struct peer {
    const struct fixture *f;
    int socket, room;
    struct hr__wire_attach attach;
    struct hr__wire_placed placed; /* the last answer */
    const struct hr__header *header;
    const uint8_t *data;
    struct hr__control *control;
    uint64_t next, end;       /* sequence numbers */
    uint64_t epoch, position; /* of `next`, in the order */
    uint32_t requests;        /* number of the last request */
    uint64_t headers[8];      /* mappings by cursor, kept until the end */
    struct peer_cursor {
        const struct hr__header *header;
        const uint8_t *data;
        struct hr__control *control;
        int room;
    } cursors[16];
};

/* Connects and sends HELLO; as a viewer if `is_viewer`. */
void peer_connect(struct peer *p, const struct served *s, int is_viewer);

/* Returns the agent's status, which this viewer asks for; the caller calls json_decref. */
struct json_t *peer_status(struct peer *viewer);

/* The attach message of a job of the fixture: batch 16, shuffled, window 4. */
void peer_options(struct peer *p, const struct fixture *f, const char *stream);

/* Sends the message. Returns 0, or the code of the refusal; the received spec is checked. */
int peer_attach(struct peer *p);

/* Receives the next message, which must have this type; the caller owns its files. */
void peer_expect(struct peer *p, enum hr__wire_type type, struct hr__wire_message *message);

/* Receives any message. Returns 0 if the connection was closed. */
int peer_receive(struct peer *p, struct hr__wire_message *message);

void peer_seek(struct peer *p, uint64_t epoch, uint64_t position, int is_first);

/* Waits for PLACED, and uses its cursor. */
void peer_sit(struct peer *p);

/* Uses the cursor of a PLACED message. */
void peer_placed(struct peer *p, struct hr__wire_message *message);

/*
 * Waits for up to `count` samples, takes them, checks each against the order and the recipe, and
 * releases them unless `hold` is set. Returns their number; 0 at the epoch's end; -ESTALE if the
 * job was expelled.
 */
int peer_take(struct peer *p, int count, int hold);

/* Takes the rest of the epoch. Returns the number of samples. */
int peer_rest(struct peer *p, int count);

void peer_release(struct peer *p);

/* Closes the socket and unmaps the memory. */
void peer_leave(struct peer *p);

#endif
