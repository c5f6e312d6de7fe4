/*
 * The kernels of the filters on bytes, by rows. This file is compiled for each instruction set,
 * with HR__BYTE_ROWS as the name of its table. It is written for compilers to vectorise, like
 * color_rows.c: the same operations in the same order per element give the same bits for every
 * width of vectors. fmaf is exact everywhere: an instruction where there is one, else the
 * library's.
 */
#include "recipe/byte_rows.h"

#include <math.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifndef HR__BYTE_ROWS
#define HR__BYTE_ROWS hr__byte_rows_portable

const struct hr__byte_rows *hr__byte_rows(enum hr__isa isa)
{
#if defined(__x86_64__)
    if (isa >= HR__ISA_AVX512)
        return &hr__byte_rows_avx512;
    if (isa >= HR__ISA_AVX2)
        return &hr__byte_rows_avx2;
#endif
    return &hr__byte_rows_portable;
}

#endif

static inline uint8_t byte_of(float v)
{
    v = v < 0.0f ? 0.0f : v;
    v = v > 255.0f ? 255.0f : v;
    return (uint8_t)(int32_t)v;
}

static void reverse_row(const uint8_t *restrict row, int n, uint8_t *restrict out)
{
    for (int i = 0; i < n; i++)
        out[i] = row[n - 1 - i];
}

/* Looks up whole vectors. Returns how many bytes. */
#if defined(__AVX512VBMI__)
static int table_vectors(uint8_t *p, int n, const uint8_t *table)
{
    __m512i part[4];
    int i = 0;
    for (int k = 0; k < 4; k++)
        part[k] = _mm512_loadu_si512(table + 64 * k);
    for (; i + 64 <= n; i += 64) {
        __m512i v = _mm512_loadu_si512(p + i);
        __m512i low = _mm512_permutex2var_epi8(part[0], v, part[1]);
        __m512i high = _mm512_permutex2var_epi8(part[2], v, part[3]);
        _mm512_storeu_si512(p + i, _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(v), high));
    }
    return i;
}
#elif defined(__AVX2__)
/* Looks up values v in parts 0 to 7, each the difference to the part before it: those beyond v are
 * looked up at a negative index, which gives 0. So do all if v is negative. */
static inline __m256i look_up_half(const __m256i part[8], __m256i v)
{
    __m256i sum = _mm256_shuffle_epi8(part[0], v);
    for (int k = 1; k < 8; k++) {
        v = _mm256_subs_epi8(v, _mm256_set1_epi8(16));
        sum = _mm256_xor_si256(sum, _mm256_shuffle_epi8(part[k], v));
    }
    return sum;
}

static int table_vectors(uint8_t *p, int n, const uint8_t *table)
{
    __m256i part[16];
    int i = 0;
    for (int k = 0; k < 16; k++) {
        __m128i now = _mm_loadu_si128((const void *)(table + 16 * k));
        if (k % 8)
            now = _mm_xor_si128(now, _mm_loadu_si128((const void *)(table + 16 * (k - 1))));
        part[k] = _mm256_broadcastsi128_si256(now);
    }
    for (; i + 32 <= n; i += 32) {
        __m256i v = _mm256_loadu_si256((const void *)(p + i));
        __m256i low = look_up_half(part, v);
        __m256i high = look_up_half(part + 8, _mm256_xor_si256(v, _mm256_set1_epi8(-128)));
        _mm256_storeu_si256((void *)(p + i), _mm256_or_si256(low, high));
    }
    return i;
}
#else
static int table_vectors(uint8_t *p, int n, const uint8_t *table)
{
    return 0;
}
#endif

static void table_row(uint8_t *restrict p, int n, const uint8_t *restrict table)
{
    for (int i = table_vectors(p, n, table); i < n; i++)
        p[i] = table[p[i]];
}

