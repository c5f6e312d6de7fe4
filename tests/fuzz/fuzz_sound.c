/*
 * Any bytes as a sound file. The decoder must not crash, all numbers are finite, and a WAV file
 * that decodes as a whole must decode by window to the same numbers (damaged files of other formats
 * may not). The last bytes choose the window. The decoder is reused from input to input, as in a
 * worker.
 */
#include "codec/sound.h"

#include <headrace/form.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Longer sounds only cost time. */
#define MOST_FRAMES 200000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static float *planes_of(float *memory, uint64_t frames, float *planes[HR_SOUND_MAX_CHANNELS])
{
    for (size_t c = 0; c < HR_SOUND_MAX_CHANNELS; c++)
        planes[c] = memory + c * frames;
    return memory;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hr__sound *sound;
    struct hr_sound_info info;
    struct hr_error error = {0};
    float *planes[HR_SOUND_MAX_CHANNELS];
    if (!sound && hr__sound_create(&sound, NULL))
        abort();
    if (hr__sound_open(sound, data, size, &info, &error)) {
        if (error.code >= 0 || !memchr(error.message, 0, sizeof error.message))
            abort();
        return 0;
    }
    if (info.channels < 1 || info.channels > HR_SOUND_MAX_CHANNELS || !info.frames)
        abort();
    if (info.frames > MOST_FRAMES || size < 8)
        return 0;
    uint64_t n = info.frames, first = (data[size - 1] << 8 | data[size - 2]) % n;
    uint64_t count = 1 + (data[size - 3] << 8 | data[size - 4]) % (n - first);
    float *whole = calloc(n * HR_SOUND_MAX_CHANNELS, sizeof *whole);
    float *part = calloc(count * HR_SOUND_MAX_CHANNELS, sizeof *part);
    if (!whole || !part)
        abort();
    int r = hr__sound_read(sound, 0, n, (planes_of(whole, n, planes), planes), &error);
    int s = hr__sound_read(sound, first, count, (planes_of(part, count, planes), planes), &error);
    if (info.format == HR_SOUND_WAV && !r && s)
        abort();
    for (size_t i = 0;
         !r && hr_form_of(data, size) == HR_FORM_ENCODED && i < n * (size_t)info.channels; i++)
        if (!isfinite(whole[i]))
            abort();
    for (size_t c = 0; info.format == HR_SOUND_WAV && !r && c < (size_t)info.channels; c++)
        if (memcmp(whole + c * n + first, part + c * count, count * sizeof *part))
            abort();
    free(whole);
    free(part);
    return 0;
}
