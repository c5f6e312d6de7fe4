/* Resample and SpeedPerturbation: operations that change the rate of a sound. */
#include "recipe/sound.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <string.h>

int hr__sound_change_rate(struct hr__sound_scratch *scratch, int from, int to,
                          struct hr_error *error)
{
    struct hr__sound_scratch *s = scratch;
    const struct hr__resampler *resampler;
    if (from == to)
        return 0;
    int r = hr__resampler_get(&s->resamplers, from, to, &resampler, error);
    if (r)
        return r;
    hr__sound_append(&s->plan, HR__SOUND_RESAMPLE)->resampler = resampler;
    s->plan.frames = (s->plan.frames * resampler->to + resampler->from - 1) / resampler->from;
    s->plan.real = (s->plan.real * resampler->to + resampler->from - 1) / resampler->from;
    return 0;
}

/* Counts the operations that change rates: a plan's filters must fit into the cache. */
static int count_resampler(const struct hr__bound *bound, struct hr__sound_state *state,
                           struct hr_error *error)
{
    if (++state->resamplers <= HR__RESAMPLERS / 2)
        return hr__sound_place(bound, state, 0, error);
    return hr__refuse(error, bound, "the recipe changes rates more than %d times",
                      HR__RESAMPLERS / 2);
}

static void resample_defaults(struct hr_operation *operation)
{
    operation->u.sound_resample.new_freq = 16000;
}

static int check_resample(struct hr__bound *bound, struct hr__sound_state *state,
                          struct hr_error *error)
{
    int from = bound->operation.u.sound_resample.orig_freq;
    int to = bound->operation.u.sound_resample.new_freq;
    int r = count_resampler(bound, state, error);
    if (!r && from && (from < HR_SOUND_MIN_RATE || from > HR_SOUND_MAX_RATE))
        r = hr__refuse(error, bound, "orig_freq = %d is not possible: %d to %d, or 0 for any rate",
                       from, HR_SOUND_MIN_RATE, HR_SOUND_MAX_RATE);
    if (!r && state->frames)
        r = hr__refuse(error, bound,
                       "the sound has been cut already: put Resample before PadOrTrim, and one "
                       "Resample before or after the window");
    return r ? r : hr__sound_set_rate(bound, state, to, error);
}

static int plan_resample(const struct hr__bound *bound, struct hr__random *random,
                         struct hr__sound_scratch *scratch, struct hr_error *error)
{
    int from = bound->operation.u.sound_resample.orig_freq;
    int to = bound->operation.u.sound_resample.new_freq;
    if (from && scratch->plan.rate != from)
        return hr__fail(error, -EBADMSG,
                        "the clip has %d Hz and Resample's orig_freq is %d; leave orig_freq out",
                        scratch->plan.rate, from);
    int r = hr__sound_change_rate(scratch, scratch->plan.rate, to, error);
    scratch->plan.rate = to;
    return r ? r : hr__sound_cut_now(&scratch->plan, error);
}

static const struct hr__parameter resample_fields[] = {
    {"orig_freq", HR__INTEGER(sound_resample.orig_freq)},
    {"new_freq", HR__INTEGER(sound_resample.new_freq)},
    {0},
};
static const struct hr__sound_operation resample = {.check = check_resample, .plan = plan_resample};

const struct hr__operation_class hr__class_resample = {.name = "Resample",
                                                       .fields = resample_fields,
                                                       .defaults = resample_defaults,
                                                       .sound = &resample};

/* SpeedPerturbation: plays at `factor` times the speed, drawn with equal chances. torchaudio's
 * resamples from factor x orig_freq to orig_freq. Its factors are hundredths. */
static void speed_defaults(struct hr_operation *operation)
{
    static const double factors[] = {0.9, 1, 1.1};
    memcpy(operation->u.speed.factors, factors, sizeof factors);
    operation->u.speed.count = 3;
}

static int check_speed(struct hr__bound *bound, struct hr__sound_state *state,
                       struct hr_error *error)
{
    int count = bound->operation.u.speed.count, r = count_resampler(bound, state, error);
    if (!r && (count < 1 || count > HR_SPEED_FACTORS))
        r = hr__refuse(error, bound, "%d factors are not possible: 1 to %d", count,
                       HR_SPEED_FACTORS);
    for (int i = 0; i < count && !r; i++) {
        double f = bound->operation.u.speed.factors[i];
        if (!(f >= 0.25 && f <= 4) || fabs(f * 100 - nearbyint(f * 100)) > 1e-6)
            r = hr__refuse(error, bound, "the factor %g is not possible: hundredths from 0.25 to 4",
                           f);
    }
    /* The length depends on the draw: PadOrTrim has to follow. */
    state->frames = 0;
    state->seconds = 0;
    return r;
}

static int plan_speed(const struct hr__bound *bound, struct hr__random *random,
                      struct hr__sound_scratch *scratch, struct hr_error *error)
{
    uint64_t which = hr__random_below(random, (uint64_t)bound->operation.u.speed.count);
    int hundredths = (int)lround(bound->operation.u.speed.factors[which] * 100);
    int r = hr__sound_cut_now(&scratch->plan, error);
    return r ? r : hr__sound_change_rate(scratch, hundredths, 100, error);
}

static const struct hr__parameter speed_fields[] = {
    {"factors", HR__REALS(speed.factors)},
    {"count", HR__INTEGER(speed.count)},
    {0},
};
static const struct hr__sound_operation speed = {.check = check_speed, .plan = plan_speed};

const struct hr__operation_class hr__class_speed_perturbation = {.name = "SpeedPerturbation",
                                                                 .fields = speed_fields,
                                                                 .defaults = speed_defaults,
                                                                 .sound = &speed};
