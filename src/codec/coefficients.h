/*
 * The form `coefficients`: the quantised DCT coefficients of a JPEG (ITU-T T.81),
 * repacked without loss so that any region unpacks alone and fast.
 *
 * Layout of an item, each section 8-byte aligned:
 *
 *   struct hr__item_header
 *   quantisation: uint16 [components][64], natural (row-major) order
 *   rows:   uint32 [R]: where each block row begins, bytes from the start of `data`;
 *           R = block rows of all components, component after component
 *   groups: uint16 (HR__ITEM_WIDE: uint32) for each group of 4 blocks of each row,
 *           in the order of rows: bytes from the start of its row to its first block
 *   data:   blocks, row after row, left to right, without gaps
 *   HR__ITEM_PAD zero bytes
 *
 * A component has ceil(samples / 8) blocks on each axis (hr__item_samples): the
 * padding blocks of an interleaved scan are not kept. The last group of a row
 * may have fewer than 4.
 *
 * A block is a run of bytes:
 *
 *   header, 3 bytes, a little-endian number of 24 bits:
 *      bits 0..11   the DC coefficient, two's complement
 *      bits 12..14  w1: bits of a value of zigzag positions 1..15;  0..7
 *      bits 15..17  w2: the same of positions 16..63
 *      bits 18..21  n:  bytes of the map, 0..8
 *      bit  22      there are exceptions
 *      bit  23      0
 *   exception count, 1 byte, 1..63: only with bit 22
 *   map, n bytes: bit k % 8 of byte k / 8 says that the coefficient at zigzag
 *      position k is not zero; bit 0 of byte 0 is 0; the last byte is not 0
 *   values, ceil((n1 w1 + n2 w2) / 8) bytes: one stream of bits, from the lowest of
 *      the first byte on; first the n1 non-zero ones of positions 1..15 in zigzag
 *      order, w1 bits each, then the n2 others, w2 bits each. A value of w bits
 *      c stands for v = c - 2^(w-1), and v + 1 where v >= 0: -2^(w-1)..-1 and
 *      1..2^(w-1). A width is 0 exactly where it has no values.
 *   exceptions, 3 bytes each: zigzag position (1..63, one of the map's), and the
 *      coefficient as a little-endian int16, which replaces what the stream says
 *      there (0). Positions rise. They are values that the width is too small for.
 *
 * So that every instruction set and libjpeg-turbo's 16-bit arithmetic give the
 * same pixels, the packer refuses a block in which the dequantised coefficients of
 * columns 0 and 4, 1 and 5, 2 and 6 or 3 and 7 together sum, in magnitude, to more
 * than HR__COLUMN_LIMIT: several times what an encoder makes from 8-bit samples.
 * No sum of the transform then leaves its 16 or 32 bits. Unpackers work on anything
 * without leaving their memory; only the pixels of such a block may then differ.
 */
#ifndef HR_CODEC_COEFFICIENTS_H
#define HR_CODEC_COEFFICIENTS_H

#include "base/cpu.h"
#include "codec/item.h"

#define HR__GROUP_BLOCKS 4

/* Most bytes of a block: header, count, map, values, exceptions. */
#define HR__BLOCK_BYTES_MOST (3 + 1 + 8 + 56 + 63 * 3)

/* An inverse DCT holds its intermediate results, which are at most 4 x 1.39 times a
 * column's sum, and sums of two of them, in 16 bits. */
#define HR__COLUMN_LIMIT 5800

/* Where an item's sections are, after hr__coefficients_open. */
struct hr__coefficients {
    struct hr__item_header header;
    uint16_t quant[3][64];               /* natural order, aligned copies */
    uint32_t blocks_x[3], blocks_y[3];   /* blocks of each component */
    uint32_t row_at[3];                  /* of the component's first row, in rows */
    uint64_t group_at[3];                /* of its first group, in groups */
    const uint8_t *rows, *groups, *data; /* inside the item */
    size_t data_bytes;                   /* without the pad */
};

/* Checks the header and that every section lies inside the item.
 * Errors: -EBADMSG, -ENOTSUP. */
int hr__coefficients_open(struct hr__coefficients *out, const void *bytes, size_t length,
                          struct hr_error *error);

/* The first byte of the group that holds block `x` of block row `y`, both inside
 * the component; NULL where the index leads out of the item. */
const uint8_t *hr__coefficients_find(const struct hr__coefficients *item, int component, uint32_t y,
                                     uint32_t x);

/* Blocks of one row of one component, to be unpacked, dequantised and inverse
 * transformed (ISLOW, as libjpeg's accurate integer DCT). */
struct hr__block_run {
    const uint8_t *data;   /* first block */
    const uint8_t *end;    /* of the item's data; HR__ITEM_PAD more bytes may be read */
    const uint16_t *quant; /* natural order */
    uint32_t blocks;
    uint8_t *out; /* 8 rows of blocks x 8 samples, and up to 3 blocks more */
    ptrdiff_t stride;
};

struct hr__block_kernels {
    /* Returns 0, or -EBADMSG where the run leaves the item's data. Reads nothing
     * beyond end + HR__ITEM_PAD and writes nothing outside `out`, whatever the
     * bytes are. */
    int (*unpack)(const struct hr__block_run *run);
};

extern const struct hr__block_kernels hr__block_kernels_portable;
extern const struct hr__block_kernels hr__block_kernels_avx2;
extern const struct hr__block_kernels hr__block_kernels_avx512;

/* The version for `isa`. */
const struct hr__block_kernels *hr__block_kernels(enum hr__isa isa);

/* Coefficients of a whole block row, quantised, natural order, for writing a
 * JPEG again. Errors: -EBADMSG. */
int hr__coefficients_row(const struct hr__coefficients *item, int component, uint32_t block_row,
                         int16_t (*blocks)[64], struct hr_error *error);

/* The packer: rows of quantised coefficients to an item. One thread at a time. */
struct hr__packer;

/* What an item is made of besides coefficients. */
struct hr__packer_image {
    uint32_t width, height;
    int components, h, v, orientation;
    int progressive;
    const uint16_t *quant[3]; /* natural order, 64 each */
};

/* On success *out is the caller's. Errors: -ENOMEM. */
int hr__packer_create(struct hr__packer **out, struct hr_error *error);
void hr__packer_destroy(struct hr__packer **packer);

/* Begins an item. `limit` > 0: an item that would become larger is given up with
 * -ENOSPC as soon as that is known. Errors: -ENOMEM, -ENOTSUP. */
int hr__packer_begin(struct hr__packer *packer, const struct hr__packer_image *image, size_t limit,
                     struct hr_error *error);

/* Adds the next block row: every row of component 0, top to bottom, then those of
 * the next. `blocks`: blocks_x of the component, quantised, natural order.
 * Errors: -ENOTSUP: a coefficient that the form does not hold; -ENOSPC; -ENOMEM. */
int hr__packer_row(struct hr__packer *packer, const int16_t (*blocks)[64], struct hr_error *error);

/* Ends it. *bytes is the packer's, 64-byte aligned, until its next call.
 * Errors: -EINVAL: rows are missing; -ENOMEM, -ENOSPC. */
int hr__packer_end(struct hr__packer *packer, const uint8_t **bytes, size_t *length,
                   struct hr_error *error);

size_t hr__packer_memory(const struct hr__packer *packer);

#endif
