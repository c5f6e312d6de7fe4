/*
 * Decodes the first frame of a GIF (GIF89a specification), as Pillow's convert("RGB") does.
 *
 * The image is as large as the screen, or larger if the frame leaves it. What the frame does not
 * cover has the transparent colour, or colour 0 without one; inside the frame, transparent pixels
 * have their colour of the palette. Without a palette the indices are grey.
 *
 * LZW is decoded from the frame's beginning to the last row of the region, into a byte a pixel;
 * damage after that row is not noticed. Interlaced frames are decoded as a whole.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/format.h"

#include <errno.h>
#include <string.h>

enum { SCREEN_BYTES = 13, FRAME_BYTES = 9, GIF_COLOURS = 256, CODES = 4096, MOST_CODE_BITS = 12 };

/* LZW's strings: each is another one and a last byte. */
struct gif {
    struct hr__codec_scratch indices; /* of the frame, in the file's order */
    uint16_t prefix[CODES], length[CODES];
    uint8_t first[CODES], last[CODES];
};

/* What the blocks before the first frame's data say. */
struct frame {
    int width, height;       /* of the image */
    int x, y, columns, rows; /* of the frame */
    int interlaced;
    int outside; /* index of the colour around the frame */
    size_t data; /* offset of the LZW data */
    uint8_t palette[GIF_COLOURS][3];
};

/* A file that is read from the beginning. */
struct gif_reader {
    const uint8_t *bytes;
    size_t at, length;
};

static int fail_early(const struct hr__encoded *in, struct hr_error *error)
{
    return hr__fail(error, -EBADMSG,
                    "damaged GIF: the file ends after %zu bytes, before its image does",
                    in->length);
}

/* Returns the next `count` bytes, or NULL where there are not as many. */
static const uint8_t *take(struct gif_reader *r, size_t count)
{
    if (r->length - r->at < count)
        return NULL;
    r->at += count;
    return r->bytes + r->at - count;
}

static int read16(const uint8_t *p)
{
    return p[0] | p[1] << 8;
}

/* Takes a palette if `flags` announce one. A grey ramp changes nothing, as in Pillow: it stands for
 * the palette before it, or for grey. Returns 0 where the file ends. */
static int take_palette(struct gif_reader *r, struct frame *f, uint8_t flags)
{
    size_t colours = (size_t)2 << (flags & 7);
    if (!(flags & 0x80))
        return 1;
    const uint8_t *p = take(r, 3 * colours);
    if (!p)
        return 0;
    int ramp = 1;
    for (size_t i = 0; i < 3 * colours; i++)
        ramp = ramp && p[i] == i / 3;
    if (ramp)
        return 1;
    memset(f->palette, 0, sizeof f->palette);
    memcpy(f->palette, p, 3 * colours);
    return 1;
}

/* Takes the sub-blocks of an extension. Returns 0 where the file ends. */
static int take_extension(struct gif_reader *r, struct frame *f)
{
    enum { COMMENT = 0xFE, GRAPHIC_CONTROL = 0xF9 };
    const uint8_t *label = take(r, 1), *size, *block;
    for (int n = 0; label && (size = take(r, 1)); n++) {
        block = take(r, *size);
        if (!block)
            return 0;
        if (!n && *label == GRAPHIC_CONTROL && *size) {
            if (*size < 4)
                return 0;
            if (block[0] & 1)
                f->outside = block[3];
        }
        /* Like Pillow, which reads on after an empty first block that is no comment. */
        if (!*size && (n || *label == COMMENT))
            return 1;
    }
    return 0;
}

/* Takes the description of the first frame. Returns 0 where the file ends. */
static int take_frame(struct gif_reader *r, struct frame *f)
{
    const uint8_t *p = take(r, FRAME_BYTES);
    if (!p || !take_palette(r, f, p[8]))
        return 0;
    f->x = read16(p);
    f->y = read16(p + 2);
    f->columns = read16(p + 4);
    f->rows = read16(p + 6);
    f->interlaced = p[8] & 0x40;
    f->width = f->width > f->x + f->columns ? f->width : f->x + f->columns;
    f->height = f->height > f->y + f->rows ? f->height : f->y + f->rows;
    f->data = r->at;
    return 1;
}

