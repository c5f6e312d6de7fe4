/*
 * The packer of the form `coefficients`. The layout is in coefficients.h; profiles.c chooses the
 * widths, and block_pack.c packs the groups.
 *
 * Widths depend on the whole image, so its values are kept, in zigzag order and a byte each, until
 * the last row has come. The item grows in one buffer, after space for the header and the index,
 * whose size is known then. Only an image with rows longer than 64 KiB needs the wide index; then
 * the data is moved at the end.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/block_pack.h"
#include "codec/coefficients.h"
#include "codec/zigzag.h"

#include <errno.h>
#include <string.h>

#define FIRST_BYTES  ((size_t)64 << 10)
#define NARROW_LIMIT 65535u

struct hr__packer {
    struct hr__packer_image image;
    uint16_t quant[3][64];
    struct hr__block_limits limits[3];
    uint32_t blocks_x[3], blocks_y[3];
    int component; /* component of the next row */
    uint32_t row;  /* number of the next row in it */
    size_t limit;

    /* What the rows brought: a block's values, its DC, the values that take more than 8 bits. */
    struct hr__block_values *values;
    int16_t *dc;
    uint8_t *chosen; /* profiles */
    size_t block_count, block_capacity;
    struct hr__large_value *large;
    size_t large_count, large_capacity;
    struct hr__profiles profiles;
    struct hr__profiles_scratch *scratch;

    uint8_t *bytes; /* the item; its data begins at data_at */
    size_t capacity, data_at, length;
    uint32_t *rows, *groups; /* offsets, as in the index */
    size_t row_count, group_count, row_total, group_total;
    size_t index_capacity; /* entries of rows and groups together */
};

int hr__packer_create(struct hr__packer **out, struct hr_error *error)
{
    *out = hr__alloc(HR__TAG_CODEC, 1, sizeof **out);
    if (*out && ((*out)->scratch = hr__profiles_scratch_create()))
        return 0;
    hr__packer_destroy(out);
    return hr__fail(error, -ENOMEM, "out of memory for a packer");
}

void hr__packer_destroy(struct hr__packer **packer)
{
    struct hr__packer *p = *packer;
    *packer = NULL;
    if (!p)
        return;
    hr__free(p->values);
    hr__free(p->dc);
    hr__free(p->chosen);
    hr__free(p->large);
    hr__free(p->scratch);
    hr__free(p->bytes);
    hr__free(p->rows);
    hr__free(p);
}

size_t hr__packer_memory(const struct hr__packer *p)
{
    return sizeof *p + hr__profiles_scratch_bytes() + p->capacity +
           p->block_capacity * (sizeof *p->values + sizeof *p->dc + sizeof *p->chosen) +
           p->large_capacity * sizeof *p->large + p->index_capacity * sizeof *p->rows;
}

