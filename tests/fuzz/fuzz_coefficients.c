/*
 * Any bytes as an item of coefficients, of either version. The first byte says what is corrected
 * first: the header (bits 0 and 1; bit 3: to version 1), the index (bit 2) and the profiles (bit
 * 4), so that most inputs reach the blocks. The item and the samples are in blocks of exactly their
 * sizes.
 *
 * For any bytes, all instruction sets agree whether a run of blocks is inside the item. A readable
 * item is packed again, and the new item must have the same coefficients, and with every
 * instruction set the same samples and regions with the pixels of the whole image.
 */
#include "base/memory.h"
#include "codec/coefficients.h"
#include "codec/format.h"

#include <stdlib.h>
#include <string.h>

/* Larger images only cost time. */
#define MOST_PIXELS (1 << 14)

enum { CHOICE = 9 }; /* bytes: what is put right, and the region */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        abort();
}

static void *allocate(size_t bytes)
{
    void *block = calloc(1, bytes ? bytes : 1);
    require(block != NULL);
    return block;
}

static int pick(const uint8_t *byte, int low, int high)
{
    return low + (byte[0] << 8 | byte[1]) % (high - low + 1);
}

static void repair_header(int repair, uint8_t *item, size_t length)
{
    struct hr__item_header h;
    if (length < sizeof h)
        return;
    memcpy(&h, item, sizeof h);
    if (repair & 2) {
        memcpy(h.magic, HR__ITEM_MAGIC, sizeof h.magic);
        h.version = repair & 8 ? 1 : HR__COEFFICIENTS_VERSION;
        h.profiles = repair & 8 ? 0 : (uint8_t)(h.profiles % HR__PROFILES_MOST + 1);
        h.form = HR_FORM_COEFFICIENTS;
        memset(h.reserved, 0, sizeof h.reserved);
        h.orientation = (uint8_t)(h.orientation % 8 + 1);
        h.components = h.components & 1 ? 3 : 1;
        h.h = h.components == 1 ? 1 : (uint8_t)(h.h % 2 + 1);
        h.v = h.components == 1 ? 1 : (uint8_t)(h.v % 2 + 1);
        h.flags &= HR__ITEM_WIDE | HR__ITEM_PROGRESSIVE;
        h.width = h.width % 128 + 1;
        h.height = h.height % 128 + 1;
    }
    if (repair & 3)
        h.bytes = length;
    memcpy(item, &h, sizeof h);
}

/* Widths that are allowed. */
static void repair_profiles(uint8_t *item, size_t length)
{
    struct hr__item_header h;
    memcpy(&h, item, sizeof h);
    size_t at = sizeof h + h.components * sizeof((struct hr__coefficients *)0)->quant[0];
    size_t end = at + (size_t)h.profiles * HR__PROFILE_BYTES;
    for (size_t i = at; i < end && end <= length; i++)
        item[i] &= (i - at) % HR__PROFILE_BYTES ? 0x77 : 0x70;
}

/* Offsets that lie inside the item, mostly. */
static void repair_index(uint8_t *item, const struct hr__coefficients *c)
{
    uint32_t most = c->data_bytes < UINT32_MAX ? (uint32_t)c->data_bytes : UINT32_MAX;
    uint8_t *rows = item + (c->rows - item), *groups = item + (c->groups - item);
    for (uint8_t *p = rows; most && p + 4 <= groups; p += 4) {
        uint32_t at;
        memcpy(&at, p, sizeof at);
        at %= most;
        memcpy(p, &at, sizeof at);
    }
    for (const uint8_t *p = groups; p + 2 <= c->data; p += 2)
        item[p + 1 - item] = 0;
}

static void unpack_row(const struct hr__coefficients *c, int component, uint32_t y, uint32_t x,
                       int same)
{
    uint32_t blocks = c->blocks_x[component] - x;
    size_t stride = ((size_t)blocks + 3) * 8;
    uint8_t *first = NULL;
    int result = 0;
    for (int isa = 0; isa <= (int)hr__isa(); isa++) {
        uint8_t *out = allocate(8 * stride);
        struct hr__block_profiles profiles;
        struct hr__block_run run = {
            .profiles = hr__coefficients_profiles(c, &profiles),
            .data = hr__coefficients_find(c, component, y, x),
            .end = c->data + c->data_bytes,
            .quant = c->quant[component],
            .blocks = blocks,
            .out = out,
            .stride = (ptrdiff_t)stride,
        };
        int r = run.data ? hr__block_kernels((enum hr__isa)isa)->unpack(&run) : -1;
        require(!isa || r == result);
        require(!same || !r);
        for (int line = 0; same && isa && line < 8; line++)
            require(!memcmp(out + line * stride, first + line * stride, blocks * 8));
        result = r;
        if (isa)
            free(out);
        else
            first = out;
    }
    free(first);
}

static void unpack_all(const struct hr__coefficients *c, int same)
{
    for (int i = 0; i < c->header.components; i++)
        for (uint32_t y = 0; y < c->blocks_y[i]; y++)
            for (uint32_t x = 0; x < c->blocks_x[i]; x += HR__GROUP_BLOCKS)
                unpack_row(c, i, y, x, same);
}

