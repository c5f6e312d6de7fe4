/* Instruction sets; see cpu.h. */
#include "base/cpu.h"

#include <headrace/prepare.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
/* clang recognises F16C by name only from version 19 on. */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static enum hr__isa detect(void)
{
    enum hr__isa best = HR__ISA_PORTABLE;
#if defined(__aarch64__)
    best = HR__ISA_NEON;
#elif defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
        __builtin_cpu_supports("bmi2") && has_f16c())
        best = HR__ISA_AVX2;
    if (best == HR__ISA_AVX2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vnni"))
        best = HR__ISA_AVX512;
#endif
    const char *wish = getenv("HEADRACE_ISA");
    if (wish && !strcmp(wish, "portable"))
        best = HR__ISA_PORTABLE;
    else if (wish && !strcmp(wish, "avx2") && best > HR__ISA_AVX2)
        best = HR__ISA_AVX2;
    return best;
}

static int detect_pdep(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d))
        return 0;
    /* "Auth"enticAMD, "Hygo"nGenuine */
    int amd = b == signature_AMD_ebx || b == 0x6F677948;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    unsigned family = (a >> 8 & 15) + ((a >> 8 & 15) == 15 ? a >> 20 & 255 : 0);
    return !amd || family >= 0x19; /* Zen 3 */
#else
    return 0;
#endif
}

static enum hr__isa chosen;
static int fast_pdep;

static void choose(void)
{
    chosen = detect();
    fast_pdep = detect_pdep();
}

enum hr__isa hr__isa(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

int hr__pdep_is_fast(void)
{
    hr__isa();
    return fast_pdep;
}

const char *hr_isa_name(void)
{
#if defined(__aarch64__)
    static const char *const names[] = {"portable", "neon"};
#else
    static const char *const names[] = {"portable", "avx2", "avx512"};
#endif
    return names[hr__isa()];
}
