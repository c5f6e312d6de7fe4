/* The kernels of upsampling and colour in plain C, the reference for all others, and the selection
 * of a version. */
#include "codec/ycc_rows.h"

#include "codec/ycc.h"

/* Pixels whose chroma is computed at once, on the stack. */
enum { ROW_CHUNK = HR__YCC_PIXELS };

/* 16 bits in and out, so that vectorised code needs no 32-bit steps. */
static inline uint8_t clamp_255(int16_t v)
{
    v = v < 0 ? 0 : v;
    return (uint8_t)(v > 255 ? 255 : v);
}

/* Half of the upper half of a 16-bit product, rounded. */
static inline int16_t scaled(int16_t twice, int16_t factor)
{
    int16_t upper = (int16_t)(twice * factor >> 16);
    return (int16_t)((upper + 1) >> 1);
}

/* The upper half of a sum of two products, rounded, using only 16 bits: half of the sum of the
 * lower halves gives the carry. */
static inline int16_t scaled_sum(int16_t a, int16_t fa, int16_t b, int16_t fb)
{
    int16_t upper = (int16_t)((int16_t)(a * fa >> 16) + (int16_t)(b * fb >> 16));
    uint16_t la = (uint16_t)(a * fa), lb = (uint16_t)(b * fb);
    uint16_t half = (uint16_t)((la >> 1) + (lb >> 1) + (la & lb & 1));
    return (int16_t)(upper + ((uint16_t)((half >> 1) + (1 << 13)) >> 14));
}

/*
 * Converts the colour of `n` pixels from `at` on; chroma has 128 subtracted. libjpeg rounds red and
 * blue separately, and the sum of green's parts once; >> rounds down. Whole multiples of chroma are
 * kept out of the products, so that compilers can use 16-bit factors.
 */
static inline void store_pixels(const struct hr__ycc_row *row, int at, int n,
                                const int16_t *restrict cb, const int16_t *restrict cr)
{
    const uint8_t *restrict luma = row->luma + at;
    uint8_t *restrict r = row->rgb[0] + at;
    uint8_t *restrict g = row->rgb[1] + at;
    uint8_t *restrict b = row->rgb[2] + at;
    const int16_t red = HR__YCC_CR_RED - 65536, blue = HR__YCC_CB_BLUE - 2 * 65536;
    const int16_t green[2] = {-HR__YCC_CB_GREEN, 65536 - HR__YCC_CR_GREEN};
    for (int i = 0; i < n; i++) {
        int16_t y = luma[i], u = cb[i], v = cr[i];
        r[i] = clamp_255((int16_t)(y + v + scaled((int16_t)(2 * v), red)));
        g[i] = clamp_255((int16_t)(y - v + scaled_sum(u, green[0], v, green[1])));
        b[i] = clamp_255((int16_t)(y + 2 * u + scaled((int16_t)(2 * u), blue)));
    }
}

static void mix_portable(const uint8_t *near, const uint8_t *far, uint16_t *out, int samples)
{
    for (int i = 0; i < samples; i++)
        out[i] = (uint16_t)(3 * near[i] + far[i]);
}

static void between_portable(const uint8_t *near, const uint8_t *far, uint8_t *out, int samples,
                             int rounding)
{
    for (int i = 0; i < samples; i++)
        out[i] = (uint8_t)((3 * near[i] + far[i] + rounding) >> 2);
}

static void same_portable(const struct hr__ycc_row *row, const uint8_t *const chroma[2])
{
    int16_t c[2][ROW_CHUNK];
    for (int at = 0; at < row->pixels; at += ROW_CHUNK) {
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < ROW_CHUNK; i++)
                c[k][i] = (int16_t)(chroma[k][at + i] - 128);
        store_pixels(row, at, ROW_CHUNK, c[0], c[1]);
    }
}

/* Computes a chroma sample, minus 128, from the row of sums of two rows. */
static inline int16_t chroma_of(uint16_t near, uint16_t far, uint16_t rounding)
{
    uint16_t sum = (uint16_t)(3 * near + far + rounding);
    return (int16_t)((sum >> 4) - 128);
}

/* Computes ROW_CHUNK pixels of one component from the samples at s on; see spread() of the vector
 * versions. */
static inline void spread(const uint16_t *restrict s, const struct hr__ycc_mixed *mixed,
                          int16_t *restrict out)
{
    uint16_t even = (uint16_t)mixed->rounding[0], odd = (uint16_t)mixed->rounding[1];
    if (mixed->odd) {
        for (int i = 0; i < ROW_CHUNK / 2; i++) {
            out[2 * i] = chroma_of(s[i], s[i + 1], odd);
            out[2 * i + 1] = chroma_of(s[i + 1], s[i], even);
        }
    } else {
        for (int i = 0; i < ROW_CHUNK / 2; i++) {
            out[2 * i] = chroma_of(s[i], s[i - 1], even);
            out[2 * i + 1] = chroma_of(s[i], s[i + 1], odd);
        }
    }
}

static void doubled_portable(const struct hr__ycc_row *row, const struct hr__ycc_mixed *mixed)
{
    int16_t c[2][ROW_CHUNK];
    for (int at = 0; at < row->pixels; at += ROW_CHUNK) {
        for (int k = 0; k < 2; k++)
            spread(mixed->chroma[k] + at / 2, mixed, c[k]);
        store_pixels(row, at, ROW_CHUNK, c[0], c[1]);
    }
}

const struct hr__ycc_kernels hr__ycc_kernels_portable = {
    .mix = mix_portable,
    .between = between_portable,
    .same = same_portable,
    .doubled = doubled_portable,
};

const struct hr__ycc_kernels *hr__ycc_kernels(enum hr__isa isa)
{
#if defined(__x86_64__)
    if (isa >= HR__ISA_AVX512)
        return &hr__ycc_kernels_avx512;
    if (isa >= HR__ISA_AVX2)
        return &hr__ycc_kernels_avx2;
#elif defined(__aarch64__)
    if (isa >= HR__ISA_NEON)
        return &hr__ycc_kernels_neon;
#endif
    return &hr__ycc_kernels_portable;
}
