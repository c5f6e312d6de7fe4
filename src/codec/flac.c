/*
 * FLAC through libFLAC, which seeks by itself. Integers are exact in float up to 24 bits.
 *
 * Every frame of FLAC has a checksum, so damage is always found in the frames that are decoded. Of
 * a stream that does not say how long it is (its writer could not seek) the last frame does: it is
 * found by its checksums, from the end of the file. If it is not, the stream is decoded once to
 * count. Where frames are missing, libFLAC puts silence before the next one, without an error in
 * versions before 1.5: then a call gives more than one block.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/sound_format.h"

#include <FLAC/stream_decoder.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct flac {
    FLAC__StreamDecoder *decoder;
    struct hr__sound_reader reader;
    struct hr_sound_info info;
    unsigned bits;
    unsigned block; /* frames of the sound in a frame of FLAC; 0: it varies */
    const struct hr__sound_window *window; /* NULL: frames are only counted */
    uint64_t next;                         /* the frame that is wanted next */
    int blocks;                            /* decoded by the last call */
    int is_wrong;                          /* an error was reported */
    int has_info;
};

static FLAC__StreamDecoderReadStatus read_bytes(const FLAC__StreamDecoder *decoder, FLAC__byte *to,
                                                size_t *bytes, void *arg)
{
    struct flac *f = arg;
    *bytes = hr__sound_take(&f->reader, to, *bytes);
    return *bytes ? FLAC__STREAM_DECODER_READ_STATUS_CONTINUE
                  : FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM;
}

static FLAC__StreamDecoderSeekStatus seek_bytes(const FLAC__StreamDecoder *decoder,
                                                FLAC__uint64 offset, void *arg)
{
    struct flac *f = arg;
    int64_t at = offset <= f->reader.file.length ? (int64_t)offset : -1;
    return at >= 0 && hr__sound_seek(&f->reader, at, SEEK_SET) >= 0
               ? FLAC__STREAM_DECODER_SEEK_STATUS_OK
               : FLAC__STREAM_DECODER_SEEK_STATUS_ERROR;
}

static FLAC__StreamDecoderTellStatus tell_bytes(const FLAC__StreamDecoder *decoder,
                                                FLAC__uint64 *offset, void *arg)
{
    *offset = ((struct flac *)arg)->reader.at;
    return FLAC__STREAM_DECODER_TELL_STATUS_OK;
}

static FLAC__StreamDecoderLengthStatus count_bytes(const FLAC__StreamDecoder *decoder,
                                                   FLAC__uint64 *length, void *arg)
{
    *length = ((struct flac *)arg)->reader.file.length;
    return FLAC__STREAM_DECODER_LENGTH_STATUS_OK;
}

static FLAC__bool is_at_end(const FLAC__StreamDecoder *decoder, void *arg)
{
    struct flac *f = arg;
    return f->reader.at == f->reader.file.length;
}

static void take_metadata(const FLAC__StreamDecoder *decoder, const FLAC__StreamMetadata *metadata,
                          void *arg)
{
    struct flac *f = arg;
    const FLAC__StreamMetadata_StreamInfo *s = &metadata->data.stream_info;
    if (metadata->type != FLAC__METADATA_TYPE_STREAMINFO)
        return;
    f->info.rate = (int)s->sample_rate;
    f->info.channels = (int)s->channels;
    f->info.frames = s->total_samples;
    f->bits = s->bits_per_sample;
    f->block = s->min_blocksize == s->max_blocksize ? s->max_blocksize : 0;
    f->has_info = 1;
}

static void take_error(const FLAC__StreamDecoder *decoder, FLAC__StreamDecoderErrorStatus status,
                       void *arg)
{
    ((struct flac *)arg)->is_wrong = 1;
}