static int open_frame(struct frame *f, const struct hr__encoded *in, struct hr_error *error)
{
    struct gif_reader r = {in->bytes, 0, in->length};
    const uint8_t *screen = take(&r, SCREEN_BYTES), *kind;
    memset(f, 0, sizeof *f);
    for (int i = 0; i < GIF_COLOURS; i++)
        memset(f->palette[i], i, 3);
    if (!screen || !take_palette(&r, f, screen[10]))
        return fail_early(in, error);
    f->width = read16(screen + 6);
    f->height = read16(screen + 8);
    while ((kind = take(&r, 1)) && *kind != ';') {
        if (*kind == '!' && !take_extension(&r, f))
            break;
        if (*kind != ',')
            continue;
        if (!take_frame(&r, f))
            break;
        return f->columns && f->rows
                   ? 0
                   : hr__fail(error, -EBADMSG, "damaged GIF: its first frame has no pixels");
    }
    return hr__fail(error, -EBADMSG, "damaged GIF: it has no frame, or ends before it");
}

static int gif_info(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                    struct hr_error *error)
{
    struct frame f;
    int r = open_frame(&f, in, error);
    (void)state;
    if (r)
        return r;
    info->width = f.width;
    info->height = f.height;
    info->channels = 3;
    return 0;
}

/* Codes of a growing number of bits, from sub-blocks. */
struct gif_codes {
    const uint8_t *at, *end;
    size_t block;    /* bytes left of the sub-block */
    uint32_t bits;   /* read and not yet used, first at the bottom */
    int count, size; /* bits in `bits`; bits of a code */
    int clear, next; /* the code that resets the table; the first free one */
};

static void reset(struct gif_codes *c, int literal_bits)
{
    c->clear = 1 << literal_bits;
    c->next = c->clear + 2;
    c->size = literal_bits + 1;
}

/* Returns the next code, or -1 where the data ends. */
static int next_code(struct gif_codes *c)
{
    while (c->count < c->size) {
        if (!c->block) {
            if (c->at == c->end || !*c->at || (size_t)(c->end - c->at) <= *c->at)
                return -1;
            c->block = *c->at++;
        }
        c->bits |= (uint32_t)*c->at++ << c->count;
        c->count += 8;
        c->block--;
    }
    int code = (int)(c->bits & ((1u << c->size) - 1));
    c->bits >>= c->size;
    c->count -= c->size;
    return code;
}

/* Adds the string of `previous` with the first byte of `code`, which may be the new string. */
static void add_string(struct gif *gif, struct gif_codes *c, int previous, int code)
{
    if (c->next == CODES)
        return;
    int of = code == c->next ? previous : code;
    gif->prefix[c->next] = (uint16_t)previous;
    gif->length[c->next] = gif->length[previous] + 1;
    gif->first[c->next] = gif->first[previous];
    gif->last[c->next] = gif->first[of];
    if (c->next == (1 << c->size) - 1 && c->size < MOST_CODE_BITS)
        c->size++;
    c->next++;
}

/* Writes the string of `code` to `out`, where `room` bytes fit; returns how many it wrote. */
static size_t put_string(const struct gif *gif, int code, uint8_t *out, size_t room)
{
    size_t length = gif->length[code], n = length;
    for (; n > room; n--)
        code = gif->prefix[code];
    for (size_t i = n; i; i--) {
        out[i - 1] = gif->last[code];
        code = gif->prefix[code];
    }
    return n;
}

