/*
 * Sound files: windows against the whole decode, every sample format of WAV and what its writers do
 * wrong, damaged and truncated files, and the messages for what is not decoded. The MP3, FLAC and
 * Vorbis files are those of tests/golden/make_sounds.py.
 */
#include "../test.h"

#include "codec/sound.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX 200000

struct sound_bytes {
    uint8_t *bytes;
    size_t length;
};

static struct hr__sound *decoder;
static float whole[HR_SOUND_MAX_CHANNELS][FRAMES_MAX], part[HR_SOUND_MAX_CHANNELS][FRAMES_MAX];

static int set_up(void **state)
{
    return hr__sound_create(&decoder, NULL);
}

static int tear_down(void **state)
{
    hr__sound_destroy(&decoder);
    return 0;
}

static struct sound_bytes load(const char *name)
{
    struct sound_bytes s = {malloc(1 << 20), 0};
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/sounds/%s", getenv("HEADRACE_SOURCE_ROOT"), name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be opened", path);
    s.length = fread(s.bytes, 1, 1 << 20, file);
    fclose(file);
    return s;
}

static int is_absent(enum hr_sound_format format)
{
    if (hr_sound_format_is_built(format))
        return 0;
    print_message("this build does not decode %s\n", hr_sound_format_name(format));
    return 1;
}

static struct hr_sound_info opened(const struct sound_bytes *s)
{
    struct hr_error error = {0};
    struct hr_sound_info info;
    if (hr__sound_open(decoder, s->bytes, s->length, &info, &error))
        fail_msg("%s", error.message);
    return info;
}

static void read_into(float (*to)[FRAMES_MAX], uint64_t first, uint64_t count)
{
    float *planes[HR_SOUND_MAX_CHANNELS];
    struct hr_error error = {0};
    for (int c = 0; c < HR_SOUND_MAX_CHANNELS; c++)
        planes[c] = to[c];
    if (hr__sound_read(decoder, first, count, planes, &error))
        fail_msg("frames %llu, %llu: %s", (unsigned long long)first, (unsigned long long)count,
                 error.message);
}

/* Compares windows, also of other openings of the file, with the whole. */
static void compare_windows(const struct sound_bytes *s, double tolerance)
{
    struct hr_sound_info info = opened(s);
    uint64_t n = info.frames;
    const uint64_t windows[][2] = {{0, 1},         {n - 1, 1},    {n / 2, 999}, {n / 3, n / 2},
                                   {1151, 2},      {1, 4000},     {n / 7, 1},   {n - 1153, 1153},
                                   {n / 2 + 1, 1}, {2304, 10000}, {0, n}};
    assert_true(n < FRAMES_MAX);
    read_into(whole, 0, n);
    double loudest = 0;
    for (uint64_t i = 0; i < n; i++) {
        double v = fabs((double)whole[0][i]);
        loudest = v > loudest ? v : loudest; /* gcc 12 for ARM fails over fmax here */
    }
    assert_true(loudest > 0.2 && loudest <= 1.1);
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        uint64_t first = windows[w][0], count = windows[w][1];
        if (w & 1)
            opened(s);
        read_into(part, first, count);
        for (int c = 0; c < info.channels; c++)
            for (uint64_t i = 0; i < count; i++)
                if (!(fabs((double)part[c][i] - (double)whole[c][first + i]) <= tolerance))
                    fail_msg("window %zu, channel %d, frame %llu: %.9g, not %.9g", w, c,
                             (unsigned long long)(first + i), (double)part[c][i],
                             (double)whole[c][first + i]);
    }
}

static void refused(const struct sound_bytes *s, int code, const char *words)
{
    struct hr_error error = {0};
    struct hr_sound_info info;
    int r = hr__sound_open(decoder, s->bytes, s->length, &info, &error);
    if (r != code || !strstr(error.message, words))
        fail_msg("expected %d \"%s\", got %d \"%s\"", code, words, r, error.message);
}