/* Copies what the window wants of a decoded block. */
static FLAC__StreamDecoderWriteStatus take_block(const FLAC__StreamDecoder *decoder,
                                                 const FLAC__Frame *frame,
                                                 const FLAC__int32 *const buffer[], void *arg)
{
    struct flac *f = arg;
    uint64_t begin = frame->header.number.sample_number;
    uint64_t end = begin + frame->header.blocksize;
    float scale = 1.0f / (float)(UINT32_C(1) << (f->bits - 1));
    if (frame->header.channels != (unsigned)f->info.channels ||
        frame->header.bits_per_sample != f->bits ||
        frame->header.number_type != FLAC__FRAME_NUMBER_TYPE_SAMPLE_NUMBER || begin > f->next ||
        f->blocks++) {
        f->is_wrong = 1;
        return FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
    }
    if (end <= f->next)
        return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
    if (f->window) {
        uint64_t last = f->window->first + f->window->count;
        end = end < last ? end : last;
    }
    for (int c = 0; f->window && f->next < end && c < f->info.channels; c++) {
        const FLAC__int32 *from = buffer[c] + (f->next - begin);
        float *to = f->window->planes[c] + (f->next - f->window->first);
        for (uint64_t i = 0; i < end - f->next; i++)
            to[i] = (float)from[i] * scale;
    }
    f->next = end > f->next ? end : f->next;
    return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
}

/* Decodes blocks until frame `end` was taken, or to the end of the file if it is UINT64_MAX. */
static int decode_until(struct flac *f, uint64_t end, struct hr_error *error)
{
    while (f->next < end && !f->is_wrong) {
        FLAC__StreamDecoderState state = FLAC__stream_decoder_get_state(f->decoder);
        if (state == FLAC__STREAM_DECODER_END_OF_STREAM)
            break;
        f->blocks = 0;
        if (!FLAC__stream_decoder_process_single(f->decoder))
            f->is_wrong = 1;
    }
    if (f->is_wrong || (end != UINT64_MAX && f->next < end))
        return hr__sound_ends(error, f->next, f->info.frames);
    return 0;
}

static void flac_destroy(void *state)
{
    struct flac *f = state;
    if (f->decoder)
        FLAC__stream_decoder_delete(f->decoder);
    hr__free(f);
}

static int make_flac(void **state, struct hr_error *error)
{
    struct flac *f = *state ? *state : hr__alloc(HR__TAG_CODEC, 1, sizeof *f);
    if (f && !f->decoder)
        f->decoder = FLAC__stream_decoder_new();
    if (f && !f->decoder) {
        hr__free(f);
        f = NULL;
    }
    *state = f;
    return f ? 0 : hr__fail(error, -ENOMEM, "out of memory for a decoder");
}

/* Begins to decode the file from its first byte. */
static int begin(struct flac *f, struct hr_error *error)
{
    FLAC__stream_decoder_finish(f->decoder);
    f->reader.at = 0;
    f->next = 0;
    f->is_wrong = f->has_info = 0;
    if (FLAC__stream_decoder_init_stream(f->decoder, read_bytes, seek_bytes, tell_bytes,
                                         count_bytes, is_at_end, take_block, take_metadata,
                                         take_error, f) != FLAC__STREAM_DECODER_INIT_STATUS_OK)
        return hr__fail(error, -ENOMEM, "out of memory for a decoder");
    if (!FLAC__stream_decoder_process_until_end_of_metadata(f->decoder) || !f->has_info ||
        f->is_wrong || f->bits < 4 || f->bits > 32 || f->info.channels < 1)
        return hr__fail(error, -EBADMSG,
                        "the FLAC file is damaged in its header; restore or remove it");
    return 0;
}

/* Where the last frame may begin: frames are smaller, but for many channels of 24 bits or more. */
#define LAST_BYTES ((size_t)1 << 20)

/* Possible beginnings of frames whose bytes to the end are summed at most. */
#define LAST_TRIES 16

static unsigned crc8(const uint8_t *bytes, size_t length)
{
    unsigned crc = 0;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ (crc & 0x80 ? 0x07 : 0)) & 0xFF;
    }
    return crc;
}

static unsigned crc16(const uint8_t *bytes, size_t length)
{
    unsigned crc = 0;
    for (size_t i = 0; i < length; i++) {
        crc ^= (unsigned)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ (crc & 0x8000 ? 0x8005 : 0)) & 0xFFFF;
    }
    return crc;
}

