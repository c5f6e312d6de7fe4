/*
 * Floats to the elements of a tensor: casts, and the two layouts.
 *
 * float16 and bfloat16 round to nearest, ties to even, as torch does; uint8 is
 * floor(value + 0.5) cut to 0..255. Every instruction set gives the same bits.
 */
#ifndef HR_RECIPE_STORE_H
#define HR_RECIPE_STORE_H

#include <headrace/recipe.h>

#include <stddef.h>
#include <stdint.h>

/* One sample in memory. */
struct hr__store {
    void *out; /* aligned to its elements */
    int width, height;
    enum hr_dtype dtype;
    enum hr_layout layout;
};

/* Casts n floats to `dtype`; the ranges do not overlap. Thread safe. */
void hr__store_cast(const float *in, size_t n, enum hr_dtype dtype, void *out);

/* Writes row `row` of the sample from the three channels' floats. Thread safe
 * for different rows. */
void hr__store_row(const struct hr__store *store, int row, const float *const channel[3]);

/* The casts of one value: what all others must equal. */
uint8_t hr__store_uint8(float v);
uint16_t hr__store_float16(float v);
uint16_t hr__store_bfloat16(float v);

#endif
