/*
 * Staging of blocks of version 1 for AVX2 and NEON: extracts the values' codes from the stream and
 * moves them to their zigzag positions, 16 at a time.
 *
 * A shuffle and a multiplication extract eight codes from the stream. A shuffle, from a table
 * indexed by a byte of the map, moves them to their positions. (PDEP could do both, but is no
 * faster where it is fast, and is microcode on AMD before Zen 3.)
 *
 * Before including this, a file includes coefficients_vector.h and defines:
 *
 * - `eights`: a vector of eight 16-bit numbers; Q(op): the intrinsic of that name.
 * - LOAD_8(p): loads 8 bytes and fills up with zeros. LOAD_16(p), STORE_16(p, v): aligned memory.
 * - SHIFT_DOWN(v, n): shifts 16-bit numbers right by n.
 */
#ifndef HR_CODEC_COEFFICIENTS_CODES_H
#define HR_CODEC_COEFFICIENTS_CODES_H

/* How to extract eight codes of width w, the first of which begins at bit s of a byte: the two
 * bytes that hold each code, and the factor that shifts it to the top of them. */
#define AT(w, s, i)     ((s) + (i) * (w))
#define BYTES(w, s, i)  AT(w, s, i) / 8, AT(w, s, i) / 8 + 1
#define FACTOR(w, s, i) (uint16_t)(1u << (16 - (w)-AT(w, s, i) % 8))
#define CUT(w, s)                                                                                  \
    {                                                                                              \
        {BYTES(w, s, 0), BYTES(w, s, 1), BYTES(w, s, 2), BYTES(w, s, 3),                           \
         BYTES(w, s, 4), BYTES(w, s, 5), BYTES(w, s, 6), BYTES(w, s, 7)},                          \
            {FACTOR(w, s, 0), FACTOR(w, s, 1), FACTOR(w, s, 2), FACTOR(w, s, 3),                   \
             FACTOR(w, s, 4), FACTOR(w, s, 5), FACTOR(w, s, 6), FACTOR(w, s, 7)},                  \
    }
#define CUTS(w)                                                                                    \
    {                                                                                              \
        CUT(w, 0), CUT(w, 1), CUT(w, 2), CUT(w, 3), CUT(w, 4), CUT(w, 5), CUT(w, 6), CUT(w, 7)     \
    }

static const struct {
    uint8_t bytes[16];
    uint16_t factor[8];
} cuts[8][8] __attribute__((aligned(64))) = {CUTS(0), CUTS(1), CUTS(2), CUTS(3),
                                             CUTS(4), CUTS(5), CUTS(6), CUTS(7)};

/* For a byte of the map: the number of each position's code among its codes; 0x80 if it has none,
 * which makes PSHUFB produce 0. */
#define BITS(m)                                                                                    \
    (((m)&1) + ((m) >> 1 & 1) + ((m) >> 2 & 1) + ((m) >> 3 & 1) + ((m) >> 4 & 1) +                 \
     ((m) >> 5 & 1) + ((m) >> 6 & 1))
#define NUMBER(m, i) ((m) >> (i)&1 ? BITS((m) & ((1 << (i)) - 1)) : 0x80)
#define ORDER(m)                                                                                   \
    {                                                                                              \
        NUMBER(m, 0), NUMBER(m, 1), NUMBER(m, 2), NUMBER(m, 3), NUMBER(m, 4), NUMBER(m, 5),        \
            NUMBER(m, 6), NUMBER(m, 7)                                                             \
    }
#define ORDER_4(m)  ORDER(m), ORDER(m + 1), ORDER(m + 2), ORDER(m + 3)
#define ORDER_16(m) ORDER_4(m), ORDER_4(m + 4), ORDER_4(m + 8), ORDER_4(m + 12)
#define ORDER_64(m) ORDER_16(m), ORDER_16(m + 16), ORDER_16(m + 32), ORDER_16(m + 48)

static const uint8_t spread_order[256][8]
    __attribute__((aligned(64))) = {ORDER_64(0), ORDER_64(64), ORDER_64(128), ORDER_64(192)};

static const uint8_t second_half[16]
    __attribute__((aligned(16))) = {0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8};

/* Constants for a run of blocks. */
struct constants {
    uint16_t quant[64]; /* by slot */
} __attribute__((aligned(32)));

/* Extracts eight codes, to 16 bits each, from `bit` of the stream on. Reads 8 bytes. */
HR__INLINE eights cut_codes(const uint8_t *stream, unsigned bit, unsigned width)
{
    eights codes = LOAD_8(stream + bit / 8);
    codes = Q(shuffle_epi8)(codes, LOAD_16(cuts[width][bit % 8].bytes));
    codes = Q(mullo_epi16)(codes, LOAD_16(cuts[width][bit % 8].factor));
    return SHIFT_DOWN(codes, 16 - width);
}

/* Returns the codes plus one of the 16 positions in two bytes of the map; 0 at empty positions. */
HR__INLINE eights spread_codes(unsigned map, const uint8_t *stream, unsigned bit, unsigned width)
{
    unsigned low = map & 0xFF, high = map >> 8 & 0xFF;
    eights codes = cut_codes(stream, bit, width);
    bit += (unsigned)__builtin_popcount(low) * width;
    codes = Q(packus_epi16)(codes, cut_codes(stream, bit, width));
    codes = Q(sub_epi8)(codes, Q(set1_epi8)(width ? -1 : 0));
    eights from = Q(unpacklo_epi64)(LOAD_8(spread_order[low]), LOAD_8(spread_order[high]));
    return Q(shuffle_epi8)(codes, Q(add_epi8)(from, LOAD_16(second_half)));
}

HR__INLINE void stage(struct hr__staged *s, struct hr__packed_block *b, const void *constants)
{
    const struct constants *c = constants;
    unsigned bit = 0;
    for (int i = 0; i < 4; i++) {
        unsigned map = b->map >> 16 * i & 0xFFFF, width = i ? b->w2 : b->w1;
        STORE_16(s->value + 16 * i, spread_codes(map, b->values, bit, width));
        bit += (unsigned)__builtin_popcount(map) * width;
    }
    s->w1 = b->w1;
    s->w2 = b->w2;
    s->patched = b->exceptions > 0;
    if (b->exceptions)
        for (uint64_t map = hr__block_patch(s, b, c->quant); map; map &= map - 1)
            s->value[__builtin_ctzll(map)] = 0;
    s->dc = hr__block_level(b->dc, c->quant[0]);
}

#endif
