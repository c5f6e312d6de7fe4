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

/* States of registers that the system saves, in XCR0. */
#define SAVED_AVX    0x06u
#define SAVED_AVX512 0xE6u

static unsigned saved_states(void)
{
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static int all_of(unsigned found, unsigned wanted)
{
    return (found & wanted) == wanted;
}

/* From the processor itself: not every compiler's runtime knows it (__builtin_cpu_supports). */
static enum hr__isa detect_x86(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) ||
        !all_of(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C | bit_POPCNT) ||
        !all_of(saved_states(), SAVED_AVX) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        !all_of(b, bit_AVX2 | bit_BMI | bit_BMI2))
        return HR__ISA_PORTABLE;
    if (!all_of(saved_states(), SAVED_AVX512) ||
        !all_of(b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) ||
        !all_of(c, bit_AVX512VBMI | bit_AVX512VBMI2 | bit_AVX512VNNI))
        return HR__ISA_AVX2;
    return HR__ISA_AVX512;
}

#endif

static enum hr__isa detect(void)
{
    enum hr__isa best = HR__ISA_PORTABLE;
#if defined(__aarch64__)
    best = HR__ISA_NEON;
#elif defined(__x86_64__)
    best = detect_x86();
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
