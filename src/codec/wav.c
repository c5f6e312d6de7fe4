/*
 * WAV: PCM of 8, 16, 24 and 32 bits, and floats of 32 and 64 bits, in RIFF or RF64 (EBU Tech 3306).
 *
 * Files of the wild break the rules, and these are read: chunks before `fmt `, odd chunks without
 * their padding byte at the end of the file, and a length of the data that the writer never filled
 * in (0 or 0xffffffff, as when it wrote to a pipe), which means all bytes to the end.
 */
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/sound_format.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* How a number of the file is stored. */
enum wav_type { WAV_U8, WAV_S16, WAV_S24, WAV_S32, WAV_F32, WAV_F64 };

struct wav {
    const uint8_t *data; /* the first frame */
    enum wav_type type;
    int channels;
    size_t number, frame; /* bytes */
};

static uint32_t le(const uint8_t *at, int bytes)
{
    uint32_t v = 0;
    for (int i = bytes; i--;)
        v = v << 8 | at[i];
    return v;
}

static uint64_t le64(const uint8_t *at)
{
    return (uint64_t)le(at + 4, 4) << 32 | le(at, 4);
}

static int wav_damaged(struct hr_error *error, const char *what)
{
    return hr__fail(error, -EBADMSG, "the WAV file is damaged: %s; restore or remove it", what);
}

/* Names of usual encodings that are not decoded. */
static const char *encoding(unsigned tag)
{
    switch (tag) {
    case 2:
    case 17:
        return "ADPCM";
    case 6:
        return "A-law";
    case 7:
        return "mu-law";
    case 49:
        return "GSM";
    case 80:
    case 85:
        return "MPEG audio";
    default:
        return "an unknown encoding";
    }
}

