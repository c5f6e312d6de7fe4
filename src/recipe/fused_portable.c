/*
 * The fused pass in plain C: what the other versions must equal.
 *
 * Horizontally in float: bytes times weights of 14 bits, and sums of them, stay
 * below 2^24 in magnitude, so floats hold these integers exactly. That lets four
 * taps go at once wherever there are vectors of four floats, which compilers know
 * everywhere (vector_size; without such registers it is plain code).
 */
#include "recipe/fused_kernels.h"
#include "recipe/store.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef float vec4 __attribute__((vector_size(16)));
typedef int32_t lane4 __attribute__((vector_size(16)));

#ifdef __clang__
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (lane4){i, j, k, l})
#endif

/* What prepare makes of the table: the weights as floats, [padded][pitch]; then
 * room for the columns first.. of a row as floats. */
struct floats {
    const float *weight;
    float *value;
    int first, columns;
};

static struct floats floats_of(const struct hr__horizontal *h)
{
    int a = h->begin[0], b = h->begin[h->count - 1];
    struct floats f = {.first = a < b ? a : b};
    f.columns = (a < b ? b : a) - f.first + h->pitch;
    f.weight = (const float *)(const void *)h->table;
    f.value = (float *)(void *)h->table + (size_t)h->padded * (size_t)h->pitch;
    return f;
}

INLINE vec4 load4(const float *at)
{
    vec4 v;
    memcpy(&v, at, sizeof v);
    return v;
}

/* Products of an output's taps, four sums of them. */
INLINE vec4 products(const float *value, const float *weight, int pitch)
{
    vec4 sum = load4(value) * load4(weight);
    for (int t = 4; t < pitch; t += 4)
        sum += load4(value + t) * load4(weight + t);
    return sum;
}

/* The sum of each of four vectors. */
INLINE vec4 sums(vec4 a, vec4 b, vec4 c, vec4 d)
{
    vec4 ab = SHUFFLE(a, b, 0, 4, 1, 5) + SHUFFLE(a, b, 2, 6, 3, 7);
    vec4 cd = SHUFFLE(c, d, 0, 4, 1, 5) + SHUFFLE(c, d, 2, 6, 3, 7);
    return SHUFFLE(ab, cd, 0, 1, 4, 5) + SHUFFLE(ab, cd, 2, 3, 6, 7);
}

/* The weights behind an output's last tap are zeros, and outputs are padded to
 * fours, so that no loop has an odd end. */
INLINE void filter(const struct hr__horizontal *h, const struct floats *f, float *out, int pitch)
{
    const float *weight = f->weight, *value = f->value - f->first;
    for (int j = 0; j < h->count; j += 4, weight += 4 * pitch) {
        const int32_t *begin = h->begin + j;
        vec4 sum = sums(products(value + begin[0], weight, pitch),
                        products(value + begin[1], weight + pitch, pitch),
                        products(value + begin[2], weight + 2 * pitch, pitch),
                        products(value + begin[3], weight + 3 * pitch, pitch));
        memcpy(out + j, &sum, sizeof sum);
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
    struct floats f = floats_of(h);
    const uint8_t *restrict at = row + f.first;
    float *restrict value = f.value;
    for (int x = 0; x < f.columns; x++)
        value[x] = at[x];
    if (h->pitch == 4)
        filter(h, &f, out, 4);
    else if (h->pitch == 8)
        filter(h, &f, out, 8);
    else
        filter(h, &f, out, h->pitch);
}

/* For filters whose taps are so far apart that converting whole rows would not pay. */
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

static void prepare(struct hr__horizontal *h)
{
    struct floats f = floats_of(h);
    size_t weights = (size_t)h->padded * (size_t)h->pitch;
    size_t bytes = (weights + (size_t)f.columns) * sizeof *f.value;
    if (bytes > hr__fused_table_bytes(h->padded, h->pitch)) {
        h->run = horizontal_apart;
        return;
    }
    float *out = (float *)(void *)h->table;
    for (size_t i = 0; i < weights; i++)
        out[i] = h->weight[i];
    h->run = horizontal_near;
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
    }
}

/* Outputs done at once: long enough for the compiler's vectors, short enough
 * for the sums to stay in L1. */
#define BLOCK 64

static void vertical(const struct hr__column *column, void *out)
{
    uint8_t *at = out;
    for (int i = 0; i < column->width; i += BLOCK) {
        int n = column->width - i < BLOCK ? column->width - i : BLOCK;
        float sum[BLOCK];
        for (int k = 0; k < n; k++)
            sum[k] = column->weight[0] * column->rows[0][i + k];
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
    .prepare = prepare,
    .vertical = vertical,
    .cast = cast,
    .interleave = interleave,
    .copy = copy,
};
