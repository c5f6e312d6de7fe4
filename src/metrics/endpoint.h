/*
 * Serves a text at /metrics over HTTP: of an agent, or of the loaders of a process.
 */
#ifndef HR_METRICS_ENDPOINT_H
#define HR_METRICS_ENDPOINT_H

#include <headrace/base.h>

/* Writes the text, freed with hr__free. Called on the endpoint's thread, one call at a time. An
 * error becomes the answer 503. */
typedef int (*hr__endpoint_text_fn)(void *arg, char **text, struct hr_error *error);

struct hr__endpoint;

struct hr__endpoint_options {
    const char *address;       /* "ADDRESS:PORT", "[ADDRESS]:PORT" for IPv6, "localhost:PORT", or
                                  ":PORT" or "PORT" for the loopback interface.
                                  Port 0: a free one, for tests */
    int port_offset;           /* rank of this machine: added to the port, unless that is 0 */
    hr__endpoint_text_fn text; /* what to serve */
    void *arg;
};

/*
 * Serves GET /metrics. On success *out is the caller's. Starts a thread, which blocks all signals.
 * Errors: -EINVAL: not an address, or the sum is no port; -EADDRINUSE and other errors of bind;
 * -ENOTSUP: built without libmicrohttpd; -ENOMEM.
 */
int hr__endpoint_start(struct hr__endpoint **out, const struct hr__endpoint_options *options,
                       struct hr_error *error);

/* Returns 0 if hr__endpoint_start could parse the address, else -EINVAL. */
int hr__endpoint_check(const char *address, struct hr_error *error);

/* Frees the address; hr__endpoint_stop is still to be called. */
void hr__endpoint_close(struct hr__endpoint *endpoint);

/* Waits for a call of `text` that is running. Accepts NULL. */
void hr__endpoint_stop(struct hr__endpoint **endpoint);

/* Called in a forked child, by a fork handler: closes the socket there. Frees nothing. */
void hr__endpoint_abandon(struct hr__endpoint *endpoint);

#endif
