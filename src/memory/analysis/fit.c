/* Estimates the batch size that fits; see fit.h. */
#include "memory/analysis/fit.h"

#include <math.h>

/* Sums over the valid points. */
struct sums {
    double count, batch, bytes, fixed;
};

static int counts(const struct hr__fit_point *p)
{
    return p->batch > 0 && isfinite(p->batch) && isfinite(p->fixed_bytes) &&
           isfinite(p->varying_bytes);
}

void hr__memory_fit(struct hr__fit *out, const struct hr__fit_point *points, size_t count,
                    double capacity_bytes)
{
    struct sums s = {0, 0, 0, 0};
    double spread = 0, slope = 0;
    *out = (struct hr__fit){NAN, NAN, NAN};
    for (size_t i = 0; i < count; i++) {
        if (!counts(&points[i]))
            continue;
        s.count++;
        s.batch += points[i].batch;
        s.fixed += points[i].fixed_bytes;
        s.bytes += points[i].fixed_bytes + points[i].varying_bytes;
    }
    if (s.count < 1)
        return;
    double batch = s.batch / s.count, bytes = s.bytes / s.count;
    for (size_t i = 0; i < count; i++) {
        if (!counts(&points[i]))
            continue;
        double off = points[i].batch - batch;
        spread += off * off;
        slope += off * (points[i].fixed_bytes + points[i].varying_bytes - bytes);
    }
    if (spread > 0) {
        out->bytes_per_sample = slope / spread;
        out->fixed_bytes = bytes - out->bytes_per_sample * batch;
    } else {
        out->fixed_bytes = s.fixed / s.count;
        out->bytes_per_sample = (bytes - out->fixed_bytes) / batch;
    }
    if (out->bytes_per_sample > 0 && capacity_bytes > out->fixed_bytes)
        /* Do not lose an exact fit to rounding. */
        out->batch_that_fits =
            floor((capacity_bytes - out->fixed_bytes) / out->bytes_per_sample * (1 + 1e-12));
}
