/*
 * Any bytes as an item of a waveform. Half of the inputs get a header that is right but for what
 * the input says of the sound, so that more than the check of the header runs. An item that is
 * accepted has the frames that it says, a WAV file made of it has its samples, and recipes whose
 * head it suits or does not suit run or refuse it.
 */
#include "codec/waveform.h"

#include <headrace/form.h>
#include <headrace/prepare.h>
#include <headrace/recipe.h>
#include <headrace/sound.h>

#include <stdlib.h>
#include <string.h>

/* Longer items only cost time. */
#define MOST_FRAMES 100000
#define RECIPES     4

struct waveform_tools {
    struct hr_preparer *preparer;
    struct hr_converter *converter;
    struct hr_recipe *recipe[RECIPES];
    size_t bytes; /* of the largest output */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static struct hr_operation op(enum hr_operation_kind kind)
{
    struct hr_operation o;
    hr_operation_default(&o, kind);
    if (kind == HR_RANDOM_WINDOW)
        o.u.sound_window.seconds = 0.05;
    if (kind == HR_PAD_OR_TRIM)
        o.u.pad_or_trim.frames = 900;
    if (kind == HR_CHANNELS)
        o.u.channels.count = 2;
    return o;
}

static struct waveform_tools *make_tools(void)
{
    static struct waveform_tools t;
    static const enum hr_operation_kind kinds[RECIPES][4] = {
        {HR_RANDOM_WINDOW, HR_MONO, HR_RESAMPLE, HR_LOG_MEL},
        {HR_MONO, HR_RESAMPLE, HR_SPEED_PERTURBATION, HR_PAD_OR_TRIM},
        {HR_CHANNELS, HR_RESAMPLE, HR_GAIN, HR_PAD_OR_TRIM},
        {HR_CHANNELS, HR_GAIN, HR_MONO, HR_PAD_OR_TRIM}};
    if (t.preparer)
        return &t;
    require(!hr_preparer_create(&t.preparer, NULL));
    require(!hr_converter_create(&t.converter, NULL, NULL));
    for (int i = 0; i < RECIPES; i++) {
        struct hr_operation list[4];
        struct hr_tensor_spec spec;
        for (int k = 0; k < 4; k++)
            list[k] = op(kinds[i][k]);
        require(!hr_recipe_create(&t.recipe[i], list, 4, NULL, NULL));
        hr_recipe_output(t.recipe[i], &spec);
        t.bytes = spec.bytes > t.bytes ? spec.bytes : t.bytes;
    }
    return &t;
}

/* Makes the header agree with itself; formats, rates and frames of the source stay. */
static void mend_header(uint8_t *bytes, size_t size)
{
    struct hr__waveform_header h;
    memcpy(&h, bytes, sizeof h);
    memcpy(h.magic, HR__ITEM_MAGIC, HR__ITEM_MAGIC_BYTES);
    h.version = HR__WAVEFORM_VERSION;
    h.form = h.form & 1 ? HR_FORM_WAVEFORM : HR_FORM_WAVEFORM16;
    h.source_channels = (uint8_t)(h.source_channels % HR_SOUND_MAX_CHANNELS + 1);
    h.channels = h.channels & 1 ? 1 : h.source_channels;
    h.rate = h.rate & 1 ? h.source_rate : h.rate;
    h.scale = h.form == HR_FORM_WAVEFORM16 ? h.scale % (HR__WAVEFORM_SCALE_MOST + 1) : 0;
    size_t width = h.form == HR_FORM_WAVEFORM ? sizeof(float) : sizeof(int16_t);
    size_t least = HR__WAVEFORM_DATA + HR__ITEM_PAD;
    h.frames = size > least ? (size - least) / (width * h.channels) : 0;
    h.bytes = hr__waveform_bytes((enum hr_form)h.form, h.channels, h.frames);
    if (h.source_frames & 1) /* those that the item's frames follow from */
        h.source_frames = h.rate ? h.frames * h.source_rate / h.rate : 0;
    memset(h.reserved, 0, sizeof h.reserved);
    memset(h.zero, 0, sizeof h.zero);
    memcpy(bytes, &h, sizeof h);
}

/* A WAV file of the item decodes to its samples. Numbers that are not finite are an error there. */
static void check_wav(struct waveform_tools *t, const uint8_t *bytes, size_t length,
                      const struct hr_sound_info *info)
{
    struct hr_item wav;
    struct hr_sound_info again;
    size_t count = (size_t)info->frames * (size_t)info->channels;
    float *here = malloc(count * sizeof *here), *there = malloc(count * sizeof *there);
    require(here && there);
    require(!hr_preparer_sound_decode(t->preparer, bytes, length, 0, info->frames, here, NULL));
    require(!hr_converter_restore(t->converter, bytes, length, &wav, NULL));
    require(!hr_preparer_sound_info(t->preparer, wav.bytes, wav.length, &again, NULL));
    require(again.frames == info->frames && again.channels == info->channels &&
            again.rate == info->rate);
    if (!hr_preparer_sound_decode(t->preparer, wav.bytes, wav.length, 0, info->frames, there, NULL))
        require(!memcmp(here, there, count * sizeof *here));
    free(here);
    free(there);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct waveform_tools *t = make_tools();
    struct hr_sound_info info;
    struct hr_error error = {0};
    if (size < HR__WAVEFORM_DATA + HR__ITEM_PAD + 1)
        return 0;
    uint8_t choice = data[size - 1];
    uint8_t *bytes = malloc(size);
    void *out = malloc(t->bytes);
    require(bytes && out);
    memcpy(bytes, data, --size);
    if (choice & 1) {
        struct hr__waveform_header h;
        mend_header(bytes, size);
        memcpy(&h, bytes, sizeof h);
        size = h.bytes;
    }
    if (!hr_preparer_sound_info(t->preparer, bytes, size, &info, &error) &&
        info.frames <= MOST_FRAMES && hr__form_is_waveform(hr_form_of(bytes, size))) {
        struct hr_draw_key key = {.seed = choice};
        int r = hr_preparer_run(t->preparer, t->recipe[choice >> 1 & 3], bytes, size, &key, out,
                                &error);
        require(r <= 0 && (!r || error.code == r));
        check_wav(t, bytes, size, &info);
    }
    free(out);
    free(bytes);
    return 0;
}
