/* Interleaves rows of planes, one at a time, into a PNG file in memory. */
#include "codec/png_write.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <spng.h>

struct hr__png_writer {
    struct hr__codec_scratch row;
    char exif[26]; /* the EXIF block being written: libspng keeps no copy of it */
    void *file;    /* the last file; libspng allocates it with malloc */
    size_t length;
};

int hr__png_writer_create(struct hr__png_writer **out, struct hr_error *error)
{
    *out = hr__alloc(HR__TAG_CODEC, 1, sizeof **out);
    return *out ? 0 : hr__fail(error, -ENOMEM, "out of memory for a PNG writer");
}

void hr__png_writer_destroy(struct hr__png_writer **writer)
{
    struct hr__png_writer *w = *writer;
    *writer = NULL;
    if (!w)
        return;
    hr__scratch_free(&w->row);
    free(w->file);
    hr__free(w);
}

size_t hr__png_writer_memory(const struct hr__png_writer *writer)
{
    return sizeof *writer + writer->row.capacity + writer->length;
}

static void interleave(const struct hr__planar *pixels, int y, int channels, uint8_t *out)
{
    for (int x = 0; x < pixels->width; x++)
        for (int c = 0; c < channels; c++)
            *out++ = pixels->plane[c][y * pixels->stride + x];
}

static int describe(struct hr__png_writer *w, spng_ctx *context, const struct hr_image_info *info,
                    int channels)
{
    /* A TIFF header and a directory with one entry: the orientation. */
    static const char exif[sizeof w->exif] = {'I', 'I',  42,   0, 8, 0, 0, 0, 1,
                                              0,   0x12, 0x01, 3, 0, 1, 0, 0, 0};
    struct spng_ihdr header = {
        .width = (uint32_t)info->width,
        .height = (uint32_t)info->height,
        .bit_depth = 8,
        .color_type = channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR,
    };
    int r = spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
    if (!r)
        r = spng_set_ihdr(context, &header);
    if (!r && info->orientation != 1) {
        memcpy(w->exif, exif, sizeof exif);
        w->exif[18] = (char)info->orientation;
        r = spng_set_exif(context, &(struct spng_exif){.length = sizeof w->exif, .data = w->exif});
    }
    return r;
}

static int write_rows(struct hr__png_writer *w, spng_ctx *context, const struct hr__planar *pixels,
                      int channels)
{
    size_t bytes = (size_t)pixels->width * (size_t)channels;
    int r = spng_encode_image(context, NULL, 0, SPNG_FMT_PNG,
                              SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE);
    for (int y = 0; !r && y < pixels->height; y++) {
        interleave(pixels, y, channels, w->row.bytes);
        r = spng_encode_row(context, w->row.bytes, bytes);
    }
    return r == SPNG_EOI ? 0 : r;
}

int hr__png_write(struct hr__png_writer *writer, const struct hr__planar *pixels,
                  const struct hr_image_info *info, const void **bytes, size_t *length,
                  struct hr_error *error)
{
    struct hr__png_writer *w = writer;
    int channels = info->channels == 1 ? 1 : 3;
    free(w->file);
    w->file = NULL;
    w->length = 0;
    int r = hr__scratch_reserve(&w->row, (size_t)pixels->width * 3, error);
    if (r)
        return r;
    spng_ctx *context = spng_ctx_new(SPNG_CTX_ENCODER);
    if (!context)
        return hr__fail(error, -ENOMEM, "out of memory for a PNG writer");
    r = describe(w, context, info, channels);
    if (!r)
        r = write_rows(w, context, pixels, channels);
    if (!r)
        w->file = spng_get_png_buffer(context, &w->length, &r);
    spng_ctx_free(context);
    if (r || !w->file)
        return hr__fail(error, r == SPNG_EMEM || !r ? -ENOMEM : -EINVAL,
                        "the PNG cannot be written: %s", spng_strerror(r));
    *bytes = w->file;
    *length = w->length;
    return 0;
}
