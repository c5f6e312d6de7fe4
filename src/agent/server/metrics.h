/*
 * An agent's figures for Prometheus: its status (agent.h, docs/agent.md) as a text, and the
 * endpoint that serves it over HTTP.
 *
 * The text is a pure function of the status JSON, so the endpoint needs nothing of the agent
 * but what every viewer gets, and no lock of its own. Source: the Prometheus text exposition
 * format, version 0.0.4, and its naming rules (base units, counters end in _total).
 */
#ifndef HR_AGENT_SERVER_METRICS_H
#define HR_AGENT_SERVER_METRICS_H

#include <headrace/base.h>

/* *text is the caller's, freed with hr__free. What the status lacks is left out. Errors:
 * -EPROTO: that is no status; -ENOMEM. Pure. */
int hr__metrics_text(char **text, const char *status, struct hr_error *error);

/* Gives a status that hr__free frees. Called on the endpoint's thread, one call at a time. */
typedef int (*hr__metrics_status_fn)(void *arg, char **json, struct hr_error *error);

struct hr__metrics;

/*
 * Serves GET /metrics at `address`: "ADDRESS:PORT", "[ADDRESS]:PORT" of IPv6, "localhost:PORT",
 * or ":PORT" and "PORT" of the loopback interface; port 0 is one that is free. On success *out
 * is the caller's. Starts a thread, which blocks all signals. Errors: -EINVAL: that is no
 * address; -EADDRINUSE and others of bind; -ENOTSUP: built without libmicrohttpd; -ENOMEM.
 */
int hr__metrics_start(struct hr__metrics **out, const char *address, hr__metrics_status_fn status,
                      void *arg, struct hr_error *error);

/* Where it listens. */
int hr__metrics_port(const struct hr__metrics *metrics);

/* Waits for the call in hand. Accepts NULL. */
void hr__metrics_stop(struct hr__metrics **metrics);

#endif
