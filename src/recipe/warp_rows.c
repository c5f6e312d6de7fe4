/*
 * The row kernels of geometric filters. This file is compiled for each instruction set, with
 * HR__WARP_ROWS as the name of its table. It is written for compilers to vectorise: no branches,
 * only selections, and `restrict` rows.
 *
 * Coordinates are rounded at the same places as in torch's kernels: its grid in float32, one
 * operation at a time, then (grid + 1) x size / 2 - 0.5 with a fused multiply-add.
 */
#include "recipe/warp_rows.h"

#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#ifndef HR__WARP_ROWS
#define HR__WARP_ROWS hr__warp_rows_portable
#endif

/* From -1..1 to pixels. */
static inline float to_pixel(float grid, float half)
{
    return __builtin_fmaf(grid + 1.0f, half, -0.5f);
}

static void affine(const void *map, int first, int row, struct hr__warp_row *to)
{
    const struct hr__affine_map *m = map;
    float y = m->first_y + (float)row;
    float x_part = y * m->m[1], y_part = y * m->m[4];
    float *restrict to_x = to->x, *restrict to_y = to->y;
    for (int i = 0; i < to->n; i++) {
        float x = m->first_x + (float)(first + i);
        to_x[i] = to_pixel(x * m->m[0] + x_part + m->m[2], m->half_width);
        to_y[i] = to_pixel(x * m->m[3] + y_part + m->m[5], m->half_height);
    }
}

static void perspective(const void *map, int first, int row, struct hr__warp_row *to)
{
    const struct hr__perspective_map *m = map;
    float y = 0.5f + (float)row;
    float x_part = y * m->m[1], y_part = y * m->m[4], divisor_part = y * m->m[7];
    float *restrict to_x = to->x, *restrict to_y = to->y;
    for (int i = 0; i < to->n; i++) {
        float x = 0.5f + (float)(first + i);
        float divisor = x * m->m[6] + divisor_part + 1.0f;
        float right = (x * m->m[0] + x_part + m->m[2]) / divisor;
        float down = (x * m->m[3] + y_part + m->m[5]) / divisor;
        to_x[i] = to_pixel(right - 1.0f, m->half_width);
        to_y[i] = to_pixel(down - 1.0f, m->half_height);
    }
}

static void displaced(const void *map, int first, int row, struct hr__warp_row *to)
{
    const struct hr__displacement_map *m = map;
    ptrdiff_t at = (ptrdiff_t)(row - m->row) * m->width + (first - m->first);
    const float *restrict by_x = m->x + at, *restrict by_y = m->y + at;
    float *restrict to_x = to->x, *restrict to_y = to->y;
    float width = (float)m->whole_width, height = (float)m->whole_height;
    float y = (float)(2 * row + 1 - m->whole_height) / height;
    for (int i = 0; i < to->n; i++) {
        float x = (float)(2 * (first + i) + 1 - m->whole_width) / width;
        to_x[i] = to_pixel(x + by_x[i], 0.5f * width);
        to_y[i] = to_pixel(y + by_y[i], 0.5f * height);
    }
}

static void add_pair(float *restrict sum, const float *a, const float *b, float weight, int n)
{
    for (int i = 0; i < n; i++)
        sum[i] += weight * (a[i] + b[i]);
}

/* A whole number as an int; -2 for NaN and what is lower. */
static inline int whole(float v)
{
    v = v > -2.0f ? v : -2.0f;
    v = v < 1073741824.0f ? v : 1073741824.0f;
    return (int)v;
}

/* The place of a pixel in the window, in bytes. Wraps for pixels that are outside. */
static inline int offset(int x, int y, int stride)
{
    return (int)((unsigned)y * (unsigned)stride + (unsigned)x);
}

static void narrow(struct hr__warp_row *row)
{
    const int32_t *restrict from = row->places;
    uint8_t *restrict to = row->place;
    int n = row->n;
    for (int i = 0; i < n; i++)
        to[i] = (uint8_t)from[i];
}

/* This and the next find out by signs what is outside, which compilers vectorise, unlike
 * comparisons: -1 is outside, 0 is not. */
static void nearest(struct hr__warp_row *row, const struct hr__warp_input *in)
{
    const float *restrict x = row->x, *restrict y = row->y;
    int32_t *restrict at = row->at, *restrict place = row->places;
    int n = row->n, width = in->width, height = in->height;
    int left_x = in->x, top_y = in->y, stride = in->stride;
    for (int i = 0; i < n; i++) {
        int column = whole(hr__round_even(x[i])), line = whole(hr__round_even(y[i]));
        int outside = (column | (width - 1 - column) | line | (height - 1 - line)) >> 31;
        place[i] = HR__WARP_INSIDE & ~outside;
        at[i] = offset(column - left_x, line - top_y, stride) & ~outside;
    }
    narrow(row);
}

