/*
 * The packer of the form `coefficients`; the layout is in coefficients.h.
 *
 * A block takes two passes: one gathers its values in zigzag order and counts
 * how many need how many bits, from which the two widths follow that make it
 * smallest; one writes them. The item grows in one buffer, behind room for the
 * header and the index, whose size is known when it begins (only an image whose
 * rows are longer than 64 KiB needs the wide index, and is moved at the end).
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/coefficients.h"
#include "codec/zigzag.h"

#include <errno.h>
#include <string.h>

/* Widths that a value may need: of 16-bit values 1..16. */
#define NEEDS        17
#define WIDTH_MOST   7
#define EXCEPTION    24 /* bits of one */
#define COUNT_BITS   8  /* bits of their number */
#define FIRST_BYTES  ((size_t)64 << 10)
#define NARROW_LIMIT 65535u

struct hr__packer {
    struct hr__packer_image image;
    uint16_t quant[3][64];
    uint32_t blocks_x[3], blocks_y[3];
    int component; /* of the next row */
    uint32_t row;  /* the next row in it */
    size_t limit;
    uint8_t *bytes; /* the item; its data begins at data_at */
    size_t capacity, data_at, length;
    uint32_t *rows, *groups; /* offsets, as in the index */
    size_t row_count, group_count, row_total, group_total;
    size_t index_capacity; /* entries of rows and groups together */
};

/* The values of one block. */
struct values {
    uint64_t map;
    int16_t value[64];    /* the non-zero ones, in zigzag order */
    uint8_t position[64]; /* in zigzag order */
    uint8_t need[64];     /* bits of each */
    unsigned n1, count;   /* of positions 1..15; in all */
};

int hr__packer_create(struct hr__packer **out, struct hr_error *error)
{
    *out = hr__alloc(HR__TAG_CODEC, 1, sizeof **out);
    return *out ? 0 : hr__fail(error, -ENOMEM, "out of memory for a packer");
}

void hr__packer_destroy(struct hr__packer **packer)
{
    struct hr__packer *p = *packer;
    *packer = NULL;
    if (!p)
        return;
    hr__free(p->bytes);
    hr__free(p->rows);
    hr__free(p);
}

size_t hr__packer_memory(const struct hr__packer *packer)
{
    return sizeof *packer + packer->capacity + packer->index_capacity * sizeof *packer->rows;
}