static void grey_row(const uint8_t *restrict r, const uint8_t *restrict g,
                     const uint8_t *restrict b, int n, uint8_t *restrict out)
{
    for (int i = 0; i < n; i++) {
        float luma = fmaf(g[i], 0.587f, (float)r[i] * 0.2989f);
        out[i] = (uint8_t)(int32_t)fmaf(b[i], 0.114f, luma);
    }
}

static void blend_grey_row(uint8_t *restrict p, const uint8_t *restrict grey, int n, float factor,
                           float rest)
{
    for (int i = 0; i < n; i++)
        p[i] = byte_of(fmaf(grey[i], rest, (float)p[i] * factor));
}

static inline float larger(float a, float b)
{
    return a > b ? a : b;
}

static inline float smaller(float a, float b)
{
    return a < b ? a : b;
}

static inline uint8_t unit_to_byte(float v)
{
    return (uint8_t)(int32_t)(v * 255.999f);
}

/* The hue in turns, 0..1, from two of the channels' distances to the largest, over their range:
 * that of the largest itself is 0. */
static inline float hue_of(float r, float g, float b, float high, float divisor)
{
    float plus = high - r, minus = high - b, sixths = 2.0f;
    plus = high == g ? plus : high - g;
    minus = high == g ? minus : high - r;
    sixths = high == g ? sixths : 4.0f;
    plus = high == r ? high - b : plus;
    minus = high == r ? high - g : minus;
    sixths = high == r ? 0.0f : sixths;
    float h = (plus / divisor + sixths) - minus / divisor;
    h = h * (float)(1.0 / 6.0) + 1.0f;
    return h >= 1.0f ? h - 1.0f : h;
}

/* Each channel has one value in two neighbouring sectors, whose middle is `centre`, another in the
 * sectors beside them, and the third in the two opposite ones. */
static inline uint8_t in_sector(float sector, float centre, float near, float beside,
                                float opposite)
{
    float apart = fabsf(sector - centre);
    float v = apart < 2.0f ? beside : opposite;
    return unit_to_byte(apart < 1.0f ? near : v);
}

static void hue_row(uint8_t *restrict r, uint8_t *restrict g, uint8_t *restrict b, int n,
                    float turn)
{
    const float unit = (float)(1.0 / 255.0);
    for (int i = 0; i < n; i++) {
        float red = (float)r[i] * unit, green = (float)g[i] * unit, blue = (float)b[i] * unit;
        float v = larger(larger(red, green), blue), low = smaller(smaller(red, green), blue);
        float range = v - low;
        float s = range / (v == low ? 1.0f : v);
        float h = hue_of(red, green, blue, v, v == low ? 1.0f : range) + turn;
        h = h >= 1.0f ? h - 1.0f : h;
        h = h < 0.0f ? h + 1.0f : h;
        float h6 = h * 6.0f;
        float sector = (float)(int32_t)h6;
        float sf = s * (h6 - sector), rest = 1.0f - s;
        float half = sector * 0.5f;
        float part = (float)(int32_t)half == half ? sf + rest : 1.0f - sf;
        sector = sector == 6.0f ? 0.0f : sector;
        float middle = smaller(larger(part * v, 0.0f), 1.0f);
        float least = smaller(larger(rest * v, 0.0f), 1.0f);
        r[i] = in_sector(sector, 2.5f, least, middle, v);
        g[i] = in_sector(sector, 1.5f, v, middle, least);
        b[i] = in_sector(sector, 3.5f, v, middle, least);
    }
}

static void smooth_row(const uint8_t *restrict above, const uint8_t *restrict row,
                       const uint8_t *restrict below, int n, uint8_t *restrict out)
{
    for (int i = 0; i < n; i++) {
        uint16_t sum = (uint16_t)(above[i - 1] + above[i] + above[i + 1] + row[i - 1] + 5 * row[i] +
                                  row[i + 1] + below[i - 1] + below[i] + below[i + 1]);
        /* / 13; exact for sums of bytes */
        out[i] = (uint8_t)((uint32_t)(uint16_t)(sum + 6) * 5042 >> 16);
    }
}

