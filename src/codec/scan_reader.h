/*
 * Reads the bits of a scan of a JPEG (ITU-T T.81, F.2.2.5).
 *
 * Bytes are copied without the zeros stuffed behind FF, a piece at a time, so that reading bits
 * needs no test of any byte. A segment is what lies between markers. Behind its last byte the copy
 * has HR__SEGMENT_SLACK bytes of any value: one MCU of any content can be decoded from there, and
 * whether it ran past the end, whatever it read there, is checked once an MCU.
 */
#ifndef HR_CODEC_SCAN_READER_H
#define HR_CODEC_SCAN_READER_H

#include "codec/huffman.h"

#include <stddef.h>
#include <string.h>

/* Most blocks in an MCU (T.81, B.2.3), and the most bytes that they take. */
#define HR__MCU_BLOCKS_MOST 10
#define HR__BLOCK_BITS_MOST (HR__DC_BITS_MOST + 63 * HR__AC_BITS_MOST)
#define HR__MCU_BYTES_MOST  ((HR__MCU_BLOCKS_MOST * HR__BLOCK_BITS_MOST + 7) / 8)
#define HR__SEGMENT_SLACK   (HR__MCU_BYTES_MOST + 64)
#define HR__SEGMENT_PIECE   16384

/* A refill leaves at least this many bits. */
#define HR__REFILL_BITS 56

/* The next bits, from the highest bit of the buffer on. */
struct hr__bits {
    uint64_t buffer;
    unsigned count; /* bits of the buffer that have been counted, modulo 64, and more above (see
                     * hr__bits_drop); more may be there already */
    const uint8_t *next;
};

struct hr__scan_reader {
    struct hr__bits bits;
    const uint8_t *check;         /* from here on hr__scan_advance must be called before an MCU */
    const uint8_t *end;           /* end of the copied bytes */
    const uint8_t *raw, *raw_end; /* bytes not yet copied; the marker */
    int bounded;                  /* the bytes may end without a marker */
    int marker;                   /* that ends the segment; 0: not yet found */
    int last;                     /* the segment's last byte has been copied */
    unsigned stuffed_count, stuffed_passed; /* of `stuffed`; how many hr__scan_tell has passed */
    const uint8_t *piece_raw;               /* where the piece's first byte was copied from */
    uint8_t piece[HR__SEGMENT_PIECE + HR__SEGMENT_SLACK];
    /* positions in the piece of FFs whose zeros were left out */
    uint16_t stuffed[HR__SEGMENT_PIECE + HR__SEGMENT_SLACK];
};

/* Begins at a byte of a segment. Returns 0 if the bytes end before a marker does, unless they are
 * `bounded`: then the segment ends there. Fill bytes (FF before a marker) count as such an end. */
int hr__scan_begin(struct hr__scan_reader *reader, const uint8_t *raw, const uint8_t *end,
                   int bounded);

/* Makes the bits of an MCU available. Returns 0 if the last one ran past the segment's end, or if
 * the bytes end before a marker does. */
int hr__scan_advance(struct hr__scan_reader *reader);

/* Returns non-zero if the segment's last MCU ended where the segment does: less than a byte is
 * left. */
int hr__scan_is_at_end(const struct hr__scan_reader *reader);

_Static_assert(HR__SEGMENT_PIECE + HR__SEGMENT_SLACK <= UINT16_MAX, "positions in the piece");

/* Returns how many bits from the piece's first one the next one is. */
uint32_t hr__scan_position(const struct hr__scan_reader *reader);

/* Returns the byte of the file that the bit at a position is in, which is no earlier than the last
 * one. Never a stuffed zero. */
const uint8_t *hr__scan_tell(struct hr__scan_reader *reader, uint32_t position);

static inline __attribute__((always_inline)) unsigned hr__bits_count(const struct hr__bits *b)
{
    return b->count & 63;
}

static inline __attribute__((always_inline)) void hr__bits_refill(struct hr__bits *b)
{
    unsigned count = hr__bits_count(b);
    uint64_t more;
    memcpy(&more, b->next, sizeof more);
    b->buffer |= __builtin_bswap64(more) >> count;
    b->next += (63 - count) >> 3;
    b->count = count | HR__REFILL_BITS;
}

/* Drops n modulo 64 bits: an entry of a table may stand for the number in its lowest six bits. */
static inline __attribute__((always_inline)) void hr__bits_drop(struct hr__bits *b, unsigned n)
{
    b->buffer <<= n & 63;
    b->count -= n;
}

/* Returns the n (0 to 15) bits after the first `skip` as a coefficient (T.81, F.2.2.1). */
static inline __attribute__((always_inline)) int hr__bits_value(const struct hr__bits *b,
                                                                unsigned skip, unsigned n)
{
    uint64_t v = b->buffer << skip;
    int negative = (int)((int64_t)~v >> 63);
    return (int)(v >> 1 >> (63 - n)) + (negative & (1 - (1 << n)));
}

/* Returns the value of the last symbol of a pair at the start of the buffer; of an end of block,
 * any. */
static inline __attribute__((always_inline)) int16_t hr__pair_value(uint64_t buffer,
                                                                    const struct hr__ac_pair *pair)
{
    uint64_t v = buffer << pair->skip;
    uint64_t negative = ~(uint64_t)((int64_t)v >> 63);
    return (int16_t)((v >> pair->shift) - (negative >> pair->shift));
}

#endif