/* Reads the number of a frame or sample, coded like UTF-8. Returns its bytes; 0: it is none. */
static size_t read_number(const uint8_t *at, uint64_t *number)
{
    size_t bytes = 1;
    while (bytes < 8 && at[0] & 0x80 >> bytes)
        bytes++;
    if (!(at[0] & 0x80)) {
        *number = at[0];
        return 1;
    }
    *number = at[0] & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xC0) != 0x80)
            return 0;
        *number = *number << 6 | (at[i] & 0x3F);
    }
    return bytes > 1 && bytes < 8 ? bytes : 0;
}

/* Reads a frame's header (RFC 9639, 9.1), for which 16 bytes are there. Returns its end in the
 * sound, 0 if it is none. `block`: the stream's block size, if all frames but the last have it. */
static uint64_t end_of_frame(const uint8_t *at, unsigned block)
{
    uint64_t number;
    unsigned size, code = at[2] >> 4, rate = at[2] & 15;
    if (at[0] != 0xFF || (at[1] & 0xFE) != 0xF8 || !code || rate == 15 || at[3] & 1)
        return 0;
    size_t bytes = read_number(at + 4, &number);
    if (!bytes)
        return 0;
    bytes += 4;
    if (code == 6)
        size = at[bytes++] + 1u;
    else if (code == 7) {
        size = ((unsigned)at[bytes] << 8 | at[bytes + 1]) + 1u;
        bytes += 2;
    } else {
        size = code == 1 ? 192 : code < 6 ? 576u << (code - 2) : 256u << (code - 8);
    }
    bytes += rate < 12 ? 0 : rate == 12 ? 1 : 2;
    int is_variable = at[1] & 1;
    if (crc8(at, bytes) != at[bytes] || (!is_variable && !block))
        return 0;
    return (is_variable ? number : number * block) + size;
}

/* Returns the frames of the sound by the header of its last frame; 0: it is not found. */
static uint64_t length_by_last_frame(const struct flac *f)
{
    const uint8_t *bytes = f->reader.file.bytes;
    size_t length = f->reader.file.length;
    int tries = 0;
    if (length >= 128 && !memcmp(bytes + length - 128, "TAG", 3))
        length -= 128; /* an ID3v1 tag */
    size_t least = length > LAST_BYTES ? length - LAST_BYTES : 0;
    for (size_t i = length < 18 ? 0 : length - 18; i > least && tries < LAST_TRIES; i--) {
        uint64_t end = bytes[i] == 0xFF ? end_of_frame(bytes + i, f->block) : 0;
        if (end && ++tries &&
            crc16(bytes + i, length - 2 - i) ==
                ((unsigned)bytes[length - 2] << 8 | bytes[length - 1]))
            return end;
    }
    return 0;
}

static int flac_open(void **state, const struct hr__sound_file *file, struct hr_sound_info *info,
                     struct hr_error *error)
{
    int r = make_flac(state, error);
    if (r)
        return r;
    struct flac *f = *state;
    f->reader = (struct hr__sound_reader){.file = *file};
    f->info = *info;
    f->window = NULL;
    r = begin(f, error);
    if (!r && !f->info.frames)
        f->info.frames = length_by_last_frame(f);
    if (!r && !f->info.frames) {
        r = decode_until(f, UINT64_MAX, error);
        uint64_t frames = f->next;
        if (!r)
            r = begin(f, error);
        f->info.frames = frames;
    }
    if (!r)
        *info = f->info;
    return r;
}

static int flac_read(void *state, const struct hr__sound_window *window, struct hr_error *error)
{
    struct flac *f = state;
    f->window = window;
    f->is_wrong = f->blocks = 0;
    f->next = window->first;
    if (!FLAC__stream_decoder_seek_absolute(f->decoder, window->first)) {
        if (FLAC__stream_decoder_get_state(f->decoder) == FLAC__STREAM_DECODER_SEEK_ERROR)
            FLAC__stream_decoder_flush(f->decoder);
        f->is_wrong = 1;
    }
    int r = decode_until(f, window->first + window->count, error);
    f->window = NULL;
    return r;
}

const struct hr__sound_class hr__sound_flac = {
    .open = flac_open, .read = flac_read, .destroy = flac_destroy};
