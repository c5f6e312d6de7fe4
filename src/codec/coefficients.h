/*
 * The form `coefficients`: the quantised DCT coefficients of a JPEG (ITU-T T.81), repacked without
 * loss so that any region can be unpacked separately and fast.
 *
 * Layout of an item, each section 8-byte aligned:
 *
 *   struct hr__item_header
 *   quantisation: uint16 [components][64], natural (row-major) order
 *   profiles: uint8 [header.profiles][32]: the low half of byte k is the width at zigzag position
 *           k, the high half that at position k + 32: 0 at position 0, 0..8 at positions 1..7,
 *           0..7 at the others. (Not in version 1.)
 *   rows:   uint32 [R]: offset of each block row from the start of `data`, in bytes;
 *           R = number of block rows of all components, one component after the other
 *   groups: uint16 (HR__ITEM_WIDE: uint32) for each group of 4 blocks of each row, in the
 *           order of rows: offset of its start from the start of its row, in bytes
 *   data:   groups, row after row, left to right, without gaps
 *   HR__ITEM_PAD zero bytes
 *
 * A component has ceil(samples / 8) blocks on each axis (hr__item_samples); the padding blocks of
 * an interleaved scan are dropped. The last group of a row may have fewer than 4 blocks; what it
 * says of the others does not matter.
 *
 * A group is a sequence of bytes:
 *
 *   header, 2 bytes, a little-endian number of 16 bits:
 *      bits 0..11   base of the DC coefficients, two's complement
 *      bits 12..14  bits of each DC offset: 2, 3, 4, 5, 6, 7, 8 or 12
 *      bit  15      the group has exceptions
 *   kind of each block, 4 bytes: bits 0..3: its profile; bits 4..7: n, bytes of its map, 0..8
 *   exception count, 1 byte: only with bit 15
 *   maps of the 4 blocks, n bytes each: bit k % 8 of byte k / 8 is set if the stream has a value
 *      for zigzag position k; bit 0 of byte 0 is 0
 *   one bit stream, starting at the lowest bit of its first byte, filled up with 0 to a byte:
 *      the DC offsets of the 4 blocks (DC is base + offset); then the values of each block in
 *      zigzag order, each as wide as the block's profile says for its position. A code c of w
 *      bits stands for v = c - 2^(w-1), or v + 1 if v >= 0: -2^(w-1)..-1 and 1..2^(w-1). Of 8 bits
 *      the largest code is not used.
 *   exceptions, 3 bytes each, a little-endian number of 24 bits: block of the group in bits 0 and
 *      1, zigzag position in bits 2..7, the coefficient in the rest (int16). Exceptions are
 *      values that no profile holds, or only at too high a price for its other blocks.
 *
 * Profiles let a width depend on the position and on the kind of block; the packer chooses those of
 * each image (profiles.h). Four blocks share a stream because rounding up to bytes costs 4 bits,
 * and vectors hold no more.
 *
 * Version 1 has no profiles, and blocks that do not depend on each other, in coefficients_blocks.h.
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

#define HR__GROUP_BLOCKS  4
#define HR__PROFILE_BYTES 32 /* in an item */

/* Most bytes in a group, also in a damaged one: header and kinds, count, maps, DC offsets,
 * values, exceptions. */
#define HR__GROUP_BYTES_MOST (2 + 4 + 1 + 4 * 8 + 6 + 4 * 56 + 255 * 3)

/* An inverse DCT keeps intermediate results, and sums of two of them, in 16 bits. They are at most
 * 4 x 1.39 times a column's sum. */
#define HR__COLUMN_LIMIT 5800

/* The profiles of an item, expanded. Those that it does not have are 0. */
struct hr__block_profiles {
    uint8_t width[HR__PROFILES_MOST][64]; /* bits per value at each zigzag position */
    uint8_t mask[HR__PROFILES_MOST][64];  /* as many low bits */
} __attribute__((aligned(64)));

/* The sections of an item, set by hr__coefficients_open. */
struct hr__coefficients {
    struct hr__item_header header;
    uint16_t quant[3][64];             /* natural order, aligned copies */
    uint32_t blocks_x[3], blocks_y[3]; /* number of blocks in each component */
    uint32_t row_at[3];                /* index in `rows` of the component's first row */
    uint64_t group_at[3];              /* index in `groups` of its first group */
    const uint8_t *profiles;           /* pointers into the item; NULL: version 1 */
    const uint8_t *rows, *groups, *data;
    size_t data_bytes; /* without the padding */
};

/* Checks the header, and that every section is inside the item. Errors: -EBADMSG, -ENOTSUP. */
int hr__coefficients_open(struct hr__coefficients *out, const void *bytes, size_t length,
                          struct hr_error *error);

/* Returns the first byte of the group with block `x` of block row `y`, both inside the component;
 * NULL if the index points outside the item. */
const uint8_t *hr__coefficients_find(const struct hr__coefficients *item, int component, uint32_t y,
                                     uint32_t x);

/* Expands the profiles of an item; does nothing for version 1. Returns `out`, or NULL for version
 * 1, as hr__block_run takes it. */
const struct hr__block_profiles *hr__coefficients_profiles(const struct hr__coefficients *item,
                                                           struct hr__block_profiles *out);

/* Consecutive blocks of one row of a component, to unpack, dequantise and inverse transform (ISLOW,
 * libjpeg's accurate integer DCT). */
struct hr__block_run {
    const uint8_t *data;   /* the first group; version 1: block */
    const uint8_t *end;    /* end of the item's data; HR__ITEM_PAD more bytes are readable */
    const uint16_t *quant; /* natural order */
    uint32_t blocks;
    uint8_t *out; /* 8 rows of blocks x 8 samples, with room for 3 more blocks */
    ptrdiff_t stride;
    const struct hr__block_profiles *profiles; /* NULL: version 1 */
};

struct hr__block_kernels {
    /* Returns 0, or -EBADMSG if the run exceeds the item's data. For any bytes, it reads nothing
     * past end + HR__ITEM_PAD and writes nothing outside `out`. */
    int (*unpack)(const struct hr__block_run *run);
};

extern const struct hr__block_kernels hr__block_kernels_portable;
extern const struct hr__block_kernels hr__block_kernels_avx2;
extern const struct hr__block_kernels hr__block_kernels_avx2_slow_pdep; /* does without PDEP */
extern const struct hr__block_kernels hr__block_kernels_avx512;
extern const struct hr__block_kernels hr__block_kernels_neon;

/* Returns the version for `isa`. */
const struct hr__block_kernels *hr__block_kernels(enum hr__isa isa);

/* Creates a state of hr__format_coefficients that decodes regions with `isa`, which the machine
 * must have; the format's own function takes the best. The caller owns *state. Errors: -ENOMEM. */
int hr__coefficients_create(void **state, enum hr__isa isa, struct hr_error *error);

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
