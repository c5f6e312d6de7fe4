/*
 * Rates of an agent: what changed between two of its statuses (hr_agent_status).
 *
 * They are added to the later status, beside what they are of, so that text and JSON show the
 * same. A rate that cannot be told (a queue that is new, a counter that began again) is null.
 */
#ifndef HR_CLI_TOP_RATES_H
#define HR_CLI_TOP_RATES_H

#include <jansson.h>

/*
 * Adds to `after`: seconds, cpu_cores, samples_per_s, read_bytes_per_s; to its queues:
 * samples_per_s, read_bytes_per_s, hit_share, fetch_per_sample_s, prepare_per_sample_s,
 * busy_threads; to their subscribers: samples_per_s, wait_share. `before`: an earlier status of
 * the agent, or NULL. Returns 0, -1: out of memory. Pure.
 */
int top_add_rates(json_t *after, const json_t *before);

#endif
