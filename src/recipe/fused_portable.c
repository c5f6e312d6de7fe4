/*
 * The fused pass for every machine; the other versions must give the same results.
 *
 * For the horizontal filter, each row of bytes is first converted to 16-bit numbers. Those are
 * multiplied with the 14-bit weights, eight at a time, and pairs of products are added. Sums stay
 * below 2^24 in magnitude, so floats hold them exactly. Vectors are the compiler's own
 * (vector_size; without such registers it generates plain code). Only the sums of products use
 * intrinsics, where there is an instruction for them.
 */
#include "recipe/fused_kernels.h"
#include "recipe/store.h"
#include "recipe/tap_weights.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vec4 __attribute__((vector_size(16)));
typedef int32_t lane4 __attribute__((vector_size(16)));
typedef int16_t word8 __attribute__((vector_size(16)));

#ifdef __clang__
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (lane4){i, j, k, l})
#endif

/* Columns of a row as 16-bit numbers, from `first` on, in the table. */
struct columns {
    int16_t *value;
    int first, count;
};

static struct columns columns_of(const struct hr__horizontal *h)
{
    int a = h->begin[0], b = h->begin[h->count - 1];
    struct columns c = {.value = (int16_t *)(void *)h->table, .first = a < b ? a : b};
    c.count = (a < b ? b : a) - c.first + h->pitch;
    return c;
}

/* Adds products of neighbours in pairs. */
INLINE lane4 pairs(word8 a, word8 b)
{
#ifdef __SSE2__
    return (lane4)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    lane4 sum;
    for (int i = 0; i < 4; i++)
        sum[i] = a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
    return sum;
#endif
}

INLINE word8 load8(const int16_t *at)
{
    word8 v;
    memcpy(&v, at, sizeof v);
    return v;
}

/* Loads four numbers from each of two places. */
INLINE word8 load4_4(const int16_t *a, const int16_t *b)
{
    typedef int64_t pair __attribute__((vector_size(16)));
    int64_t low, high;
    memcpy(&low, a, sizeof low);
    memcpy(&high, b, sizeof high);
    return (word8)(pair){low, high};
}

/* Multiplies an output's taps and returns four partial sums. */
INLINE lane4 products(const int16_t *value, const int16_t *weight, int pitch)
{
    static const int16_t zero[4];
    lane4 sum = {0};
    int t = 0;
    for (; t + 8 <= pitch; t += 8)
        sum += pairs(load8(value + t), load8(weight + t));
    if (t < pitch)
        sum += pairs(load4_4(value + t, zero), load4_4(weight + t, zero));
    return sum;
}

/* Returns the sums of the elements of each of four vectors. */
INLINE lane4 sums(lane4 a, lane4 b, lane4 c, lane4 d)
{
    lane4 ab = SHUFFLE(a, b, 0, 4, 1, 5) + SHUFFLE(a, b, 2, 6, 3, 7);
    lane4 cd = SHUFFLE(c, d, 0, 4, 1, 5) + SHUFFLE(c, d, 2, 6, 3, 7);
    return SHUFFLE(ab, cd, 0, 1, 4, 5) + SHUFFLE(ab, cd, 2, 3, 6, 7);
}

/* Computes four outputs, from `begin` on. */
INLINE lane4 four(const int16_t *value, const int32_t *begin, const int16_t *weight, int pitch)
{
    if (pitch == 4) {
        lane4 a = pairs(load4_4(value + begin[0], value + begin[1]), load8(weight));
        lane4 b = pairs(load4_4(value + begin[2], value + begin[3]), load8(weight + 8));
        return SHUFFLE(a, b, 0, 2, 4, 6) + SHUFFLE(a, b, 1, 3, 5, 7);
    }
    return sums(products(value + begin[0], weight, pitch),
                products(value + begin[1], weight + pitch, pitch),
                products(value + begin[2], weight + 2 * pitch, pitch),
                products(value + begin[3], weight + 3 * pitch, pitch));
}

/* The weights after an output's last tap are zeros, and outputs are padded to fours, so the loop
 * needs no remainder. */
INLINE void filter(const struct hr__horizontal *h, const struct columns *c, float *out, int pitch)
{
    const int16_t *weight = h->weight, *value = c->value - c->first;
    for (int j = 0; j < h->count; j += 4, weight += 4 * pitch) {
        lane4 sum = four(value, h->begin + j, weight, pitch);
        vec4 exact = __builtin_convertvector(sum, vec4);
        memcpy(out + j, &exact, sizeof exact);
    }
    if (!h->ceiling)
        return;
    float ceiling = (float)h->ceiling;
    for (int j = 0; j < h->count; j++) {
        float low = out[j] > 0 ? out[j] : 0;
        out[j] = low < ceiling ? low : ceiling;
    }
}

static void horizontal_near(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    struct columns c = columns_of(h);
    const uint8_t *restrict at = row + c.first;
    int16_t *restrict value = c.value;
    for (int x = 0; x < c.count; x++)
        value[x] = at[x];
    if (h->pitch == 4)
        filter(h, &c, out, 4);
    else if (h->pitch == 8)
        filter(h, &c, out, 8);
    else
        filter(h, &c, out, h->pitch);
}

