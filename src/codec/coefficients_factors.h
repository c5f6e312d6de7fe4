/*
 * Factors of the inverse DCT's vector versions. Each output is a sum over the input pairs 0 and 4,
 * 2 and 6, 1 and 5, 3 and 7, and each pair's two factors are multiplied in one instruction. The
 * factors are in memory because there are more of them than registers; instructions broadcast them
 * from there.
 */
#ifndef HR_CODEC_COEFFICIENTS_FACTORS_H
#define HR_CODEC_COEFFICIENTS_FACTORS_H

#include <stdint.h>

/* HR__Fab_i: the factors of inputs a and b for output i. Those missing are equal to a listed one,
 * up to sign. */
enum hr__factor {
    HR__F04_0,
    HR__F04_1,
    HR__F26_0,
    HR__F26_1,
    HR__F26_2,
    HR__F26_3,
    HR__F15_0,
    HR__F15_1,
    HR__F15_2,
    HR__F15_3,
    HR__F37_0,
    HR__F37_1,
    HR__F37_2,
    HR__F37_3,
    HR__FACTORS_PADDED = 16, /* NEON loads four at a time */
};

/* In units of 2^-13. */
extern const int16_t hr__block_factors[HR__FACTORS_PADDED][2];

#endif
