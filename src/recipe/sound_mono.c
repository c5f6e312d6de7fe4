/* Mono, the mean of all channels, and Channels, which takes clips of so many as they are. */
#include "recipe/sound.h"

#include "base/error.h"

#include <errno.h>

static void no_defaults(struct hr_operation *operation)
{
}

static int check_mono(struct hr__bound *bound, struct hr__sound_state *state,
                      struct hr_error *error)
{
    state->channels = 1;
    return hr__sound_place(bound, state, 0, error);
}

static int plan_mono(const struct hr__bound *bound, struct hr__random *random,
                     struct hr__sound_scratch *scratch, struct hr_error *error)
{
    if (scratch->plan.channels > 1)
        hr__sound_append(&scratch->plan, HR__SOUND_MIX);
    scratch->plan.channels = 1;
    return 0;
}

static int check_channels(struct hr__bound *bound, struct hr__sound_state *state,
                          struct hr_error *error)
{
    int count = bound->operation.u.channels.count;
    if (count < 1 || count > HR_SOUND_MAX_CHANNELS)
        return hr__refuse(error, bound, "%d channels are not possible: 1 to %d", count,
                          HR_SOUND_MAX_CHANNELS);
    if (state->channels && state->channels != count)
        return hr__refuse(error, bound, "the sound has %d here: leave it out", state->channels);
    state->channels = count;
    return hr__sound_place(bound, state, 0, error);
}

static int plan_channels(const struct hr__bound *bound, struct hr__random *random,
                         struct hr__sound_scratch *scratch, struct hr_error *error)
{
    int count = bound->operation.u.channels.count;
    if (scratch->plan.channels == count)
        return 0;
    return hr__fail(error, -EBADMSG, "the clip has %d channels and the recipe needs %d; use Mono",
                    scratch->plan.channels, count);
}

static const struct hr__parameter no_fields[] = {{0}};
static const struct hr__parameter channels_fields[] = {
    {"count", HR__INTEGER(channels.count)},
    {0},
};
static const struct hr__sound_operation mono = {.check = check_mono, .plan = plan_mono};
static const struct hr__sound_operation channels = {.check = check_channels, .plan = plan_channels};

const struct hr__operation_class hr__class_mono = {
    .name = "Mono", .fields = no_fields, .defaults = no_defaults, .sound = &mono};
const struct hr__operation_class hr__class_channels = {
    .name = "Channels", .fields = channels_fields, .defaults = no_defaults, .sound = &channels};
