/* Casts and layouts; see store.h. The rows of a sample go through the fused
 * pass's kernels, so that the general path stores as fast as it does. */
#include "recipe/store.h"

#include "base/cpu.h"
#include "recipe/fused_kernels.h"

#include <string.h>

uint8_t hr__store_uint8(float v)
{
    float rounded = v + 0.5f;
    if (!(rounded > 0)) /* NaN too */
        return 0;
    return rounded < 255 ? (uint8_t)rounded : 255;
}

uint16_t hr__store_float16(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN: quiet, with what fits of its payload */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x33000000) /* below half of the least subnormal */
        return sign;
    uint32_t exponent = magnitude >> 23, shift = 13, mantissa;
    if (exponent < 113) { /* subnormal: the leading one joins the mantissa */
        shift += 113 - exponent;
        mantissa = (magnitude & 0x7fffff) | 0x800000;
    } else {
        mantissa = magnitude - (112u << 23);
    }
    uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1));
    return (uint16_t)(sign | kept);
}

uint16_t hr__store_bfloat16(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void hr__store_cast(const float *in, size_t n, enum hr_dtype dtype, void *out)
{
    hr__fused_kernels(hr__isa())->cast(in, n, dtype, out);
}

/* Pixels that are interleaved at a time: their casts stay in L1. */
#define CHUNK 256

void hr__store_row(const struct hr__store *store, int row, const float *const channel[3])
{
    const struct hr__fused_kernels *kernels = hr__fused_kernels(hr__isa());
    size_t bytes = hr__element_bytes(store->dtype), width = (size_t)store->width;
    uint8_t *out = store->out;
    if (store->layout == HR_NCHW) {
        for (size_t c = 0; c < 3; c++)
            kernels->cast(channel[c], width, store->dtype,
                          out + (c * (size_t)store->height + (size_t)row) * width * bytes);
        return;
    }
    _Alignas(64) uint8_t cast[3][CHUNK * sizeof(float)];
    const void *const in[3] = {cast[0], cast[1], cast[2]};
    for (size_t i = 0; i < width; i += CHUNK) {
        size_t n = width - i < CHUNK ? width - i : CHUNK;
        for (int c = 0; c < 3; c++)
            kernels->cast(channel[c] + i, n, store->dtype, cast[c]);
        kernels->interleave(in, n, bytes, 0, out + ((size_t)row * width + i) * 3 * bytes);
    }
}
