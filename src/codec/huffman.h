/*
 * Wide look-up tables for the Huffman codes of baseline JPEG (ITU-T T.81, annexes C and F).
 *
 * AC codes have two tables. `pair` decodes up to two symbols in one look-up, with their values.
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

/* Most bits of one symbol with its extra bits. */
#define HR__DC_BITS_MOST (HR__CODE_BITS + HR__DC_SIZE_MOST)
#define HR__AC_BITS_MOST (HR__CODE_BITS + HR__AC_SIZE_MOST)

/* Most bits of one look-up of AC symbols. The extra bits of its last symbol need not be inside the
 * index. */
#define HR__LOOKUP_BITS_MOST 18

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

/* The array whose element decides where the next look-up begins is the first of each table: an
 * address without an offset takes a cycle less. */
struct hr__dc_table {
    uint8_t bits[1 << HR__DC_INDEX];  /* of the code and its extra bits; 0: the code is longer */
    uint8_t entry[1 << HR__DC_INDEX]; /* bits of the code | extra bits << 4 */
    struct hr__huffman_code code;
};

/*
 * Up to two AC symbols. The first is whole inside the index; of the last one only the code is, and
 * its value is read from the bits behind it (hr__pair_value). Both steps count from before the
 * look-up. Where there is but one symbol it is the last, and the first is a 0 at the next position.
 * Where there is none (a longer code, a run of 16 zeros alone), there are no bits either, and the
 * last step is HR__STEP_OTHER. Fields are bytes: loading one takes less than cutting it out.
 */
struct hr__ac_pair {
    uint8_t skip;  /* bits in front of the last one's extra bits */
    uint8_t shift; /* 64 less their number, 0 for none */
    uint8_t first_step, last_step;
    int16_t first_value;
};

/* As many whole symbols as possible. */
struct hr__ac_skip {
    uint8_t bits[1 << HR__SKIP_BITS];
    uint8_t steps[1 << HR__SKIP_BITS];
    uint16_t both[1 << HR__SKIP_BITS]; /* bits | steps << 8, to add them at once */
};

struct hr__ac_table {
    uint8_t pair_bits[1 << HR__AC_INDEX]; /* of both symbols */
    struct hr__ac_pair pair[1 << HR__AC_INDEX];
    struct hr__ac_skip skip;
    struct hr__huffman_code code;
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
    for (int i = 1; i <= HR__CODE_BITS; i++) /* limits ascend; without a branch on the code */
        n += next >= code->limit[i];
    *length = n;
    return n <= HR__CODE_BITS ? code->symbols[(int)(next >> (HR__CODE_BITS - n)) + code->first[n]]
                              : HR__NO_SYMBOL;
}

#endif
