/* Casts and layouts; see store.h. A sample's rows go through the fused pass's kernels, so the
 * general path stores as fast as the fused one. */
#include "recipe/store.h"

#include "base/cpu.h"
#include "recipe/fused_kernels.h"

/* Pixels interleaved at a time, so that their casts stay in L1. */
#define CHUNK 256

void hr__store_row(const struct hr__sample_store *store, int row, const float *const channel[3])
{
    const struct hr__fused_kernels *kernels = hr__fused_kernels(hr__isa());
    size_t bytes = hr__element_bytes(store->dtype), width = (size_t)store->width;
    size_t pitch = (size_t)store->pitch;
    uint8_t *out = store->out;
    if (store->layout == HR_NCHW) {
        for (size_t c = 0; c < 3; c++)
            kernels->cast(channel[c], width, store->dtype,
                          out + (c * (size_t)store->lines + (size_t)row) * pitch * bytes);
        return;
    }
    _Alignas(64) uint8_t cast[3][CHUNK * sizeof(float)];
    const void *const in[3] = {cast[0], cast[1], cast[2]};
    for (size_t i = 0; i < width; i += CHUNK) {
        size_t n = width - i < CHUNK ? width - i : CHUNK;
        for (int c = 0; c < 3; c++)
            kernels->cast(channel[c] + i, n, store->dtype, cast[c]);
        kernels->interleave(in, n, bytes, 0, out + ((size_t)row * pitch + i) * 3 * bytes);
    }
}