static void sharpen_row(const uint8_t *restrict row, const uint8_t *restrict smooth, int n,
                        float rest, uint8_t *restrict out)
{
    for (int i = 0; i < n; i++)
        out[i] = byte_of(fmaf((float)(smooth[i] - row[i]), rest, row[i]));
}

static void floats_row(const uint8_t *restrict row, int n, float *restrict out)
{
    for (int i = 0; i < n; i++)
        out[i] = row[i];
}

/* Vectors of the compiler, for loops whose sums have to stay in registers: four or two of 32
 * pixels. */
#ifdef __AVX512F__
#define FLOATS_BYTES 64
#else
#define FLOATS_BYTES 32
#endif
#define FLOATS  (FLOATS_BYTES / (int)sizeof(float))
#define VECTORS (32 / FLOATS)
typedef float floats __attribute__((vector_size(FLOATS_BYTES), aligned(4), may_alias));
#define FLOATS_AT(p) (*(const floats *)(p))

static void blur_along_row(const float *in, int n, const float *weight, int radius, float *out)
{
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        floats sum[VECTORS];
        for (int k = 0; k < VECTORS; k++)
            sum[k] = FLOATS_AT(in + i + FLOATS * k) * weight[0];
        for (int t = 1; t <= radius; t++)
            for (int k = 0; k < VECTORS; k++)
                sum[k] +=
                    (FLOATS_AT(in + i + FLOATS * k - t) + FLOATS_AT(in + i + FLOATS * k + t)) *
                    weight[t];
        memcpy(out + i, sum, sizeof sum);
    }
    for (; i < n; i++) {
        float sum = in[i] * weight[0];
        for (int t = 1; t <= radius; t++)
            sum += (in[i - t] + in[i + t]) * weight[t];
        out[i] = sum;
    }
}

/* Adding this rounds to a whole number, halves to even. */
#define ROUNDER 12582912.0f

static void blur_across_row(const float *const *rows, int n, const float *weight, int radius,
                            uint8_t *restrict out)
{
    const float *const *middle = rows + radius;
    float sums[32];
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        floats sum[VECTORS];
        for (int k = 0; k < VECTORS; k++)
            sum[k] = FLOATS_AT(middle[0] + i + FLOATS * k) * weight[0];
        for (int t = 1; t <= radius; t++)
            for (int k = 0; k < VECTORS; k++)
                sum[k] += (FLOATS_AT(middle[-t] + i + FLOATS * k) +
                           FLOATS_AT(middle[t] + i + FLOATS * k)) *
                          weight[t];
        memcpy(sums, sum, sizeof sum);
        for (int k = 0; k < 32; k++)
            out[i + k] = (uint8_t)(int32_t)((sums[k] + ROUNDER) - ROUNDER);
    }
    for (; i < n; i++) {
        float sum = middle[0][i] * weight[0];
        for (int t = 1; t <= radius; t++)
            sum += (middle[-t][i] + middle[t][i]) * weight[t];
        out[i] = (uint8_t)(int32_t)((sum + ROUNDER) - ROUNDER);
    }
}

static void mix_row(float *restrict sum, const uint8_t *restrict p, int n, float weight)
{
    for (int i = 0; i < n; i++)
        sum[i] += weight * (float)p[i];
}

static void noise_row(uint8_t *restrict p, const float *restrict normal, int n,
                      const float mean_sigma[2], int clip)
{
    float mean = mean_sigma[0], sigma = mean_sigma[1];
    for (int i = 0; i < n; i++) {
        /* whole numbers of 16 bits */
        int32_t v = p[i] + (int16_t)(int32_t)(mean + normal[i] * sigma);
        int32_t clipped = v < 0 ? 0 : v;
        clipped = clipped > 255 ? 255 : clipped;
        p[i] = (uint8_t)(clip ? clipped : v);
    }
}

