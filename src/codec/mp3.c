/*
 * MP3 through libmpg123, gapless: the delay and the padding that a LAME tag states are left out.
 *
 * Opening scans the headers of all frames (mpg123_scan), because files of variable bit rate without
 * a tag do not say how long they are; that takes some 40 µs for half a minute. On x86-64 the
 * decoder is the one that every processor has, so that samples do not depend on the machine.
 *
 * A window begins eight or more frames earlier in the decoder (mpg123's default is four), whose
 * results are dropped, because a frame uses the bits and the filter's state of those before it. The
 * filter has a ring of 16 places and sums in the order in which they lie in memory. A frame moves
 * it by 36 places (MPEG-2: 18), so the decoder, reset, begins at a multiple of 8 frames: there the
 * ring stands as it does when all frames are decoded, and sums have the same bits.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/sound_format.h"

#include <errno.h>
#include <inttypes.h>
#include <mpg123.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define PREFRAMES    8
#define BLOCK_FRAMES 1152 /* samples of each channel, read at a time */
#define RING_PERIOD  8    /* MPEG frames, of all versions */

struct mp3 {
    mpg123_handle *handle;
    struct hr__sound_reader reader;
    int channels;
    int is_used; /* something was decoded since the file was opened */
    uint64_t frames;
    float block[BLOCK_FRAMES * 2]; /* interleaved */
};

static ssize_t read_bytes(void *arg, void *to, size_t bytes)
{
    return (ssize_t)hr__sound_take(arg, to, bytes);
}

