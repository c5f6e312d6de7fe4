/*
 * Decodes PNG with libspng: every colour type and depth to 8-bit RGB like Pillow's convert("RGB").
 * Alpha is dropped, transparency and gamma are ignored, 16-bit samples keep their high byte, and a
 * palette index past the end is black. One difference: 16-bit grey, which Pillow clips at 255, is
 * scaled like the other 16-bit types, because clipping makes nearly everything white.
 *
 * Only IHDR, PLTE, IDAT and IEND determine the pixels. So libspng gets a stream without ancillary
 * chunks, and their text and profiles are neither inflated nor stored. Scanlines are decoded one by
 * one, interlaced or not, and their part of the region is stored at once, so memory beyond the
 * region is a few scanlines. Rows after the region are not decoded, and damage in them is not
 * noticed; a region that reaches the last row checks all of IDAT.
 *
 * Masks are decoded to the stored numbers (hr__decoder_want_indices), in one plane.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/deinterleave.h"
#include "codec/format.h"

#include <errno.h>
#include <string.h>

#include <spng.h>

enum { SIGNATURE_BYTES = 8, CHUNK_HEADER_BYTES = 8, CHUNK_FRAME_BYTES = 12, IHDR_BYTES = 13 };

/* The file without its ancillary chunks. */
struct critical_stream {
    const uint8_t *at, *end;
    size_t left; /* bytes of the current chunk or signature not yet returned */
};

struct png {
    struct hr__codec_scratch row;    /* one scanline as stored */
    struct hr__codec_scratch mended; /* a repaired copy of a damaged file */
    uint8_t map[3][256];             /* sample or palette index of at most 8 bits to R, G, B */
    hr__deinterleave_fn *deinterleave;
};

/* The layout of pixels in a scanline. */
struct layout {
    unsigned depth;    /* bits per sample */
    unsigned channels; /* samples per pixel */
    int colour;        /* R, G and B differ: channels 0, 1, 2 */
    int mapped;        /* samples go through png.map */
};

/* Pixels of one scanline, and their destination. */
struct run {
    const uint8_t *row;
    size_t first, count; /* pixels of the scanline */
    uint8_t *plane[3];   /* destination of the first of them */
    size_t step;         /* distance between neighbours there */
};

static uint32_t read_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Moves to the next chunk that is kept. Returns 0 at the end of the bytes. */
static int next_critical(struct critical_stream *s)
{
    for (;;) {
        size_t rest = (size_t)(s->end - s->at);
        if (rest < CHUNK_HEADER_BYTES)
            return 0;
        size_t chunk = (size_t)read_be32(s->at) + CHUNK_FRAME_BYTES;
        if (s->at[4] < 'a' || s->at[4] > 'z') {
            s->left = chunk;
            return 1;
        }
        if (chunk > rest)
            return 0;
        s->at += chunk;
    }
}

static int read_critical(spng_ctx *ctx, void *user, void *to, size_t length)
{
    struct critical_stream *s = user;
    uint8_t *out = to;
    while (length) {
        if (!s->left && !next_critical(s))
            return SPNG_IO_EOF;
        size_t n = length < s->left ? length : s->left;
        if (n > (size_t)(s->end - s->at))
            return SPNG_IO_EOF;
        memcpy(out, s->at, n);
        out += n;
        s->at += n;
        s->left -= n;
        length -= n;
    }
    return 0;
}

/* libspng's allocation hooks get no context, and it reports lack of memory in zlib as a damaged
 * stream. So this records, per thread, whether memory was refused during the current call. */
static _Thread_local int memory_refused;

static void *note_refusal(void *block)
{
    memory_refused |= !block;
    return block;
}

static void *take_memory(size_t size)
{
    return note_refusal(hr__alloc(HR__TAG_CODEC, 1, size));
}

static void *take_more_memory(void *block, size_t size)
{
    return note_refusal(hr__realloc(HR__TAG_CODEC, block, 1, size));
}

static void *take_array(size_t count, size_t size)
{
    return note_refusal(hr__alloc(HR__TAG_CODEC, count, size));
}