/* Every prefix either fails with a message, or is decoded to what the whole file has there. */
static void truncate_everywhere(struct sound_bytes s, size_t step)
{
    struct hr_sound_info info = opened(&s);
    uint64_t n = info.frames;
    read_into(whole, 0, n);
    for (size_t length = 0; length < s.length; length += step) {
        struct sound_bytes cut = {malloc(length ? length : 1), length};
        struct hr_error error = {0};
        float *planes[HR_SOUND_MAX_CHANNELS];
        memcpy(cut.bytes, s.bytes, length);
        for (int c = 0; c < HR_SOUND_MAX_CHANNELS; c++)
            planes[c] = part[c];
        int r = hr__sound_open(decoder, cut.bytes, length, &info, &error);
        if (!r)
            r = hr__sound_read(decoder, 0, info.frames, planes, &error);
        if (!r && info.frames == n)
            fail_msg("%zu of %zu bytes seem to be the whole file", length, s.length);
        if (r && (!error.message[0] || (r != -EBADMSG && r != -ENOTSUP)))
            fail_msg("%zu bytes: %d \"%s\"", length, r, error.message);
        free(cut.bytes);
    }
}

/* Damage that only the checksum of a frame shows is found while reading on, and after a seek. */
static void test_flac_checksum(void **state)
{
    if (is_absent(HR_SOUND_FLAC))
        return;
    struct sound_bytes s = load("mono.flac");
    float *planes[1] = {part[0]};
    s.bytes[s.length - 1] ^= 1; /* of the checksum itself, of the last frame */
    for (uint64_t first = 0; first <= 12600; first += 6300) {
        struct hr_error error = {0};
        assert_int_equal(opened(&s).frames, 12800);
        assert_int_equal(hr__sound_read(decoder, first, 12800 - first, planes, &error), -EBADMSG);
        assert_non_null(strstr(error.message, "of 12800; restore or remove it"));
        opened(&s);
        read_into(part, first / 2, 4000);
    }
    free(s.bytes);
}

/* A frame that is missing between whole ones is damage, and not silence. */
static void test_flac_missing_frame(void **state)
{
    enum { SECOND = 6658, THIRD = 12824 }; /* frames, of 4096 of the sound */
    if (is_absent(HR_SOUND_FLAC))
        return;
    struct sound_bytes s = load("mono.flac");
    float *planes[1] = {part[0]};
    struct hr_error error = {0};
    assert_memory_equal(s.bytes + SECOND, s.bytes + THIRD, 4);
    opened(&s);
    read_into(whole, 0, 12800);
    memmove(s.bytes + SECOND, s.bytes + THIRD, s.length - THIRD);
    s.length -= THIRD - SECOND;
    for (uint64_t first = 0; first < 8192; first += 1300) {
        assert_int_equal(opened(&s).frames, 12800);
        assert_int_equal(hr__sound_read(decoder, first, 9000 - first, planes, &error), -EBADMSG);
        assert_non_null(strstr(error.message, "of 12800; restore or remove it"));
    }
    opened(&s);
    read_into(part, 0, 4096);
    assert_memory_equal(part[0], whole[0], 4096 * sizeof(float));
    opened(&s);
    read_into(part, 8192, 4608);
    assert_memory_equal(part[0], whole[0] + 8192, 4608 * sizeof(float));
    free(s.bytes);
}

static void test_flac(void **state)
{
    if (is_absent(HR_SOUND_FLAC))
        return;
    struct sound_bytes s = load("mono.flac");
    struct hr_sound_info info = opened(&s);
    assert_int_equal(info.format, HR_SOUND_FLAC);
    assert_int_equal(info.rate, 32000);
    assert_int_equal(info.channels, 1);
    assert_int_equal(info.frames, 12800);
    compare_windows(&s, 0);
    truncate_everywhere(s, 411);
    /* Without its length, which the 36 low bits of bytes 21 to 25 hold, its last frame states it:
     * nothing is decoded, so damage elsewhere is not found. */
    struct sound_bytes unknown = {s.bytes, s.length};
    s.bytes[21] &= 0xF0;
    memset(s.bytes + 22, 0, 4);
    assert_int_equal(opened(&unknown).frames, 12800);
    compare_windows(&unknown, 0);
    s.bytes[s.length / 2] ^= 0x55;
    assert_int_equal(opened(&unknown).frames, 12800);
    s.bytes[s.length / 2] ^= 0x55;
    /* A tag may follow it; a file that was cut off is refused. */
    struct sound_bytes tagged = {calloc(1, s.length + 128), s.length + 128};
    assert_non_null(tagged.bytes);
    memcpy(tagged.bytes, s.bytes, s.length);
    memcpy(tagged.bytes + s.length, "TAG", 3);
    assert_int_equal(opened(&tagged).frames, 12800);
    free(tagged.bytes);
    unknown.length -= 700;
    refused(&unknown, -EBADMSG, "damaged or ends");
    free(s.bytes);
    /* Damage is found in the frames that are read, and only there. */
    s = load("mono.flac");
    s.bytes[s.length - 4000] ^= 0x55;
    opened(&s);
    read_into(part, 0, 3000);
    float *planes[1] = {part[0]};
    struct hr_error error = {0};
    assert_int_equal(hr__sound_read(decoder, 0, 12800, planes, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "of 12800"));
    free(s.bytes);
}

