/*
 * The packer of the form `coefficients`. The layout is in coefficients.h; block_pack.c packs the
 * blocks.
 *
 * The item grows in one buffer, after space for the header and the index, whose size is known at
 * the start. Only an image with rows longer than 64 KiB needs the wide index; then the data is
 * moved at the end.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/block_pack.h"
#include "codec/coefficients.h"

#include <errno.h>
#include <string.h>

#define FIRST_BYTES  ((size_t)64 << 10)
#define NARROW_LIMIT 65535u

struct hr__packer {
    struct hr__packer_image image;
    struct hr__block_tables tables;
    uint16_t quant[3][64];
    struct hr__block_limits limits[3];
    uint32_t blocks_x[3], blocks_y[3];
    int component; /* component of the next row */
    uint32_t row;  /* number of the next row in it */
    size_t limit;
    uint8_t *bytes; /* the item; its data begins at data_at */
    size_t capacity, data_at, length;
    uint32_t *rows, *groups; /* offsets, as in the index */
    size_t row_count, group_count, row_total, group_total;
    size_t index_capacity; /* entries of rows and groups together */
};

int hr__packer_create(struct hr__packer **out, struct hr_error *error)
{
    *out = hr__alloc(HR__TAG_CODEC, 1, sizeof **out);
    if (!*out)
        return hr__fail(error, -ENOMEM, "out of memory for a packer");
    hr__block_tables_fill(&(*out)->tables);
    return 0;
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

/* Makes room for `more` bytes after the existing ones. */
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
    int colour = i->components == 3 && hr__item_may_sample(i->h, i->v);
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
        hr__block_limits_fill(&p->limits[c], image->quant[c]);
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
        if (x % HR__GROUP_BLOCKS == 0)
            p->groups[p->group_count++] = (uint32_t)(out - begin);
        out = hr__block_pack(&p->tables, &p->limits[c], blocks[x], out);
        if (!out)
            return hr__fail(error, -ENOTSUP,
                            "block %u,%u of component %d has coefficients beyond those of 8-bit "
                            "pixels",
                            x, p->row, c);
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

/* The longest row needs 4-byte offsets: moves the data to the end of the larger index. */
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
