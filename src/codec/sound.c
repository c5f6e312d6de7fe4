/*
 * The decoder of sound files and of items of waveforms: recognises the format by the first bytes
 * and keeps one state per format. It never uses file names. Errors name known formats that it does
 * not decode.
 */
#include "codec/sound.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/sound_format.h"
#include "codec/waveform.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What is open: a file of one of the formats, or an item. */
enum { SOUND_FORMATS = HR_SOUND_VORBIS + 1, SOUND_ITEM = SOUND_FORMATS, SOUND_SOURCES };

/* Bytes before the first frame of an MP3 file, without tags, that are skipped at most. */
#define MOST_BEFORE_MP3 65536

static const struct {
    const char *name;
    const struct hr__sound_class *class;
} sound_formats[SOUND_SOURCES] = {
    [HR_SOUND_WAV] = {"WAV", &hr__sound_wav},
    [HR_SOUND_FLAC] = {"FLAC", &hr__sound_flac},
    [HR_SOUND_MP3] = {"MP3", &hr__sound_mp3},
    [HR_SOUND_VORBIS] = {"Vorbis", &hr__sound_vorbis},
    [SOUND_ITEM] = {"a waveform", &hr__sound_waveform},
};

struct hr__sound {
    void *state[SOUND_SOURCES];
    int source; /* the index of what is open */
    struct hr_sound_info info;
};

const char *hr_sound_format_name(enum hr_sound_format format)
{
    return (unsigned)format < SOUND_FORMATS ? sound_formats[format].name : NULL;
}

int hr_sound_format_is_built(enum hr_sound_format format)
{
    return hr_sound_format_name(format) && sound_formats[format].class->open;
}

int hr__sound_create(struct hr__sound **out, struct hr_error *error)
{
    *out = hr__alloc(HR__TAG_CODEC, 1, sizeof **out);
    return *out ? 0 : hr__fail(error, -ENOMEM, "out of memory for a decoder");
}

void hr__sound_destroy(struct hr__sound **sound)
{
    struct hr__sound *s = *sound;
    *sound = NULL;
    if (!s)
        return;
    for (int i = 1; i < SOUND_SOURCES; i++)
        if (s->state[i])
            sound_formats[i].class->destroy(s->state[i]);
    hr__free(s);
}

const char *hr__sound_libraries(void)
{
    return HR__SOUND_LIBRARIES;
}

const struct hr__waveform_header *hr__sound_waveform_header(const struct hr__sound *sound)
{
    return sound->source == SOUND_ITEM ? hr__waveform_opened(sound->state[SOUND_ITEM]) : NULL;
}

size_t hr__sound_memory(const struct hr__sound *sound)
{
    return sizeof *sound;
}

/* Formats in Ogg, by the beginning of the first packet. */
static const struct {
    const char *start, *name;
} ogg_packets[] = {{"OpusHead", "Opus"},
                   {"Speex   ", "Speex"},
                   {"\x7F"
                    "FLAC",
                    "FLAC in Ogg"},
                   {"\x80theora", "a video"},
                   {"fishead", "a video"}};

/* Other formats common in folders of sounds. */
static const struct {
    size_t offset;
    const char *start, *name;
} other_sounds[] = {
    {4, "ftypM4A", "AAC (M4A)"},
    {0, "ADIF", "AAC"},
    {0, "FORM", "AIFF"},
    {0, "caff", "Apple CAF"},
    {0, ".snd", "Sun AU"},
    {0, "wvpk", "WavPack"},
    {0, "riff\x2E\x91\xCF\x11", "Sony Wave64"},
    {0, "MAC ", "Monkey's Audio"},
    {0, "#!AMR", "AMR"},
    {0, "MThd", "MIDI"},
    {0, "\x1A\x45\xDF\xA3", "Matroska or WebM"},
    {0, "\x30\x26\xB2\x75", "Windows Media"},
};

static int begins(const struct hr__sound_file *f, size_t offset, const char *start)
{
    size_t n = strlen(start);
    return f->length >= offset + n && !memcmp(f->bytes + offset, start, n);
}

