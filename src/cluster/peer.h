/*
 * The interface to a store of items on another host: memcached (peer_memcached.c), or a test's own.
 *
 * A client is one connection to one server, used by one thread at a time. Opening does no I/O; the
 * first request connects. Every request ends by its deadline, even if the server hangs, trickles or
 * sends garbage. An error closes the connection, and the next request makes another.
 */
#ifndef HR_CLUSTER_PEER_H
#define HR_CLUSTER_PEER_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

#define HR__PEER_KEY 40 /* the most characters of a key, without the terminator */

#define HR__PEER_SLACK 64 /* bytes after a fetched value that the caller may overwrite */

/* The longest value: the upper limit of memcached's -I. */
#define HR__PEER_VALUE_MAX (UINT64_C(1) << 30)

struct hr__peer_client;
struct hr__blocks;

/* The texts are copied. */
struct hr__peer_wish {
    const char *address; /* name, address, or path of a Unix socket */
    uint16_t port;       /* 0: `address` is a path */
    const char *user;    /* user in the server's authfile; NULL: none */
    const char *password;
    struct hr__blocks *blocks; /* where values are allocated; NULL: the heap */
};

/* One of the values that are requested in bulk. */
struct hr__peer_value {
    char key[HR__PEER_KEY + 1];
    uint8_t *bytes; /* out: free with hr__free; HR__PEER_SLACK more bytes follow. NULL: the server
                       does not have it */
    size_t length;
};

/* One value to store. */
struct hr__peer_store {
    char key[HR__PEER_KEY + 1];
    const void *bytes; /* the value has two parts, written one after the other */
    size_t length;
    const void *tail;
    size_t tail_length;
    uint32_t expires_s; /* 0: never */
    int result;         /* out: 0; -ENOSPC: refused because memory is full; -E2BIG: larger than an
                           item may be; or the error that ended the request */
};

/* A server's report about itself. */
struct hr__peer_about {
    char version[32];
    uint64_t limit_bytes, used_bytes, items, evictions, uptime_s;
    uint64_t item_max_bytes;
    int evicts; /* non-zero: it evicts items, because it was started without -M */
};

/* Error messages name the server. */
struct hr__peer_ops {
    const char *name;
    /* Errors: -ENOTSUP, -EINVAL, -ENOMEM. */
    int (*open)(struct hr__peer_client **out, const struct hr__peer_wish *wish,
                struct hr_error *error);
    void (*close)(struct hr__peer_client **client);
    /* Returns 0 whether values were found or not. On an error, the values that had arrived are
     * filled in. The keys must differ. deadline_ns: as from hr__now_ns. Errors: -ETIMEDOUT,
     * -ECONNREFUSED, -ECONNRESET, -EPROTO, -EACCES, -ECANCELED, -ENOMEM, -EHOSTUNREACH, -EINVAL: a
     * key. */
    int (*get)(struct hr__peer_client *client, struct hr__peer_value *values, size_t count,
               uint64_t deadline_ns, struct hr_error *error);
    /* Returns 0 if every store was answered; see `result`. */
    int (*put)(struct hr__peer_client *client, struct hr__peer_store *stores, size_t count,
               uint64_t deadline_ns, struct hr_error *error);
    int (*about)(struct hr__peer_client *client, struct hr__peer_about *about, uint64_t deadline_ns,
                 struct hr_error *error);
    /* Any thread: ends the request in progress and all later ones with -ECANCELED. */
    void (*cancel)(struct hr__peer_client *client);
};

/* The implementation that was built in. */
extern const struct hr__peer_ops hr__peer_ops;

#endif
