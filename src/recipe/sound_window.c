/* RandomWindow, CenterWindow and PadOrTrim: which part of a sound is used. */
#include "recipe/sound.h"

#include <math.h>

static void window_defaults(struct hr_operation *operation)
{
    operation->u.sound_window.pad = 1;
}

static int check_window(struct hr__bound *bound, struct hr__sound_state *state,
                        struct hr_error *error)
{
    double seconds = bound->operation.u.sound_window.seconds;
    int r = hr__sound_place(bound, state, 0, error);
    if (r)
        return r;
    if (!(seconds >= 0.001 && seconds <= 86400))
        return hr__refuse(error, bound, "a window of %g s is not possible: 0.001 to 86400",
                          seconds);
    if (state->seconds > 0)
        return hr__refuse(error, bound, "there is a window before it already: leave one out");
    /* After Resample, too, it is cut where the rate is known. */
    if (state->rate)
        state->frames = llround(seconds * state->rate);
    else
        state->seconds = seconds;
    return 0;
}

static int plan_window(const struct hr__bound *bound, double at, struct hr__sound_scratch *scratch,
                       struct hr_error *error)
{
    int r = hr__sound_cut_now(&scratch->plan, error);
    scratch->plan.cut = (struct hr__sound_cut){.is_pending = 1,
                                               .seconds = bound->operation.u.sound_window.seconds,
                                               .at = at,
                                               .pad = bound->operation.u.sound_window.pad,
                                               .bound = bound};
    return r;
}

static int plan_random(const struct hr__bound *bound, struct hr__random *random,
                       struct hr__sound_scratch *scratch, struct hr_error *error)
{
    return plan_window(bound, hr__random_unit(random), scratch, error);
}

static int plan_center(const struct hr__bound *bound, struct hr__random *random,
                       struct hr__sound_scratch *scratch, struct hr_error *error)
{
    return plan_window(bound, 0.5, scratch, error);
}

static int check_pad(struct hr__bound *bound, struct hr__sound_state *state, struct hr_error *error)
{
    int frames = bound->operation.u.pad_or_trim.frames, r = hr__sound_place(bound, state, 0, error);
    if (!r && frames < 1)
        r = hr__refuse(error, bound, "%d frames are not possible: at least 1", frames);
    state->frames = frames;
    state->seconds = 0;
    return r;
}

static int plan_pad(const struct hr__bound *bound, struct hr__random *random,
                    struct hr__sound_scratch *scratch, struct hr_error *error)
{
    int r = hr__sound_cut_now(&scratch->plan, error);
    hr__sound_append_cut(&scratch->plan, 0, bound->operation.u.pad_or_trim.frames);
    return r;
}

static void pad_defaults(struct hr_operation *operation)
{
}

static const struct hr__parameter window_fields[] = {
    {"seconds", HR__REAL(sound_window.seconds)},
    {"pad", HR__FLAG(sound_window.pad)},
    {0},
};
static const struct hr__parameter pad_fields[] = {
    {"frames", HR__INTEGER(pad_or_trim.frames)},
    {0},
};
static const struct hr__sound_operation random_window = {.check = check_window,
                                                         .plan = plan_random};
static const struct hr__sound_operation center_window = {.check = check_window,
                                                         .plan = plan_center};
static const struct hr__sound_operation pad_or_trim = {.check = check_pad, .plan = plan_pad};

const struct hr__operation_class hr__class_random_window = {.name = "RandomWindow",
                                                            .fields = window_fields,
                                                            .defaults = window_defaults,
                                                            .sound = &random_window};
const struct hr__operation_class hr__class_center_window = {.name = "CenterWindow",
                                                            .fields = window_fields,
                                                            .defaults = window_defaults,
                                                            .sound = &center_window};
const struct hr__operation_class hr__class_pad_or_trim = {
    .name = "PadOrTrim", .fields = pad_fields, .defaults = pad_defaults, .sound = &pad_or_trim};
