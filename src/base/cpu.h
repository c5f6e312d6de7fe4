/* Instruction sets that this process can use. base/machine.h counts its cores. */
#ifndef HR_BASE_CPU_H
#define HR_BASE_CPU_H

/* In ascending order on each architecture. */
enum hr__isa {
    HR__ISA_PORTABLE = 0,
    HR__ISA_NEON = 1,   /* 64-bit ARM; every machine of that kind has it */
    HR__ISA_AVX2 = 1,   /* AVX2, FMA, F16C, BMI1/2 */
    HR__ISA_AVX512 = 2, /* F, BW, DQ, VL, VBMI, VBMI2, VNNI */
};

/* Returns the best instruction set that the machine and its kernel support. The environment
 * variable HEADRACE_ISA=portable|neon|avx2 lowers it; it is read once. Thread safe. */
enum hr__isa hr__isa(void);

/* Returns non-zero if PDEP and PEXT (BMI2) take a few cycles. They are microcode on AMD before Zen
 * 3, which takes hundreds. Thread safe. */
int hr__pdep_is_fast(void);

#endif
