/*
 * The row kernels of Pillow's filters. This file is compiled for each instruction set, with
 * HR__PILLOW_ROWS as the name of its table. It is written for compilers to vectorise, like
 * byte_rows.c.
 *
 * Pillow maps and mixes in double precision, one operation at a time, and so do these kernels.
 * Coordinates and the pixels to mix are collected for a block of pixels first.
 */
#include "recipe/pillow_rows.h"

#include <string.h>

#ifndef HR__PILLOW_ROWS
#define HR__PILLOW_ROWS hr__pillow_rows_portable

const struct hr__pillow_rows *hr__pillow_rows(enum hr__isa isa)
{
#if defined(__x86_64__)
    if (isa >= HR__ISA_AVX2)
        return &hr__pillow_rows_avx2;
#endif
    return &hr__pillow_rows_portable;
}

#endif

static void luma_row(const uint8_t *restrict r, const uint8_t *restrict g,
                     const uint8_t *restrict b, int n, uint8_t *restrict out)
{
    for (int i = 0; i < n; i++)
        out[i] = (uint8_t)((r[i] * 19595u + g[i] * 38470u + b[i] * 7471u + 0x8000u) >> 16);
}

static void blend_row(uint8_t *restrict p, const uint8_t *restrict from, int n, float share)
{
    for (int i = 0; i < n; i++) {
        float v = (float)from[i] + share * (float)(p[i] - from[i]);
        v = v < 0.0f ? 0.0f : v;
        v = v > 255.0f ? 255.0f : v;
        p[i] = (uint8_t)(int32_t)v;
    }
}

/* Pixels that a kernel treats at once. */
#define BLOCK 64

static void box_row(const uint8_t *const *rows, int count, const uint32_t weight_edge[2], int n,
                    uint8_t *restrict out)
{
    uint32_t weight = weight_edge[0], edge = weight_edge[1];
    for (int first = 0; first < n; first += BLOCK) {
        int part = n - first < BLOCK ? n - first : BLOCK;
        uint32_t sum[BLOCK] = {0};
        for (int k = 1; k < count - 1; k++) {
            const uint8_t *restrict row = rows[k] + first;
            for (int i = 0; i < part; i++)
                sum[i] += row[i];
        }
        const uint8_t *restrict low = rows[0] + first, *restrict high = rows[count - 1] + first;
        for (int i = 0; i < part; i++) {
            uint32_t ends = (uint32_t)low[i] + high[i];
            out[first + i] = (uint8_t)((sum[i] * weight + ends * edge + (1u << 23)) >> 24);
        }
    }
}

/* Where the pixels of a block are in the input. */
struct places {
    double part_x[BLOCK], part_y[BLOCK]; /* of the way to the next pixel */
    int32_t x[BLOCK], y[BLOCK];          /* the pixel to the upper left */
    int32_t inside[BLOCK];
    ptrdiff_t
        offset[BLOCK]; /* if is_simple: bytes from the window's first pixel to the first to mix */
    int is_simple;     /* all pixels to mix are inside the image */
};

static inline int32_t whole_below(double v)
{
    int32_t whole = (int32_t)v;
    return whole - (v < whole);
}

static void locate(const struct hr__pillow_map *m, int first, int row, struct places *to)
{
    double down = row + 0.5;
    double x_part = m->m[1] * down, y_part = m->m[4] * down;
    double width = m->width, height = m->height;
    for (int i = 0; i < BLOCK; i++) {
        double right = (first + i) + 0.5;
        double x = m->m[0] * right + x_part + m->m[2];
        double y = m->m[3] * right + y_part + m->m[5];
        int inside = (x >= 0) & (x < width) & (y >= 0) & (y < height);
        x = (inside ? x : 0.5) - 0.5;
        y = (inside ? y : 0.5) - 0.5;
        to->inside[i] = inside;
        to->x[i] = whole_below(x);
        to->y[i] = whole_below(y);
        to->part_x[i] = x - to->x[i];
        to->part_y[i] = y - to->y[i];
    }
}

static inline int clamp(int i, int size)
{
    i = i < 0 ? 0 : i;
    return i < size ? i : size - 1;
}

/* Finds out whether the first n pixels mix only pixels inside the image. */
static void find_simple(const struct hr__pillow_map *m, int n, int taps, struct places *to)
{
    int before = taps / 2 - 1, outside = 0;
    for (int i = 0; i < n; i++) {
        int x = to->x[i] - before, y = to->y[i] - before;
        outside |= x | y | (m->width - taps - x) | (m->height - taps - y) | (to->inside[i] - 1);
        to->offset[i] = (y - m->y) * m->stride + (x - m->x);
    }
    to->is_simple = outside >= 0;
}

/* As `collect`, for pixels whose neighbours are all inside the image. */
static inline void collect_simple(const struct hr__pillow_map *m, const struct places *at, int n,
                                  int c, int taps, uint32_t word[4][BLOCK])
{
    for (int i = 0; i < n; i++) {
        const uint8_t *from = m->plane[c] + at->offset[i];
        for (int k = 0; k < taps; k++, from += m->stride) {
            uint16_t pair;
            if (taps == 4) {
                memcpy(&word[k][i], from, 4);
            } else {
                memcpy(&pair, from, 2);
                word[k][i] = pair;
            }
        }
    }
}

