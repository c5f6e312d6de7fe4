/*
 * Decodes or skips the symbols of one block (ITU-T T.81, F.2.2). Behind the scan's end there are
 * HR__SEGMENT_SLACK bytes, so that nothing here looks for an end: the caller does, once an MCU.
 *
 * The caller refills the bits in front of a block. The next refill is after the first look-up of AC
 * symbols, then after every HR__LOOKUPS.
 */
#ifndef HR_CODEC_BLOCK_SYMBOLS_H
#define HR_CODEC_BLOCK_SYMBOLS_H

#include "codec/huffman.h"
#include "codec/scan_reader.h"

#define HR__INLINE static inline __attribute__((always_inline))

/* Look-ups after a refill. */
#define HR__LOOKUPS 3

/* What is read after a refill is there. */
_Static_assert(HR__LOOKUPS *HR__LOOKUP_BITS_MOST <= HR__REFILL_BITS, "look-ups");
_Static_assert(HR__DC_BITS_MOST + HR__LOOKUP_BITS_MOST <= HR__REFILL_BITS, "a DC difference");
_Static_assert(HR__AC_BITS_MOST + HR__LOOKUP_BITS_MOST <= HR__REFILL_BITS, "a long symbol");
/* Entries of `skip` hold their steps in a byte, and ends are told from runs past the block. */
_Static_assert(63 + HR__STEP_END < HR__STEP_OTHER && HR__STEP_OTHER < 256, "steps");
_Static_assert(62 + 63 < HR__STEP_END, "runs past the block");

/* Natural position of a zigzag position. Behind 63: the first one of the next block, which its DC
 * coefficient overwrites. */
#define PAST_16 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64
static const uint8_t hr__natural[63 + HR__STEP_OTHER + 1] = {
    0,       1,       8,       16,      9,       2,       3,       10,      17,      24,
    32,      25,      18,      11,      4,       5,       12,      19,      26,      33,
    40,      48,      41,      34,      27,      20,      13,      6,       7,       14,
    21,      28,      35,      42,      49,      56,      57,      50,      43,      36,
    29,      22,      15,      23,      30,      37,      44,      51,      58,      59,
    52,      45,      38,      31,      39,      46,      53,      60,      61,      54,
    47,      55,      62,      63,      PAST_16, PAST_16, PAST_16, PAST_16, PAST_16, PAST_16,
    PAST_16, PAST_16, PAST_16, PAST_16, PAST_16, PAST_16,
};

/* Decodes a code of any length, one symbol. Returns its step, or 0 for bits that are none; *size:
 * its extra bits, which are still to be read. */
HR__INLINE unsigned hr__take_single(const struct hr__huffman_code *code, struct hr__bits *bits,
                                    unsigned *size)
{
    unsigned length;
    unsigned symbol = hr__huffman_single(code, (unsigned)(bits->buffer >> 48), &length);
    *size = symbol & 15;
    if (symbol == 0) {
        hr__bits_drop(bits, length);
        return HR__STEP_END;
    }
    if (symbol == HR__NO_SYMBOL || *size > HR__AC_SIZE_MOST || (!*size && symbol != 0xF0))
        return 0;
    hr__bits_drop(bits, length);
    return (symbol >> 4) + 1;
}

/* Decodes a DC difference. Returns 0 if the bits are none. */
HR__INLINE int hr__take_dc(const struct hr__dc_table *table, struct hr__bits *bits, int *difference)
{
    size_t index = bits->buffer >> (64 - HR__DC_INDEX);
    struct hr__bits before = *bits;
    unsigned used = table->bits[index], length = table->entry[index] & 15;
    unsigned size = table->entry[index] >> 4;
    if (__builtin_expect(!used, 0)) {
        size = hr__huffman_single(&table->code, (unsigned)(bits->buffer >> 48), &length);
        if (size == HR__NO_SYMBOL)
            return 0;
        used = length + size;
    }
    hr__bits_drop(bits, used); /* first: the next look-up waits for nothing else */
    *difference = hr__bits_value(&before, length, size);
    return 1;
}

/* Decodes one AC symbol behind position k, and stores its value. Returns the new position, 63 or
 * more at the end; 0 if the bits are no symbol or it lies past the block. */
HR__INLINE unsigned hr__take_ac_single(const struct hr__huffman_code *code, struct hr__bits *bits,
                                       unsigned k, int16_t *coefficient)
{
    unsigned size;
    hr__bits_refill(bits);
    unsigned step = hr__take_single(code, bits, &size);
    if (step == HR__STEP_END)
        return k + step;
    if (!step || k + step > 63)
        return 0;
    if (coefficient)
        coefficient[hr__natural[k + step]] = (int16_t)hr__bits_value(bits, 0, size);
    hr__bits_drop(bits, size);
    return k + step;
}

/* Decodes the AC coefficients of a block. Returns the last position: 63, or HR__STEP_END and the
 * position of the last coefficient; 0 if the block is not valid. */
HR__INLINE unsigned hr__take_ac(const struct hr__ac_table *table, struct hr__bits *bits,
                                int16_t *coefficient)
{
    size_t k = 0, last;
    for (;;) {
        const struct hr__ac_pair *pair;
        uint64_t before;
        unsigned used;
#pragma GCC unroll 3
        for (int i = 0; i < HR__LOOKUPS; i++) {
            if (i == 1)
                hr__bits_refill(bits);
            before = bits->buffer;
            used = table->pair_bits[before >> (64 - HR__AC_INDEX)];
            pair = &table->pair[before >> (64 - HR__AC_INDEX)];
            hr__bits_drop(bits, used); /* first: the next look-up waits for nothing else */
            last = k + pair->last_step;
            coefficient[hr__natural[k + pair->first_step]] = pair->first_value;
            coefficient[hr__natural[last]] = hr__pair_value(before, pair);
            if (last >= 63)
                goto end;
            k = last;
        }
        continue;
    end:
        if (__builtin_expect(last == 63 || last - HR__STEP_END < 63, 1))
            return (unsigned)last;
        /* no symbol, or the first of two is the block's last one, or the block is not valid */
        bits->buffer = before;
        bits->count += used;
        k = hr__take_ac_single(&table->code, bits, (unsigned)k, coefficient);
        if (!k || k >= 63)
            return (unsigned)k;
    }
}

/* Skips the AC coefficients of a block. Returns 0 if the block is not valid. */
HR__INLINE int hr__skip_ac(const struct hr__ac_skip *skip, const struct hr__huffman_code *code,
                           struct hr__bits *bits)
{
    size_t k = 0;
    for (;;) {
#pragma GCC unroll 3
        for (int i = 0; i < HR__LOOKUPS; i++) {
            if (i == 1)
                hr__bits_refill(bits);
            size_t index = bits->buffer >> (64 - HR__SKIP_BITS);
            unsigned used = skip->bits[index];
            size_t next = k + skip->steps[index];
            if (next >= 63) {
                /* the whole look-up counts if the block ends with it */
                if (next == 63 || next - HR__STEP_END < 63) {
                    hr__bits_drop(bits, used);
                    return 1;
                }
                k = hr__take_ac_single(code, bits, (unsigned)k, NULL);
                if (!k || k >= 63)
                    return k != 0;
                break;
            }
            hr__bits_drop(bits, used);
            k = next;
        }
    }
}

#endif
