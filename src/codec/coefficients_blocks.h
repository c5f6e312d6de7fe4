/*
 * Version 1 of the form `coefficients`, which is read for ever and not written any more: blocks
 * that do not depend on each other. An item has no profiles, and each group of `data` is 4 blocks
 * one after the other; the rest is as in coefficients.h.
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
 */
#ifndef HR_CODEC_COEFFICIENTS_BLOCKS_H
#define HR_CODEC_COEFFICIENTS_BLOCKS_H

/* Most bytes in a block: header, count, map, values, exceptions. */
#define HR__BLOCK_BYTES_MOST (3 + 1 + 8 + 56 + 63 * 3)

#endif
