/*
 * Decodes BMP (Windows bitmaps): palettes of 1, 4 and 8 bits, 16, 24 and 32 bits with the usual
 * masks, RLE4 and RLE8, rows from the bottom up or from the top down.
 *
 * The pixels are those of Pillow's convert("RGB"): alpha is dropped, 5 and 6 bits are scaled by
 * truncating division, and run-length data is read as Pillow reads it: an end of line at the
 * beginning of a row adds no row, and data that ends before the last pixel is an error. Files
 * of 4 bits whose palette is a grey ramp, and of 4 or 8 bits whose palette is black and white, are
 * decoded by their palette; Pillow takes them for images of another depth.
 *
 * Rows without compression lie in the file as they are, so a region reads only its own bytes.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/format.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum { FILE_HEADER_BYTES = 14, BMP_COLOURS = 256 };
enum { RAW = 0, RLE8 = 1, RLE4 = 2, BITFIELDS = 3 };

struct bmp {
    struct hr__codec_scratch indices; /* of a run-length coded image, a byte a pixel, row by row as
                                       * in the file */
};

/* What the header says. */
struct bitmap {
    uint32_t width, height;
    int top_down;
    unsigned bits, compression;
    uint32_t mask[3];                /* of 16, 24 and 32 bits: R, G, B */
    size_t row_bytes, stride;        /* of rows without compression */
    size_t offset;                   /* of the pixels in the file */
    uint8_t palette[BMP_COLOURS][3]; /* R, G, B */
};

static uint32_t read16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t read32(const uint8_t *p)
{
    return read16(p) | read16(p + 2) << 16;
}

static int fail_early(const struct hr__encoded *in, struct hr_error *error)
{
    return hr__fail(error, -EBADMSG,
                    "damaged BMP: the file ends after %zu bytes, before its pixels do", in->length);
}

/* Reads `colours` entries of the palette at `at`. */
static int read_palette(struct bitmap *b, const struct hr__encoded *in, size_t at, size_t colours,
                        size_t entry)
{
    if (colours > BMP_COLOURS || in->length < at || (in->length - at) / entry < colours)
        return -EBADMSG;
    for (size_t i = 0; i < colours; i++)
        for (int c = 0; c < 3; c++)
            b->palette[i][c] = in->bytes[at + i * entry + 2 - (size_t)c];
    return 0;
}

/* Sets the masks and returns non-zero if they are supported: whole bytes, or the two usual ones of
 * 16 bits. */
static int take_masks(struct bitmap *b, const uint8_t *masks)
{
    static const uint32_t rgb555[3] = {0x7C00, 0x3E0, 0x1F}, rgb565[3] = {0xF800, 0x7E0, 0x1F};
    static const uint32_t rgb888[3] = {0xFF0000, 0xFF00, 0xFF};
    if (b->bits <= 8)
        return b->compression != BITFIELDS;
    memcpy(b->mask, b->bits == 16 ? rgb555 : rgb888, sizeof b->mask);
    if (b->compression != BITFIELDS)
        return 1;
    uint32_t given[3] = {read32(masks), read32(masks + 4), read32(masks + 8)};
    if (b->bits == 32 && !given[0] && !given[1] && !given[2])
        return 1;
    memcpy(b->mask, given, sizeof given);
    if (b->bits == 16)
        return !memcmp(given, rgb555, sizeof given) || !memcmp(given, rgb565, sizeof given);
    for (int c = 0; c < 3; c++) {
        int shift = given[c] ? __builtin_ctz(given[c]) : 1;
        if (shift % 8 || shift >= (int)b->bits || given[c] >> shift != 0xFF)
            return 0;
    }
    return 1;
}

static int is_supported(const struct bitmap *b)
{
    switch (b->compression) {
    case RLE8:
        return b->bits == 8;
    case RLE4:
        return b->bits == 4;
    case RAW:
    case BITFIELDS:
        return b->bits == 1 || b->bits == 4 || b->bits == 8 || b->bits == 16 || b->bits == 24 ||
               b->bits == 32;
    default:
        return 0;
    }
}

/* Reads the fields of the header, whose size is `bytes`, and returns the number of colours. */
static uint32_t read_fields(struct bitmap *b, const uint8_t *header, uint32_t bytes)
{
    if (bytes == 12) {
        b->width = read16(header + 4);
        b->height = read16(header + 6);
        b->bits = read16(header + 10);
        return 0;
    }
    b->top_down = header[11] == 0xFF;
    b->width = read32(header + 4);
    b->height = b->top_down ? -read32(header + 8) : read32(header + 8);
    b->bits = read16(header + 14);
    b->compression = read32(header + 16);
    return read32(header + 32);
}

