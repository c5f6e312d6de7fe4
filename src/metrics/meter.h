/*
 * The loaders of this process, as others see them: each publishes its status from time to time, as
 * JSON (headrace/meter.h). A status goes into a file, for headrace top (status_file.h), and, if a
 * loader asked for it, into what the process serves to Prometheus: one address for all its loaders
 * (endpoint.h).
 *
 * Nothing here calls a loader. So a scrape takes no lock of a loader's, and a loader may end at any
 * time. A forked child begins with an empty list and without the address.
 */
#ifndef HR_METRICS_METER_H
#define HR_METRICS_METER_H

#include <headrace/meter.h>

/* The rank of this process among those of its machine: LOCAL_RANK, which torchrun sets; without it,
 * a machine's ranks are taken to be consecutive. */
int hr__local_rank(int rank, int local_world_size);

/* Converts {"loaders": [...]} to Prometheus's text, freed with hr__free. Errors: -EPROTO: it is no
 * such object; -ENOMEM. Pure. */
int hr__loaders_text(char **text, const char *status, struct hr_error *error);

#endif
