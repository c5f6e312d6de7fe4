/*
 * Heads of recipes of sounds, and using an item of a waveform in place of its file.
 *
 * A recipe is planned for the file in both cases. The steps of the head stand first in the plan, so
 * with an item they are left out, and the plan goes on with the item's samples. All else (what is
 * drawn, where a window lies, what is an error) is the same.
 */
#include "recipe/recipe.h"
#include "recipe/sound.h"

#include "base/error.h"
#include "codec/waveform.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int hr__sound_head_suits(const struct hr_sound_head *made, const struct hr_sound_head *head)
{
    if (!made->rate)
        return !made->mono || head->mono;
    return made->rate == head->rate && !made->mono == !head->mono;
}

const char *hr__sound_head_text(char out[HR__HEAD_TEXT], const struct hr_sound_head *head)
{
    char rate[40] = "";
    if (head->rate)
        snprintf(rate, sizeof rate, "Resample(new_freq=%d)", head->rate);
    snprintf(out, HR__HEAD_TEXT, "%s%s%s", head->mono ? "Mono()" : "",
             head->mono && head->rate ? ", " : "", rate);
    return *out ? out : "neither Mono nor Resample";
}

static int is_step(const struct hr__sound_plan *plan, int i, enum hr__sound_step_kind kind)
{
    return i < plan->count && plan->step[i].kind == kind;
}

int hr__sound_skip_head(struct hr__sound_scratch *scratch, const struct hr__waveform_header *item,
                        struct hr_error *error)
{
    struct hr__sound_plan *plan = &scratch->plan;
    int is_mixed = item->channels != item->source_channels;
    int is_resampled = item->rate != item->source_rate, done = is_mixed + is_resampled;
    int suits = !is_mixed || is_step(plan, 0, HR__SOUND_MIX);
    if (is_resampled)
        suits = suits && is_step(plan, is_mixed, HR__SOUND_RESAMPLE) &&
                (int64_t)plan->step[is_mixed].resampler->to * item->source_rate ==
                    (int64_t)plan->step[is_mixed].resampler->from * item->rate;
    if (!suits) {
        char text[HR__HEAD_TEXT];
        const struct hr_sound_head made = {is_mixed, is_resampled ? (int)item->rate : 0};
        return hr__fail(error, -EINVAL,
                        "it is a waveform after %s, which the recipe does not begin with; begin "
                        "it so, or convert the file again",
                        hr__sound_head_text(text, &made));
    }
    memmove(plan->step, plan->step + done, (size_t)(plan->count - done) * sizeof *plan->step);
    plan->count -= done;
    const struct hr__sound_step *next = plan->step;
    int64_t total = plan->count ? next->total : plan->frames;
    int channels = plan->count ? next->channels : plan->channels;
    if (total != (int64_t)item->frames || channels != item->channels)
        return hr__item_damaged(error, "it has %llu frames, and its sound has %lld at this rate",
                                (unsigned long long)item->frames, (long long)total);
    return 0;
}