static int check_sizes(struct bitmap *b, const struct hr__encoded *in, struct hr_error *error)
{
    if (b->width > INT_MAX || b->height > INT_MAX || !b->width || !b->height)
        return hr__fail(error, -EBADMSG, "damaged BMP: its header declares %u x %u pixels",
                        b->width, b->height);
    b->row_bytes = ((size_t)b->width * b->bits + 7) / 8;
    b->stride = (b->row_bytes + 3) & ~(size_t)3;
    if (b->offset > in->length)
        return fail_early(in, error);
    size_t left = in->length - b->offset;
    /* The last row needs no padding. */
    if ((b->compression == RAW || b->compression == BITFIELDS) &&
        (left < b->row_bytes || (left - b->row_bytes) / b->stride < b->height - 1))
        return fail_early(in, error);
    return 0;
}

static int open_bitmap(struct bitmap *b, const struct hr__encoded *in, struct hr_error *error)
{
    const uint8_t *header = in->bytes + FILE_HEADER_BYTES;
    *b = (struct bitmap){0};
    if (in->length < FILE_HEADER_BYTES + 4)
        return fail_early(in, error);
    uint32_t bytes = read32(header);
    if (bytes != 12 && bytes != 40 && bytes != 52 && bytes != 56 && bytes != 64 && bytes != 108 &&
        bytes != 124)
        return hr__fail(error, -ENOTSUP,
                        "unsupported BMP: a header of %u bytes; convert it to PNG or JPEG", bytes);
    size_t after = FILE_HEADER_BYTES + bytes, entry = bytes == 12 ? 3 : 4;
    if (in->length < after)
        return fail_early(in, error);
    uint32_t colours = read_fields(b, header, bytes);
    const uint8_t *masks = header + 40;
    if (b->compression == BITFIELDS && bytes == 40) {
        if (in->length < after + 12) /* they follow the header */
            return fail_early(in, error);
        after += 12;
    } else if (bytes < 52) {
        masks = NULL;
    }
    if (!is_supported(b) || !take_masks(b, masks))
        return hr__fail(error, -ENOTSUP,
                        "unsupported BMP: %u bits a pixel with compression %u, or unusual masks; "
                        "convert it to PNG or JPEG",
                        b->bits, b->compression);
    b->offset = read32(in->bytes + 10);
    if (b->bits <= 8) {
        colours = colours ? colours : 1u << b->bits;
        if (read_palette(b, in, after, colours, entry))
            return hr__fail(error, -EBADMSG, "damaged BMP: a palette of %u colours", colours);
        if (!b->offset || b->offset == FILE_HEADER_BYTES + bytes)
            b->offset = after + colours * entry;
    } else if (!b->offset) {
        b->offset = after;
    }
    return check_sizes(b, in, error);
}

static int bmp_info(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                    struct hr_error *error)
{
    struct bitmap b;
    int r = open_bitmap(&b, in, error);
    (void)state;
    if (r)
        return r;
    info->width = (int)b.width;
    info->height = (int)b.height;
    info->channels = 3;
    return 0;
}

/* Run-length data, and the indices made of it. */
struct runs {
    const uint8_t *bytes; /* of the file */
    size_t at, end;
    uint8_t *out;
    size_t done, total; /* pixels */
    size_t x, width;    /* column, as Pillow counts it */
    int nibbles;        /* RLE4 */
};

static void put(struct runs *r, size_t pixels, uint8_t first, uint8_t second)
{
    for (size_t i = 0; i < pixels && r->done < r->total; i++)
        r->out[r->done++] = i % 2 ? second : first;
}

static void put_run(struct runs *r, size_t pixels, uint8_t value)
{
    size_t left = r->x < r->width ? r->width - r->x : 0;
    pixels = pixels < left ? pixels : left;
    put(r, pixels, r->nibbles ? value >> 4 : value, r->nibbles ? value & 15 : value);
    r->x += pixels;
}

/* Copies pixels that are stored one by one. Returns 0 where the file ends. */
static int put_literals(struct runs *r, size_t pixels)
{
    size_t left = r->total - r->done, count = pixels < left ? pixels : left;
    size_t bytes = r->nibbles ? (count + 1) / 2 : count;
    if (r->end - r->at < bytes)
        return 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = r->bytes[r->at + (r->nibbles ? i / 2 : i)];
        put(r, 1, !r->nibbles ? byte : i % 2 ? byte & 15 : byte >> 4, 0);
    }
    r->at += bytes;
    r->at += r->at % 2; /* of the file: Pillow aligns there */
    r->x += pixels;
    return 1;
}

