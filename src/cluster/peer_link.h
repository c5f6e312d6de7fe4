/*
 * A connection to a server: sends and receives until a deadline, whatever the other side does.
 *
 * The socket is non-blocking. Functions that wait poll it and check the clock whenever something
 * came, so a server that trickles bytes gains no time. Cancel shuts the socket down, which ends the
 * poll. Received bytes go into a small buffer, from which lines are read; long values go straight
 * to their destination. One thread at a time, except for cancel.
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

/* The longest line that any server sends. */
#define HR__PEER_LINK_LINE 2048

struct hr__peer_link {
    char label[288]; /* the server's name for messages: "hostB:11211" */
    char address[256];
    uint16_t port;        /* 0: `address` is a path */
    pthread_mutex_t lock; /* guards `socket` between cancel and what opens and closes it */
    int socket;           /* -1: none */
    atomic_int is_cancelled;
    struct hr__peer_lookup lookup;
    uint64_t deadline_ns; /* of the request in progress, as from hr__now_ns */
    int is_logged_in;     /* the server accepted the user on this connection */
    int is_used;          /* an earlier request on this connection was answered */
    int has_answered;     /* something was received since the request began */
    size_t begin, end;    /* the part of `buffer` that was received and not consumed yet */
    char buffer[HR__PEER_LINK_BUFFER];
};

/* No I/O. Errors: -EINVAL: address too long. Call close after a failure, too. */
int hr__peer_link_open(struct hr__peer_link *link, const char *address, uint16_t port,
                       struct hr_error *error);
void hr__peer_link_close(struct hr__peer_link *link);

/* Begins a request and connects if needed. It and all calls up to hr__peer_link_end finish by
 * deadline_ns. Each returns 0 or an error of struct hr__peer_ops; hr__peer_link_end decides whether
 * the connection can be kept. */
int hr__peer_link_begin(struct hr__peer_link *link, uint64_t deadline_ns, struct hr_error *error);

/* Ends the request; after an error it closes the connection. Returns non-zero if the caller may
 * repeat the request at once, on a new connection: the server had closed this one before. */
int hr__peer_link_end(struct hr__peer_link *link, int result);

/* Sends everything; modifies `parts`. */
int hr__peer_link_send(struct hr__peer_link *link, struct iovec *parts, size_t count,
                       struct hr_error *error);

/* Sends as much as possible without waiting; advances *parts and *count. */
int hr__peer_link_push(struct hr__peer_link *link, struct iovec **parts, size_t *count,
                       struct hr_error *error);

/* Waits until the socket can be read (or also until it can be written, if is_sending), and receives
 * what is there. */
int hr__peer_link_turn(struct hr__peer_link *link, int is_sending, struct hr_error *error);

/* Gets a whole line if one is there: returns 1, with the line in *line, without line end and
 * terminated, valid until the next call; 0: none yet; -EPROTO: too long. */
int hr__peer_link_has_line(struct hr__peer_link *link, char **line, struct hr_error *error);

/* The same, but waits for the line. Returns 0. */
int hr__peer_link_line(struct hr__peer_link *link, char **line, struct hr_error *error);

/* Receives exactly `length` bytes. */
int hr__peer_link_read(struct hr__peer_link *link, void *out, size_t length,
                       struct hr_error *error);

/* Ends the request in progress and all later ones. Any thread. */
void hr__peer_link_cancel(struct hr__peer_link *link);

/* Reports a line from the server that is not a valid answer: -EPROTO, with the text made
 * printable. */
int hr__peer_link_garbage(struct hr__peer_link *link, const char *text, struct hr_error *error);

#endif
