/*
 * Factors of the inverse DCT's vector versions: each output as a sum over the inputs
 * 0 and 4, 2 and 6, 1 and 5, 3 and 7, whose two factors multiply together. In memory
 * rather than in the code: there are more of them than registers, and instructions
 * broadcast them from there.
 */
#ifndef HR_CODEC_COEFFICIENTS_FACTORS_H
#define HR_CODEC_COEFFICIENTS_FACTORS_H

#include <stdint.h>

/* HR__Fab_i: of inputs a and b for output i. Those that are not here are the same,
 * or the same with another sign. */
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
    HR__FACTORS,
};

/* In 2^-13. */
extern const int16_t hr__block_factors[HR__FACTORS][2];

#endif
