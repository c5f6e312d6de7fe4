/*
 * The converter: one interface for all forms.
 *
 * Before an item is returned, its pixels are compared with the decode of the file, by libjpeg-turbo
 * if it is a JPEG. The
 * comparison goes by groups of rows, so that at most one of the two images is in memory as a whole.
 * If a file cannot become an item (unsupported kind, or pixels that differ), the result is
 * -ENOTSUP, and the file stays as it is.
 */
#include "codec/converter.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "codec/jpeg_transcode.h"
#include "codec/png_write.h"
#include "codec/waveform.h"

#include <errno.h>
#include <string.h>

/* Same limit as the recipe's: Pillow refuses larger images as decompression bombs. */
#define DEFAULT_MAX_PIXELS UINT64_C(178956970)

/* Rows compared at once. */
#define STRIP_ROWS 64

/* Estimated bytes of an item of coefficients, from the bytes of its JPEG and its number of blocks.
 * Fitted to photographs of 500x375 at 4.3 bits per pixel and of 1600x1200 at 1.3; within some 5 %
 * of both. Header, quantisation and profiles take the same bytes in all images but small ones. */
#define EXPECTED_PER_BYTE  1.0
#define EXPECTED_PER_BLOCK 1.7
#define EXPECTED_ALWAYS    1000

struct hr_converter {
    struct hr_converter_options options;
    struct hr__transcoder *transcoder;
    struct hr__decoder *files, *items; /* for the two sides of the comparison */
    struct hr__png_writer *png;        /* created on first use */
    struct hr__codec_scratch pixels;   /* planes of a PNG, or a WAV file */
};

void hr_converter_options_init(struct hr_converter_options *options, size_t size)
{
    static const struct hr_converter_options defaults = {.max_pixels = DEFAULT_MAX_PIXELS};
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

static int take_options(struct hr_converter_options *out,
                        const struct hr_converter_options *options, struct hr_error *error)
{
    hr_converter_options_default(out);
    if (!options)
        return 0;
    int r = hr__versioned_take(out, sizeof *out, options, "hr_converter_options", error);
    if (r)
        return r;
    if (!(out->max_growth >= 0))
        return hr__fail(error, -EINVAL, "hr_converter_options.max_growth is %g: 0 or more",
                        out->max_growth);
    if (!out->max_pixels)
        out->max_pixels = DEFAULT_MAX_PIXELS;
    return 0;
}

int hr_converter_create(struct hr_converter **out, const struct hr_converter_options *options,
                        struct hr_error *error)
{
    struct hr_converter *c = hr__alloc(HR__TAG_CODEC, 1, sizeof *c);
    *out = c;
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for a converter");
    int r = take_options(&c->options, options, error);
    if (!r)
        r = hr__transcoder_create(&c->transcoder, error);
    if (!r)
        r = hr__decoder_create(&c->files, error);
    if (!r)
        hr__decoder_use_library(c->files);
    if (!r)
        r = hr__decoder_create(&c->items, error);
    if (r)
        hr_converter_destroy(out);
    return r;
}

void hr_converter_destroy(struct hr_converter **converter)
{
    struct hr_converter *c = *converter;
    *converter = NULL;
    if (!c)
        return;
    hr__transcoder_destroy(&c->transcoder);
    hr__decoder_destroy(&c->files);
    hr__decoder_destroy(&c->items);
    hr__png_writer_destroy(&c->png);
    hr__scratch_free(&c->pixels);
    hr__free(c);
}

size_t hr_converter_memory(const struct hr_converter *c)
{
    return sizeof *c + hr__transcoder_memory(c->transcoder) + hr__decoder_memory(c->files) +
           hr__decoder_memory(c->items) + c->pixels.capacity +
           (c->png ? hr__png_writer_memory(c->png) : 0);
}

static int same_rows(const struct hr__planar *file, int y, const struct hr__planar *strip)
{
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < strip->height; i++)
            if (memcmp(file->plane[c] + (y + i) * file->stride, strip->plane[c] + i * strip->stride,
                       (size_t)strip->width))
                return 0;
    return 1;
}

int hr__converter_verify(struct hr_converter *converter, const struct hr__encoded *file,
                         const struct hr__encoded *item, struct hr_error *error)
{
    struct hr_converter *c = converter;
    struct hr__planar whole, strip;
    struct hr_image_info info, own;
    int r = hr__decoder_info(c->files, file->bytes, file->length, &info, error);
    if (!r)
        r = hr__check_pixels(&info, c->options.max_pixels, error);
    if (!r)
        r = hr__decoder_info(c->items, item->bytes, item->length, &own, error);
    if (r)
        return r;
    if (own.width != info.width || own.height != info.height)
        return hr__fail(error, -ENOTSUP, "the item has %d x %d pixels and its file %d x %d",
                        own.width, own.height, info.width, info.height);
    struct hr_region region = {0, 0, info.width, info.height};
    r = hr__decoder_region(c->files, file->bytes, file->length, &info, &region, &whole, error);
    for (; !r && region.y < info.height; region.y += region.height) {
        int left = info.height - region.y;
        region.height = left < STRIP_ROWS ? left : STRIP_ROWS;
        r = hr__decoder_region(c->items, item->bytes, item->length, &own, &region, &strip, error);
        if (!r && !same_rows(&whole, region.y, &strip))
            r = hr__fail(error, -ENOTSUP,
                         "its pixels as an item would differ from the file's in rows %d to %d",
                         region.y, region.y + region.height - 1);
    }
    return r;
}

