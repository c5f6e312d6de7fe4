/*
 * Items of waveforms (waveform.h): checking, reading windows, and turning one into a WAV file. They
 * are read as one more format of sounds, whose windows touch only their own samples.
 */
#include "codec/waveform.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/sound_format.h"

#include <errno.h>
#include <math.h>
#include <string.h>

_Static_assert(sizeof(struct hr__waveform_header) == HR__WAVEFORM_DATA, "samples are aligned");
_Static_assert(offsetof(struct hr__waveform_header, bytes) ==
                   offsetof(struct hr__item_header, bytes),
               "all items have their size at the same place");

static size_t sample_bytes(enum hr_form form)
{
    return form == HR_FORM_WAVEFORM ? sizeof(float) : sizeof(int16_t);
}

uint64_t hr__waveform_bytes(enum hr_form form, uint64_t channels, uint64_t frames)
{
    return HR__WAVEFORM_DATA + channels * frames * sample_bytes(form) + HR__ITEM_PAD;
}

static int is_rate(uint32_t rate)
{
    return rate >= HR_SOUND_MIN_RATE && rate <= HR_SOUND_MAX_RATE;
}

static int is_sane(const struct hr__waveform_header *h)
{
    static const uint8_t zero[sizeof h->zero];
    return h->form >= HR_FORM_WAVEFORM && h->form <= HR_FORM_WAVEFORM16 && h->format &&
           h->format <= HR_SOUND_VORBIS && h->source_channels >= 1 &&
           h->source_channels <= HR_SOUND_MAX_CHANNELS && is_rate(h->source_rate) &&
           is_rate(h->rate) && (h->channels == h->source_channels || h->channels == 1) &&
           h->scale <= (h->form == HR_FORM_WAVEFORM16 ? HR__WAVEFORM_SCALE_MOST : 0) &&
           h->source_frames && h->source_frames <= HR__SOUND_FRAMES_MOST && h->frames &&
           h->frames <= HR__WAVEFORM_BYTES_MOST && h->bytes <= HR__WAVEFORM_BYTES_MOST &&
           h->bytes == hr__waveform_bytes((enum hr_form)h->form, h->channels, h->frames) &&
           !memcmp(h->reserved, zero, sizeof h->reserved) && !memcmp(h->zero, zero, sizeof zero);
}

int hr__waveform_parse(struct hr__waveform_header *out, const void *bytes, size_t length,
                       struct hr_error *error)
{
    struct hr__waveform_header h;
    if (length < sizeof h || !hr__item_recognise(bytes, length))
        return hr__item_damaged(error, "its header is missing");
    memcpy(&h, bytes, sizeof h);
    if (h.version != HR__WAVEFORM_VERSION)
        return hr__fail(error, -ENOTSUP,
                        "the item is of version %d and this Headrace knows versions up to %d; "
                        "convert the file again or use the Headrace that made the item",
                        h.version, HR__WAVEFORM_VERSION);
    if (h.bytes != length)
        return hr__item_damaged(error, "it has %zu bytes and its header says %llu", length,
                                (unsigned long long)h.bytes);
    if (!is_sane(&h))
        return hr__item_damaged(error,
                                "its header makes no sense (form %d, %d channels, %u Hz, %llu "
                                "frames)",
                                h.form, h.channels, h.rate, (unsigned long long)h.frames);
    *out = h;
    return 0;
}

int hr__waveform_suits(const struct hr__waveform_header *header, const struct hr_sound_head *head)
{
    int is_mixed = header->channels != header->source_channels;
    if (header->rate == header->source_rate)
        return !is_mixed || head->mono;
    /* Resampled: then a recipe that mixes has to have mixed before. */
    return head->rate == (int)header->rate &&
           is_mixed == (head->mono && header->source_channels > 1);
}

/* Finds the finest scale whose int16 hold all samples, rounded; above the most: there is none. */
static int scale_of(const float *samples, size_t count)
{
    float low = 0, high = 0;
    int scale = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(samples[i]))
            return HR__WAVEFORM_SCALE_MOST + 1;
        low = samples[i] < low ? samples[i] : low;
        high = samples[i] > high ? samples[i] : high;
    }
    while (scale <= HR__WAVEFORM_SCALE_MOST &&
           (high > ldexpf(32767.5f / 32768, scale) || low < -ldexpf(32768.5f / 32768, scale)))
        scale++;
    return scale;
}

static int16_t quantise(float value)
{
    float whole = nearbyintf(value);
    return (int16_t)(whole > 32767 ? 32767 : whole < -32768 ? -32768 : whole);
}

/* Makes int16 of floats in place. */
static int narrow(uint8_t *samples, struct hr__waveform_header *header, struct hr_error *error)
{
    size_t count = (size_t)header->channels * header->frames;
    int scale = scale_of((const float *)(const void *)samples, count);
    if (scale > HR__WAVEFORM_SCALE_MOST)
        return hr__fail(error, -ERANGE,
                        "its samples are too far beyond full scale for waveform16; use waveform");
    header->scale = (uint8_t)scale;
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, samples + i * sizeof value, sizeof value);
        int16_t narrowed = quantise(ldexpf(value, 15 - scale));
        memcpy(samples + i * sizeof narrowed, &narrowed, sizeof narrowed);
    }
    return 0;
}

