/* Making WebP files; see webp_images.h. */
#include "webp_images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/encode.h>

enum { CHUNKS_AT = 12, HEADER_BYTES = 8 };

static void put_le(uint8_t *to, size_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static size_t get_le32(const uint8_t *from)
{
    return from[0] | (size_t)from[1] << 8 | (size_t)from[2] << 16 | (size_t)from[3] << 24;
}

struct bytes make_webp(const struct webp_spec *spec)
{
    WebPConfig config;
    WebPPicture picture;
    WebPMemoryWriter writer;
    int channels = spec->alpha ? 4 : 3;
    uint8_t *pixels = make_picture(spec->width, spec->height, channels, spec->seed);
    int ok = WebPConfigInit(&config) && WebPPictureInit(&picture);
    config.quality = spec->quality;
    config.lossless = spec->lossless;
    config.partitions = spec->partitions;
    config.filter_type = !spec->simple_filter;
    config.exact = 1; /* keep colours that alpha hides */
    config.method = 2;
    picture.width = spec->width;
    picture.height = spec->height;
    picture.use_argb = spec->lossless;
    WebPMemoryWriterInit(&writer);
    picture.writer = WebPMemoryWrite;
    picture.custom_ptr = &writer;
    ok = ok && (spec->alpha ? WebPPictureImportRGBA(&picture, pixels, 4 * spec->width)
                            : WebPPictureImportRGB(&picture, pixels, 3 * spec->width));
    if (!ok || !WebPEncode(&config, &picture)) {
        fprintf(stderr, "make_webp: error %d\n", picture.error_code);
        abort();
    }
    WebPPictureFree(&picture);
    free(pixels);
    return (struct bytes){writer.mem, writer.size};
}

static void add(struct bytes *file, const void *data, size_t length)
{
    file->data = realloc(file->data, file->length + length + 1);
    memcpy(file->data + file->length, data, length);
    file->length += length;
}

static void add_chunk(struct bytes *file, const char *name, const void *data, size_t length)
{
    uint8_t header[HEADER_BYTES];
    memcpy(header, name, 4);
    put_le(header + 4, length, 4);
    add(file, header, sizeof header);
    add(file, data, length);
    if (length % 2)
        add(file, "", 1);
}

/* An extended file with its first chunk. */
static struct bytes begin_extended(int flags, int width, int height)
{
    uint8_t header[10] = {(uint8_t)flags};
    struct bytes file = {0};
    put_le(header + 4, (size_t)width - 1, 3);
    put_le(header + 7, (size_t)height - 1, 3);
    add(&file, "RIFF\0\0\0\0WEBP", CHUNKS_AT);
    add_chunk(&file, "VP8X", header, sizeof header);
    return file;
}

static void end_extended(struct bytes *file)
{
    put_le(file->data + 4, file->length - HEADER_BYTES, 4);
}

/* The chunks of the image's data in `still`. */
static struct bytes image_chunks(const struct bytes *still)
{
    size_t at = CHUNKS_AT;
    if (!memcmp(still->data + at, "VP8X", 4))
        at += HEADER_BYTES + 10;
    return (struct bytes){still->data + at, still->length - at};
}

static int has_alpha(const struct bytes *still)
{
    /* ALPH follows VP8X; libwebp says of lossless files itself whether they have any. */
    return !memcmp(still->data + CHUNKS_AT, "VP8X", 4) ||
           (!memcmp(still->data + CHUNKS_AT, "VP8L", 4) && still->data[24] & 0x10);
}

struct bytes make_webp_extended(const struct bytes *still, int width, int height,
                                const struct bytes *exif)
{
    struct bytes image = image_chunks(still);
    struct bytes file = begin_extended(0x08 | (has_alpha(still) ? 0x10 : 0), width, height);
    add(&file, image.data, image.length);
    add_chunk(&file, "EXIF", exif->data, exif->length);
    end_extended(&file);
    return file;
}

static void add_frame(struct bytes *file, const struct bytes *still, int x, int y)
{
    struct bytes image = image_chunks(still), frame = {0};
    uint8_t header[16] = {0};
    int width, height;
    if (!WebPGetInfo(still->data, still->length, &width, &height))
        abort();
    put_le(header, (size_t)x / 2, 3);
    put_le(header + 3, (size_t)y / 2, 3);
    put_le(header + 6, (size_t)width - 1, 3);
    put_le(header + 9, (size_t)height - 1, 3);
    put_le(header + 12, 40, 3); /* ms */
    add(&frame, header, sizeof header);
    add(&frame, image.data, image.length);
    add_chunk(file, "ANMF", frame.data, frame.length);
    free(frame.data);
}

struct bytes make_webp_animation(const struct bytes *still, int width, int height, int x, int y)
{
    static const uint8_t background_and_loops[6] = {0x10, 0x80, 0xF0, 0xFF, 0, 0};
    struct bytes file = begin_extended(0x02 | (has_alpha(still) ? 0x10 : 0), width, height);
    add_chunk(&file, "ANIM", background_and_loops, sizeof background_and_loops);
    add_frame(&file, still, x, y);
    add_frame(&file, still, 0, 0);
    end_extended(&file);
    return file;
}

struct bytes cut_webp(const struct bytes *file, size_t length)
{
    struct bytes out = {malloc(length + 1), length};
    size_t at = CHUNKS_AT, next = at;
    memcpy(out.data, file->data, length);
    while (next + HEADER_BYTES <= length) {
        at = next;
        next = at + HEADER_BYTES + (get_le32(file->data + at + 4) + 1) / 2 * 2;
    }
    put_le(out.data + 4, length - HEADER_BYTES, 4);
    put_le(out.data + at + 4, length - at - HEADER_BYTES, 4);
    return out;
}