static size_t limit_of(const struct hr_converter *c, size_t length)
{
    double limit = c->options.max_growth * (double)length;
    return limit <= 0 || limit >= (double)SIZE_MAX ? 0 : limit < 1 ? 1 : (size_t)limit;
}

/* Reads the header of a file that should become an item. */
static int examine(struct hr_converter *c, const struct hr__encoded *file, enum hr_form form,
                   struct hr_image_info *info, struct hr_error *error)
{
    int r = hr__decoder_info(c->files, file->bytes, file->length, info, error);
    int is_png = !r && info->format == HR_IMAGE_PNG;
    if (is_png && form != HR_FORM_PLANES)
        r = hr__fail(error, -ENOTSUP, "it is a PNG; its only form is planes");
    else if (!r && !is_png && info->format != HR_IMAGE_JPEG)
        r = info->format == HR_IMAGE_COEFFICIENTS || info->format == HR_IMAGE_PLANES ||
                    info->format == HR_IMAGE_INDEXED
                ? hr__fail(error, -ENOTSUP, "it is an item already")
                : hr__fail(error, -ENOTSUP, "it is a %s; items are made of JPEG and PNG files",
                           hr_image_format_name(info->format));
    return r ? r : hr__check_pixels(info, c->options.max_pixels, error);
}

typedef int transcoder_fn(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                          size_t limit, struct hr__transcoded *out, struct hr_error *error);

static transcoder_fn *const transcoders[HR_FORMS] = {
    [HR_FORM_COEFFICIENTS] = hr__transcode_coefficients,
    [HR_FORM_PLANES] = hr__transcode_planes,
    [HR_FORM_INDEXED] = hr__transcode_indexed,
};

/* Returns non-zero if the item is the very file with an index. Its pixels need no comparison: what
 * the index does not fit is decoded as the file is. */
static int holds_file(const struct hr__transcoded *made, enum hr_form form,
                      const struct hr__encoded *file)
{
    struct hr__indexed item;
    return form == HR_FORM_INDEXED && !hr__indexed_open(&item, made->bytes, made->length, NULL) &&
           item.file.length == file->length && !memcmp(item.file.bytes, file->bytes, file->length);
}

/* Makes planes of the pixels of a file that is no JPEG. */
static int convert_pixels(struct hr_converter *c, const struct hr__encoded *file,
                          const struct hr_image_info *info, struct hr__transcoded *out,
                          struct hr_error *error)
{
    struct hr__item_header shape;
    struct hr__planar pixels;
    struct hr_region whole = {0, 0, info->width, info->height};
    size_t limit = limit_of(c, file->length);
    int r = hr__planes_shape(&shape, info, error);
    if (!r && limit && shape.bytes > limit)
        r = hr__fail(error, -ENOSPC, "planes take %llu bytes, more than %zu",
                     (unsigned long long)shape.bytes, limit);
    if (!r)
        r = hr__scratch_reserve(&c->pixels, shape.bytes, error);
    if (!r)
        r = hr__decoder_region(c->files, file->bytes, file->length, info, &whole, &pixels, error);
    if (r)
        return r;
    hr__planes_write(c->pixels.bytes, &shape, &pixels);
    *out = (struct hr__transcoded){c->pixels.bytes, shape.bytes};
    return 0;
}

int hr_converter_run(struct hr_converter *converter, enum hr_form form, const void *bytes,
                     size_t length, struct hr_item *item, struct hr_error *error)
{
    struct hr_converter *c = converter;
    const struct hr__encoded file = {.bytes = bytes, .length = length};
    struct hr__transcoded made;
    struct hr_image_info info;
    if (form == HR_FORM_ENCODED) {
        *item = (struct hr_item){bytes, length, hr_form_of(bytes, length)};
        return 0;
    }
    if ((unsigned)form >= HR_FORMS)
        return hr__fail(error, -EINVAL, "%d is none of enum hr_form", (int)form);
    if (hr__form_is_waveform(form))
        return hr__fail(error, -ENOTSUP,
                        "%s is a form of sounds, which hr_preparer_waveform makes (in Python, "
                        "headrace.convert)",
                        hr_form_name(form));
    int r = examine(c, &file, form, &info, error);
    if (r)
        return r;
    if (info.format == HR_IMAGE_JPEG)
        r = transcoders[form](c->transcoder, &file, limit_of(c, length), &made, error);
    else
        r = convert_pixels(c, &file, &info, &made, error);
    if (!r && !c->options.trust && !holds_file(&made, form, &file))
        r = hr__converter_verify(
            c, &file, &(struct hr__encoded){.bytes = made.bytes, .length = made.length}, error);
    if (!r)
        *item = (struct hr_item){made.bytes, made.length, form};
    return r;
}

