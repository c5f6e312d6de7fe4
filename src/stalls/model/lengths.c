/*
 * Chooses the lengths of segments from the first times of a batch: long enough to measure the
 * loader and not its queue, and so short that enough rounds fit into the limits. Pure, for scripts
 * in Python and loops in C.
 */
#include "base/error.h"
#include "base/versioned.h"
#include "stalls/model/result.h"

#include <errno.h>
#include <math.h>

#define MIN_SETTLE  2
#define MIN_BATCHES 8
/* Rounds that the time is to suffice for, and those that the schedule always runs. */
#define ROUNDS_WANTED 6
#define LEAST_ROUNDS  4
/* A segment has so many times the batches that the loader has ahead: those were prepared before it
 * began. */
#define OUTLAST 3
/* Of the time limit: what the least number of rounds may take before segments become shorter. */
#define OVERRUN 2.5
/* A batch that is really loaded, in a cold segment and a warm one on average. */
#define LOAD_FACTOR 1.25
#define SHORTEST_S  1e-5

static double settle_of(const struct hr_stalls_pace *pace)
{
    return pace->ahead > MIN_SETTLE ? (double)pace->ahead : MIN_SETTLE;
}

static int count_phases(int phases, int a, int b)
{
    return (phases >> a & 1) + (phases >> b & 1);
}

/* Returns the wanted batches of a segment, before they are made a multiple of the unit. */
static double wanted(const struct hr_stalls_schedule_options *o, const struct hr_stalls_pace *pace)
{
    int replays = count_phases(o->phases, HR_STALLS_DEVICE, HR_STALLS_HOST);
    int loads = count_phases(o->phases, HR_STALLS_WARM, HR_STALLS_COLD);
    double step = fmax(pace->step_s, SHORTEST_S), load = fmax(pace->load_s, step);
    double settle = settle_of(pace), ahead = (double)pace->ahead, unit = (double)pace->unit;
    /* Of a round: what settles and is read ahead, and what each batch of its segments takes. */
    double overhead = loads * (settle + ahead) * load + replays * settle * step;
    double each = replays * step + loads * LOAD_FACTOR * load;
    double count = fmax((double)pace->batches, pace->segment_s / step);
    double least = fmax(fmax(2 * unit, OUTLAST * ahead), MIN_BATCHES);
    if (o->max_s > 0) {
        count = fmin(count, (o->max_s / ROUNDS_WANTED - overhead) / each);
        if (LEAST_ROUNDS * (overhead + least * each) > OVERRUN * o->max_s)
            least = fmax(fmax(2 * unit, ahead), MIN_BATCHES);
    }
    if (o->max_batches) {
        least = 2 * unit;
        count = fmin(count, (double)o->max_batches / ((replays + loads) * LEAST_ROUNDS) - settle);
    }
    count = fmax(count, least);
    /* An index set within one epoch repeats no file. */
    if (pace->epoch_batches)
        count = fmin(count, floor(((double)pace->epoch_batches - settle - ahead) / unit) * unit);
    return fmax(count, 2 * unit);
}

static bool is_time(double seconds)
{
    return seconds >= 0 && !isinf(seconds);
}

int hr_stalls_schedule_fit(struct hr_stalls_schedule_options *options,
                           const struct hr_stalls_pace *pace, struct hr_error *error)
{
    struct hr_stalls_schedule_options o;
    struct hr_stalls_pace p;
    hr_stalls_schedule_options_default(&o);
    hr_stalls_pace_default(&p);
    int r = hr__versioned_take(&o, sizeof o, options, "hr_stalls_schedule_options", error);
    if (!r)
        r = hr__versioned_take(&p, sizeof p, pace, "hr_stalls_pace", error);
    if (r)
        return r;
    if (!is_time(p.step_s) || !is_time(p.load_s) || !is_time(p.segment_s) || !is_time(o.max_s))
        return hr__fail(error, -EINVAL, "the times of a pace must be positive and finite");
    if (!p.unit || p.unit > 1000000 || p.ahead > 1000000)
        return hr__fail(error, -EINVAL, "unit must be from 1, and ahead from 0, to 1,000,000");
    options->settle = (uint64_t)settle_of(&p);
    options->batches = (uint64_t)ceil(wanted(&o, &p) / (double)p.unit) * p.unit;
    return 0;
}
