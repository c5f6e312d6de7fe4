/*
 * A connection to a server: bytes in and out until a deadline, whatever the other side does.
 *
 * The socket never blocks; what waits polls it, and looks at the clock whenever something came,
 * so that a trickle of bytes wins no time. Cancel shuts the socket down, which ends the poll. What
 * is received goes into a small buffer of the link, and from there into lines; long values go
 * straight to where they are wanted. One thread at a time, but for cancel.
 */
#ifndef HR_CLUSTER_PEER_LINK_H
#define HR_CLUSTER_PEER_LINK_H

#include "cluster/peer_lookup.h"

#include <headrace/base.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define HR__PEER_LINK_BUFFER 8192

/* A line is never longer, of any server. */
#define HR__PEER_LINK_LINE 2048

struct hr__peer_link {
    char label[288]; /* the server, for messages: "hostB:11211" */
    char address[256];
    uint16_t port;        /* 0: `address` is a path */
    pthread_mutex_t lock; /* guards `socket` between cancel and what opens and closes it */
    int socket;           /* -1: none */
    atomic_int is_cancelled;
    struct hr__peer_lookup lookup;
    uint64_t deadline_ns; /* of the request in progress */
    int is_logged_in;     /* the server accepted the user on this connection */
    int is_used;          /* an earlier request on this connection was answered */
    int has_answered;     /* something came since the request began */
    size_t begin, end;    /* what of `buffer` was received and not taken yet */
    char buffer[HR__PEER_LINK_BUFFER];
};

/* No I/O. Errors: -EINVAL: too long. Closed after a failure, too. */
int hr__peer_link_open(struct hr__peer_link *link, const char *address, uint16_t port,
                       struct hr_error *error);
void hr__peer_link_close(struct hr__peer_link *link);

/* Begins a request: connects if need be. All that follow end by deadline_ns. Each returns 0 or
 * an error of struct hr__peer_ops; the connection is for hr__peer_link_end to judge. */
int hr__peer_link_begin(struct hr__peer_link *link, uint64_t deadline_ns, struct hr_error *error);

/* Ends it: after an error the connection is dropped. Non-zero where the request may be made
 * once more at once, on another connection: this one had been closed before. */
int hr__peer_link_end(struct hr__peer_link *link, int result);

/* Sends all; `parts` are changed. */
int hr__peer_link_send(struct hr__peer_link *link, struct iovec *parts, size_t count,
                       struct hr_error *error);

/* As much as goes without waiting; moves *parts and *count on. */
int hr__peer_link_push(struct hr__peer_link *link, struct iovec **parts, size_t *count,
                       struct hr_error *error);

/* Waits until something can be received, or sent where is_sending, and receives it. */
int hr__peer_link_turn(struct hr__peer_link *link, int is_sending, struct hr_error *error);

/* A whole line if there is one: 1, and the line without its end in *line (terminated, until the
 * next call); 0: none yet; -EPROTO: it is too long. */
int hr__peer_link_has_line(struct hr__peer_link *link, char **line, struct hr_error *error);

/* The same, waiting for it: 0. */
int hr__peer_link_line(struct hr__peer_link *link, char **line, struct hr_error *error);

/* Exactly `length` bytes. */
int hr__peer_link_read(struct hr__peer_link *link, void *out, size_t length,
                       struct hr_error *error);

/* Any thread. */
void hr__peer_link_cancel(struct hr__peer_link *link);

/* What a server says that is no answer: -EPROTO, with the text as it can be shown. */
int hr__peer_link_garbage(struct hr__peer_link *link, const char *text, struct hr_error *error);

#endif
