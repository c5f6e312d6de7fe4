/*
 * The row kernels of Pillow's filters, one table per instruction set. All versions give the same
 * bits, which are those of Pillow where its compiler makes no fused multiply-adds (x86-64).
 */
#ifndef HR_RECIPE_PILLOW_ROWS_H
#define HR_RECIPE_PILLOW_ROWS_H

#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>

/* An affine map: from the middles of the result's pixels to places in the input, whose first pixel
 * has its middle at 0.5. What is outside the input shows the fill. */
struct hr__pillow_map {
    double m[6];             /* x = m[0] x' + m[1] y' + m[2], y = m[3] x' + m[4] y' + m[5] */
    int cubic;               /* 0: bilinear */
    int width, height;       /* pixels of the whole input */
    int x, y;                /* of the first pixel of its window, */
    const uint8_t *plane[3]; /* which is here */
    ptrdiff_t stride;        /* bytes between rows */
    uint8_t fill[3];
};

struct hr__pillow_rows {
    /* The luma of Pillow's mode "L", rounded to nearest. */
    void (*luma)(const uint8_t *r, const uint8_t *g, const uint8_t *b, int n, uint8_t *out);
    /* p[i] = from[i] + (p[i] - from[i]) x share, rounded down, 0..255 */
    void (*blend)(uint8_t *p, const uint8_t *from, int n, float share);
    /* The weighted sum of `count` rows, at least 3: the first and the last weigh `edge`, the others
     * `weight`, in units of 2^-24; rounded to nearest. */
    void (*box)(const uint8_t *const *rows, int count, const uint32_t weight_edge[2], int n,
                uint8_t *out);
    /* Pixels (first, row) to (first + n - 1, row) of the result, of three planes. */
    void (*map)(const struct hr__pillow_map *map, int first, int row, int n, uint8_t *const out[3]);
};

extern const struct hr__pillow_rows hr__pillow_rows_portable;
extern const struct hr__pillow_rows hr__pillow_rows_avx2;

/* Returns the version for `isa`, or the best lower one in this build. */
const struct hr__pillow_rows *hr__pillow_rows(enum hr__isa isa);

#endif
