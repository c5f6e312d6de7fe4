/*
 * The form `coefficients`: the quantised DCT coefficients of a JPEG (ITU-T T.81), repacked without
 * loss so that any region can be unpacked separately and fast.
 *
 * Layout of an item, each section 8-byte aligned:
 *
 *   struct hr__item_header
 *   quantisation: uint16 [components][64], natural (row-major) order
 *   rows:   uint32 [R]: offset of each block row from the start of `data`, in bytes;
 *           R = number of block rows of all components, one component after the other
 *   groups: uint16 (HR__ITEM_WIDE: uint32) for each group of 4 blocks of each row, in the
 *           order of rows: offset of its first block from the start of its row, in bytes
 *   data:   blocks, row after row, left to right, without gaps
 *   HR__ITEM_PAD zero bytes
 *
 * A component has ceil(samples / 8) blocks on each axis (hr__item_samples); the padding blocks of
 * an interleaved scan are dropped. The last group of a row may have fewer than 4 blocks.
 *
 * A block is a sequence of bytes:
 *
 *   header, 3 bytes, a little-endian number of 24 bits:
 *      bits 0..11   the DC coefficient, two's complement
 *      bits 12..14  w1: bits per value at zigzag positions 1..15;  0..7
 *      bits 15..17  w2: bits per value at positions 16..63;  0..7
 *      bits 18..21  n:  bytes of the map, 0..8
 *      bit  22      the block has exceptions
 *      bit  23      0
 *   exception count, 1 byte, 1..63: only with bit 22
 *   map, n bytes: bit k % 8 of byte k / 8 is set if the coefficient at zigzag position k
 *      is not zero; bit 0 of byte 0 is 0; the last byte is not 0
 *   values, ceil((n1 w1 + n2 w2) / 8) bytes: one bit stream, starting at the lowest bit of
 *      the first byte; first the n1 non-zero values of positions 1..15 in zigzag order, w1
 *      bits each, then the n2 others, w2 bits each. A code c of w bits stands for
 *      v = c - 2^(w-1), or v + 1 if v >= 0: -2^(w-1)..-1 and 1..2^(w-1). A width is 0 if
 *      and only if it has no values.
 *   exceptions, 3 bytes each: zigzag position (1..63, set in the map), and the coefficient
 *      as a little-endian int16, which replaces the value in the stream (0). Positions
 *      ascend. Exceptions are values too large for the width.
 *
 * All instruction sets and libjpeg-turbo's 16-bit arithmetic must give the same pixels. So the
 * packer refuses a block if the dequantised coefficients of columns 0 and 4, 1 and 5, 2 and 6 or 3
 * and 7 together have a sum of magnitudes above HR__COLUMN_LIMIT, several times what an encoder
 * makes from 8-bit samples. Then no sum in the transform overflows its 16 or 32 bits. Unpackers
 * accept any bytes without leaving their memory; only the pixels of such a block may differ.
 */
#ifndef HR_CODEC_COEFFICIENTS_H
#define HR_CODEC_COEFFICIENTS_H

#include "base/cpu.h"
#include "codec/item.h"

#define HR__GROUP_BLOCKS 4

/* Most bytes in a block: header, count, map, values, exceptions. */
#define HR__BLOCK_BYTES_MOST (3 + 1 + 8 + 56 + 63 * 3)

/* An inverse DCT keeps intermediate results, and sums of two of them, in 16 bits. They are at most
 * 4 x 1.39 times a column's sum. */
#define HR__COLUMN_LIMIT 5800

/* The sections of an item, set by hr__coefficients_open. */
struct hr__coefficients {
    struct hr__item_header header;
    uint16_t quant[3][64];               /* natural order, aligned copies */
    uint32_t blocks_x[3], blocks_y[3];   /* number of blocks in each component */
    uint32_t row_at[3];                  /* index in `rows` of the component's first row */
    uint64_t group_at[3];                /* index in `groups` of its first group */
    const uint8_t *rows, *groups, *data; /* pointers into the item */
    size_t data_bytes;                   /* without the padding */
};

/* Checks the header, and that every section is inside the item. Errors: -EBADMSG, -ENOTSUP. */
int hr__coefficients_open(struct hr__coefficients *out, const void *bytes, size_t length,
                          struct hr_error *error);

/* Returns the first byte of the group with block `x` of block row `y`, both inside the component;
 * NULL if the index points outside the item. */
const uint8_t *hr__coefficients_find(const struct hr__coefficients *item, int component, uint32_t y,
                                     uint32_t x);

/* Consecutive blocks of one row of a component, to unpack, dequantise and inverse transform (ISLOW,
 * libjpeg's accurate integer DCT). */
struct hr__block_run {
    const uint8_t *data;   /* the first block */
    const uint8_t *end;    /* end of the item's data; HR__ITEM_PAD more bytes are readable */
    const uint16_t *quant; /* natural order */
    uint32_t blocks;
    uint8_t *out; /* 8 rows of blocks x 8 samples, with room for 3 more blocks */
    ptrdiff_t stride;
};

struct hr__block_kernels {
    /* Returns 0, or -EBADMSG if the run exceeds the item's data. For any bytes, it reads nothing
     * past end + HR__ITEM_PAD and writes nothing outside `out`. */
    int (*unpack)(const struct hr__block_run *run);
};

extern const struct hr__block_kernels hr__block_kernels_portable;
extern const struct hr__block_kernels hr__block_kernels_avx2;
extern const struct hr__block_kernels hr__block_kernels_avx512;
extern const struct hr__block_kernels hr__block_kernels_neon;

/* Returns the version for `isa`. */
const struct hr__block_kernels *hr__block_kernels(enum hr__isa isa);

/* Unpacks the coefficients of a whole block row, quantised, in natural order, to write a JPEG file
 * again. Errors: -EBADMSG. */
int hr__coefficients_row(const struct hr__coefficients *item, int component, uint32_t block_row,
                         int16_t (*blocks)[64], struct hr_error *error);

/* The packer: makes an item from rows of quantised coefficients. Used by one thread at a time. */
struct hr__packer;

/* The image's properties besides coefficients. */
struct hr__packer_image {
    uint32_t width, height;
    int components, h, v, orientation;
    int progressive;
    const uint16_t *quant[3]; /* natural order, 64 values each */
};

/* On success the caller owns *out. Errors: -ENOMEM. */
int hr__packer_create(struct hr__packer **out, struct hr_error *error);
void hr__packer_destroy(struct hr__packer **packer);

/* Begins an item. If `limit` > 0, packing stops with -ENOSPC as soon as the item is known to exceed
 * it. Errors: -ENOMEM, -ENOTSUP. */
int hr__packer_begin(struct hr__packer *packer, const struct hr__packer_image *image, size_t limit,
                     struct hr_error *error);

/* Adds the next block row: first all rows of component 0, top to bottom, then those of the next
 * component. `blocks`: blocks_x of the component, quantised, natural order. Errors: -ENOTSUP: the
 * form cannot hold a coefficient; -ENOSPC; -ENOMEM. */
int hr__packer_row(struct hr__packer *packer, const int16_t (*blocks)[64], struct hr_error *error);

/* Finishes the item. The packer owns *bytes, 64-byte aligned, valid until its next call. Errors:
 * -EINVAL: rows are missing; -ENOMEM, -ENOSPC. */
int hr__packer_end(struct hr__packer *packer, const uint8_t **bytes, size_t *length,
                   struct hr_error *error);

size_t hr__packer_memory(const struct hr__packer *packer);

#endif
