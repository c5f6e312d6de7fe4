/*
 * Finding the addresses of a name within a time.
 *
 * getaddrinfo waits for name servers as long as resolv.conf says, often half a minute, and
 * cannot be interrupted. So names are looked up by a thread of their own, which the caller
 * leaves behind when its time is over; the next call waits for the same one, so that there is
 * one such thread at most for each struct hr__peer_lookup. Addresses in digits need none.
 */
#ifndef HR_CLUSTER_PEER_LOOKUP_H
#define HR_CLUSTER_PEER_LOOKUP_H

#include <netdb.h>
#include <stdatomic.h>
#include <stdint.h>

struct hr__peer_lookup {
    struct hr__peer_search *pending; /* NULL: none */
};

/* On success *out is the caller's, freed by freeaddrinfo. Blocks until deadline_ns (of
 * hr__now_ns) or until *stop is non-zero. Errors: -ETIMEDOUT; -ECANCELED; -ENOMEM; -EAGAIN: no
 * thread; -EHOSTUNREACH: *reason says why the name has no address (static storage). */
int hr__peer_lookup(struct hr__peer_lookup *lookup, const char *name, uint16_t port,
                    uint64_t deadline_ns, const atomic_int *stop, struct addrinfo **out,
                    const char **reason);

/* Does not wait: a thread that is still at work ends by itself. */
void hr__peer_lookup_clear(struct hr__peer_lookup *lookup);

#endif