/* Bytes before the first frame are skipped: zeros, text, the end of a frame, a tag and zeros. A few
 * bytes that look like a header are no frame. */
static void begins_later(void)
{
    static const struct {
        const char *bytes;
        size_t length, then_zeros;
    } before[] = {{"", 0, 1},
                  {"", 0, 5000},
                  {"some text \xFF\xFB\x90\x64 and more", 24, 0},
                  {"\xFF\xFB\x90\x64\xFF\xFB\x90\x64", 8, 300},
                  {"ID3\3\0\0\0\0\0\4abcd", 14, 9000}};
    struct sound_bytes s = load("untagged.mp3");
    uint64_t frames = opened(&s).frames;
    read_into(whole, 0, frames);
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        size_t n = before[i].length + before[i].then_zeros;
        struct sound_bytes later = {calloc(1, n + s.length), n + s.length};
        memcpy(later.bytes, before[i].bytes, before[i].length);
        memcpy(later.bytes + n, s.bytes, s.length);
        assert_int_equal(opened(&later).frames, frames);
        read_into(part, 0, frames);
        assert_memory_equal(part[1], whole[1], frames * sizeof(float));
        free(later.bytes);
    }
    struct sound_bytes only = {calloc(1, 70000), 70000};
    memcpy(only.bytes + 66000, s.bytes, 4000);
    refused(&only, -EBADMSG, "zero bytes");
    free(only.bytes);
    free(s.bytes);
}

static void test_mp3(void **state)
{
    if (is_absent(HR_SOUND_MP3))
        return;
    struct sound_bytes s = load("mpeg1.mp3");
    struct hr_sound_info info = opened(&s);
    assert_int_equal(info.format, HR_SOUND_MP3);
    assert_int_equal(info.rate, 44100);
    assert_int_equal(info.channels, 2);
    uint64_t tagged = info.frames;
    compare_windows(&s, 0);
    struct sound_bytes half = {s.bytes, s.length / 2};
    refused(&half, -EBADMSG, "MPEG frames");
    free(s.bytes);
    /* Without the tag, all frames are counted, and the delay and padding are part of the sound. */
    s = load("untagged.mp3");
    info = opened(&s);
    assert_int_equal(info.rate, 44100);
    assert_true(info.frames >= tagged && info.frames < tagged + 4 * 1152);
    compare_windows(&s, 0);
    free(s.bytes);
    begins_later();
    s = load("mpeg2.mp3");
    info = opened(&s);
    assert_int_equal(info.rate, 22050);
    assert_int_equal(info.channels, 1);
    compare_windows(&s, 2e-7);
    s.length = 4;
    refused(&s, -EBADMSG, "no frame that can be decoded");
    free(s.bytes);
}

static void test_vorbis(void **state)
{
    if (is_absent(HR_SOUND_VORBIS))
        return;
    struct sound_bytes s = load("stereo.ogg");
    struct hr_sound_info info = opened(&s);
    assert_int_equal(info.format, HR_SOUND_VORBIS);
    assert_int_equal(info.rate, 44100);
    assert_int_equal(info.channels, 2);
    assert_int_equal(info.frames, 52920);
    compare_windows(&s, 0);
    truncate_everywhere(s, 397);
    struct sound_bytes twice = {malloc(2 * s.length), 2 * s.length};
    memcpy(twice.bytes, s.bytes, s.length);
    memcpy(twice.bytes + s.length, s.bytes, s.length);
    refused(&twice, -ENOTSUP, "another stream");
    free(twice.bytes);
    free(s.bytes);
}