static void bilinear(struct hr__warp_row *row, const struct hr__warp_input *in)
{
    const float *restrict x = row->x, *restrict y = row->y;
    float *restrict part_x = row->part_x, *restrict part_y = row->part_y;
    int32_t *restrict at = row->at, *restrict place = row->places;
    int n = row->n, width = in->width, height = in->height;
    int left_x = in->x, top_y = in->y, stride = in->stride;
    for (int i = 0; i < n; i++) {
        float left = hr__round_down(x[i]), top = hr__round_down(y[i]);
        int column = whole(left), line = whole(top);
        int beyond = (column | (width - 2 - column) | line | (height - 2 - line)) >> 31;
        int outside =
            ((column + 1) | (width - 1 - column) | (line + 1) | (height - 1 - line)) >> 31;
        part_x[i] = x[i] - left;
        part_y[i] = y[i] - top;
        place[i] = (HR__WARP_INSIDE - beyond) & ~outside; /* HR__WARP_BORDER if beyond */
        at[i] = offset(column - left_x, line - top_y, stride) & ~beyond;
    }
    narrow(row);
}

static void take(const struct hr__warp_row *row, int first, int end,
                 const struct hr__warp_plane *plane)
{
    const int32_t *at = row->at;
    const uint8_t *from = plane->from;
    uint8_t *restrict to = plane->to;
    int i = first;
    for (; i + 8 <= end; i += 8) { /* one store for eight, of which the first is the lowest */
        uint64_t eight = 0;
        for (int k = 0; k < 8; k++)
            eight |= (uint64_t)from[at[i + k]] << (8 * k);
        memcpy(to + i, &eight, sizeof eight);
    }
    for (; i < end; i++)
        to[i] = from[at[i]];
}

/* One mixed pixel, as a byte. */
static inline uint8_t mix_pixel(const struct hr__warp_row *row, int i,
                                const struct hr__warp_plane *plane)
{
    const uint8_t *p = plane->from + row->at[i], *below = p + plane->stride;
    float right = row->part_x[i], left = 1.0f - right;
    float bottom = row->part_y[i], top = 1.0f - bottom;
    const float w[4] = {top * left, top * right, bottom * left, bottom * right};
    const float pixels[4] = {p[0], p[1], below[0], below[1]};
    float v = hr__warp_mix(w, pixels);
    /* the weights need not sum to exactly 1 */
    float inside = plane->has_fill ? w[0] + w[1] + w[2] + w[3] : 1.0f;
    return (uint8_t)(int)hr__round_even((v - plane->fill) * inside + plane->fill);
}

#if defined(__AVX2__)
/* Byte `which` of each number, as floats. */
static inline __m256 bytes_of(__m256i v, int which)
{
    __m256i byte = _mm256_and_si256(_mm256_srli_epi32(v, 8 * which), _mm256_set1_epi32(255));
    return _mm256_cvtepi32_ps(byte);
}

/* mix_pixel for eight pixels. Compilers gather no bytes. */
static inline void mix_eight(const struct hr__warp_row *row, int i,
                             const struct hr__warp_plane *plane)
{
    const __m256 one = _mm256_set1_ps(1.0f), fill = _mm256_set1_ps(plane->fill);
    __m256i at = _mm256_loadu_si256((const __m256i *)(const void *)(row->at + i));
    __m256i upper = _mm256_i32gather_epi32((const int *)(const void *)plane->from, at, 1);
    __m256i lower =
        _mm256_i32gather_epi32((const int *)(const void *)(plane->from + plane->stride), at, 1);
    __m256 right = _mm256_loadu_ps(row->part_x + i), left = _mm256_sub_ps(one, right);
    __m256 bottom = _mm256_loadu_ps(row->part_y + i), top = _mm256_sub_ps(one, bottom);
    __m256 w0 = _mm256_mul_ps(top, left), w1 = _mm256_mul_ps(top, right);
    __m256 w2 = _mm256_mul_ps(bottom, left), w3 = _mm256_mul_ps(bottom, right);
    __m256 v = _mm256_mul_ps(w0, bytes_of(upper, 0));
    v = _mm256_fmadd_ps(w1, bytes_of(upper, 1), v);
    v = _mm256_fmadd_ps(w2, bytes_of(lower, 0), v);
    v = _mm256_fmadd_ps(w3, bytes_of(lower, 1), v);
    if (plane->has_fill) {
        __m256 inside = _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(w0, w1), w2), w3);
        v = _mm256_add_ps(_mm256_mul_ps(_mm256_sub_ps(v, fill), inside), fill);
    }
    __m256i whole = _mm256_cvtps_epi32(v); /* ties to even */
    __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64((__m128i *)(void *)(plane->to + i), _mm_packus_epi16(words, words));
}
#endif

static void mix(const struct hr__warp_row *row, int first, int end,
                const struct hr__warp_plane *plane)
{
    int i = first;
#if defined(__AVX2__)
    for (; i + 8 <= end; i += 8)
        mix_eight(row, i, plane);
#endif
    for (; i < end; i++)
        plane->to[i] = mix_pixel(row, i, plane);
}

const struct hr__warp_rows HR__WARP_ROWS = {
    .affine = affine,
    .perspective = perspective,
    .displaced = displaced,
    .add_pair = add_pair,
    .nearest = nearest,
    .bilinear = bilinear,
    .take = take,
    .mix = mix,
};
