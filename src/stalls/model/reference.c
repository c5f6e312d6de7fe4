/*
 * The reference model: Mohan, Phanishayee, Raniwala, Chidambaram, "Analyzing and Mitigating Data
 * Stalls in DNN Training", VLDB'21, section 3.4. Fetching an epoch of D samples, of which the share
 * x is cached, takes
 *
 *     T_f = D x / C + D (1 - x) / S,        F = D / T_f,
 *
 * and training runs at min(F, P, G). D cancels. A cached share of x is assumed to give a hit rate
 * of x, which holds for a cache that never evicts.
 */
#include "stalls/model/model.h"

#include <math.h>

/* Seconds of one sample at `rate`; 0 if the rate is unknown or infinite. */
static double seconds(double rate)
{
    return rate > 0 ? 1 / rate : rate == 0 ? INFINITY : 0;
}

double hr__reference_fetch_rate(const struct hr__reference *reference)
{
    double x = reference->cached;
    double fetch_s = (x > 0 ? x * seconds(reference->cache_rate) : 0) +
                     (x < 1 ? (1 - x) * seconds(reference->storage_rate) : 0);
    return fetch_s > 0 ? 1 / fetch_s : INFINITY;
}

double hr__reference_speed(const struct hr__reference *reference)
{
    /* fmin ignores NaN, which means unknown. */
    return fmin(hr__reference_fetch_rate(reference),
                fmin(reference->prepare_rate, reference->device_rate));
}