/* Hands all rows to the packer; not 0 where the item or a block is refused. */
static int pack(struct hr__packer *packer, const struct hr__coefficients *c)
{
    struct hr__packer_image image = {
        .width = c->header.width,
        .height = c->header.height,
        .components = c->header.components,
        .h = c->header.h,
        .v = c->header.v,
        .orientation = c->header.orientation,
        .quant = {c->quant[0], c->quant[1], c->quant[2]},
    };
    struct hr_error error = {0};
    int r = hr__packer_begin(packer, &image, 0, &error);
    require(!r);
    for (int i = 0; !r && i < c->header.components; i++) {
        int16_t(*row)[64] = allocate(c->blocks_x[i] * sizeof *row);
        for (uint32_t y = 0; !r && y < c->blocks_y[i]; y++) {
            r = hr__coefficients_row(c, i, y, row, &error);
            if (!r)
                r = hr__packer_row(packer, (const int16_t(*)[64])row, &error);
        }
        free(row);
    }
    require(!r || (error.code == r && memchr(error.message, 0, sizeof error.message)));
    return r;
}

static void same_coefficients(const struct hr__coefficients *a, const struct hr__coefficients *b)
{
    for (int i = 0; i < a->header.components; i++) {
        size_t bytes = a->blocks_x[i] * 64 * sizeof(int16_t);
        int16_t(*x)[64] = allocate(bytes), (*y)[64] = allocate(bytes);
        for (uint32_t row = 0; row < a->blocks_y[i]; row++) {
            require(!hr__coefficients_row(a, i, row, x, NULL));
            require(!hr__coefficients_row(b, i, row, y, NULL));
            require(!memcmp(x, y, bytes));
        }
        free(x);
        free(y);
    }
}

/* Decodes a region with one instruction set into planes that the caller frees; NULL where it fails.
 */
static uint8_t *decode(int isa, const struct hr__encoded *in, const struct hr_region *region)
{
    static void *states[HR__ISA_AVX512 + 1];
    struct hr__decode_job job = {.in = *in, .region = *region};
    struct hr_error error;
    void *state = states[isa];
    require(state || !hr__coefficients_create(&state, (enum hr__isa)isa, NULL));
    states[isa] = state;
    require(!hr__format_coefficients.info(state, in, &job.info, &error));
    size_t stride = ((size_t)region->width + 63) & ~(size_t)63;
    uint8_t *planes = allocate(3 * stride * (size_t)region->height);
    for (int c = 0; c < 3; c++)
        job.out.plane[c] = planes + (size_t)c * stride * (size_t)region->height;
    job.out.stride = (ptrdiff_t)stride;
    job.out.width = region->width;
    job.out.height = region->height;
    if (!hr__format_coefficients.region(state, &job, &error))
        return planes;
    require(error.code < 0 && memchr(error.message, 0, sizeof error.message));
    free(planes);
    return NULL;
}

static struct hr_region choose(const uint8_t *choice, const struct hr__item_header *h)
{
    struct hr_region r = {.width = pick(choice, 1, (int)h->width),
                          .height = pick(choice + 2, 1, (int)h->height)};
    r.x = pick(choice + 4, 0, (int)h->width - r.width);
    r.y = pick(choice + 6, 0, (int)h->height - r.height);
    return r;
}

static void same_pixels(const struct hr__encoded *in, const struct hr__item_header *h,
                        const uint8_t *choice)
{
    struct hr_region all = {0, 0, (int)h->width, (int)h->height}, r = choose(choice, h);
    uint8_t *whole = decode((int)hr__isa(), in, &all);
    size_t from = ((size_t)h->width + 63) & ~(size_t)63, to = ((size_t)r.width + 63) & ~(size_t)63;
    require(whole != NULL);
    for (int isa = 0; isa <= (int)hr__isa(); isa++) {
        uint8_t *part = decode(isa, in, &r);
        require(part != NULL);
        for (size_t c = 0; c < 3; c++)
            for (size_t y = 0; y < (size_t)r.height; y++)
                require(!memcmp(part + (c * (size_t)r.height + y) * to,
                                whole + (c * h->height + (size_t)r.y + y) * from + r.x,
                                (size_t)r.width));
        free(part);
    }
    free(whole);
}

static void try_item(const struct hr__encoded *in, const struct hr__coefficients *c,
                     const uint8_t *choice)
{
    static struct hr__packer *packer;
    struct hr__coefficients again;
    struct hr__encoded packed;
    struct hr_region region = choose(choice, &c->header);
    unpack_all(c, 0);
    for (int isa = 0; isa <= (int)hr__isa(); isa++)
        free(decode(isa, in, &region));
    require(packer || !hr__packer_create(&packer, NULL));
    if (pack(packer, c))
        return;
    require(!hr__packer_end(packer, &packed.bytes, &packed.length, NULL));
    uint8_t *copy = allocate(packed.length);
    memcpy(copy, packed.bytes, packed.length);
    packed.bytes = copy;
    require(!hr__coefficients_open(&again, packed.bytes, packed.length, NULL));
    same_coefficients(c, &again);
    unpack_all(&again, 1);
    same_pixels(&packed, &again.header, choice);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__coefficients c;
    struct hr_error error;
    if (size < CHOICE)
        return 0;
    struct hr__encoded in = {.bytes = NULL, .length = size - CHOICE};
    uint8_t *item = allocate(in.length);
    memcpy(item, data + CHOICE, in.length);
    in.bytes = item;
    repair_header(data[0], item, in.length);
    if (data[0] & 16 && in.length > sizeof(struct hr__item_header))
        repair_profiles(item, in.length);
    if (hr__coefficients_open(&c, item, in.length, &error)) {
        require(error.code < 0 && memchr(error.message, 0, sizeof error.message));
    } else if ((uint64_t)c.header.width * c.header.height <= MOST_PIXELS) {
        if (data[0] & 4)
            repair_index(item, &c);
        try_item(&in, &c, data + 1);
    }
    free(item);
    return 0;
}