int hr__waveform_finish(uint8_t *item, struct hr__waveform_header *header, struct hr_error *error)
{
    int r =
        header->form == HR_FORM_WAVEFORM16 ? narrow(item + HR__WAVEFORM_DATA, header, error) : 0;
    memcpy(header->magic, HR__ITEM_MAGIC, HR__ITEM_MAGIC_BYTES);
    header->version = HR__WAVEFORM_VERSION;
    header->bytes =
        hr__waveform_bytes((enum hr_form)header->form, header->channels, header->frames);
    memcpy(item, header, sizeof *header);
    memset(item + header->bytes - HR__ITEM_PAD, 0, HR__ITEM_PAD);
    return r;
}

/* Copies frames of one channel as floats. */
static void copy_frames(const struct hr__waveform_header *h, const uint8_t *item, int channel,
                        const struct hr__sound_window *window)
{
    size_t width = sample_bytes((enum hr_form)h->form);
    const uint8_t *from =
        item + HR__WAVEFORM_DATA + ((size_t)channel * h->frames + window->first) * width;
    float *to = window->planes[channel];
    if (h->form == HR_FORM_WAVEFORM) {
        memcpy(to, from, window->count * width);
        return;
    }
    float unit = ldexpf(1, h->scale - 15);
    for (uint64_t i = 0; i < window->count; i++) {
        int16_t value;
        memcpy(&value, from + i * width, width);
        to[i] = value * unit;
    }
}

/* Writes a number of `bytes` bytes, little-endian as the machine. */
static uint8_t *put(uint8_t *out, uint32_t value, size_t bytes)
{
    memcpy(out, &value, bytes);
    return out + bytes;
}

static uint8_t *put_name(uint8_t *out, const char *name)
{
    memcpy(out, name, 4);
    return out + 4;
}

/* RIFF, fmt (18 bytes, as for all formats but PCM), fact, data. */
#define WAV_HEADER 58
#define WAV_FLOAT  3

size_t hr__waveform_write_wav(uint8_t *out, const struct hr__waveform_header *header,
                              const uint8_t *item)
{
    uint32_t frame = header->channels * (uint32_t)sizeof(float);
    size_t data = header->frames * frame, total = WAV_HEADER + data;
    if (!out)
        return total;
    uint8_t *at = put_name(put(put_name(out, "RIFF"), (uint32_t)total - 8, 4), "WAVE");
    at = put(put_name(at, "fmt "), 18, 4);
    at = put(put(at, WAV_FLOAT, 2), header->channels, 2);
    at = put(put(at, header->rate, 4), header->rate * frame, 4);
    at = put(put(put(at, frame, 2), 32, 2), 0, 2);
    at = put(put(put_name(at, "fact"), 4, 4), (uint32_t)header->frames, 4);
    at = put(put_name(at, "data"), (uint32_t)data, 4);
    float block[1024], *planes[HR_SOUND_MAX_CHANNELS];
    for (uint64_t first = 0; first < header->frames; first += 1024) {
        uint64_t left = header->frames - first;
        struct hr__sound_window window = {first, left < 1024 ? left : 1024, planes, 0};
        for (int c = 0; c < header->channels; c++) {
            planes[c] = block;
            copy_frames(header, item, c, &window);
            for (uint64_t i = 0; i < window.count; i++)
                memcpy(at + (first + i) * frame + (size_t)c * sizeof *block, block + i,
                       sizeof *block);
        }
    }
    return total;
}

struct waveform {
    struct hr__waveform_header header;
    const uint8_t *item; /* not owned */
};

static int waveform_open(void **state, const struct hr__sound_file *file,
                         struct hr_sound_info *info, struct hr_error *error)
{
    struct waveform *w = *state ? *state : hr__alloc(HR__TAG_CODEC, 1, sizeof *w);
    *state = w;
    if (!w)
        return hr__fail(error, -ENOMEM, "out of memory for a decoder");
    int r = hr__waveform_parse(&w->header, file->bytes, file->length, error);
    if (r)
        return r;
    w->item = file->bytes;
    info->format = (enum hr_sound_format)w->header.format;
    info->rate = (int)w->header.rate;
    info->channels = w->header.channels;
    info->frames = w->header.frames;
    return 0;
}

const struct hr__waveform_header *hr__waveform_opened(const void *state)
{
    return &((const struct waveform *)state)->header;
}

static int waveform_read(void *state, const struct hr__sound_window *window, struct hr_error *error)
{
    const struct waveform *w = state;
    for (int c = 0; c < w->header.channels; c++)
        copy_frames(&w->header, w->item, c, window);
    return 0;
}

static void waveform_destroy(void *state)
{
    hr__free(state);
}

const struct hr__sound_class hr__sound_waveform = {
    .open = waveform_open, .read = waveform_read, .destroy = waveform_destroy, .is_direct = 1};
