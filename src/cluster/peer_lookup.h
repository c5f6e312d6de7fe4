/*
 * Looks up the addresses of a name within a time limit.
 *
 * getaddrinfo waits for name servers as long as resolv.conf says, often half a minute, and cannot
 * be interrupted. So a separate thread does the lookup, and the caller leaves it behind when the
 * time is over. The next call waits for the same thread, so each struct hr__peer_lookup has at most
 * one. Numeric addresses need no thread.
 */
#ifndef HR_CLUSTER_PEER_LOOKUP_H
#define HR_CLUSTER_PEER_LOOKUP_H

#include <netdb.h>
#include <stdatomic.h>
#include <stdint.h>

struct hr__peer_lookup {
    struct hr__peer_search *pending; /* NULL: none */
};

/* On success *out is the caller's; free it with freeaddrinfo. Blocks until deadline_ns (as from
 * hr__now_ns) or until *stop is non-zero. Errors: -ETIMEDOUT; -ECANCELED; -ENOMEM; -EAGAIN: no
 * thread could be started; -EHOSTUNREACH: *reason says why the name has no address (static
 * storage). */
int hr__peer_lookup(struct hr__peer_lookup *lookup, const char *name, uint16_t port,
                    uint64_t deadline_ns, const atomic_int *stop, struct addrinfo **out,
                    const char **reason);

/* Does not wait: a thread that is still running ends by itself. */
void hr__peer_lookup_clear(struct hr__peer_lookup *lookup);

#endif
