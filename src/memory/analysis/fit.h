/*
 * Estimates the batch size that fits: models a device's peak as a line over the batch size. Pure
 * arithmetic, for one record or several with different batch sizes.
 */
#ifndef HR_MEMORY_ANALYSIS_FIT_H
#define HR_MEMORY_ANALYSIS_FIT_H

#include <stddef.h>

/* A device's peak in one record. */
struct hr__fit_point {
    double batch;         /* samples per iteration, > 0 */
    double fixed_bytes;   /* parameters, gradients, optimizer state, blocks before the record */
    double varying_bytes; /* the rest of the peak */
};

struct hr__fit {
    double fixed_bytes, bytes_per_sample; /* NaN: unknown */
    double batch_that_fits;               /* NaN: unknown, or nothing grows with the batch */
};

/*
 * If all points have one batch size, the varying bytes are assumed to be proportional to it (using
 * their mean). Otherwise fits a least-squares line through all bytes; two points are met exactly.
 * Ignores points whose numbers are not finite or whose batch is not > 0. capacity_bytes: NaN if
 * unknown.
 */
void hr__memory_fit(struct hr__fit *out, const struct hr__fit_point *points, size_t count,
                    double capacity_bytes);

#endif