/* Reads the chunk `fmt `. */
static int take_format(struct wav *w, const uint8_t *at, uint64_t length,
                       struct hr_sound_info *info, struct hr_error *error)
{
    /* Of WAVE_FORMAT_EXTENSIBLE's 16 bytes of identifier, the first two are the encoding. */
    static const uint8_t rest[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
    if (length < 16)
        return wav_damaged(error, "its chunk \"fmt \" is too short");
    unsigned tag = le(at, 2), bits = le(at + 14, 2), block = le(at + 12, 2);
    info->channels = (int)le(at + 2, 2);
    uint32_t rate = le(at + 4, 4);
    info->rate = rate > INT32_MAX ? INT32_MAX : (int)rate;
    if (tag == 0xFFFE) {
        if (length < 40 || memcmp(at + 26, rest, sizeof rest))
            return wav_damaged(error, "its extensible format is none of PCM or floats");
        tag = le(at + 24, 2);
    }
    int is_float = tag == 3;
    if (tag != 1 && !is_float)
        return hr__fail(error, -ENOTSUP,
                        "the WAV file holds %s (format %u); convert it to PCM or FLAC",
                        encoding(tag), tag);
    if (!info->channels || block % (unsigned)info->channels)
        return wav_damaged(error, "its frames are not a whole number of samples");
    /* Numbers of, for example, 20 bits lie in 3 bytes, the lowest bits 0. */
    unsigned bytes = block / (unsigned)info->channels;
    if (!bytes || bits > 8 * bytes || bits + 8 <= 8 * bytes || bytes > 8)
        return wav_damaged(error, "its frames do not have the size of their samples");
    if (is_float ? bytes != 4 && bytes != 8 : bytes > 4)
        return hr__fail(error, -ENOTSUP, "the WAV file holds %s of %u bits; convert it",
                        is_float ? "floats" : "PCM", bits);
    w->type = is_float ? (bytes == 4 ? WAV_F32 : WAV_F64) : (enum wav_type)(WAV_U8 + bytes - 1);
    w->channels = info->channels;
    w->number = bytes;
    w->frame = block;
    return 0;
}

/* Sets the number of frames of `length` bytes at w->data. */
static int take_data(struct wav *w, uint64_t length, uint64_t left, int is_unknown,
                     struct hr_sound_info *info, struct hr_error *error)
{
    if (is_unknown)
        length = left;
    if (length > left)
        return hr__fail(error, -EBADMSG,
                        "the WAV file ends after %" PRIu64 " of %" PRIu64
                        " bytes of samples (frame %" PRIu64 "); restore or remove it",
                        left, length, left / w->frame);
    info->frames = length / w->frame;
    return 0;
}

/* Walks the chunks up to the data. */
static int walk(struct wav *w, const struct hr__sound_file *file, struct hr_sound_info *info,
                struct hr_error *error)
{
    uint64_t at = 12, riff = le(file->bytes + 4, 4), large = 0; /* length of the data of RF64 */
    int has_format = 0, is_large = !memcmp(file->bytes, "RF64", 4);
    while (file->length - at >= 8) {
        const uint8_t *chunk = file->bytes + at;
        uint64_t length = le(chunk + 4, 4), left = file->length - at - 8;
        if (!memcmp(chunk, "data", 4)) {
            if (!has_format)
                return wav_damaged(error, "it has no chunk \"fmt \" before its samples");
            w->data = chunk + 8;
            int is_unknown = length == UINT32_MAX ? !is_large : !length && riff + 8 < file->length;
            return take_data(w, length == UINT32_MAX && is_large ? large : length, left, is_unknown,
                             info, error);
        }
        if (length > left)
            break;
        if (!memcmp(chunk, "ds64", 4) && length >= 16)
            large = le64(chunk + 16);
        if (!memcmp(chunk, "fmt ", 4)) {
            int r = take_format(w, chunk + 8, length, info, error);
            if (r)
                return r;
            has_format = 1;
        }
        length += length & 1;
        if (length > left)
            break;
        at += 8 + length;
    }
    return wav_damaged(error, has_format ? "it has no samples" : "it has no chunk \"fmt \"");
}

static int wav_open(void **state, const struct hr__sound_file *file, struct hr_sound_info *info,
                    struct hr_error *error)
{
    if (!*state)
        *state = hr__alloc(HR__TAG_CODEC, 1, sizeof(struct wav));
    if (!*state)
        return hr__fail(error, -ENOMEM, "out of memory for a decoder");
    return walk(*state, file, info, error);
}

static float number(const uint8_t *at, enum wav_type type)
{
    union {
        uint32_t u;
        float f;
    } single;
    union {
        uint64_t u;
        double d;
    } twice;
    switch (type) {
    case WAV_U8:
        return (float)(at[0] - 128) / 128;
    case WAV_S16:
        return (float)(int16_t)le(at, 2) / 32768;
    case WAV_S24:
        return (float)((int32_t)(le(at, 3) << 8) / 256) / 8388608;
    case WAV_S32:
        return (float)(int32_t)le(at, 4) / 2147483648.0f;
    case WAV_F32:
        single.u = le(at, 4);
        return single.f;
    default:
        twice.u = le64(at);
        return (float)twice.d;
    }
}

/* Reads one channel. Called with a constant type, so that each gets a loop of its own. */
static inline int read_plane(const uint8_t *at, size_t frame, uint64_t count, float *out,
                             enum wav_type type)
{
    int wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        float v = number(at + i * frame, type);
        wrong |= !(fabsf(v) <= 3.402823466e38f);
        out[i] = v;
    }
    return wrong;
}

static int read_typed(const struct wav *w, const uint8_t *at, uint64_t count, float *out)
{
    switch (w->type) {
    case WAV_U8:
        return read_plane(at, w->frame, count, out, WAV_U8);
    case WAV_S16:
        return read_plane(at, w->frame, count, out, WAV_S16);
    case WAV_S24:
        return read_plane(at, w->frame, count, out, WAV_S24);
    case WAV_S32:
        return read_plane(at, w->frame, count, out, WAV_S32);
    case WAV_F32:
        return read_plane(at, w->frame, count, out, WAV_F32);
    default:
        return read_plane(at, w->frame, count, out, WAV_F64);
    }
}

