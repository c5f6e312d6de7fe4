/* Builds the look-up tables of huffman.h. */
#include "codec/huffman.h"

#include <string.h>

#define END_OF_BLOCK 0x00
#define ZERO_RUN     0xF0 /* 16 zeros */

/* A code in the index: its symbol, and its length (0: it is longer than the index). */
struct short_code {
    uint8_t length, symbol;
};

/* Assigns the codes (T.81, annex C). Returns 0 if there are more than their lengths allow; a code
 * of ones alone is not allowed, and libjpeg refuses it. */
static int assign(struct hr__huffman_code *code)
{
    unsigned next = 0, symbol = 0;
    for (unsigned n = 1; n <= HR__CODE_BITS; n++) {
        code->first[n] = (int)symbol - (int)next;
        next += code->counts[n];
        symbol += code->counts[n];
        if (next >= 1u << n || symbol > 256)
            return 0;
        code->limit[n] = next << (HR__CODE_BITS - n);
        next <<= 1;
    }
    code->limit[HR__CODE_BITS + 1] = 1u << HR__CODE_BITS;
    return 1;
}

/* Takes over a new code. Returns 1 if it is the one that the table was built for, 0 if the table is
 * to be built, -1 if it is no code. */
static int take(struct hr__huffman_code *code, const uint8_t counts[17], const uint8_t symbols[256])
{
    unsigned total = 0;
    for (int n = 1; n <= HR__CODE_BITS; n++)
        total += counts[n];
    if (total > 256)
        return -1;
    if (code->filled && !memcmp(code->counts + 1, counts + 1, HR__CODE_BITS) &&
        !memcmp(code->symbols, symbols, total))
        return 1;
    code->filled = 0;
    memset(code->symbols, 0, sizeof code->symbols);
    memcpy(code->symbols, symbols, total);
    memcpy(code->counts + 1, counts + 1, HR__CODE_BITS);
    return assign(code) ? 0 : -1;
}

/* Fills a table of 2^bits entries with the codes of at most that length. */
static void expand(const struct hr__huffman_code *code, unsigned bits, struct short_code *out)
{
    memset(out, 0, sizeof *out << bits);
    unsigned symbol = 0, at = 0;
    for (unsigned n = 1; n <= bits; n++)
        for (unsigned i = 0; i < code->counts[n]; i++, symbol++)
            for (unsigned k = 0; k < 1u << (bits - n); k++)
                out[at++] = (struct short_code){(uint8_t)n, code->symbols[symbol]};
}

int hr__dc_table_build(struct hr__dc_table *table, const uint8_t counts[17],
                       const uint8_t symbols[256])
{
    struct short_code codes[1 << HR__DC_INDEX];
    int found = take(&table->code, counts, symbols);
    if (found)
        return found > 0;
    unsigned total = 0;
    for (int n = 1; n <= HR__CODE_BITS; n++)
        total += counts[n];
    for (unsigned i = 0; i < total; i++)
        if (symbols[i] > HR__DC_SIZE_MOST)
            return 0;
    expand(&table->code, HR__DC_INDEX, codes);
    for (unsigned i = 0; i < 1u << HR__DC_INDEX; i++) {
        table->bits[i] = (uint8_t)(codes[i].length + codes[i].symbol);
        table->entry[i] = (uint8_t)(codes[i].length | codes[i].symbol << 4);
    }
    table->code.filled = 1;
    return 1;
}

/* One symbol that begins at some bit of an index. */
struct ac_symbol {
    unsigned length; /* of the code; 0: not known from these bits */
    unsigned size;   /* extra bits */
    unsigned step;
};

static struct ac_symbol symbol_at(const struct short_code *codes, unsigned index, unsigned used)
{
    struct short_code c = codes[index << used & ((1u << HR__SKIP_BITS) - 1)];
    unsigned size = c.symbol & 15;
    struct ac_symbol s = {c.length, size, (c.symbol >> 4) + 1u};
    int known = size ? size <= HR__AC_SIZE_MOST : c.symbol == END_OF_BLOCK || c.symbol == ZERO_RUN;
    if (c.symbol == END_OF_BLOCK)
        s.step = HR__STEP_END;
    if (!known || used + c.length > HR__SKIP_BITS)
        s.length = 0;
    return s;
}