static int restore_coefficients(struct hr_converter *c, const struct hr__encoded *in,
                                struct hr_item *item, struct hr_error *error)
{
    struct hr__coefficients coefficients;
    struct hr__transcoded made;
    int r = hr__coefficients_open(&coefficients, in->bytes, in->length, error);
    if (!r)
        r = hr__transcode_jpeg(c->transcoder, &coefficients, &made, error);
    if (!r)
        *item = (struct hr_item){made.bytes, made.length, HR_FORM_ENCODED};
    return r;
}

static int restore_indexed(const struct hr__encoded *in, struct hr_item *item,
                           struct hr_error *error)
{
    struct hr__indexed indexed;
    int r = hr__indexed_open(&indexed, in->bytes, in->length, error);
    if (!r)
        *item = (struct hr_item){indexed.file.bytes, indexed.file.length, HR_FORM_ENCODED};
    return r;
}

static int restore_planes(struct hr_converter *c, const struct hr__encoded *in,
                          const struct hr_image_info *info, struct hr_item *item,
                          struct hr_error *error)
{
    struct hr__planar pixels;
    struct hr_item out = {.form = HR_FORM_ENCODED};
    struct hr_region whole = {0, 0, info->width, info->height};
    int r = c->png ? 0 : hr__png_writer_create(&c->png, error);
    if (!r)
        r = hr__decoder_region(c->items, in->bytes, in->length, info, &whole, &pixels, error);
    if (!r)
        r = hr__png_write(c->png, &pixels, info, &out.bytes, &out.length, error);
    if (!r)
        *item = out;
    return r;
}

static int restore_waveform(struct hr_converter *c, const struct hr__encoded *in,
                            struct hr_item *item, struct hr_error *error)
{
    struct hr__waveform_header header;
    int r = hr__waveform_parse(&header, in->bytes, in->length, error);
    size_t bytes = r ? 0 : hr__waveform_write_wav(NULL, &header, in->bytes);
    if (!r)
        r = hr__scratch_reserve(&c->pixels, bytes, error);
    if (r)
        return r;
    hr__waveform_write_wav(c->pixels.bytes, &header, in->bytes);
    *item = (struct hr_item){c->pixels.bytes, bytes, HR_FORM_ENCODED};
    return 0;
}

int hr_converter_restore(struct hr_converter *converter, const void *bytes, size_t length,
                         struct hr_item *item, struct hr_error *error)
{
    struct hr_converter *c = converter;
    const struct hr__encoded in = {.bytes = bytes, .length = length};
    enum hr_form form = hr_form_of(bytes, length);
    struct hr_image_info info;
    if (form == HR_FORM_ENCODED) {
        *item = (struct hr_item){bytes, length, form};
        return 0;
    }
    if (form == HR_FORM_INDEXED)
        return restore_indexed(&in, item, error);
    if (hr__form_is_waveform(form))
        return restore_waveform(c, &in, item, error);
    int r = hr__decoder_info(c->items, bytes, length, &info, error);
    if (!r) /* before allocating memory for the size in the header */
        r = hr__check_pixels(&info, c->options.max_pixels, error);
    if (r)
        return r;
    return form == HR_FORM_PLANES ? restore_planes(c, &in, &info, item, error)
                                  : restore_coefficients(c, &in, item, error);
}

static uint64_t expected_coefficients(const struct hr__item_header *shape, size_t length)
{
    uint64_t blocks = 0;
    for (int c = 0; c < shape->components; c++)
        blocks += (uint64_t)((hr__item_samples(shape->width, shape->h, c) + 7) / 8) *
                  ((hr__item_samples(shape->height, shape->v, c) + 7) / 8);
    return (uint64_t)(EXPECTED_PER_BYTE * (double)length + EXPECTED_PER_BLOCK * (double)blocks) +
           EXPECTED_ALWAYS;
}

int hr_converter_estimate(struct hr_converter *converter, enum hr_form form, const void *bytes,
                          size_t length, struct hr_form_estimate *estimate, struct hr_error *error)
{
    struct hr_converter *c = converter;
    const struct hr__encoded file = {.bytes = bytes, .length = length};
    struct hr_form_estimate now = {.bytes = length, .possible = 1};
    struct hr_image_info info;
    struct hr__item_header shape;
    if (hr__form_is_waveform(form)) {
        now.possible = 0;
    } else if (form != HR_FORM_ENCODED) {
        int r = examine(c, &file, form, &info, error);
        if (!r && info.format != HR_IMAGE_JPEG)
            r = hr__planes_shape(&shape, &info, error);
        else if (!r && form == HR_FORM_INDEXED)
            r = hr__transcode_indexed_size(c->transcoder, &file, &now.bytes, error);
        else if (!r)
            r = hr__transcode_shape(c->transcoder, &file, &shape, error);
        now.possible = !r;
        if (r && r != -ENOTSUP)
            return r;
        if (!r && form != HR_FORM_INDEXED)
            now.bytes = form == HR_FORM_PLANES ? hr__planes_bytes(&shape)
                                               : expected_coefficients(&shape, length);
    }
    hr__versioned_give(estimate, &now, sizeof now);
    return 0;
}
