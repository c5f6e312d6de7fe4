/* Selects the fused pass for an instruction set. */
#include "recipe/fused_kernels.h"

static const struct hr__fused_kernels *const versions[] = {
    [HR__ISA_PORTABLE] = &hr__fused_portable,
#if defined(__x86_64__)
    [HR__ISA_AVX2] = &hr__fused_avx2,
    [HR__ISA_AVX512] = &hr__fused_avx512,
#elif defined(__aarch64__)
    [HR__ISA_NEON] = &hr__fused_neon,
#endif
};

const struct hr__fused_kernels *hr__fused_kernels(enum hr__isa isa)
{
    size_t built = sizeof versions / sizeof *versions;
    return versions[(size_t)isa < built ? (size_t)isa : built - 1];
}
