/*
 * The factors of the inverse DCT's vector versions. inverse_dct.c expresses the transform as
 * rotations; here all products of each input are combined into one factor.
 */
#include "codec/coefficients_factors.h"

/* 2^13 x cosines and their sums */
enum {
    F_0_298 = 2446,
    F_0_390 = 3196,
    F_0_541 = 4433,
    F_0_765 = 6270,
    F_0_899 = 7373,
    F_1_175 = 9633,
    F_1_501 = 12299,
    F_1_847 = 15137,
    F_1_961 = 16069,
    F_2_053 = 16819,
    F_2_562 = 20995,
    F_3_072 = 25172,
};

const int16_t hr__block_factors[HR__FACTORS_PADDED][2] = {
    [HR__F04_0] = {8192, 8192},
    [HR__F04_1] = {8192, -8192},
    [HR__F26_0] = {F_0_541 + F_0_765, F_0_541},
    [HR__F26_1] = {F_0_541, F_0_541 - F_1_847},
    [HR__F26_2] = {-F_0_541, F_1_847 - F_0_541},
    [HR__F26_3] = {-F_0_541 - F_0_765, -F_0_541},
    [HR__F15_0] = {F_1_501 - F_0_899 + F_1_175 - F_0_390, F_1_175 - F_0_390},
    [HR__F15_1] = {F_1_175, F_1_175 - F_2_562},
    [HR__F15_2] = {F_1_175 - F_0_390, F_2_053 - F_2_562 + F_1_175 - F_0_390},
    [HR__F15_3] = {F_1_175 - F_0_899, F_1_175},
    [HR__F37_0] = {F_1_175, F_1_175 - F_0_899},
    [HR__F37_1] = {F_3_072 - F_2_562 + F_1_175 - F_1_961, F_1_175 - F_1_961},
    [HR__F37_2] = {F_1_175 - F_2_562, F_1_175},
    [HR__F37_3] = {F_1_175 - F_1_961, F_0_298 - F_0_899 + F_1_175 - F_1_961},
};
