/*
 * Computes rates from two statuses of an agent (hr_agent_status) and of loaders
 * (hr_loaders_status).
 *
 * The rates are added to the later status, in the objects that they describe, so that text and
 * JSON show the same. A rate that is unknown (a new queue, a restarted counter) is null.
 */
#ifndef HR_CLI_TOP_RATES_H
#define HR_CLI_TOP_RATES_H

#include <jansson.h>

/* Returns a member of an object; NaN if there is no such number. */
double top_number(const json_t *object, const char *key);

/*
 * Adds to `after`: seconds, cpu_cores, samples_per_s, read_bytes_per_s. To its queues:
 * samples_per_s, read_bytes_per_s, hit_share, fetch_per_sample_s, prepare_per_sample_s,
 * busy_threads. To their subscribers: samples_per_s, wait_share. To loaders, from the times at
 * which they published: seconds and the rates of queues and of subscribers. `before`: an earlier
 * status, or NULL. Returns 0; -1: out of memory. Pure.
 */
int top_add_rates(json_t *after, const json_t *before);

#endif
