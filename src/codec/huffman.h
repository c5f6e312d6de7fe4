/*
 * Wide look-up tables for the Huffman codes of baseline JPEG (ITU-T T.81, annexes C and F).
 *
 * AC codes have two tables. `pair` decodes up to two symbols with their values in one look-up.
 * `skip` gives only the length of as many whole symbols as possible, for blocks of which nothing
 * but the DC difference is needed. Codes that are longer than a table's index are decoded bit
 * length by bit length (hr__huffman_single).
 *
 * A position k is the zigzag position of the last coefficient so far; a block begins at 0 and ends
 * at 63 or with an end of block, which counts as a step of HR__STEP_END. So every end is k >= 63.
 */
#ifndef HR_CODEC_HUFFMAN_H
#define HR_CODEC_HUFFMAN_H

#include <stdint.h>

#define HR__CODE_BITS 16 /* of the longest code */
#define HR__DC_INDEX  9  /* bits that index the tables */
#define HR__AC_INDEX  10
#define HR__SKIP_BITS 11

/* Largest numbers of extra bits in 8-bit JPEG (T.81, tables F.1 and F.2). Libjpeg accepts larger
 * ones, so tables with them are not used here. */
#define HR__DC_SIZE_MOST 11
#define HR__AC_SIZE_MOST 10

/* Most bits of one symbol with its extra bits, and of one look-up in `skip`: the last symbol's code
 * is inside the index, its extra bits need not be. */
#define HR__DC_BITS_MOST   (HR__CODE_BITS + HR__DC_SIZE_MOST)
#define HR__AC_BITS_MOST   (HR__CODE_BITS + HR__AC_SIZE_MOST)
#define HR__SKIP_BITS_MOST (HR__SKIP_BITS + HR__AC_SIZE_MOST)

/* Steps that are no distance to the next coefficient. */
#define HR__STEP_END   128 /* end of block */
#define HR__STEP_OTHER 192 /* the look-up does not tell */

/* What hr__huffman_single returns for bits that are no code. */
#define HR__NO_SYMBOL 256

struct hr__huffman_code {
    uint8_t counts[17];                /* codes of each length, from 1 */
    uint8_t symbols[256];              /* in order of their codes; 0 behind the last */
    uint32_t limit[HR__CODE_BITS + 2]; /* for each length: 16 bits below it begin with a code of at
                                        * most this length; the last holds for all */
    int first[HR__CODE_BITS + 1];      /* for each length: index of the first symbol - first code */
    int filled;
};

struct hr__dc_table {
    struct hr__huffman_code code;
    uint8_t entry[1 << HR__DC_INDEX]; /* length of the code | extra bits << 4; 0: longer */
};

/* Fields of an entry of `pair`. The first symbol alone counts if it ends the block. If its value is
 * not inside the index, the first step is HR__STEP_OTHER, `bits` of the first symbol the length of
 * its code (0: longer than the index), the second value its step, the first value its extra bits.
 */
#define HR__PAIR_BITS(e)   ((unsigned)(e)&63)          /* of both symbols */
#define HR__FIRST_BITS(e)  ((unsigned)((e) >> 8) & 63) /* of the first */
#define HR__FIRST_STEP(e)  ((unsigned)((e) >> 16) & 255)
#define HR__OTHER_STEP(e)  ((unsigned)((e) >> 24) & 255)
#define HR__OTHER_VALUE(e) ((int16_t)((e) >> 32))
#define HR__FIRST_VALUE(e) ((int16_t)((e) >> 48))

struct hr__ac_table {
    struct hr__huffman_code code;
    uint64_t pair[1 << HR__AC_INDEX];
    uint16_t skip[1 << HR__SKIP_BITS]; /* bits | steps << 8 */
};

/* Builds a table, unless it is the one already built, from the number of codes of each length (1 to
 * 16) and their symbols. Returns 0 if this is no code that baseline JPEG may have. */
int hr__dc_table_build(struct hr__dc_table *table, const uint8_t counts[17],
                       const uint8_t symbols[256]);
int hr__ac_table_build(struct hr__ac_table *table, const uint8_t counts[17],
                       const uint8_t symbols[256]);

/* Decodes one code of any length from the 16 bits `next`. Returns its symbol, or HR__NO_SYMBOL. */
static inline unsigned hr__huffman_single(const struct hr__huffman_code *code, unsigned next,
                                          unsigned *length)
{
    unsigned n = 1;
    while (next >= code->limit[n])
        n++;
    *length = n;
    return n <= HR__CODE_BITS ? code->symbols[(int)(next >> (HR__CODE_BITS - n)) + code->first[n]]
                              : HR__NO_SYMBOL;
}

#endif