/* A WAV file, as it is built. */
struct wav_bytes {
    uint8_t bytes[4096];
    size_t length;
};

static void put(struct wav_bytes *w, const void *bytes, size_t n)
{
    memcpy(w->bytes + w->length, bytes, n);
    w->length += n;
}

static void put_number(struct wav_bytes *w, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        w->bytes[w->length++] = (uint8_t)(v >> 8 * i);
}

/* Puts the header: format tag (0xFFFE + tag: extensible), bits, channels, rate. */
static void put_head(struct wav_bytes *w, unsigned tag, int extensible, int bits, int channels,
                     int rate)
{
    static const uint8_t rest[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
    int bytes = (bits + 7) / 8;
    w->length = 0;
    put(w, "RIFF\0\0\0\0WAVELIST\3\0\0\0abc\0fmt ", 28);
    put_number(w, extensible ? 40 : 16, 4);
    put_number(w, extensible ? 0xFFFE : tag, 2);
    put_number(w, (uint64_t)channels, 2);
    put_number(w, (uint64_t)rate, 4);
    put_number(w, (uint64_t)(rate * channels * bytes), 4);
    put_number(w, (uint64_t)(channels * bytes), 2);
    put_number(w, (uint64_t)bits, 2);
    if (extensible) {
        put_number(w, 22, 2);
        put_number(w, (uint64_t)bits, 2);
        put_number(w, 3, 4);
        put_number(w, tag, 2);
        put(w, rest, sizeof rest);
    }
}

static void put_data(struct wav_bytes *w, const void *data, size_t bytes, uint32_t stated)
{
    put(w, "data", 4);
    put_number(w, stated, 4);
    put(w, data, bytes);
    uint32_t riff = (uint32_t)w->length - 8;
    memcpy(w->bytes + 4, &riff, 4);
}

static struct sound_bytes bytes_of(struct wav_bytes *w)
{
    return (struct sound_bytes){w->bytes, w->length};
}

static void test_wav_types(void **state)
{
    struct wav_bytes w;
    const struct {
        unsigned tag;
        int bits;
        uint8_t data[4][8]; /* -1, 0, 0.5 and the largest below 1, or 1 */
    } types[] = {
        {1, 8, {{0}, {128}, {192}, {255}}},
        {1, 16, {{0, 0x80}, {0}, {0, 0x40}, {0xFF, 0x7F}}},
        {1, 20, {{0, 0, 0x80}, {0}, {0, 0, 0x40}, {0xF0, 0xFF, 0x7F}}},
        {1, 24, {{0, 0, 0x80}, {0}, {0, 0, 0x40}, {0xFF, 0xFF, 0x7F}}},
        {1, 32, {{0, 0, 0, 0x80}, {0}, {0, 0, 0, 0x40}, {0, 0, 0, 0x7F}}},
        {3, 32, {{0, 0, 0x80, 0xBF}, {0}, {0, 0, 0, 0x3F}, {0, 0, 0x80, 0x3F}}},
        {3,
         64,
         {{0, 0, 0, 0, 0, 0, 0xF0, 0xBF},
          {0},
          {0, 0, 0, 0, 0, 0, 0xE0, 0x3F},
          {0, 0, 0, 0, 0, 0, 0xF0, 0x3F}}},
    };
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int extensible = 0; extensible < 2; extensible++) {
            uint8_t data[64];
            size_t n = (size_t)(types[t].bits + 7) / 8;
            for (size_t i = 0; i < 4; i++)
                memcpy(data + i * n, types[t].data[i], n);
            put_head(&w, types[t].tag, extensible, types[t].bits, 2, 8000);
            put_data(&w, data, 4 * n, (uint32_t)(4 * n));
            struct sound_bytes s = bytes_of(&w);
            struct hr_sound_info info = opened(&s);
            assert_int_equal(info.channels, 2);
            assert_int_equal(info.rate, 8000);
            assert_int_equal(info.frames, 2);
            read_into(part, 0, 2);
            assert_true(part[0][0] == -1 && part[1][0] == 0 && part[0][1] == 0.5f);
            assert_true(part[1][1] > 0.99f && part[1][1] <= 1);
            read_into(part, 1, 1);
            assert_true(part[0][0] == 0.5f);
        }
}

