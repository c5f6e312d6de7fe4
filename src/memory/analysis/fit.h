/*
 * The batch size that fits: what a device holds at its peak, as a line over the batch size.
 * Pure arithmetic, for one record and for several of different batch sizes.
 */
#ifndef HR_MEMORY_ANALYSIS_FIT_H
#define HR_MEMORY_ANALYSIS_FIT_H

#include <stddef.h>

/* A device's peak in one record. */
struct hr__fit_point {
    double batch;         /* samples of an iteration, > 0 */
    double fixed_bytes;   /* parameters, gradients, optimizer state, what was there before */
    double varying_bytes; /* all else */
};

struct hr__fit {
    double fixed_bytes, bytes_per_sample; /* NaN: not known */
    double batch_that_fits;               /* NaN: not known, or nothing grows with the batch */
};

/*
 * Of points of one batch size only: what varies is taken to grow in proportion to it (their
 * mean). Of several: the line of least squares through all bytes, two points exactly. Points
 * whose numbers are not finite or whose batch is not > 0 are left out. capacity_bytes: NaN
 * where it is not known.
 */
void hr__memory_fit(struct hr__fit *out, const struct hr__fit_point *points, size_t count,
                    double capacity_bytes);

#endif
