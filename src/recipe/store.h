/*
 * Stores floats as tensor elements: the casts and the two layouts.
 *
 * float16 and bfloat16 round to nearest, ties to even, like torch. uint8 is floor(value + 0.5)
 * clamped to 0..255. Every instruction set gives the same bits.
 */
#ifndef HR_RECIPE_STORE_H
#define HR_RECIPE_STORE_H

#include <headrace/recipe.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One sample in memory. */
struct hr__sample_store {
    void *out; /* aligned to its elements */
    int width;
    int pitch, lines; /* pixels between its rows, and rows between its planes */
    enum hr_dtype dtype;
    enum hr_layout layout;
};

/* Writes row `row` of the sample from the three channels' floats. Thread safe for different
 * rows. */
void hr__store_row(const struct hr__sample_store *store, int row, const float *const channel[3]);

/* The casts of one value; all other versions must give the same results. Both sides of every choice
 * are computed, so that compilers can vectorise loops over them. */
static inline uint8_t hr__store_uint8(float v)
{
    float rounded = v + 0.5f;
    rounded = rounded > 0 ? rounded : 0; /* also replaces NaN */
    rounded = rounded < 255 ? rounded : 255;
    return (uint8_t)(int32_t)rounded;
}

static inline uint32_t hr__float_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline uint16_t hr__store_float16(float v)
{
    uint32_t bits = hr__float_bits(v), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    float absolute;
    memcpy(&absolute, &magnitude, sizeof absolute);
    /* Normal numbers: adding just below half of the removed bits rounds to nearest even. */
    uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* Subnormals: adding 0.5 rounds to their spacing, 2^-24. */
    uint32_t subnormal = hr__float_bits(absolute + 0.5f) - 0x3f000000;
    uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    uint32_t half = magnitude < 113u << 23 ? subnormal : normal;
    half = magnitude >= 0x477ff000 ? 0x7c00 : half; /* from 65520 on: infinity */
    half = magnitude > 0x7f800000 ? nan : half;
    return (uint16_t)(sign | half);
}

static inline uint16_t hr__store_bfloat16(float v)
{
    uint32_t bits = hr__float_bits(v);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

#endif
