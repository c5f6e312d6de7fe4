/*
 * Replaces the model with a simple formula for predictions, so that the expected texts do not
 * change with the model. Linked before the room's library.
 */
#include "../../test.h"

#include "stalls/model/result.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int hr_stalls_predict(const struct hr_stalls *s, const struct hr_stalls_change *change,
                      struct hr_stalls_prediction *p, struct hr_error *error)
{
    double cold = s->summary.rate[HR_STALLS_COLD].value, g = s->summary.device_rate.value;
    double warm = s->summary.rate[HR_STALLS_WARM].value;
    struct hr_stalls_change none;
    hr_stalls_change_default(&none);
    change = change ? change : &none;
    double x = change->cache_share < 0 ? 0 : change->cache_share;
    size_t size = p->size;
    if (isnan(cold) && (x < 1 || !s->summary.measured[HR_STALLS_WARM])) {
        if (error) {
            error->code = -ENODATA;
            strcpy(error->message, "training from storage was not measured: </p><b>run it again");
        }
        return -ENODATA;
    }
    double missing = change->page_cache ? fmin(1, (1 - x) * (1 + x)) : 1 - x;
    double prepared = change->cores ? 225.0 * change->cores : warm;
    if (change->loader == HR_STALLS_LOADER_HEADRACE)
        prepared = 20000;
    double fetching = missing > 0 ? missing / cold : 0;
    double rate = 1 / (fetching + (1 - missing) / fmin(prepared, g));
    rate = fmin(rate, g);
    *p = (struct hr_stalls_prediction){.size = size, .rate = rate, .low = rate * 0.97};
    p->high = rate * 1.02;
    p->share[0] = rate / g;
    p->share[2] = (1 - rate / g) * 0.6;
    p->share[3] = (1 - rate / g) * 0.4;
    p->extrapolated = change->cores > s->summary.cores;
    if (p->extrapolated)
        snprintf(p->why, sizeof p->why, "more than %d cores", s->summary.cores);
    return 0;
}

int hr_stalls_suggest(const struct hr_stalls *s, double stall, struct hr_stalls_suggestion *out,
                      int capacity, struct hr_error *error)
{
    int count = 0;
    for (int i = -1; i < 2 && count < capacity; i++) {
        struct hr_stalls_suggestion *o = &out[count];
        hr_stalls_change_default(&o->change);
        if (i < 0) { /* no change needed: the first of the real model's answers */
            o->prediction.size = sizeof o->prediction;
            int r = hr_stalls_predict(s, &o->change, &o->prediction, error);
            if (r)
                return r;
            strcpy(o->text, "nothing");
            count++;
            continue;
        }
        o->change.cache_share = 1;
        o->change.cores = i ? 24 : 0;
        o->change.loader = i ? HR_STALLS_LOADER_SAME : HR_STALLS_LOADER_HEADRACE;
        o->prediction.size = sizeof o->prediction;
        int r = hr_stalls_predict(s, &o->change, &o->prediction, error);
        if (r)
            return r;
        snprintf(o->text, sizeof o->text, "%s",
                 i ? "24 cores and a cache of 131 GiB" : "Headrace's loader and its cache");
        count++;
    }
    return count;
}
