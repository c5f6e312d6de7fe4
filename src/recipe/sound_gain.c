/* Gain: amplifies by a factor drawn uniformly in decibels, with probability p. */
#include "recipe/sound.h"

#include <math.h>

static void gain_defaults(struct hr_operation *operation)
{
    operation->u.gain.min_gain_in_db = -18;
    operation->u.gain.max_gain_in_db = 6;
    operation->u.gain.p = 0.5;
}

static int check_gain(struct hr__bound *bound, struct hr__sound_state *state,
                      struct hr_error *error)
{
    double low = bound->operation.u.gain.min_gain_in_db;
    double high = bound->operation.u.gain.max_gain_in_db;
    int r = hr__sound_place(bound, state, 0, error);
    if (!r)
        r = hr__check_probability(bound, bound->operation.u.gain.p, error);
    if (!r && !(low >= -200 && low <= high && high <= 200))
        r = hr__refuse(error, bound, "a gain of %g to %g dB is not possible: -200 to 200", low,
                       high);
    return r;
}

static int plan_gain(const struct hr__bound *bound, struct hr__random *random,
                     struct hr__sound_scratch *scratch, struct hr_error *error)
{
    double p = hr__random_unit(random);
    double decibels = hr__random_range(random, bound->operation.u.gain.min_gain_in_db,
                                       bound->operation.u.gain.max_gain_in_db);
    if (p < bound->operation.u.gain.p)
        hr__sound_append(&scratch->plan, HR__SOUND_GAIN)->factor = (float)pow(10, decibels / 20);
    return 0;
}

static const struct hr__parameter gain_fields[] = {
    {"min_gain_in_db", HR__REAL(gain.min_gain_in_db)},
    {"max_gain_in_db", HR__REAL(gain.max_gain_in_db)},
    {"p", HR__REAL(gain.p)},
    {0},
};
static const struct hr__sound_operation gain = {.check = check_gain, .plan = plan_gain};

const struct hr__operation_class hr__class_gain = {
    .name = "Gain", .fields = gain_fields, .defaults = gain_defaults, .sound = &gain};