/* The mean of two channels has the bits of both, added and halved, and frames lie where it says. */
static void test_wav_mean(void **state)
{
    enum { N = 203 };
    static const int16_t extremes[8] = {-32768, -32768, 32767, 32767, -32768, 32767, 1, -1};
    struct wav_bytes w;
    int16_t data[2 * N];
    float mean[N];
    size_t bytes;
    for (int i = 0; i < 2 * N; i++)
        data[i] = i < 8 ? extremes[i] : (int16_t)(i * 7919 * (i % 5 ? 1 : -3));
    put_head(&w, 1, 0, 16, 2, 8000);
    put_data(&w, data, sizeof data, sizeof data);
    struct sound_bytes s = bytes_of(&w);
    opened(&s);
    assert_true(hr__sound_can_mix(decoder));
    for (int first = 0; first < 20; first++) {
        read_into(part, (uint64_t)first, N - 20);
        assert_int_equal(hr__sound_read_mean(decoder, (uint64_t)first, N - 20, mean, NULL), 0);
        for (int i = 0; i < N - 20; i++)
            part[0][i] = (part[0][i] + part[1][i]) * 0.5f;
        assert_memory_equal(mean, part[0], (N - 20) * sizeof *mean);
    }
    assert_int_equal(hr__sound_read_mean(decoder, N, 1, mean, NULL), -ERANGE);
    assert_memory_equal(hr__sound_frames(decoder, 3, N, &bytes), data + 6, sizeof data - 12);
    assert_int_equal(bytes, sizeof data - 12);
    hr__sound_frames(decoder, -5, 4, &bytes);
    assert_int_equal(bytes, 0);
    put_head(&w, 1, 0, 16, 1, 8000);
    put_data(&w, data, sizeof data, sizeof data);
    s = bytes_of(&w);
    opened(&s);
    assert_false(hr__sound_can_mix(decoder));
}

static void test_wav_oddities(void **state)
{
    static const int16_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct wav_bytes w;
    /* A length that was never filled in. */
    put_head(&w, 1, 0, 16, 1, 16000);
    put_data(&w, data, sizeof data, UINT32_MAX);
    struct sound_bytes s = bytes_of(&w);
    assert_int_equal(opened(&s).frames, 8);
    put_head(&w, 1, 0, 16, 1, 16000);
    put_data(&w, data, sizeof data, 0);
    memset(w.bytes + 4, 0, 4);
    s = bytes_of(&w);
    assert_int_equal(opened(&s).frames, 8);
    /* A sound without frames, with a chunk after it. */
    put_head(&w, 1, 0, 16, 1, 16000);
    put_data(&w, "LIST\2\0\0\0ab", 10, 0);
    s = bytes_of(&w);
    refused(&s, -EBADMSG, "no frames");
    /* Half a frame at the end is ignored; a chunk after the data, too. */
    put_head(&w, 1, 0, 16, 2, 16000);
    put_data(&w, data, 7, 7);
    s = bytes_of(&w);
    assert_int_equal(opened(&s).frames, 1);
    /* RF64 */
    put_head(&w, 1, 0, 16, 1, 16000);
    struct wav_bytes large = {.length = 12};
    memcpy(large.bytes, "RF64\xFF\xFF\xFF\xFFWAVE", 12);
    put(&large, "ds64", 4);
    put_number(&large, 28, 4);
    put_number(&large, 0, 8);
    put_number(&large, 10, 8);
    put_number(&large, 5, 8);
    put_number(&large, 0, 4);
    put(&large, w.bytes + 12, w.length - 12);
    put(&large, "data\xFF\xFF\xFF\xFF", 8);
    put(&large, data, sizeof data);
    s = bytes_of(&large);
    assert_int_equal(opened(&s).frames, 5);
    /* Another extension does not matter: an ID3 tag neither. */
    struct wav_bytes tagged = {.length = 0};
    put_head(&w, 1, 0, 16, 1, 16000);
    put_data(&w, data, sizeof data, sizeof data);
    put(&tagged, "ID3\3\0\0\0\0\0\4RIFF", 14);
    put(&tagged, w.bytes, w.length);
    s = bytes_of(&tagged);
    assert_int_equal(opened(&s).frames, 8);
}