static off_t seek_bytes(void *arg, off_t offset, int whence)
{
    return hr__sound_seek(arg, offset, whence);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Older versions of libmpg123 need it, once in a process. */
static void init_library(void)
{
    (void)mpg123_init();
}

static mpg123_handle *new_handle(void)
{
    static const long rates[] = {8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000};
    int r = 0;
    pthread_once(&once, init_library);
#ifdef __x86_64__
    mpg123_handle *h = mpg123_new("x86-64", &r);
    if (!h)
        h = mpg123_new(NULL, &r);
#else
    mpg123_handle *h = mpg123_new(NULL, &r);
#endif
    if (!h)
        return NULL;
    r = mpg123_param(h, MPG123_ADD_FLAGS,
                     MPG123_QUIET | MPG123_GAPLESS | MPG123_FORCE_FLOAT | MPG123_SKIP_ID3V2, 0);
    r |= mpg123_param(h, MPG123_REMOVE_FLAGS, MPG123_AUTO_RESAMPLE, 0);
    r |= mpg123_param(h, MPG123_PREFRAMES, PREFRAMES, 0);
    r |= mpg123_param(h, MPG123_RVA, MPG123_RVA_OFF, 0);
    r |= mpg123_param(h, MPG123_INDEX_SIZE, -64, 0); /* grows as it is needed */
    r |= mpg123_format_none(h);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        r |= mpg123_format(h, rates[i], MPG123_MONO | MPG123_STEREO, MPG123_ENC_FLOAT_32);
    r |= mpg123_replace_reader_handle(h, read_bytes, seek_bytes, NULL);
    if (r != MPG123_OK) {
        mpg123_delete(h);
        return NULL;
    }
    return h;
}

static void mp3_destroy(void *state)
{
    struct mp3 *m = state;
    if (m->handle)
        mpg123_delete(m->handle);
    hr__free(m);
}

static int mp3_damaged(struct hr_error *error, const struct mp3 *m)
{
    return hr__fail(error, -EBADMSG, "the MP3 file is damaged: %s; restore or remove it",
                    mpg123_strerror(m->handle));
}

static uint32_t be32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Returns the number of MPEG frames that the tag of the first one (Xing's, as LAME writes it, too)
 * states; 0: there is none. The tag lies behind the side information, whose length depends on the
 * version and on the channels. */
static uint64_t tagged_frames(const struct hr__sound_file *f)
{
    static const size_t places[] = {4 + 32, 4 + 17, 4 + 9};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const uint8_t *at = f->bytes + places[i];
        if (f->length >= places[i] + 12 && (!memcmp(at, "Xing", 4) || !memcmp(at, "Info", 4)))
            return at[7] & 1 ? be32(at + 8) : 0;
    }
    return 0;
}

/* A file that ends early is shorter than its tag says. */
static int check_whole(const struct mp3 *m, struct hr_error *error)
{
    uint64_t stated = tagged_frames(&m->reader.file);
    int64_t found = mpg123_framelength(m->handle);
    if (!stated || found < 0 || (uint64_t)found + 1 >= stated)
        return 0;
    return hr__fail(error, -EBADMSG,
                    "the MP3 file ends after %" PRId64 " of %" PRIu64
                    " MPEG frames; restore or remove it",
                    found, stated);
}

/* Opens the file anew, which resets the decoder's filter. */
static int reopen(struct mp3 *m, long *rate, int *type)
{
    mpg123_close(m->handle);
    m->reader.at = 0;
    m->is_used = 0;
    return mpg123_open_handle(m->handle, &m->reader) == MPG123_OK &&
           mpg123_getformat(m->handle, rate, &m->channels, type) == MPG123_OK &&
           mpg123_scan(m->handle) == MPG123_OK;
}

static int mp3_open(void **state, const struct hr__sound_file *file, struct hr_sound_info *info,
                    struct hr_error *error)
{
    struct mp3 *m = *state ? *state : hr__alloc(HR__TAG_CODEC, 1, sizeof *m);
    *state = m;
    if (m && !m->handle)
        m->handle = new_handle();
    if (!m || !m->handle)
        return hr__fail(error, -ENOMEM, "out of memory for a decoder");
    long rate;
    int type;
    m->reader = (struct hr__sound_reader){.file = *file};
    if (!reopen(m, &rate, &type))
        return hr__fail(error, -EBADMSG,
                        "the MP3 file has no frame that can be decoded (%s); restore or remove it",
                        mpg123_strerror(m->handle));
    int64_t frames = mpg123_length(m->handle);
    if (frames < 0 || type != MPG123_ENC_FLOAT_32 || m->channels < 1 || m->channels > 2)
        return mp3_damaged(error, m);
    info->rate = (int)rate;
    info->channels = m->channels;
    info->frames = m->frames = (uint64_t)frames;
    return check_whole(m, error);
}

/* Moves the decoder to a frame where its filter is as if all before were decoded, at or before
 * sample `first`. Returns the sample where it is, or a negative number. */
static int64_t approach(struct mp3 *m, uint64_t first)
{
    long rate;
    int type, samples;
    if (m->is_used && !reopen(m, &rate, &type))
        return -1;
    samples = mpg123_spf(m->handle);
    if (samples <= 0)
        return -1;
    /* The encoder's delay only moves the sample to a later frame. */
    uint64_t frame = first / (unsigned)samples / RING_PERIOD * RING_PERIOD;
    m->is_used = 1;
    if (mpg123_seek_frame(m->handle, (off_t)frame, SEEK_SET) < 0)
        return -1;
    int64_t at = mpg123_tell(m->handle);
    return at <= (int64_t)first ? at : -1;
}

/* Copies n interleaved samples to the window, from place `at` on; those before it are dropped. */
static void put_block(const struct mp3 *m, const struct hr__sound_window *window, int64_t at,
                      size_t n)
{
    for (int c = 0; c < m->channels; c++)
        for (size_t i = at < 0 ? (size_t)-at : 0; i < n; i++)
            window->planes[c][at + (int64_t)i] = m->block[i * (size_t)m->channels + (size_t)c];
}

static int mp3_read(void *state, const struct hr__sound_window *window, struct hr_error *error)
{
    struct mp3 *m = state;
    size_t frame = sizeof(float) * (size_t)m->channels;
    int64_t from = approach(m, window->first);
    if (from < 0)
        return mp3_damaged(error, m);
    int64_t at = from - (int64_t)window->first, count = (int64_t)window->count;
    while (at < count) {
        size_t bytes = 0, left = (size_t)(count - at);
        int r = mpg123_read(m->handle, (unsigned char *)m->block,
                            (left < BLOCK_FRAMES ? left : BLOCK_FRAMES) * frame, &bytes);
        put_block(m, window, at, bytes / frame);
        at += (int64_t)(bytes / frame);
        /* Another rate or number of channels in the middle, which a sound cannot have. */
        if (r == MPG123_NEW_FORMAT)
            return hr__fail(error, -ENOTSUP,
                            "the MP3 file changes its rate or channels at frame %" PRIu64
                            "; cut it there",
                            (uint64_t)((int64_t)window->first + at));
        if (at < count && r != MPG123_OK)
            return hr__sound_ends(error, (uint64_t)((int64_t)window->first + at), m->frames);
    }
    return 0;
}

const struct hr__sound_class hr__sound_mp3 = {
    .open = mp3_open, .read = mp3_read, .destroy = mp3_destroy};