/* Returns 0 if the data ends before the last pixel. */
static int expand(struct runs *r)
{
    while (r->done < r->total) {
        if (r->at > r->end || r->end - r->at < 2)
            return 0;
        uint8_t count = r->bytes[r->at++], value = r->bytes[r->at++];
        if (count) {
            put_run(r, count, value);
        } else if (value == 0) {
            put(r, (r->width - r->done % r->width) % r->width, 0, 0);
            r->x = 0;
        } else if (value == 1) {
            return 0;
        } else if (value == 2) {
            if (r->end - r->at < 2)
                return 0;
            put(r, r->bytes[r->at] + r->bytes[r->at + 1] * r->width, 0, 0);
            r->at += 2;
            r->x = r->done % r->width;
        } else if (!put_literals(r, value)) {
            return 0;
        }
    }
    return 1;
}

static int expand_runs(struct bmp *bmp, const struct bitmap *b, const struct hr__encoded *in,
                       struct hr_error *error)
{
    size_t total = (size_t)b->width * b->height;
    int rc = hr__scratch_reserve(&bmp->indices, total, error);
    if (rc)
        return rc;
    struct runs runs = {.bytes = in->bytes,
                        .at = b->offset,
                        .end = in->length,
                        .out = bmp->indices.bytes,
                        .total = total,
                        .width = b->width,
                        .nibbles = b->compression == RLE4};
    return expand(&runs) ? 0 : hr__fail(error, -EBADMSG, "damaged BMP: its pixels end early");
}

/* Stores `count` pixels from column `x` on. */
static void store_palette(const struct bitmap *b, const uint8_t *row, unsigned bits, size_t x,
                          size_t count, uint8_t *const plane[3])
{
    unsigned per_byte = 8 / bits, mask = (1u << bits) - 1;
    for (size_t i = 0; i < count; i++) {
        size_t at = x + i;
        unsigned shift = bits * (per_byte - 1 - (unsigned)(at % per_byte));
        const uint8_t *colour = b->palette[row[at / per_byte] >> shift & mask];
        for (int c = 0; c < 3; c++)
            plane[c][i] = colour[c];
    }
}

static void store_colours(const struct bitmap *b, const uint8_t *row, size_t x, size_t count,
                          uint8_t *const plane[3])
{
    size_t bytes = b->bits / 8;
    row += x * bytes;
    for (int c = 0; c < 3; c++) {
        unsigned shift = (unsigned)__builtin_ctz(b->mask[c]);
        uint32_t top = b->mask[c] >> shift;
        if (bytes == 2)
            for (size_t i = 0; i < count; i++)
                plane[c][i] = (uint8_t)((read16(row + 2 * i) >> shift & top) * 255 / top);
        else
            for (size_t i = 0; i < count; i++)
                plane[c][i] = row[i * bytes + shift / 8];
    }
}

static int bmp_region(void *state, const struct hr__decode_job *job, struct hr_error *error)
{
    struct bmp *bmp = state;
    struct bitmap b;
    const struct hr_region *r = &job->region;
    int rc = open_bitmap(&b, &job->in, error);
    if (!rc && ((int)b.width != job->info.width || (int)b.height != job->info.height))
        rc = hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    int runs = b.compression == RLE8 || b.compression == RLE4;
    if (!rc && runs)
        rc = expand_runs(bmp, &b, &job->in, error);
    for (int y = 0; !rc && y < r->height; y++) {
        size_t line = (size_t)(r->y + y), x = (size_t)r->x, count = (size_t)r->width;
        uint8_t *plane[3];
        for (int c = 0; c < 3; c++)
            plane[c] = job->out.plane[c] + y * job->out.stride;
        if (!b.top_down)
            line = b.height - 1 - line;
        const uint8_t *row =
            runs ? bmp->indices.bytes + line * b.width : job->in.bytes + b.offset + line * b.stride;
        if (b.bits <= 8)
            store_palette(&b, row, runs ? 8 : b.bits, x, count, plane);
        else
            store_colours(&b, row, x, count, plane);
    }
    return rc;
}

static int bmp_create(void **state, struct hr_error *error)
{
    *state = hr__alloc(HR__TAG_CODEC, 1, sizeof(struct bmp));
    return *state ? 0 : hr__fail(error, -ENOMEM, "out of memory for a BMP decoder");
}

static void bmp_destroy(void **state)
{
    struct bmp *bmp = *state;
    hr__scratch_free(&bmp->indices);
    hr__free(bmp);
    *state = NULL;
}

static size_t bmp_memory(const void *state)
{
    const struct bmp *bmp = state;
    return sizeof *bmp + bmp->indices.capacity;
}

const struct hr__format hr__format_bmp = {
    .id = HR_IMAGE_BMP,
    .create = bmp_create,
    .destroy = bmp_destroy,
    .info = bmp_info,
    .region = bmp_region,
    .memory = bmp_memory,
};
