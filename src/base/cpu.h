/* Cores and instruction sets of the machine, as this process may use them. */
#ifndef HR_BASE_CPU_H
#define HR_BASE_CPU_H

#include <stdint.h>

enum hr__isa {
    HR__ISA_PORTABLE = 0,
    HR__ISA_AVX2 = 1,   /* AVX2, F16C, BMI1/2 */
    HR__ISA_AVX512 = 2, /* F, BW, DQ, VL, VBMI, VBMI2, VNNI */
};

/* The best one of this machine and its kernel, lowered by the environment
 * variable HEADRACE_ISA=portable|avx2 (read once). Thread safe. */
enum hr__isa hr__isa(void);

/* Cores this process may use: CPU affinity and the cgroup (v1 or v2) quota,
 * whichever is less, rounded up; at least 1. */
int hr__cpu_count(void);

#endif
