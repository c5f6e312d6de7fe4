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

/* Starts one; `options` may be NULL. */
void served_start(struct served *s, const struct hr_agent_options *options);
void served_stop(struct served *s);

/* Waits for its end without asking for it. */
void served_join(struct served *s);

/* Its status, parsed: json_decref is the caller's. */
struct json_t *served_status(const struct served *s);

struct peer {
    const struct fixture *f;
    int socket, room;
    struct hr__wire_attach attach;
    struct hr__wire_placed placed; /* the last answer */
    const struct hr__header *header;
    const uint8_t *data;
    struct hr__control *control;
    uint64_t next, end;       /* sequences */
    uint64_t epoch, position; /* of `next`, of the order */
    uint32_t requests;        /* number of the last one */
    uint64_t headers[8];      /* by cursor: mappings, kept to the end */
    struct peer_cursor {
        const struct hr__header *header;
        const uint8_t *data;
        struct hr__control *control;
        int room;
    } cursors[16];
};

/* Connects and greets; as a viewer where `is_viewer`. */
void peer_connect(struct peer *p, const struct served *s, int is_viewer);

/* The attach message of a job of the fixture: batch 16, shuffled, window 4. */
void peer_options(struct peer *p, const struct fixture *f, const char *stream);

/* Sends it: 0, or the code that it is refused with; the spec is checked. */
int peer_attach(struct peer *p);

/* The next message, which is of that type; files are the caller's. */
void peer_expect(struct peer *p, enum hr__wire_type type, struct hr__wire_message *message);

/* Any message; 0: hung up. */
int peer_receive(struct peer *p, struct hr__wire_message *message);

void peer_seek(struct peer *p, uint64_t epoch, uint64_t position, int is_first);

/* Waits for PLACED, and sits there. */
void peer_sit(struct peer *p);

/* Takes over a PLACED that came. */
void peer_placed(struct peer *p, struct hr__wire_message *message);

/*
 * Takes up to `count` samples, waiting for them, checks each against the order and the recipe,
 * and releases them: how many; 0 at the epoch's end; -ESTALE: expelled. With `hold` they are
 * not released.
 */
int peer_take(struct peer *p, int count, int hold);

/* Takes the rest of the epoch: how many. */
int peer_rest(struct peer *p, int count);

void peer_release(struct peer *p);

/* The socket and maps go. */
void peer_leave(struct peer *p);

#endif
