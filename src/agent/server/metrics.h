/*
 * Prometheus metrics of an agent: converts its status (agent.h, docs/agent.md) to text, and serves
 * the text over HTTP.
 *
 * The text is a pure function of the status JSON. So the endpoint needs nothing of the agent that
 * other viewers do not get, and no lock. Source: the Prometheus text exposition format, version
 * 0.0.4, and its naming rules (base units, counters end in _total).
 */
#ifndef HR_AGENT_SERVER_METRICS_H
#define HR_AGENT_SERVER_METRICS_H

#include <headrace/base.h>

/* *text is the caller's, freed with hr__free. Omits metrics that the status lacks. Errors: -EPROTO:
 * `status` is not a status; -ENOMEM. Pure. */
int hr__metrics_text(char **text, const char *status, struct hr_error *error);

/* Returns a status, freed with hr__free. Called on the endpoint's thread, one call at a time. */
typedef int (*hr__metrics_status_fn)(void *arg, char **json, struct hr_error *error);

struct hr__metrics;

/*
 * Serves GET /metrics at `address`: "ADDRESS:PORT", "[ADDRESS]:PORT" for IPv6, "localhost:PORT",
 * or ":PORT" or "PORT" for the loopback interface. Port 0 chooses a free one. On success *out is
 * the caller's. Starts a thread, which blocks all signals. Errors: -EINVAL: not an address;
 * -EADDRINUSE and other errors of bind; -ENOTSUP: built without libmicrohttpd; -ENOMEM.
 */
int hr__metrics_start(struct hr__metrics **out, const char *address, hr__metrics_status_fn status,
                      void *arg, struct hr_error *error);

/* Waits for a call of `status` that is running. Accepts NULL. */
void hr__metrics_stop(struct hr__metrics **metrics);

#endif
