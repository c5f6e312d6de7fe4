/* Reads numeric facts of a record, and projects the batch size that fits; see analysis.h. */
#include "memory/analysis/analysis.h"

#include "memory/record/names.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double hr__memory_fact(const struct hr__record *record, const char *name)
{
    const char *text = hr__record_fact(record, name);
    char *end;
    /* Do not depend on the program's locale. */
    locale_t plain = text ? newlocale(LC_ALL_MASK, "C", (locale_t)0) : (locale_t)0;
    if (!plain)
        return NAN;
    double value = strtod_l(text, &end, plain);
    freelocale(plain);
    return end != text && !*end && value >= 0 && value < 1e18 ? value : NAN;
}

static size_t find_main(const struct hr__memory *m)
{
    size_t best = 0;
    for (size_t i = 1; i < m->device_count; i++) {
        const struct hr__device_memory *a = &m->devices[best], *b = &m->devices[i];
        if (b->device == HR_MEMORY_LIBRARIES)
            continue;
        if (!a->device || b->timeline.peak_bytes > a->timeline.peak_bytes)
            best = i;
    }
    return best;
}

/* Returns the capacity of an accelerator. The host's memory is shared with other programs, so its
 * capacity for a batch is unknown. */
static double capacity(const struct hr__memory *m, size_t at, const struct hr__record *record)
{
    char device_name[HR__DEVICE_NAME_BYTES], fact_name[64];
    if (!m->devices[at].device || m->devices[at].device == HR_MEMORY_LIBRARIES)
        return NAN;
    hr__device_name(m->devices[at].device, device_name);
    snprintf(fact_name, sizeof fact_name, "capacity bytes %s", device_name);
    double recorded = hr__memory_fact(record, fact_name);
    return isnan(recorded) && at == m->main_device ? hr__memory_fact(record, "capacity bytes")
                                                   : recorded;
}

void hr__memory_project(struct hr__memory *m, const struct hr__record *record)
{
    m->batch_size = hr__memory_fact(record, "batch size");
    m->main_device = find_main(m);
    m->fixed_bytes = m->bytes_per_sample = m->capacity_bytes = m->batch_that_fits = NAN;
    for (size_t i = 0; i < m->device_count; i++) {
        struct hr__device_memory *d = &m->devices[i];
        const uint64_t *bytes = d->timeline.peak.bytes;
        double fixed = (double)(bytes[HR_MEMORY_PARAMETER] + bytes[HR_MEMORY_GRADIENT] +
                                bytes[HR_MEMORY_OPTIMIZER_STATE] +
                                /* from before the recording: frozen weights, buffers, data */
                                bytes[HR_MEMORY_UNKNOWN]);
        d->capacity_bytes = capacity(m, i, record);
        d->point =
            (struct hr__fit_point){m->batch_size, fixed, (double)d->timeline.peak_bytes - fixed};
        hr__memory_fit(&d->fit, &d->point, 1, d->capacity_bytes);
        d->fit.fixed_bytes = fixed; /* known even without a batch size */
    }
    if (m->device_count) {
        const struct hr__device_memory *d = &m->devices[m->main_device];
        m->fixed_bytes = d->fit.fixed_bytes;
        m->bytes_per_sample = d->fit.bytes_per_sample;
        m->capacity_bytes = d->capacity_bytes;
        m->batch_that_fits = d->fit.batch_that_fits;
    }
}
