/* CPU cores and instruction sets that this process can use. */
#ifndef HR_BASE_CPU_H
#define HR_BASE_CPU_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

/* In ascending order on each architecture. */
enum hr__isa {
    HR__ISA_PORTABLE = 0,
    HR__ISA_NEON = 1,   /* 64-bit ARM; every machine of that kind has it */
    HR__ISA_AVX2 = 1,   /* AVX2, F16C, BMI1/2 */
    HR__ISA_AVX512 = 2, /* F, BW, DQ, VL, VBMI, VBMI2, VNNI */
};

/* Returns the best instruction set that the machine and its kernel support. The environment
 * variable HEADRACE_ISA=portable|neon|avx2 lowers it; it is read once. Thread safe. */
enum hr__isa hr__isa(void);

/* Returns the number of cores this process may use: the smaller of its CPU affinity and its cgroup
 * (v1 or v2) quota, rounded up; at least 1. */
int hr__cpu_count(void);

/* Returns the set of cores this process may run on and its size in bytes, or NULL if unknown. Free
 * it with CPU_FREE. */
cpu_set_t *hr__cpu_affinity(size_t *bytes);

/* Calls `visit` with the folder of each cgroup (v1 or v2) that may limit this process's use of
 * cores, from its own one up to the root. Containers usually mount the cgroup's own files at the
 * root, so a folder may be missing or be another one than /proc/self/cgroup says. */
void hr__cpu_groups(void (*visit)(void *arg, const char *folder), void *arg);

#endif
