/*
 * The loaders of this process, as others see them: each publishes its status from time to time, as
 * JSON. A status goes into a file, for headrace top (status_file.h), and, if a loader asked for it,
 * into what the process serves to Prometheus: one address for all its loaders (endpoint.h).
 *
 * Nothing here calls a loader. So a scrape takes no lock of a loader's, and a loader may end at any
 * time. A forked child begins with an empty list and without the address.
 */
#ifndef HR_METRICS_METER_H
#define HR_METRICS_METER_H

#include <headrace/base.h>

struct hr__meter;

/*
 * Adds a loader. `metrics` is the address to serve at; NULL: HEADRACE_METRICS, if that is set; "":
 * none. The process serves at its port plus `local_rank`. On success *out is the caller's. Errors:
 * those of hr__endpoint_start; -EINVAL: the process serves elsewhere already; -ENOMEM. What
 * HEADRACE_METRICS names and cannot be had is logged once, and is no error.
 */
HR_NODISCARD int hr__meter_begin(struct hr__meter **out, const char *metrics, int local_rank,
                                 struct hr_error *error);

/* Returns the loader's number: the lowest that no other loader of the process has. */
int hr__meter_number(const struct hr__meter *meter);

/* Replaces the status: one JSON object, which becomes the meter's (hr__alloc). One thread at a
 * time. Takes some microseconds, and no longer if the file's memory is full. */
void hr__meter_publish(struct hr__meter *meter, char *text);

/* Ends it; the last one that serves frees the address. Waits for an answer in progress. In a forked
 * child it only frees memory. Accepts NULL. */
void hr__meter_end(struct hr__meter **meter);

/* Converts {"loaders": [...]} to Prometheus's text, freed with hr__free. Errors: -EPROTO: it is no
 * such object; -ENOMEM. Pure. */
int hr__loaders_text(char **text, const char *status, struct hr_error *error);

#endif
