/*
 * The status of a loader of your own, shown beside those of hr_loader, which publishes its own: in
 * headrace top, and in what the process serves to Prometheus (docs/metrics.md).
 *
 * A status is one JSON object with the keys that docs/metrics.md lists. Numbers and booleans that
 * have another meaning there need other names; keys that are missing are shown as unknown.
 */
#ifndef HEADRACE_METER_H
#define HEADRACE_METER_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_meter;

/* Returns 0 if hr_meter_begin could parse the address, else -EINVAL. NULL and "" are good. */
HR_API HR_NODISCARD int hr_meter_check(const char *metrics, struct hr_error *error);

/*
 * Adds a loader to those of the process. `metrics` is the address to serve at, as
 * hr_loader_options.metrics; NULL: HEADRACE_METRICS, if that is set; "": none. The process serves
 * at its port plus LOCAL_RANK; where that is not set, plus `rank` modulo `local_world_size`, which
 * is at least 1. On success *out is the caller's. Errors: -EINVAL: not an address, or the process
 * serves elsewhere already; -EADDRINUSE and other errors of bind; -ENOTSUP: built without
 * libmicrohttpd; -ENOMEM. What HEADRACE_METRICS names and cannot be had is logged once, and is no
 * error. Any thread.
 */
HR_API HR_NODISCARD int hr_meter_begin(struct hr_meter **out, const char *metrics, int rank,
                                       int local_world_size, struct hr_error *error);

/* Returns the loader's number: the lowest that no other loader of the process has. */
HR_API int hr_meter_number(const struct hr_meter *meter);

/* Replaces the status, which is copied. One thread at a time for a meter. Takes some microseconds,
 * and no longer if memory is full: the status then stays as it is. */
HR_API void hr_meter_publish(struct hr_meter *meter, const char *status);

/* Ends it; the last one that serves frees the address. Waits for an answer in progress. In a forked
 * child it only frees memory. Accepts NULL. */
HR_API void hr_meter_end(struct hr_meter **meter);

/*
 * Gets the metrics of this process's loaders in Prometheus's text format, as a served address would
 * answer, whether or not the process has one: for a server or an exporter of your own. Each family
 * is there, and has no samples before the first epoch of a loader. On success the caller owns *text
 * and frees it with hr_text_free (headrace/agent.h). Errors: -ENOMEM. Any thread.
 */
HR_API HR_NODISCARD int hr_metrics_text(char **text, struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
