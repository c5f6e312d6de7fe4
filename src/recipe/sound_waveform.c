/* Waveforms: the head of a recipe, and making an item of a file with it. sound_head.c uses items.
 */
#include "recipe/sound.h"

#include "base/error.h"
#include "codec/waveform.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

/* Numbers of a file, of all its channels, that are decoded at a time while an item is made. */
#define PART_NUMBERS (INT64_C(1) << 22)

int hr_recipe_sound_head(const struct hr_recipe *recipe, struct hr_sound_head *head)
{
    *head = (struct hr_sound_head){0};
    if (!recipe->is_sound)
        return -EINVAL;
    for (int i = 0; i < recipe->count && !head->rate; i++) {
        const struct hr__bound *bound = &recipe->operation[i];
        if (bound->class == &hr__class_mono)
            head->mono = 1;
        else if (bound->class == &hr__class_resample)
            head->rate = bound->operation.u.sound_resample.new_freq;
        else if (bound->class != &hr__class_random_window &&
                 bound->class != &hr__class_center_window && bound->class != &hr__class_channels)
            break;
    }
    return 0;
}

/* Increment it if other samples are made of the same file. */
#define WAVEFORMS_VERSION 2

uint64_t hr__waveform_digest(int form, const struct hr_sound_head *head)
{
    const char *libraries = hr__sound_libraries();
    const uint32_t parts[] = {WAVEFORMS_VERSION, (uint32_t)form, head->mono != 0,
                              (uint32_t)head->rate};
    if (form < 0 || !hr__form_is_waveform((enum hr_form)form))
        return 0;
    return XXH3_64bits_withSeed(libraries, strlen(libraries), XXH3_64bits(parts, sizeof parts));
}

int hr__recipe_refuses_waveform(const struct hr_recipe *recipe, const void *bytes, size_t length)
{
    struct hr_sound_head head;
    struct hr__waveform_header made;
    return recipe->is_sound && hr__form_is_waveform(hr_form_of(bytes, length)) &&
           (hr_recipe_sound_head(recipe, &head) || hr__waveform_parse(&made, bytes, length, NULL) ||
            !hr__waveform_suits(&made, &head));
}

/* Plans the frames [first, first + count) of the sound after the head. */
static int plan_part(struct hr__sound_scratch *s, const struct hr_sound_head *head, int64_t first,
                     int64_t count, struct hr_error *error)
{
    struct hr__sound_plan *plan = &s->plan;
    int r = 0;
    hr__sound_begin(plan);
    if (head->mono && plan->channels > 1)
        hr__sound_append(plan, HR__SOUND_MIX);
    if (head->mono)
        plan->channels = 1;
    if (head->rate)
        r = hr__sound_change_rate(s, plan->rate, head->rate, error);
    if (!r && count)
        hr__sound_append_cut(plan, first, count);
    return r;
}

/* Returns how many frames of an item are made at a time. */
static int64_t part_frames(const struct hr_sound_info *info, const struct hr__waveform_header *item)
{
    int64_t most = PART_NUMBERS / info->channels, frames = most * item->rate / info->rate;
    return frames < most ? frames : most;
}

/* Fills in what the item will be, and makes room for it. */
static int describe(struct hr__sound_scratch *s, enum hr_form form,
                    const struct hr_sound_head *head, struct hr__waveform_header *out,
                    struct hr_error *error)
{
    const struct hr_sound_info *info = &s->plan.info;
    int r = plan_part(s, head, 0, 0, error);
    if (r)
        return r;
    *out = (struct hr__waveform_header){.form = (uint8_t)form,
                                        .format = (uint8_t)info->format,
                                        .source_channels = (uint8_t)info->channels,
                                        .source_rate = (uint32_t)info->rate,
                                        .source_frames = info->frames,
                                        .channels = (uint8_t)s->plan.channels,
                                        .rate = (uint32_t)(head->rate ? head->rate : info->rate),
                                        .frames = (uint64_t)s->plan.frames};
    /* Samples are floats until they are narrowed. */
    uint64_t bytes = hr__waveform_bytes(HR_FORM_WAVEFORM, out->channels, out->frames);
    if (hr__waveform_bytes(form, out->channels, out->frames) > HR__WAVEFORM_BYTES_MOST)
        return hr__fail(
            error, -ENOSPC, "its waveform would take %llu MiB, more than %llu; cut the recording",
            (unsigned long long)bytes >> 20, (unsigned long long)HR__WAVEFORM_BYTES_MOST >> 20);
    return hr__buffer_reserve(&s->item, bytes, error);
}

static int check_wish(enum hr_form form, const struct hr_sound_head *head,
                      const struct hr__encoded *file, struct hr_error *error)
{
    if (!hr__form_is_waveform(form))
        return hr__fail(error, -EINVAL, "%s is not a form of sounds: waveform, waveform16",
                        hr_form_name(form) ? hr_form_name(form) : "this");
    if (head->rate && (head->rate < HR_SOUND_MIN_RATE || head->rate > HR_SOUND_MAX_RATE))
        return hr__fail(error, -EINVAL, "a rate of %d Hz is not possible: %d to %d", head->rate,
                        HR_SOUND_MIN_RATE, HR_SOUND_MAX_RATE);
    return hr__form_is_waveform(hr_form_of(file->bytes, file->length))
               ? hr__fail(error, -ENOTSUP, "it is an item already")
               : 0;
}

int hr__sound_make_waveform(struct hr__sound_scratch *scratch, enum hr_form form,
                            const struct hr_sound_head *head, const struct hr__encoded *file,
                            struct hr_item *item, struct hr_error *error)
{
    struct hr__sound_scratch *s = scratch;
    struct hr__waveform_header h;
    struct hr__sound_wave wave;
    hr__sound_drop_item(s);
    int r = check_wish(form, head, file, error);
    if (!r)
        r = hr__sound_open(s->decoder, file->bytes, file->length, &s->plan.info, error);
    if (!r)
        r = describe(s, form, head, &h, error);
    if (r)
        return r;
    uint8_t *out = s->item.bytes;
    int64_t frames = (int64_t)h.frames, part = part_frames(&s->plan.info, &h);
    for (int64_t at = 0; at < frames && !r; at += part) {
        int64_t count = frames - at < part ? frames - at : part;
        r = plan_part(s, head, at, count, error);
        if (!r)
            r = hr__sound_run_plan(s, &wave, error);
        for (int c = 0; c < h.channels && !r; c++)
            memcpy(out + HR__WAVEFORM_DATA + ((size_t)c * h.frames + (size_t)at) * sizeof(float),
                   wave.plane[c], (size_t)count * sizeof(float));
    }
    if (!r)
        r = hr__waveform_finish(out, &h, error);
    if (!r)
        *item = (struct hr_item){out, h.bytes, form};
    return r;
}