static void test_wav_wrong(void **state)
{
    static const int16_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct wav_bytes w;
    struct sound_bytes s;
#define WAV_REFUSED(tag, bits, channels, rate, stated, code, words)                                \
    put_head(&w, tag, 0, bits, channels, rate);                                                    \
    put_data(&w, data, sizeof data, stated);                                                       \
    s = bytes_of(&w);                                                                              \
    refused(&s, code, words)
    WAV_REFUSED(1, 16, 1, 16000, 20, -EBADMSG, "ends after 16 of 20");
    WAV_REFUSED(7, 8, 1, 16000, 16, -ENOTSUP, "mu-law");
    WAV_REFUSED(2, 4, 1, 16000, 16, -ENOTSUP, "ADPCM");
    WAV_REFUSED(1, 64, 1, 16000, 16, -ENOTSUP, "PCM of 64 bits");
    WAV_REFUSED(3, 16, 1, 16000, 16, -ENOTSUP, "floats of 16 bits");
    WAV_REFUSED(1, 16, 9, 16000, 16, -ENOTSUP, "9 channels");
    WAV_REFUSED(1, 16, 0, 16000, 16, -EBADMSG, "whole number of samples");
    WAV_REFUSED(1, 16, 1, 7999, 16, -ENOTSUP, "7999 Hz");
    WAV_REFUSED(1, 16, 1, 192001, 16, -ENOTSUP, "192001 Hz");
    static const uint32_t nan = 0x7FC00000;
    put_head(&w, 3, 0, 32, 1, 16000);
    put_data(&w, &nan, 4, 4);
    s = bytes_of(&w);
    opened(&s);
    float *planes[1] = {part[0]};
    struct hr_error error = {0};
    assert_int_equal(hr__sound_read(decoder, 0, 1, planes, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "finite"));
    assert_int_equal(hr__sound_read(decoder, 0, 2, planes, &error), -ERANGE);
    assert_int_equal(hr__sound_read(decoder, UINT64_MAX, 2, planes, &error), -ERANGE);
    put_head(&w, 1, 0, 16, 1, 16000);
    put_data(&w, data, sizeof data, sizeof data);
    s = bytes_of(&w);
    truncate_everywhere(s, 1);
}

static void test_others(void **state)
{
    struct sound_bytes s = load("speech.opus");
    refused(&s, -ENOTSUP, "this is Opus");
    assert_true(hr_sound_recognise(s.bytes, s.length));
    free(s.bytes);
    static const struct {
        const char *bytes;
        size_t length;
        int code;
        const char *words;
    } files[] = {
        {"", 0, -EBADMSG, "empty"},
        {"\0\0\0\0\0\0\0", 7, -EBADMSG, "zero bytes"},
        {"\0\0\0\x20"
         "ftypM4A ",
         12, -ENOTSUP, "AAC"},
        {"FORM\0\0\0\0AIFF", 12, -ENOTSUP, "AIFF"},
        {"hello world", 11, -ENOTSUP, "begins with 68 65"},
        {"\xFF\xFD\x90\x04", 4, -ENOTSUP, "layer 1 or 2"},
        {"\xFF\xF1\x50\x80", 4, -ENOTSUP, "AAC"},
        {"riff\x2E\x91\xCF\x11", 8, -ENOTSUP, "Wave64"},
        {"RIFF\0\0\0\0AVI LIST", 16, -ENOTSUP, "not a sound format"},
        {"\x89PNG\r\n\x1A\n", 8, -ENOTSUP, "not a sound format"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        uint8_t *copy = malloc(files[i].length + 1);
        memcpy(copy, files[i].bytes, files[i].length);
        s = (struct sound_bytes){copy, files[i].length};
        refused(&s, files[i].code, files[i].words);
        free(copy);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flac),      cmocka_unit_test(test_flac_checksum),
        cmocka_unit_test(test_mp3),       cmocka_unit_test(test_flac_missing_frame),
        cmocka_unit_test(test_vorbis),    cmocka_unit_test(test_wav_types),
        cmocka_unit_test(test_wav_mean),  cmocka_unit_test(test_wav_oddities),
        cmocka_unit_test(test_wav_wrong), cmocka_unit_test(test_others)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