/* Returns the value whose `size` bits end `end` bits after the start of an index of `bits` bits. */
static int value_at(unsigned index, unsigned bits, unsigned end, unsigned size)
{
    int v = (int)(index >> (bits - end) & ((1u << size) - 1));
    return size && !(v >> (size - 1)) ? v - (1 << size) + 1 : v;
}

/* An entry whose last symbol is `b`, behind a first one of that step, value and bits. */
static struct hr__ac_pair pack_pair(unsigned step, int value, unsigned bits, struct ac_symbol b,
                                    unsigned last_step)
{
    unsigned skip = bits + b.length;
    return (struct hr__ac_pair){
        .skip = (uint8_t)skip,
        .shift = (uint8_t)((64 - b.size) & 63),
        .first_step = (uint8_t)step,
        .last_step = (uint8_t)last_step,
        .first_value = (int16_t)value,
    };
}

/* Returns non-zero if a look-up may end with this symbol behind `used` bits. A run of zeros has no
 * extra bits, and hr__pair_value would return some. */
static int may_be_last(struct ac_symbol s, unsigned used)
{
    return s.length && used + s.length <= HR__AC_INDEX &&
           used + s.length + s.size <= HR__LOOKUP_BITS_MOST && (s.size || s.step == HR__STEP_END);
}

static struct hr__ac_pair make_pair(const struct short_code *codes, unsigned index)
{
    const unsigned wide = index << (HR__SKIP_BITS - HR__AC_INDEX);
    struct ac_symbol a = symbol_at(codes, wide, 0);
    unsigned bits = a.length + a.size;
    if (a.length && a.step != HR__STEP_END && bits < HR__AC_INDEX) {
        struct ac_symbol b = symbol_at(codes, wide, bits);
        if (may_be_last(b, bits))
            return pack_pair(a.step, value_at(index, HR__AC_INDEX, bits, a.size), bits, b,
                             a.step + b.step);
    }
    if (may_be_last(a, 0))
        return pack_pair(1, 0, 0, a, a.step);
    return (struct hr__ac_pair){.first_step = 1, .last_step = HR__STEP_OTHER};
}

/* Fills an entry of the tables of lengths. */
static void make_skip(const struct short_code *codes, unsigned index, struct hr__ac_skip *skip)
{
    unsigned bits = 0, steps = 0;
    while (bits < HR__SKIP_BITS) {
        struct ac_symbol s = symbol_at(codes, index, bits);
        if (!s.length || bits + s.length + s.size > HR__LOOKUP_BITS_MOST ||
            (s.step != HR__STEP_END && steps + s.step > 63))
            break;
        bits += s.length + s.size;
        steps += s.step;
        if (s.step == HR__STEP_END)
            break;
    }
    skip->bits[index] = (uint8_t)bits;
    skip->steps[index] = (uint8_t)(bits ? steps : HR__STEP_OTHER);
    skip->both[index] = (uint16_t)(bits | skip->steps[index] << 8);
}

int hr__ac_table_build(struct hr__ac_table *table, const uint8_t counts[17],
                       const uint8_t symbols[256])
{
    struct short_code codes[1 << HR__SKIP_BITS];
    int found = take(&table->code, counts, symbols);
    if (found)
        return found > 0;
    expand(&table->code, HR__SKIP_BITS, codes);
    for (unsigned i = 0; i < 1u << HR__AC_INDEX; i++)
        table->pair[i] = make_pair(codes, i);
    for (unsigned i = 0; i < 1u << HR__AC_INDEX; i++)
        table->pair_bits[i] = (uint8_t)(table->pair[i].skip + (64 - table->pair[i].shift) % 64);
    for (unsigned i = 0; i < 1u << HR__SKIP_BITS; i++)
        make_skip(codes, i, &table->skip);
    table->code.filled = 1;
    return 1;
}
