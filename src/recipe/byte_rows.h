/*
 * The row kernels of the filters on bytes, one table per instruction set. All versions give the
 * same bits. n: pixels in the row; rows do not overlap, and nothing is written past n.
 *
 * They round like torchvision v2's kernels for uint8 tensors, whose weighted sums are fused
 * multiply-adds.
 */
#ifndef HR_RECIPE_BYTE_ROWS_H
#define HR_RECIPE_BYTE_ROWS_H

#include "base/cpu.h"

#include <stdint.h>

/* Normal numbers come in blocks of so many. */
#define HR__NORMAL_BLOCK 32

struct hr__byte_rows {
    /* The row from its end. */
    void (*reverse)(const uint8_t *row, int n, uint8_t *out);
    /* p[i] = table[p[i]], of 256 */
    void (*table)(uint8_t *p, int n, const uint8_t *table);
    /* The luma, rounded down. */
    void (*grey)(const uint8_t *r, const uint8_t *g, const uint8_t *b, int n, uint8_t *out);
    /* v x factor + grey x rest, rounded down */
    void (*blend_grey)(uint8_t *p, const uint8_t *grey, int n, float factor, float rest);
    /* turn: -0.5..0.5 of a circle */
    void (*hue)(uint8_t *r, uint8_t *g, uint8_t *b, int n, float turn);
    /* The 3x3 mean in which the middle counts five times, rounded to nearest. Each row is read
     * from -1 to n. */
    void (*smooth)(const uint8_t *above, const uint8_t *row, const uint8_t *below, int n,
                   uint8_t *out);
    /* v + (smooth - v) x rest, rounded down */
    void (*sharpen)(const uint8_t *row, const uint8_t *smooth, int n, float rest, uint8_t *out);
    void (*floats)(const uint8_t *row, int n, float *out);
    /* Convolves with weight[|t|], t = -radius..radius: along the row `in`, which is read from
     * -radius to n - 1 + radius; and across rows, of which rows[radius] is the middle. */
    void (*blur_along)(const float *in, int n, const float *weight, int radius, float *out);
    void (*blur_across)(const float *const *rows, int n, const float *weight, int radius,
                        uint8_t *out);
    /* Adds weight x v to the sums. */
    void (*mix)(float *sum, const uint8_t *p, int n, float weight);
    /* Adds the normal numbers, times sigma, plus mean, each rounded towards 0. clip: to 0..255,
     * otherwise modulo 256. */
    void (*noise)(uint8_t *p, const float *normal, int n, const float mean_sigma[2], int clip);
    /* Normal numbers for the places first, first + 1, ... of a row: `blocks` blocks. They are
     * functions of (seed, channel, row, place); `first` is a multiple of HR__NORMAL_BLOCK. */
    void (*normal)(uint64_t seed, const uint32_t channel_row[2], uint32_t first, int blocks,
                   float *out);
};

extern const struct hr__byte_rows hr__byte_rows_portable;
extern const struct hr__byte_rows hr__byte_rows_avx2;
extern const struct hr__byte_rows hr__byte_rows_avx512;

/* Returns the version for `isa`, or the best lower one in this build. */
const struct hr__byte_rows *hr__byte_rows(enum hr__isa isa);

#endif