static size_t align8(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

static size_t data_offset(const struct hr__packer *p, size_t group_bytes)
{
    return sizeof(struct hr__item_header) + (size_t)p->image.components * sizeof p->quant[0] +
           (size_t)p->profiles.count * HR__PROFILE_BYTES + align8(p->row_total * 4) +
           align8(p->group_total * group_bytes);
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

static int reserve_index(struct hr__packer *p, struct hr_error *error)
{
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
    return 0;
}

/* Makes room for the values of all blocks. */
static int reserve_blocks(struct hr__packer *p, struct hr_error *error)
{
    size_t blocks = 0;
    for (int c = 0; c < p->image.components; c++)
        blocks += (size_t)p->blocks_x[c] * p->blocks_y[c];
    if (blocks <= p->block_capacity)
        return 0;
    hr__free(p->values);
    hr__free(p->dc);
    hr__free(p->chosen);
    p->block_capacity = 0;
    p->values = hr__alloc_aligned(HR__TAG_CODEC, blocks * sizeof *p->values, 0);
    p->dc = hr__alloc(HR__TAG_CODEC, blocks, sizeof *p->dc);
    p->chosen = hr__alloc(HR__TAG_CODEC, blocks, sizeof *p->chosen);
    if (!p->values || !p->dc || !p->chosen)
        return hr__fail(error, -ENOMEM, "out of memory for the coefficients of %zu blocks", blocks);
    p->block_capacity = blocks;
    return 0;
}

/* Makes room for `more` large values. */
static int reserve_large(struct hr__packer *p, size_t more, struct hr_error *error)
{
    size_t wanted = p->large_count + more;
    if (wanted <= p->large_capacity)
        return 0;
    size_t capacity = wanted < 1024 ? 1024 : wanted * 2;
    void *large = hr__realloc(HR__TAG_CODEC, p->large, capacity, sizeof *p->large);
    if (!large)
        return hr__fail(error, -ENOMEM, "out of memory for %zu large coefficients", capacity);
    p->large = large;
    p->large_capacity = capacity;
    return 0;
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
    r = reserve_index(p, error);
    if (!r)
        r = reserve_blocks(p, error);
    p->row_count = p->group_count = 0;
    p->block_count = p->large_count = 0;
    p->component = 0;
    p->row = 0;
    p->limit = limit;
    return r;
}

/* Keeps the values of a block for later. Room for 63 large ones is there. */
static void keep_block(struct hr__packer *p, const int16_t block[64])
{
    size_t number = p->block_count++;
    int8_t *at = p->values[number].at;
    int large = 0;
    p->dc[number] = block[0];
    at[0] = 0;
    for (int k = 1; k < 64; k++) {
        int16_t v = block[hr__zigzag[k]];
        large |= (v + 127) | (127 - v);
        at[k] = (int8_t)v;
    }
    if (large >= 0)
        return;
    for (uint8_t k = 1; k < 64; k++) {
        int16_t v = block[hr__zigzag[k]];
        if (v >= -127 && v <= 127)
            continue;
        p->large[p->large_count++] = (struct hr__large_value){number, v, k};
        at[k] = 0;
    }
}

int hr__packer_row(struct hr__packer *packer, const int16_t (*blocks)[64], struct hr_error *error)
{
    struct hr__packer *p = packer;
    int c = p->component;
    if (c >= p->image.components)
        return hr__fail(error, -EINVAL, "more rows of blocks than the image has");
    for (uint32_t x = 0; x < p->blocks_x[c]; x++) {
        if (!hr__block_is_held(&p->limits[c], blocks[x]))
            return hr__fail(error, -ENOTSUP,
                            "block %u,%u of component %d has coefficients beyond those of 8-bit "
                            "pixels",
                            x, p->row, c);
        int r = reserve_large(p, 63, error);
        if (r)
            return r;
        keep_block(p, blocks[x]);
    }
    if (++p->row == p->blocks_y[c]) {
        p->row = 0;
        p->component++;
    }
    return 0;
}

/* Where packing is: the next block and the next large value. */
struct position {
    size_t block, large;
};

static int pack_row(struct hr__packer *p, int c, struct position *at, struct hr_error *error)
{
    uint32_t count = p->blocks_x[c], groups = (count + HR__GROUP_BLOCKS - 1) / HR__GROUP_BLOCKS;
    int r = reserve(p, (size_t)groups * HR__GROUP_BYTES_MOST + 8 + HR__ITEM_PAD, error);
    if (r)
        return r;
    uint8_t *begin = p->bytes + p->length, *out = begin;
    if (p->length - p->data_at > UINT32_MAX)
        return hr__fail(error, -ENOTSUP, "the image has more than 4 GiB of coefficients");
    p->rows[p->row_count++] = (uint32_t)(p->length - p->data_at);
    for (uint32_t x = 0; x < count; x += HR__GROUP_BLOCKS) {
        struct hr__block_group g = {
            .blocks = count - x < HR__GROUP_BLOCKS ? count - x : HR__GROUP_BLOCKS,
            .values = p->values + at->block,
            .dc = p->dc + at->block,
            .chosen = p->chosen + at->block,
            .first = at->block,
            .large = p->large + at->large,
        };
        while (at->large < p->large_count && p->large[at->large].block < at->block + g.blocks) {
            at->large++;
            g.large_count++;
        }
        p->groups[p->group_count++] = (uint32_t)(out - begin);
        out = hr__block_group_pack(&g, &p->profiles, out);
        at->block += g.blocks;
    }
    p->length = (size_t)(out - p->bytes);
    if (p->limit && p->length + HR__ITEM_PAD > p->limit)
        return hr__fail(error, -ENOSPC, "coefficients take more than %zu bytes", p->limit);
    return 0;
}

static int pack_rows(struct hr__packer *p, struct hr_error *error)
{
    struct position at = {0};
    int r = 0;
    hr__profiles_choose(&p->profiles, p->values, p->block_count, p->chosen, p->scratch);
    p->length = 0;
    p->data_at = data_offset(p, 2);
    r = reserve(p, p->data_at, error);
    p->length = p->data_at;
    for (int c = 0; c < p->image.components; c++)
        for (uint32_t y = 0; !r && y < p->blocks_y[c]; y++)
            r = pack_row(p, c, &at, error);
    return r;
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
    for (int i = 0; i < p->profiles.count; i++, out += HR__PROFILE_BYTES)
        for (int k = 0; k < HR__PROFILE_BYTES; k++)
            out[k] = (uint8_t)(p->profiles.width[i][k] | p->profiles.width[i][k + 32] << 4);
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
    int r = pack_rows(p, error);
    if (r)
        return r;
    for (size_t i = 0; i < p->group_total; i++)
        longest = p->groups[i] > longest ? p->groups[i] : longest;
    int wide = longest > NARROW_LIMIT;
    r = wide ? make_wide(p, error) : 0;
    if (r)
        return r;
    struct hr__item_header header = {
        .magic = HR__ITEM_MAGIC,
        .version = HR__COEFFICIENTS_VERSION,
        .form = HR_FORM_COEFFICIENTS,
        .components = (uint8_t)p->image.components,
        .orientation = (uint8_t)p->image.orientation,
        .width = p->image.width,
        .height = p->image.height,
        .h = (uint8_t)p->image.h,
        .v = (uint8_t)p->image.v,
        .profiles = (uint8_t)p->profiles.count,
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