/* Decodes the first `total` pixels of a frame. Returns 0, or -EBADMSG. */
static int decode_lzw(struct gif *gif, const struct hr__encoded *in, size_t at, size_t total)
{
    struct gif_codes c = {.at = in->bytes + at, .end = in->bytes + in->length};
    uint8_t *out = gif->indices.bytes;
    int literal_bits = c.at < c.end ? *c.at++ : 0, previous = -1;
    if (literal_bits < 2 || literal_bits > 8)
        return -EBADMSG;
    reset(&c, literal_bits);
    for (int i = 0; i < c.clear; i++) {
        gif->prefix[i] = 0;
        gif->length[i] = 1;
        gif->first[i] = gif->last[i] = (uint8_t)i;
    }
    for (size_t done = 0; done < total;) {
        int code = next_code(&c);
        if (code == c.clear) {
            reset(&c, literal_bits);
            previous = -1;
            continue;
        }
        if (code < 0 || code == c.clear + 1 || code > (previous < 0 ? c.clear : c.next))
            return -EBADMSG;
        if (previous >= 0)
            add_string(gif, &c, previous, code);
        done += put_string(gif, code, out + done, total - done);
        previous = code;
    }
    return 0;
}

/* Returns the row of the decoded data that has row `y` of the frame: interlaced frames have every
 * eighth row from 0 on, then from 4 on, then every fourth from 2 on and every second from 1 on. */
static int stored_row(const struct frame *f, int y)
{
    if (!f->interlaced)
        return y;
    int rows = f->rows, eighths = (rows + 7) / 8, fours = (rows + 3) / 8, twos = (rows + 1) / 4;
    if (y % 8 == 0)
        return y / 8;
    if (y % 4 == 0)
        return eighths + y / 8;
    if (y % 2 == 0)
        return eighths + fours + y / 4;
    return eighths + fours + twos + y / 2;
}

static void store_row(const struct gif *gif, const struct frame *f,
                      const struct hr__decode_job *job, int y)
{
    const struct hr_region *r = &job->region;
    int row = r->y + y - f->y, inside = row >= 0 && row < f->rows;
    const uint8_t *from =
        inside ? gif->indices.bytes + (size_t)stored_row(f, row) * (size_t)f->columns : NULL;
    for (int x = 0; x < r->width; x++) {
        int column = r->x + x - f->x;
        int covered = inside && column >= 0 && column < f->columns;
        const uint8_t *colour = f->palette[covered ? from[column] : f->outside];
        for (int c = 0; c < 3; c++)
            job->out.plane[c][y * job->out.stride + x] = colour[c];
    }
}

static int gif_region(void *state, const struct hr__decode_job *job, struct hr_error *error)
{
    struct gif *gif = state;
    struct frame f;
    int r = open_frame(&f, &job->in, error);
    if (!r && (f.width != job->info.width || f.height != job->info.height))
        r = hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    if (r)
        return r;
    int rows = job->region.y + job->region.height - f.y;
    rows = f.interlaced || rows > f.rows ? f.rows : rows < 0 ? 0 : rows;
    size_t total = (size_t)f.columns * (size_t)rows;
    r = hr__scratch_reserve(&gif->indices, total, error);
    if (!r && decode_lzw(gif, &job->in, f.data, total))
        r = hr__fail(error, -EBADMSG,
                     "damaged GIF: the data of its first frame is invalid or ends early");
    for (int y = 0; !r && y < job->region.height; y++)
        store_row(gif, &f, job, y);
    return r;
}

static int gif_create(void **state, struct hr_error *error)
{
    *state = hr__alloc(HR__TAG_CODEC, 1, sizeof(struct gif));
    return *state ? 0 : hr__fail(error, -ENOMEM, "out of memory for a GIF decoder");
}

static void gif_destroy(void **state)
{
    struct gif *gif = *state;
    hr__scratch_free(&gif->indices);
    hr__free(gif);
    *state = NULL;
}

static size_t gif_memory(const void *state)
{
    const struct gif *gif = state;
    return sizeof *gif + gif->indices.capacity;
}

const struct hr__format hr__format_gif = {
    .id = HR_IMAGE_GIF,
    .create = gif_create,
    .destroy = gif_destroy,
    .info = gif_info,
    .region = gif_region,
    .memory = gif_memory,
};
