/*
 * A store of items on another host, as a table of functions: memcached (peer_memcached.c), or
 * what a test puts there.
 *
 * A client is one connection to one server, used by one thread at a time; opening does no
 * I/O, the first request connects. Every request ends by its deadline whatever the server
 * does: hangs, trickles, answers garbage. After an error the connection is gone and the next
 * request makes another.
 */
#ifndef HR_CLUSTER_PEER_H
#define HR_CLUSTER_PEER_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

#define HR__PEER_KEY 40 /* characters of a key at most, without the end */

#define HR__PEER_SLACK 64 /* bytes behind a fetched value that may be written */

/* No value is longer: memcached's own end of -I. */
#define HR__PEER_VALUE_MAX (UINT64_C(1) << 30)

struct hr__peer_client;
struct hr__blocks;

/* The texts are copied. */
struct hr__peer_wish {
    const char *address; /* name, address or path of a Unix socket */
    uint16_t port;       /* 0: a path */
    const char *user;    /* of the server's authfile; NULL: none */
    const char *password;
    struct hr__blocks *blocks; /* where values come from; NULL: the heap */
};

/* One of the values that are asked for in bulk. */
struct hr__peer_value {
    char key[HR__PEER_KEY + 1];
    uint8_t *bytes; /* out: hr__free's, with HR__PEER_SLACK more behind; NULL: the server has
                       none */
    size_t length;
};

/* One that is stored. */
struct hr__peer_store {
    char key[HR__PEER_KEY + 1];
    const void *bytes; /* in two parts, written one behind the other */
    size_t length;
    const void *tail;
    size_t tail_length;
    uint32_t expires_s; /* 0: never */
    int result;         /* out: 0; -ENOSPC: refused, memory is full; -E2BIG: larger than an item
                           may be; or what ended the request */
};

/* What a server says of itself. */
struct hr__peer_about {
    char version[32];
    uint64_t limit_bytes, used_bytes, items, evictions, uptime_s;
    uint64_t item_max_bytes;
    int evicts; /* non-zero: it was started without -M */
};

/* Messages of errors name the server. */
struct hr__peer_ops {
    const char *name;
    /* Errors: -ENOTSUP, -EINVAL, -ENOMEM. */
    int (*open)(struct hr__peer_client **out, const struct hr__peer_wish *wish,
                struct hr_error *error);
    void (*close)(struct hr__peer_client **client);
    /* 0 whether values were found or not; else what went wrong, and what had come till then is
     * there. Keys are different ones. deadline_ns: of hr__now_ns. -ETIMEDOUT, -ECONNREFUSED,
     * -ECONNRESET, -EPROTO, -EACCES, -ECANCELED, -ENOMEM, -EHOSTUNREACH, -EINVAL: a key. */
    int (*get)(struct hr__peer_client *client, struct hr__peer_value *values, size_t count,
               uint64_t deadline_ns, struct hr_error *error);
    /* 0 where each was answered; see `result`. */
    int (*put)(struct hr__peer_client *client, struct hr__peer_store *stores, size_t count,
               uint64_t deadline_ns, struct hr_error *error);
    int (*about)(struct hr__peer_client *client, struct hr__peer_about *about, uint64_t deadline_ns,
                 struct hr_error *error);
    /* Any thread: ends the request in progress with -ECANCELED, and all later ones. */
    void (*cancel)(struct hr__peer_client *client);
};

/* The table that was built in. */
extern const struct hr__peer_ops hr__peer_ops;

#endif