/* For filters whose taps are so far apart that converting whole rows would not pay off. */
static void horizontal_apart(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    for (int j = 0; j < h->count; j++) {
        const int16_t *weight = h->weight + (ptrdiff_t)j * h->pitch;
        const uint8_t *at = row + h->begin[j];
        int32_t sum = 0;
        for (int t = 0; t < h->taps; t++)
            sum += weight[t] * at[t];
        if (h->ceiling)
            sum = sum < 0 ? 0 : sum > h->ceiling ? h->ceiling : sum;
        out[j] = (float)sum;
    }
}

/* Converts rows only if they have at most three times as many columns as there are weights; that
 * many fit into the table. */
static void prepare(struct hr__horizontal *h)
{
    size_t weights = (size_t)h->padded * (size_t)h->pitch;
    h->run = (size_t)columns_of(h).count > 3 * weights ? horizontal_apart : horizontal_near;
}

static void cast(const float *in, size_t n, enum hr_dtype dtype, void *out)
{
    uint8_t *bytes = out;
    uint16_t *words = out;
    switch (dtype) {
    case HR_UINT8:
        for (size_t i = 0; i < n; i++)
            bytes[i] = hr__store_uint8(in[i]);
        break;
    case HR_FLOAT16:
        for (size_t i = 0; i < n; i++)
            words[i] = hr__store_float16(in[i]);
        break;
    case HR_BFLOAT16:
        for (size_t i = 0; i < n; i++)
            words[i] = hr__store_bfloat16(in[i]);
        break;
    case HR_FLOAT32:
        memcpy(out, in, n * sizeof *in);
        break;
    default:
        break;
    }
}

/* Computes a row of floats from 1..6 rows, with the sums in registers. The order is that of the
 * general loop: one tap after the other, then the shift. */
INLINE void sum_rows(const struct hr__column *column, int taps, float *restrict out)
{
    const float *rows[6], *weight = column->weight;
    for (int t = 0; t < taps; t++)
        rows[t] = column->rows[t];
    for (int k = 0; k < column->width; k++) {
        float sum = weight[0] * rows[0][k];
        for (int t = 1; t < taps; t++)
            sum += weight[t] * rows[t][k];
        out[k] = sum + column->shift;
    }
}

/* Returns non-zero if it computed the row. */
static int vertical_floats(const struct hr__column *column, float *out)
{
    switch (column->taps) {
    case 1:
        sum_rows(column, 1, out);
        return 1;
    case 2:
        sum_rows(column, 2, out);
        return 1;
    case 3:
        sum_rows(column, 3, out);
        return 1;
    case 4:
        sum_rows(column, 4, out);
        return 1;
    case 5:
        sum_rows(column, 5, out);
        return 1;
    case 6:
        sum_rows(column, 6, out);
        return 1;
    default:
        return 0;
    }
}

/* Outputs computed at once: enough for the compiler's vectors, and few enough for the sums to stay
 * in L1. */
#define BLOCK 64

static void vertical(const struct hr__column *column, void *out)
{
    uint8_t *at = out;
    if (column->dtype == HR_FLOAT32 && !column->clamp && vertical_floats(column, out))
        return;
    for (int i = 0; i < column->width; i += BLOCK) {
        int n = column->width - i < BLOCK ? column->width - i : BLOCK;
        float sum[BLOCK];
        for (int k = 0; k < n; k++)
            sum[k] = column->bytes ? column->bytes[i + k] * column->scale
                                   : column->weight[0] * column->rows[0][i + k];
        for (int t = 1; t < column->taps; t++)
            for (int k = 0; k < n; k++)
                sum[k] += column->weight[t] * column->rows[t][i + k];
        if (column->clamp)
            for (int k = 0; k < n; k++) {
                float low = sum[k] > 0 ? sum[k] : 0;
                sum[k] = (low < 255 ? low : 255) * column->scale;
            }
        for (int k = 0; k < n; k++)
            sum[k] += column->shift;
        cast(sum, (size_t)n, column->dtype, at);
        at += (size_t)n * hr__element_bytes(column->dtype);
    }
}

static void interleave(const void *const in[3], size_t n, size_t element_bytes, int stream,
                       void *out)
{
    for (int c = 0; c < 3; c++) {
        if (element_bytes == 1) {
            const uint8_t *from = in[c];
            uint8_t *to = (uint8_t *)out + c;
            for (size_t i = 0; i < n; i++)
                to[3 * i] = from[i];
        } else if (element_bytes == 2) {
            const uint16_t *from = in[c];
            uint16_t *to = (uint16_t *)out + c;
            for (size_t i = 0; i < n; i++)
                to[3 * i] = from[i];
        } else {
            const uint32_t *from = in[c];
            uint32_t *to = (uint32_t *)out + c;
            for (size_t i = 0; i < n; i++)
                to[3 * i] = from[i];
        }
    }
}

static void copy(void *out, const void *in, size_t bytes)
{
    memcpy(out, in, bytes);
}

const struct hr__fused_kernels hr__fused_portable = {
    .weigh = weigh,
    .prepare = prepare,
    .vertical = vertical,
    .cast = cast,
    .interleave = interleave,
    .copy = copy,
};