static size_t align8(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

static size_t data_offset(const struct hr__packer *p, size_t group_bytes)
{
    return sizeof(struct hr__item_header) + (size_t)p->image.components * sizeof p->quant[0] +
           align8(p->row_total * 4) + align8(p->group_total * group_bytes);
}

/* Room for `more` bytes behind what is there. */
static int reserve(struct hr__packer *p, size_t more, struct hr_error *error)
{
    size_t wanted = p->length + more;
    if (wanted <= p->capacity)
        return 0;
    size_t capacity = p->capacity ? p->capacity : FIRST_BYTES;
    while (capacity < wanted)
        capacity *= 2;
    uint8_t *bytes = hr__alloc_aligned(HR__TAG_CODEC, capacity, 0);
    if (!bytes)
        return hr__fail(error, -ENOMEM, "out of memory for an item of %zu bytes", wanted);
    if (p->bytes)
        memcpy(bytes, p->bytes, p->length < p->capacity ? p->length : p->capacity);
    hr__free(p->bytes);
    p->bytes = bytes;
    p->capacity = capacity;
    return 0;
}

static int check_image(const struct hr__packer_image *i, struct hr_error *error)
{
    int grey = i->components == 1 && i->h == 1 && i->v == 1;
    int colour = i->components == 3 && (i->h == 1 || i->h == 2) && (i->v == 1 || i->v == 2);
    if ((grey || colour) && i->width - 1u < 65535 && i->height - 1u < 65535 &&
        i->orientation >= 1 && i->orientation <= 8)
        return 0;
    return hr__fail(error, -ENOTSUP,
                    "the form coefficients does not hold an image of %u x %u pixels, %d components "
                    "and chroma of 1/%d x 1/%d",
                    i->width, i->height, i->components, i->h, i->v);
}

int hr__packer_begin(struct hr__packer *packer, const struct hr__packer_image *image, size_t limit,
                     struct hr_error *error)
{
    struct hr__packer *p = packer;
    int r = check_image(image, error);
    if (r)
        return r;
    p->image = *image;
    p->row_total = p->group_total = 0;
    for (int c = 0; c < image->components; c++) {
        memcpy(p->quant[c], image->quant[c], sizeof p->quant[c]);
        p->blocks_x[c] = (hr__item_samples(image->width, (uint8_t)image->h, c) + 7) / 8;
        p->blocks_y[c] = (hr__item_samples(image->height, (uint8_t)image->v, c) + 7) / 8;
        p->row_total += p->blocks_y[c];
        p->group_total +=
            (size_t)p->blocks_y[c] * ((p->blocks_x[c] + HR__GROUP_BLOCKS - 1) / HR__GROUP_BLOCKS);
    }
    size_t entries = p->row_total + p->group_total;
    if (entries > p->index_capacity) {
        hr__free(p->rows);
        p->index_capacity = 0;
        p->rows = hr__alloc(HR__TAG_CODEC, entries, sizeof *p->rows);
        if (!p->rows)
            return hr__fail(error, -ENOMEM, "out of memory for an index of %zu entries", entries);
        p->index_capacity = entries;
    }
    p->groups = p->rows + p->row_total;
    p->row_count = p->group_count = 0;
    p->component = 0;
    p->row = 0;
    p->limit = limit;
    p->length = 0;
    p->data_at = data_offset(p, 2);
    r = reserve(p, p->data_at, error);
    p->length = p->data_at;
    return r;
}

/* Bits of a value: v of w bits are -2^(w-1)..-1 and 1..2^(w-1). */
static inline unsigned bits_of(int v)
{
    unsigned magnitude = (unsigned)(v < 0 ? -v : v) - 1;
    return magnitude ? 33 - (unsigned)__builtin_clz(magnitude) : 1;
}

/* Gathers the AC values of a block; returns 0 where it is beyond the limits. */
static int gather(struct values *v, const int16_t block[64], const uint16_t quant[64])
{
    uint64_t pair[4] = {0};
    unsigned n = 0;
    v->map = 0;
    v->n1 = 0;
    pair[0] = (uint64_t)(block[0] < 0 ? -block[0] : block[0]) * quant[0];
    for (unsigned k = 1; k < 64; k++) {
        unsigned at = hr__zigzag[k];
        int value = block[at];
        if (!value)
            continue;
        v->map |= UINT64_C(1) << k;
        v->value[n] = (int16_t)value;
        v->position[n] = (uint8_t)k;
        v->need[n] = (uint8_t)bits_of(value);
        pair[at & 3] += (uint64_t)(value < 0 ? -value : value) * quant[at];
        n++;
        v->n1 += k < 16;
    }
    v->count = n;
    return pair[0] <= HR__COLUMN_LIMIT && pair[1] <= HR__COLUMN_LIMIT &&
           pair[2] <= HR__COLUMN_LIMIT && pair[3] <= HR__COLUMN_LIMIT && block[0] >= -2048 &&
           block[0] <= 2047;
}

/* The width that makes n values smallest, with exceptions and without (0: there
 * is none without), and their bits. */
struct choice {
    unsigned width, bits, exceptions;
    unsigned whole, whole_bits; /* without exceptions */
};

static struct choice choose(const uint8_t *need, unsigned n)
{
    struct choice c = {.bits = ~0u};
    unsigned count[NEEDS] = {0}, widest = 0, above = n;
    if (!n)
        return (struct choice){0};
    for (unsigned i = 0; i < n; i++) {
        count[need[i]]++;
        widest = need[i] > widest ? need[i] : widest;
    }
    for (unsigned w = 1; w <= WIDTH_MOST; w++) {
        above -= count[w];
        unsigned bits = n * w + above * EXCEPTION;
        if (bits < c.bits) {
            c.width = w;
            c.bits = bits;
            c.exceptions = above;
        }
    }
    c.whole = widest <= WIDTH_MOST ? widest : 0;
    c.whole_bits = widest <= WIDTH_MOST ? n * widest : ~0u / 4;
    return c;
}

/* A stream of bits, from the lowest on. Writes up to 8 bytes beyond its end. */
struct bits {
    uint8_t *at;
    uint64_t word;
    unsigned count;
};

static inline void put_bits(struct bits *b, unsigned code, unsigned width)
{
    b->word |= (uint64_t)code << b->count;
    b->count += width;
    if (b->count >= 32) {
        memcpy(b->at, &b->word, 4);
        b->at += 4;
        b->word >>= 32;
        b->count -= 32;
    }
}

static inline uint8_t *end_bits(struct bits *b)
{
    memcpy(b->at, &b->word, 8);
    return b->at + (b->count + 7) / 8;
}

static inline void put_values(struct bits *b, const struct values *v, unsigned from, unsigned to,
                              unsigned width)
{
    for (unsigned i = from; i < to; i++) {
        int value = v->value[i];
        unsigned code = (unsigned)(value + (1 << (width - 1)) - (value > 0));
        put_bits(b, v->need[i] <= width ? code : 0, width);
    }
}

static uint8_t *put_exceptions(uint8_t *out, const struct values *v, unsigned w1, unsigned w2)
{
    for (unsigned i = 0; i < v->count; i++) {
        if (v->need[i] <= (i < v->n1 ? w1 : w2))
            continue;
        *out++ = v->position[i];
        *out++ = (uint8_t)v->value[i];
        *out++ = (uint8_t)((unsigned)v->value[i] >> 8);
    }
    return out;
}

/* Writes one block; up to 8 bytes behind its end may be written too. */
static uint8_t *put_block(uint8_t *out, int dc, const struct values *v)
{
    struct choice low = choose(v->need, v->n1), high = choose(v->need + v->n1, v->count - v->n1);
    unsigned exceptions = low.exceptions + high.exceptions;
    if (exceptions && low.whole_bits + high.whole_bits <= low.bits + high.bits + COUNT_BITS) {
        low.width = low.whole;
        high.width = high.whole;
        exceptions = 0;
    }
    unsigned map_bytes = v->map ? (71 - (unsigned)__builtin_clzll(v->map)) / 8 : 0;
    uint32_t head = ((uint32_t)dc & 0xFFF) | low.width << 12 | high.width << 15 | map_bytes << 18 |
                    (uint32_t)(exceptions > 0) << 22;
    memcpy(out, &head, 4);
    out += 3;
    if (exceptions)
        *out++ = (uint8_t)exceptions;
    memcpy(out, &v->map, 8);
    struct bits b = {.at = out + map_bytes};
    put_values(&b, v, 0, v->n1, low.width);
    put_values(&b, v, v->n1, v->count, high.width);
    out = end_bits(&b);
    return exceptions ? put_exceptions(out, v, low.width, high.width) : out;
}

int hr__packer_row(struct hr__packer *packer, const int16_t (*blocks)[64], struct hr_error *error)
{
    struct hr__packer *p = packer;
    int c = p->component;
    if (c >= p->image.components)
        return hr__fail(error, -EINVAL, "more rows of blocks than the image has");
    int r = reserve(p, (size_t)p->blocks_x[c] * HR__BLOCK_BYTES_MOST + 8 + HR__ITEM_PAD, error);
    if (r)
        return r;
    uint8_t *begin = p->bytes + p->length, *out = begin;
    if (p->length - p->data_at > UINT32_MAX)
        return hr__fail(error, -ENOTSUP, "the image has more than 4 GiB of coefficients");
    p->rows[p->row_count++] = (uint32_t)(p->length - p->data_at);
    for (uint32_t x = 0; x < p->blocks_x[c]; x++) {
        struct values v;
        if (x % HR__GROUP_BLOCKS == 0)
            p->groups[p->group_count++] = (uint32_t)(out - begin);
        if (!gather(&v, blocks[x], p->quant[c]))
            return hr__fail(error, -ENOTSUP,
                            "block %u,%u of component %d has coefficients beyond those of 8-bit "
                            "pixels",
                            x, p->row, c);
        out = put_block(out, blocks[x][0], &v);
    }
    p->length = (size_t)(out - p->bytes);
    if (p->limit && p->length + HR__ITEM_PAD > p->limit)
        return hr__fail(error, -ENOSPC, "coefficients take more than %zu bytes", p->limit);
    if (++p->row == p->blocks_y[c]) {
        p->row = 0;
        p->component++;
    }
    return 0;
}

/* The longest row needs offsets of 4 bytes: its data moves to where they end. */
static int make_wide(struct hr__packer *p, struct hr_error *error)
{
    size_t to = data_offset(p, 4), bytes = p->length - p->data_at;
    int r = reserve(p, to - p->data_at + HR__ITEM_PAD, error);
    if (r)
        return r;
    memmove(p->bytes + to, p->bytes + p->data_at, bytes);
    p->data_at = to;
    p->length = to + bytes;
    return 0;
}

static void put_index(struct hr__packer *p, int wide)
{
    uint8_t *out = p->bytes + sizeof(struct hr__item_header);
    memset(out, 0, p->data_at - sizeof(struct hr__item_header));
    memcpy(out, p->quant, (size_t)p->image.components * sizeof p->quant[0]);
    out += (size_t)p->image.components * sizeof p->quant[0];
    memcpy(out, p->rows, p->row_total * 4);
    out += align8(p->row_total * 4);
    if (wide) {
        memcpy(out, p->groups, p->group_total * 4);
        return;
    }
    for (size_t i = 0; i < p->group_total; i++) {
        uint16_t at = (uint16_t)p->groups[i];
        memcpy(out + 2 * i, &at, 2);
    }
}

int hr__packer_end(struct hr__packer *packer, const uint8_t **bytes, size_t *length,
                   struct hr_error *error)
{
    struct hr__packer *p = packer;
    uint32_t longest = 0;
    if (p->component < p->image.components)
        return hr__fail(error, -EINVAL, "rows of blocks are missing from component %d on",
                        p->component);
    for (size_t i = 0; i < p->group_total; i++)
        longest = p->groups[i] > longest ? p->groups[i] : longest;
    int wide = longest > NARROW_LIMIT;
    int r = wide ? make_wide(p, error) : 0;
    if (r)
        return r;
    struct hr__item_header header = {
        .magic = HR__ITEM_MAGIC,
        .version = HR__ITEM_VERSION,
        .form = HR_FORM_COEFFICIENTS,
        .components = (uint8_t)p->image.components,
        .orientation = (uint8_t)p->image.orientation,
        .width = p->image.width,
        .height = p->image.height,
        .h = (uint8_t)p->image.h,
        .v = (uint8_t)p->image.v,
        .flags = (uint8_t)((wide ? HR__ITEM_WIDE : 0) |
                           (p->image.progressive ? HR__ITEM_PROGRESSIVE : 0)),
    };
    put_index(p, wide);
    memset(p->bytes + p->length, 0, HR__ITEM_PAD);
    p->length += HR__ITEM_PAD;
    header.bytes = p->length;
    memcpy(p->bytes, &header, sizeof header);
    if (p->limit && p->length > p->limit)
        return hr__fail(error, -ENOSPC, "coefficients take more than %zu bytes", p->limit);
    *bytes = p->bytes;
    *length = p->length;
    return 0;
}
