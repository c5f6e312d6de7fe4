/* The fused pass in plain C: what the other versions must equal. */
#include "recipe/fused_kernels.h"
#include "recipe/store.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* The weights behind an output's last tap are zeros: adding those in keeps the
 * number of taps constant, and the loop without branches. */
INLINE void filter(const struct hr__horizontal *h, const uint8_t *row, float *out, int taps)
{
    for (int j = 0; j < h->count; j++) {
        const int16_t *weight = h->weight + (ptrdiff_t)j * h->pitch;
        const uint8_t *at = row + h->begin[j];
        int32_t sum = 0;
        for (int t = 0; t < taps; t++)
            sum += weight[t] * at[t];
        if (h->ceiling)
            sum = sum < 0 ? 0 : sum > h->ceiling ? h->ceiling : sum;
        out[j] = (float)sum;
    }
}

static void horizontal(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    if (h->pitch == 4)
        filter(h, row, out, 4);
    else if (h->pitch == 8)
        filter(h, row, out, 8);
    else
        filter(h, row, out, h->taps);
}

static void prepare(struct hr__horizontal *h)
{
    h->run = horizontal;
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
