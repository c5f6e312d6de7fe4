/*
 * Prometheus metrics of an agent: converts its status (agent.h, docs/agent.md) to text, which
 * metrics/endpoint.h serves.
 *
 * The text is a pure function of the status JSON. So the endpoint needs nothing of the agent that
 * other viewers do not get, and no lock.
 */
#ifndef HR_AGENT_SERVER_METRICS_H
#define HR_AGENT_SERVER_METRICS_H

#include <headrace/base.h>

/* *text is the caller's, freed with hr__free. Omits metrics that the status lacks. Errors: -EPROTO:
 * `status` is not a status; -ENOMEM. Pure. */
int hr__metrics_text(char **text, const char *status, struct hr_error *error);

#endif