static inline uint32_t high_product(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

/* Philox4x32-10; see base/random.h. */
static inline void philox(uint32_t word[4], uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        uint32_t one = word[0], two = word[2];
        word[0] = high_product(two, 0xCD9E8D57u) ^ word[1] ^ key0;
        word[1] = two * 0xCD9E8D57u;
        word[2] = high_product(one, 0xD2511F53u) ^ word[3] ^ key1;
        word[3] = one * 0xD2511F53u;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

/* sqrt(-2 ln u) for u = (bits + 1) / 2^24: the series of artanh, after taking out the power of
 * two. */
static inline float radius_of(uint32_t word)
{
    float u = (float)(int32_t)((word >> 8) + 1);
    uint32_t bits;
    memcpy(&bits, &u, sizeof bits);
    uint32_t shifted = bits - 0x3f3504f3u; /* sqrt(1/2) */
    float exponent = (float)((int32_t)shifted >> 23) - 24.0f;
    bits = (shifted & 0x7fffff) + 0x3f3504f3u;
    float m;
    memcpy(&m, &bits, sizeof m);
    float f = (m - 1.0f) / (m + 1.0f), s = f * f;
    float series = 1.0f + s * (1.0f / 3 + s * (1.0f / 5 + s * (1.0f / 7 + s * (1.0f / 9))));
    float minus = -(exponent * 0.69314718f + 2.0f * f * series);
    return sqrtf(minus > 0.0f ? 2.0f * minus : 0.0f);
}

/* The two numbers of Box and Muller: the angle is a quadrant and up to an eighth to either side. */
static inline void normal_pair(uint32_t for_radius, uint32_t for_angle, float *one, float *two)
{
    float radius = radius_of(for_radius);
    float x =
        ((float)(int32_t)(for_angle >> 8 & 0x3fffff) - 2097151.5f) * (1.57079633f / 4194304.0f);
    float s = x * x;
    float sine = x * (1.0f + s * (-1.0f / 6 + s * (1.0f / 120 + s * (-1.0f / 5040))));
    float cosine = 1.0f + s * (-0.5f + s * (1.0f / 24 + s * (-1.0f / 720 + s * (1.0f / 40320))));
    float a = for_angle >> 31 ? sine : cosine, b = for_angle >> 31 ? cosine : sine;
    *one = (for_angle >> 30 & 1 ? -a : a) * radius;
    *two = (((for_angle >> 31) ^ (for_angle >> 30 & 1)) ? -b : b) * radius;
}

/* Four numbers come from one counter; several counters side by side. */
#define LANES (HR__NORMAL_BLOCK / 4)

static void normal_row(uint64_t seed, const uint32_t channel_row[2], uint32_t first, int blocks,
                       float *out)
{
    for (int k = 0; k < blocks; k++, out += HR__NORMAL_BLOCK) {
        float normal[4][LANES];
        for (int i = 0; i < LANES; i++) {
            uint32_t word[4] = {first + (uint32_t)(k * HR__NORMAL_BLOCK + i), channel_row[1],
                                channel_row[0], 0};
            philox(word, (uint32_t)seed, (uint32_t)(seed >> 32));
            normal_pair(word[0], word[1], &normal[0][i], &normal[1][i]);
            normal_pair(word[2], word[3], &normal[2][i], &normal[3][i]);
        }
        memcpy(out, normal, sizeof normal);
    }
}

const struct hr__byte_rows HR__BYTE_ROWS = {
    .reverse = reverse_row,
    .table = table_row,
    .grey = grey_row,
    .blend_grey = blend_grey_row,
    .hue = hue_row,
    .smooth = smooth_row,
    .sharpen = sharpen_row,
    .floats = floats_row,
    .blur_along = blur_along_row,
    .blur_across = blur_across_row,
    .mix = mix_row,
    .noise = noise_row,
    .normal = normal_row,
};