/* Returns the first byte after ID3v2 tags, which may stand before any format. */
static size_t after_tags(const struct hr__sound_file *f)
{
    size_t at = 0;
    while (f->length - at >= 10 && !memcmp(f->bytes + at, "ID3", 3)) {
        const uint8_t *t = f->bytes + at;
        size_t size = (size_t)(t[6] & 127) << 21 | (size_t)(t[7] & 127) << 14 |
                      (size_t)(t[8] & 127) << 7 | (size_t)(t[9] & 127);
        size += 10 + (t[5] & 0x10 ? 10 : 0);
        if (size > f->length - at)
            return f->length;
        at += size;
    }
    return at;
}

/* Returns non-zero for the header of a frame of MPEG audio, layers 1 to 3; 3 for layer 3. */
static int mpeg_layer(const uint8_t *h)
{
    int layer = 4 - (h[1] >> 1 & 3);
    int is_header = h[0] == 0xFF && (h[1] & 0xE0) == 0xE0 && (h[1] >> 3 & 3) != 1 && layer != 4 &&
                    h[2] >> 4 != 15 && (h[2] >> 2 & 3) != 3;
    return is_header ? layer : 0;
}

/* Returns the bytes of a frame of layer 3 by its header; 0: it is none, or has no fixed rate. */
static size_t mp3_frame_bytes(const uint8_t *h)
{
    static const uint16_t kbits[2][16] = {
        {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
        {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320}};
    static const uint16_t rates[4] = {44100, 48000, 32000};
    int version = h[1] >> 3 & 3, is_mpeg1 = version == 3;
    if (mpeg_layer(h) != 3)
        return 0;
    unsigned rate = rates[h[2] >> 2 & 3] >> (is_mpeg1 ? 0 : version == 2 ? 1 : 2);
    return (is_mpeg1 ? 144U : 72U) * 1000 * kbits[is_mpeg1][h[2] >> 4] / rate + (h[2] >> 1 & 1);
}

/* Returns whether a chain of frames of layer 3 begins at `at`: of so many, or to the end. */
static int is_mp3_chain(const struct hr__sound_file *f, size_t at)
{
    const uint8_t *first = f->bytes + at;
    for (int i = 0; i < 4; i++) {
        const uint8_t *h = f->bytes + at;
        if (f->length - at < 4)
            return i > 1;
        /* Version and rate are those of the first. */
        size_t bytes = mp3_frame_bytes(h);
        if (!bytes || h[1] >> 3 != first[1] >> 3 || (h[2] & 12) != (first[2] & 12))
            return 0;
        if (bytes > f->length - at)
            return i > 1;
        at += bytes;
    }
    return 1;
}

/* Recognises a file. Sets *name for a known format that is not decoded, and *inside to the file
 * without tags at its beginning. */
static enum hr_sound_format recognise(const struct hr__sound_file *whole,
                                      struct hr__sound_file *inside, const char **name)
{
    size_t at = after_tags(whole);
    struct hr__sound_file f = {whole->bytes + at, whole->length - at};
    *inside = f;
    *name = NULL;
    if ((begins(&f, 0, "RIFF") || begins(&f, 0, "RF64")) && begins(&f, 8, "WAVE"))
        return HR_SOUND_WAV;
    if (begins(&f, 0, "fLaC"))
        return HR_SOUND_FLAC;
    if (begins(&f, 0, "OggS")) {
        struct hr__sound_file packet = {f.bytes + 28, f.length > 28 ? f.length - 28 : 0};
        if (packet.length && f.bytes[26] == 1 && begins(&packet, 0, "\1vorbis"))
            return HR_SOUND_VORBIS;
        *name = "an unknown format in Ogg";
        for (size_t i = 0; packet.length && i < sizeof ogg_packets / sizeof *ogg_packets; i++)
            if (begins(&packet, 0, ogg_packets[i].start))
                *name = ogg_packets[i].name;
        return HR_SOUND_UNKNOWN;
    }
    if (f.length >= 4 && mpeg_layer(f.bytes)) {
        if (mpeg_layer(f.bytes) == 3)
            return HR_SOUND_MP3;
        *name = "MPEG audio of layer 1 or 2";
        return HR_SOUND_UNKNOWN;
    }
    if (f.length >= 4 && f.bytes[0] == 0xFF && (f.bytes[1] & 0xF6) == 0xF0)
        *name = "AAC";
    for (size_t i = 0; i < sizeof other_sounds / sizeof *other_sounds; i++)
        if (begins(&f, other_sounds[i].offset, other_sounds[i].start))
            *name = other_sounds[i].name;
    /* Some MP3 files have zeros between tag and first frame. */
    return at && !*name ? HR_SOUND_MP3 : HR_SOUND_UNKNOWN;
}

/* Finds the first frame of an MP3 file that has something else before it, such as zeros or the end
 * of a frame, and sets *inside to what begins there. Returns whether there is one. */
static int find_mp3(struct hr__sound_file *inside)
{
    struct hr__sound_file f = *inside;
    for (size_t at = 0; at < MOST_BEFORE_MP3 && at + 4 <= f.length; at++)
        if (f.bytes[at] == 0xFF && is_mp3_chain(&f, at)) {
            *inside = (struct hr__sound_file){f.bytes + at, f.length - at};
            return 1;
        }
    return 0;
}

int hr_sound_recognise(const void *bytes, size_t length)
{
    if (hr__form_is_waveform(hr_form_of(bytes, length)))
        return 1;
    struct hr__sound_file file = {bytes, length}, inside;
    const char *name;
    return recognise(&file, &inside, &name) != HR_SOUND_UNKNOWN || name;
}

static int refuse(const struct hr__sound_file *f, const char *name, struct hr_error *error)
{
    size_t zeros = 0;
    if (!f->length)
        return hr__fail(error, -EBADMSG, "the file is empty (0 bytes); restore or remove it");
    if (name)
        return hr__fail(error, -ENOTSUP, "this is %s; convert it to FLAC, WAV, MP3 or Vorbis",
                        name);
    while (zeros < f->length && zeros < 64 && !f->bytes[zeros])
        zeros++;
    if (zeros == f->length || zeros == 64)
        return hr__fail(error, -EBADMSG,
                        "the file begins with zero bytes, as after an interrupted copy; "
                        "restore or remove it");
    char start[3 * 8 + 1] = "";
    for (size_t i = 0; i < f->length && i < 8; i++)
        snprintf(start + 3 * i, 4, "%02x ", f->bytes[i]);
    start[strlen(start) - 1] = 0;
    return hr__fail(error, -ENOTSUP,
                    "not a sound format known here (it begins with %s); convert it to FLAC, WAV, "
                    "MP3 or Vorbis, or remove it",
                    start);
}

static int check_info(const struct hr_sound_info *info, struct hr_error *error)
{
    if (info->channels < 1 || info->channels > HR_SOUND_MAX_CHANNELS)
        return hr__fail(error, -ENOTSUP, "it has %d channels, and 1 to %d are decoded; mix it down",
                        info->channels, HR_SOUND_MAX_CHANNELS);
    if (info->rate < HR_SOUND_MIN_RATE || info->rate > HR_SOUND_MAX_RATE)
        return hr__fail(error, -ENOTSUP,
                        "its rate is %d Hz, and %d to %d Hz are decoded; resample it", info->rate,
                        HR_SOUND_MIN_RATE, HR_SOUND_MAX_RATE);
    if (!info->frames)
        return hr__fail(error, -EBADMSG, "the sound has no frames (0 s); remove the file");
    if (info->frames > HR__SOUND_FRAMES_MOST)
        return hr__fail(error, -EBADMSG, "it declares %" PRIu64 " frames; restore or remove it",
                        info->frames);
    return 0;
}

int hr__sound_check_bytes(size_t length, uint64_t most, struct hr_error *error)
{
    if (length <= most)
        return 0;
    return hr__fail(error, -EFBIG,
                    "the file has %zu bytes, more than max_source_bytes of %" PRIu64
                    "; cut the recording, or raise the limit",
                    length, most);
}

/* Finds what the bytes are: the index of a format or of items. Errors: -ENOTSUP, -EBADMSG. */
static int find_source(const struct hr__sound_file *file, struct hr__sound_file *inside,
                       int *source, struct hr_error *error)
{
    const char *name;
    *inside = *file;
    *source = SOUND_ITEM;
    if (hr__form_is_waveform(hr_form_of(file->bytes, file->length)))
        return 0;
    *source = (int)recognise(file, inside, &name);
    int is_begun = inside->length >= 4 && mpeg_layer(inside->bytes);
    if (!name && (!*source || (*source == HR_SOUND_MP3 && !is_begun)) && find_mp3(inside))
        *source = HR_SOUND_MP3;
    if (!*source)
        return refuse(file, name, error);
    if (!sound_formats[*source].class->open)
        return hr__fail(error, -ENOTSUP,
                        "this is %s, and this build of Headrace has no decoder for it; convert it "
                        "to WAV or use another build",
                        sound_formats[*source].name);
    return 0;
}

int hr__sound_open(struct hr__sound *sound, const void *bytes, size_t length,
                   struct hr_sound_info *info, struct hr_error *error)
{
    struct hr__sound_file file = {bytes, length}, inside;
    int source;
    sound->info = (struct hr_sound_info){0};
    sound->source = 0;
    int r = find_source(&file, &inside, &source, error);
    if (r)
        return r;
    *info = (struct hr_sound_info){.format = (enum hr_sound_format)source};
    r = sound_formats[source].class->open(&sound->state[source], &inside, info, error);
    if (!r)
        r = check_info(info, error);
    if (r)
        return r;
    sound->info = *info;
    sound->source = source;
    return 0;
}

int hr__sound_is_direct(const struct hr__sound *sound)
{
    return sound_formats[sound->source].class->is_direct;
}

int hr__sound_can_mix(const struct hr__sound *sound)
{
    const struct hr__sound_class *class = sound_formats[sound->source].class;
    return class->can_mix && class->can_mix(sound->state[sound->source]);
}

const uint8_t *hr__sound_frames(const struct hr__sound *sound, int64_t first, int64_t count,
                                size_t *bytes)
{
    const struct hr__sound_class *class = sound_formats[sound->source].class;
    int64_t end = first + count, frames = (int64_t)sound->info.frames;
    size_t frame;
    *bytes = 0;
    if (!class->frames)
        return NULL;
    const uint8_t *all = class->frames(sound->state[sound->source], &frame);
    first = first < 0 ? 0 : first < frames ? first : frames;
    end = end < first ? first : end < frames ? end : frames;
    *bytes = (size_t)(end - first) * frame;
    return all + (size_t)first * frame;
}

static int read_window(struct hr__sound *sound, const struct hr__sound_window *window,
                       struct hr_error *error)
{
    uint64_t frames = sound->info.frames;
    if (window->first > frames || window->count > frames - window->first)
        return hr__fail(error, -ERANGE,
                        "frames %" PRIu64 " to %" PRIu64 " are not in the sound of %" PRIu64
                        " frames",
                        window->first, window->first + window->count, frames);
    if (!window->count)
        return 0;
    return sound_formats[sound->source].class->read(sound->state[sound->source], window, error);
}

int hr__sound_read_mean(struct hr__sound *sound, uint64_t first, uint64_t count, float *mean,
                        struct hr_error *error)
{
    struct hr__sound_window window = {first, count, &mean, 1};
    return read_window(sound, &window, error);
}

int hr__sound_read(struct hr__sound *sound, uint64_t first, uint64_t count, float *const *planes,
                   struct hr_error *error)
{
    struct hr__sound_window window = {first, count, planes, 0};
    return read_window(sound, &window, error);
}