/* Sets `taps` words per pixel: each has the bytes of `taps` neighbours along a row, the leftmost
 * lowest. Pixels beyond an edge are those of the edge. */
static inline void collect(const struct hr__pillow_map *m, const struct places *at, int n, int c,
                           int taps, uint32_t word[4][BLOCK])
{
    const uint8_t *plane = m->plane[c] - m->y * m->stride - m->x;
    for (int i = 0; i < n; i++) {
        int x = at->x[i] - (taps / 2 - 1), y = at->y[i] - (taps / 2 - 1);
        int middle = x >= 0 && x + taps <= m->width;
        for (int k = 0; k < taps && at->inside[i]; k++) {
            const uint8_t *row = plane + clamp(y + k, m->height) * m->stride;
            uint8_t edge[4];
            uint16_t pair;
            for (int t = 0; t < taps && !middle; t++)
                edge[t] = row[clamp(x + t, m->width)];
            const uint8_t *from = middle ? row + x : edge;
            if (taps == 4) {
                memcpy(&word[k][i], from, 4);
            } else {
                memcpy(&pair, from, 2);
                word[k][i] = pair;
            }
        }
    }
}

/* Byte `which` of a word, counted from the lowest address. */
static inline double byte_of(uint32_t word, int which, int taps)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    which = taps - 1 - which;
#endif
    return (int32_t)(word >> 8 * which & 255);
}

static inline double line(double a, double b, double part)
{
    return a + (b - a) * part;
}

static inline double cubic(double a, double b, double c, double d, double part)
{
    double one = -a + c, two = 2 * (a - b) + c - d, three = -a + b - c + d;
    return b + part * (one + part * (two + part * three));
}

static void mix_lines(const struct places *at, uint32_t word[4][BLOCK], uint8_t fill, uint8_t *out)
{
    for (int i = 0; i < BLOCK; i++) {
        double x = at->part_x[i];
        double upper = line(byte_of(word[0][i], 0, 2), byte_of(word[0][i], 1, 2), x);
        double lower = line(byte_of(word[1][i], 0, 2), byte_of(word[1][i], 1, 2), x);
        int32_t v = (int32_t)line(upper, lower, at->part_y[i]);
        out[i] = (uint8_t)(at->inside[i] ? v : fill);
    }
}

static inline double cubic_of(uint32_t word, double part)
{
    return cubic(byte_of(word, 0, 4), byte_of(word, 1, 4), byte_of(word, 2, 4), byte_of(word, 3, 4),
                 part);
}

static void mix_cubics(const struct places *at, uint32_t word[4][BLOCK], uint8_t fill, uint8_t *out)
{
    for (int i = 0; i < BLOCK; i++) {
        double x = at->part_x[i];
        double v = cubic(cubic_of(word[0][i], x), cubic_of(word[1][i], x), cubic_of(word[2][i], x),
                         cubic_of(word[3][i], x), at->part_y[i]);
        v = v < 0.0 ? 0.0 : v;
        v = v > 255.0 ? 255.0 : v;
        out[i] = (uint8_t)(at->inside[i] ? (int32_t)v : fill);
    }
}

/* As `collect`, by the faster way where it can be used. */
static inline void gather(const struct hr__pillow_map *m, const struct places *at, int n, int c,
                          int taps, uint32_t word[4][BLOCK])
{
    if (at->is_simple)
        collect_simple(m, at, n, c, taps, word);
    else
        collect(m, at, n, c, taps, word);
}

static void lines(const struct hr__pillow_map *m, const struct places *at, int n, int c,
                  uint8_t *out)
{
    uint32_t word[4][BLOCK] = {{0}};
    gather(m, at, n, c, 2, word);
    mix_lines(at, word, m->fill[c], out);
}

static void cubics(const struct hr__pillow_map *m, const struct places *at, int n, int c,
                   uint8_t *out)
{
    uint32_t word[4][BLOCK] = {{0}};
    gather(m, at, n, c, 4, word);
    mix_cubics(at, word, m->fill[c], out);
}

static void map_row(const struct hr__pillow_map *m, int first, int row, int n,
                    uint8_t *const out[3])
{
    for (int done = 0; done < n; done += BLOCK) {
        int part = n - done < BLOCK ? n - done : BLOCK;
        struct places at;
        uint8_t block[BLOCK];
        locate(m, first + done, row, &at);
        find_simple(m, part, m->cubic ? 4 : 2, &at);
        for (int c = 0; c < 3; c++) {
            (m->cubic ? cubics : lines)(m, &at, part, c, block);
            memcpy(out[c] + done, block, (size_t)part);
        }
    }
}

const struct hr__pillow_rows HR__PILLOW_ROWS = {
    .luma = luma_row,
    .blend = blend_row,
    .box = box_row,
    .map = map_row,
};