static int fail_png(int code, struct hr_error *error)
{
    if (memory_refused)
        return hr__fail(error, -ENOMEM, "out of memory while decoding PNG");
    switch (code) {
    case SPNG_IO_EOF:
        return hr__fail(error, -EBADMSG, "damaged PNG: the file ends early");
    case SPNG_ECHUNK_UNKNOWN_CRITICAL:
        return hr__fail(error, -ENOTSUP,
                        "unsupported PNG: a chunk of an extension that must be understood; "
                        "convert it to plain PNG");
    default:
        return hr__fail(error, -EBADMSG, "damaged PNG: %s", spng_strerror(code));
    }
}

/* Computes the checksum of a chunk's type and its `length` bytes: PNG's CRC-32 (third edition,
 * annex D). */
static uint32_t checksum(const uint8_t *chunk, size_t length)
{
    uint32_t crc = ~0u;
    const uint8_t *p = chunk + 4, *end = p + 4 + length;
    for (; p < end; p++) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

/* libspng reports a wrong header checksum only when rows are read, but the sizes are used
 * earlier. */
static int header_is_intact(const struct hr__encoded *in)
{
    const uint8_t *header = in->bytes + SIGNATURE_BYTES;
    return in->length >= SIGNATURE_BYTES + CHUNK_FRAME_BYTES + IHDR_BYTES &&
           checksum(header, IHDR_BYTES) == read_be32(header + CHUNK_HEADER_BYTES + IHDR_BYTES);
}

/* Replaces `in` by a copy whose IDAT chunks have correct checksums, which Pillow does not check.
 * All other checksums still count, for Pillow as for libspng, including the one inside the
 * compressed data. */
static int mend_checksums(struct png *png, struct hr__encoded *in, struct hr_error *error)
{
    int rc = hr__scratch_reserve(&png->mended, in->length, error);
    if (rc)
        return rc;
    uint8_t *bytes = memcpy(png->mended.bytes, in->bytes, in->length);
    in->bytes = bytes;
    for (size_t at = SIGNATURE_BYTES; in->length - at >= CHUNK_FRAME_BYTES;) {
        size_t length = read_be32(bytes + at);
        if (length > in->length - at - CHUNK_FRAME_BYTES)
            break;
        uint8_t *end = bytes + at + CHUNK_HEADER_BYTES + length;
        if (!memcmp(bytes + at + 4, "IDAT", 4)) {
            uint32_t crc = checksum(bytes + at, length);
            for (int i = 0; i < 4; i++)
                end[i] = (uint8_t)(crc >> (24 - 8 * i));
        }
        at += length + CHUNK_FRAME_BYTES;
    }
    return 0;
}

/* Creates a context on `stream` and reads the header. */
static int open_png(spng_ctx **out, const struct hr__encoded *in, struct critical_stream *stream,
                    struct spng_ihdr *header, struct hr_error *error)
{
    static struct spng_alloc memory = {take_memory, take_more_memory, take_array, hr__free};
    memory_refused = 0;
    spng_ctx *ctx = spng_ctx_new2(&memory, 0);
    int rc = SPNG_EMEM;
    stream->at = in->bytes;
    stream->end = in->bytes + in->length;
    stream->left = SIGNATURE_BYTES;
    if (ctx)
        rc = spng_set_png_stream(ctx, read_critical, stream);
    if (!rc)
        rc = spng_get_ihdr(ctx, header);
    if (!rc && !header_is_intact(in))
        rc = SPNG_ECHUNK_CRC;
    if (rc) {
        spng_ctx_free(ctx);
        return fail_png(rc, error);
    }
    *out = ctx;
    return 0;
}

/* Returns the orientation from the eXIf chunk (PNG third edition, 11.3.4.5), which may be anywhere
 * in the file. */
static int find_orientation(const struct hr__encoded *in)
{
    size_t at = SIGNATURE_BYTES;
    while (in->length - at >= CHUNK_FRAME_BYTES) {
        size_t length = read_be32(in->bytes + at);
        if (length > in->length - at - CHUNK_FRAME_BYTES)
            return 1;
        const uint8_t *type = in->bytes + at + 4;
        if (!memcmp(type, "eXIf", 4))
            return hr__exif_orientation(type + 4, length);
        if (!memcmp(type, "IEND", 4))
            return 1;
        at += length + CHUNK_FRAME_BYTES;
    }
    return 1;
}

static struct layout layout_of(const struct spng_ihdr *header)
{
    struct layout l = {.depth = header->bit_depth, .channels = 1};
    switch (header->color_type) {
    case SPNG_COLOR_TYPE_TRUECOLOR:
        l.channels = 3;
        break;
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
        l.channels = 2;
        break;
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
        l.channels = 4;
        break;
    }
    l.colour = l.channels >= 3;
    l.mapped = l.channels == 1 && l.depth <= 8;
    return l;
}

static int png_info(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                    struct hr_error *error)
{
    struct critical_stream stream;
    struct spng_ihdr header;
    spng_ctx *ctx = NULL;
    int rc = open_png(&ctx, in, &stream, &header, error);
    if (rc)
        return rc;
    spng_ctx_free(ctx);
    info->width = (int)header.width;
    info->height = (int)header.height;
    info->channels =
        header.color_type == SPNG_COLOR_TYPE_INDEXED ? 3 : (int)layout_of(&header).channels;
    info->orientation = find_orientation(in);
    return 0;
}

/* Fills the map for an image whose samples have at most 8 bits. */
static int make_map(struct png *png, spng_ctx *ctx, const struct spng_ihdr *header)
{
    unsigned top = (1u << header->bit_depth) - 1;
    if (header->color_type != SPNG_COLOR_TYPE_INDEXED) {
        for (unsigned v = 0; v <= top; v++)
            png->map[0][v] = png->map[1][v] = png->map[2][v] = (uint8_t)(v * 255 / top);
        return 0;
    }
    struct spng_plte palette;
    int rc = spng_get_plte(ctx, &palette);
    if (rc)
        return rc;
    memset(png->map, 0, sizeof png->map);
    for (unsigned v = 0; v < palette.n_entries && v < 256; v++) {
        png->map[0][v] = palette.entries[v].red;
        png->map[1][v] = palette.entries[v].green;
        png->map[2][v] = palette.entries[v].blue;
    }
    return 0;
}

/* Stores indices of 1, 2, 4 or 8 bits in the first plane. */
static void store_indices(const struct run *run, unsigned depth)
{
    unsigned per_byte = 8 / depth, mask = (1u << depth) - 1;
    if (depth == 8 && run->step == 1) {
        memcpy(run->plane[0], run->row + run->first, run->count);
        return;
    }
    for (size_t i = 0; i < run->count; i++) {
        size_t pixel = run->first + i;
        unsigned shift = depth * (per_byte - 1 - (unsigned)(pixel % per_byte));
        run->plane[0][i * run->step] = (uint8_t)(run->row[pixel / per_byte] >> shift & mask);
    }
}

/* Stores samples of 1, 2, 4 or 8 bits. */
static void store_mapped(const struct png *png, const struct run *run, unsigned depth)
{
    unsigned per_byte = 8 / depth, mask = (1u << depth) - 1;
    for (size_t i = 0; i < run->count; i++) {
        size_t pixel = run->first + i;
        unsigned shift = depth * (per_byte - 1 - (unsigned)(pixel % per_byte));
        unsigned v = run->row[pixel / per_byte] >> shift & mask;
        for (int c = 0; c < 3; c++)
            run->plane[c][i * run->step] = png->map[c][v];
    }
}

/* Stores samples of 8 or 16 bits; of 16 bits only the first byte, which is the high one. */
static void store_samples(const struct png *png, const struct run *run, const struct layout *l)
{
    size_t sample = l->depth / 8, pixel = sample * l->channels;
    const uint8_t *from = run->row + run->first * pixel;
    if (l->channels == 3 && l->depth == 8 && run->step == 1) {
        png->deinterleave(from, run->plane, run->count);
        return;
    }
    for (int c = 0; c < 3; c++) {
        const uint8_t *channel = from + (l->colour ? (size_t)c * sample : 0);
        for (size_t i = 0; i < run->count; i++)
            run->plane[c][i * run->step] = channel[i * pixel];
    }
}

/* Stores the part of a scanline that is in the region. */
static void store_scanline(const struct png *png, const struct hr__decode_job *job,
                           const struct layout *l, const struct spng_row_info *at, int interlaced)
{
    static const uint8_t adam7_start[7] = {0, 4, 0, 2, 0, 1, 0};
    static const uint8_t adam7_step[7] = {8, 8, 4, 4, 2, 2, 1};
    const struct hr_region *r = &job->region;
    size_t start = interlaced ? adam7_start[at->pass] : 0;
    size_t step = interlaced ? adam7_step[at->pass] : 1;
    size_t left = (size_t)r->x, right = left + (size_t)r->width;
    if (at->row_num < (uint32_t)r->y || at->row_num >= (uint32_t)r->y + (uint32_t)r->height)
        return;
    struct run run = {.row = png->row.bytes, .step = step};
    run.first = left > start ? (left - start + step - 1) / step : 0;
    size_t x = start + run.first * step;
    if (x >= right)
        return;
    run.count = (right - x + step - 1) / step;
    for (int c = 0; c < 3; c++)
        run.plane[c] = job->out.plane[c] +
                       (ptrdiff_t)(at->row_num - (uint32_t)r->y) * job->out.stride + (x - left);
    if (job->in.indices)
        store_indices(&run, l->depth);
    else if (l->mapped)
        store_mapped(png, &run, l->depth);
    else
        store_samples(png, &run, l);
}

/* Decodes scanlines up to the region's last. Returns a libspng code. */
static int read_scanlines(struct png *png, spng_ctx *ctx, const struct hr__decode_job *job,
                          const struct critical_stream *stream)
{
    struct spng_ihdr header;
    int rc = spng_get_ihdr(ctx, &header);
    if (!rc)
        rc = spng_decode_image(ctx, NULL, 0, SPNG_FMT_RAW, SPNG_DECODE_PROGRESSIVE);
    if (rc)
        return rc;
    struct layout l = layout_of(&header);
    uint32_t end = (uint32_t)job->region.y + (uint32_t)job->region.height;
    int interlaced = header.interlace_method != 0;
    if (l.mapped && !job->in.indices)
        rc = make_map(png, ctx, &header);
    while (!rc) {
        struct spng_row_info at;
        rc = spng_get_row_info(ctx, &at);
        if (rc)
            return rc;
        if (!interlaced && at.row_num >= end)
            return 0;
        rc = spng_decode_scanline(ctx, png->row.bytes, png->row.capacity);
        if (rc && rc != SPNG_EOI)
            return rc;
        store_scanline(png, job, &l, &at, interlaced);
    }
    if (rc != SPNG_EOI)
        return rc;
    if (job->in.lenient)
        return 0; /* the rest does not matter */
    /* Check the checksum of the last scanlines' data. Pillow also accepts a file without IEND. */
    rc = spng_decode_chunks(ctx);
    return rc == SPNG_IO_EOF && !stream->left ? 0 : rc;
}

static int png_region(void *state, const struct hr__decode_job *job, struct hr_error *error)
{
    struct png *png = state;
    struct critical_stream stream;
    struct spng_ihdr header;
    struct hr__encoded in = job->in;
    spng_ctx *ctx = NULL;
    int rc = in.lenient ? mend_checksums(png, &in, error) : 0;
    if (!rc)
        rc = open_png(&ctx, &in, &stream, &header, error);
    if (rc)
        return rc;
    if (header.width != (uint32_t)job->info.width || header.height != (uint32_t)job->info.height) {
        rc = hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    } else {
        struct layout l = layout_of(&header);
        if (in.indices && !l.mapped)
            rc = hr__fail(error, -ENOTSUP,
                          "the PNG has %s, and class indices are those of a palette or greys of at "
                          "most 8 bits",
                          l.colour          ? "colours"
                          : l.channels == 2 ? "an alpha channel"
                                            : "16 bits");
        if (!rc)
            rc = hr__scratch_reserve(&png->row,
                                     ((size_t)header.width * l.channels * l.depth + 7) / 8, error);
        if (!rc && (rc = read_scanlines(png, ctx, job, &stream)))
            rc = fail_png(rc, error);
    }
    spng_ctx_free(ctx);
    return rc;
}

static int png_create(void **state, struct hr_error *error)
{
    struct png *png = hr__alloc(HR__TAG_CODEC, 1, sizeof *png);
    if (!png)
        return hr__fail(error, -ENOMEM, "out of memory for a PNG decoder");
    png->deinterleave = hr__deinterleave(hr__isa());
    *state = png;
    return 0;
}

static void png_destroy(void **state)
{
    struct png *png = *state;
    hr__scratch_free(&png->row);
    hr__scratch_free(&png->mended);
    hr__free(png);
    *state = NULL;
}

static size_t png_memory(const void *state)
{
    const struct png *png = state;
    return sizeof *png + png->row.capacity + png->mended.capacity;
}

const struct hr__format hr__format_png = {
    .id = HR_IMAGE_PNG,
    .create = png_create,
    .destroy = png_destroy,
    .info = png_info,
    .region = png_region,
    .memory = png_memory,
};