/* Both channels of the most common files. Integers are always finite. */
static inline __attribute__((always_inline)) void split_stereo16(const uint8_t *restrict at,
                                                                 uint64_t count,
                                                                 float *restrict left,
                                                                 float *restrict right)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t both;
        memcpy(&both, at + 4 * i, sizeof both);
        both = le32toh(both);
        left[i] = (float)((int32_t)(both << 16) >> 16) * (1.0f / 32768);
        right[i] = (float)((int32_t)both >> 16) * (1.0f / 32768);
    }
}

/* Their mean, which is exact. */
static void mean_stereo16(const uint8_t *restrict at, uint64_t count, float *restrict mean)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t both;
        memcpy(&both, at + 4 * i, sizeof both);
        both = le32toh(both);
        int32_t sum = ((int32_t)(both << 16) >> 16) + ((int32_t)both >> 16);
        mean[i] = (float)sum * (1.0f / 65536);
    }
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void split_avx2(const uint8_t *at, uint64_t count,
                                                       float *left, float *right)
{
    split_stereo16(at, count, left, right);
}

/* With few instructions, so that the processor reaches far ahead in memory. */
__attribute__((target("avx2"))) static void mean_avx2(const uint8_t *at, uint64_t count,
                                                      float *mean)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256 scale = _mm256_set1_ps(1.0f / 65536);
    uint64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i sum = _mm256_madd_epi16(_mm256_loadu_si256((const void *)(at + 4 * i)), ones);
        _mm256_storeu_ps(mean + i, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale));
    }
    mean_stereo16(at + 4 * i, count - i, mean + i);
}
#endif

static void read_stereo16(const uint8_t *at, uint64_t count, float *left, float *right)
{
#ifdef __x86_64__
    if (hr__isa() >= HR__ISA_AVX2) {
        split_avx2(at, count, left, right);
        return;
    }
#endif
    split_stereo16(at, count, left, right);
}

static void read_mean16(const uint8_t *at, uint64_t count, float *mean)
{
#ifdef __x86_64__
    if (hr__isa() >= HR__ISA_AVX2) {
        mean_avx2(at, count, mean);
        return;
    }
#endif
    mean_stereo16(at, count, mean);
}

static int is_stereo16(const void *state)
{
    const struct wav *w = state;
    return w->type == WAV_S16 && w->channels == 2;
}

static int wav_read(void *state, const struct hr__sound_window *window, struct hr_error *error)
{
    const struct wav *w = state;
    const uint8_t *at = w->data + window->first * w->frame;
    int wrong = 0;
    if (window->is_mean) {
        read_mean16(at, window->count, window->planes[0]);
        return 0;
    }
    if (is_stereo16(w)) {
        read_stereo16(at, window->count, window->planes[0], window->planes[1]);
        return 0;
    }
    for (int c = 0; c < w->channels; c++)
        wrong |= read_typed(w, at + (size_t)c * w->number, window->count, window->planes[c]);
    if (!wrong)
        return 0;
    return hr__fail(error, -EBADMSG,
                    "a sample between frames %" PRIu64 " and %" PRIu64
                    " is not a finite number; restore or remove the file",
                    window->first, window->first + window->count);
}

static const uint8_t *wav_frames(const void *state, size_t *frame)
{
    const struct wav *w = state;
    *frame = w->frame;
    return w->data;
}

static void wav_destroy(void *state)
{
    hr__free(state);
}

const struct hr__sound_class hr__sound_wav = {.open = wav_open,
                                              .read = wav_read,
                                              .destroy = wav_destroy,
                                              .can_mix = is_stereo16,
                                              .frames = wav_frames,
                                              .is_direct = 1};
