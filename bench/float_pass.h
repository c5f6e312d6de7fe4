/*
 * The baseline of the forms: the method of a loader of 2021 with libjpeg-turbo. A full decode to
 * interleaved RGBX, then a plain float resize of the crop, vertically first, normalised into planes
 * of floats. Compiled for AVX2 if possible.
 */
#ifndef BENCH_FLOAT_PASS_H
#define BENCH_FLOAT_PASS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef float float4 __attribute__((vector_size(16)));

#if defined(__x86_64__) && !defined(__clang__)
#define FOR_AVX2 __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define FOR_AVX2
#endif

struct float_pass {
    int crop_x, crop_y, crop_width, crop_height, flip, size;
    float mean[3], std[3];
    /* antialiased bilinear filters: first source pixel and weights of each output */
    int *begin[2], taps[2];
    float *weight[2];
    float *row; /* one row of the crop, filtered vertically: 4 floats a pixel */
};

static inline void float_pass_filter(struct float_pass *p, int axis, int in)
{
    double scale = (double)in / p->size, support = scale > 1 ? scale : 1;
    int most = (int)ceil(support) * 2 + 1;
    p->taps[axis] = most;
    p->begin[axis] = realloc(p->begin[axis], sizeof(int) * (size_t)p->size);
    p->weight[axis] = realloc(p->weight[axis], sizeof(float) * (size_t)(p->size * most));
    for (int j = 0; j < p->size; j++) {
        double centre = (j + 0.5) * scale, sum = 0, w[512];
        int low = (int)(centre - support + 0.5), high = (int)(centre + support + 0.5);
        low = low < 0 ? 0 : low;
        high = high > in ? in : high;
        for (int t = low; t < high; t++) {
            double d = fabs((t - centre + 0.5) / support);
            w[t - low] = d < 1 ? 1 - d : 0;
            sum += w[t - low];
        }
        /* zero weights at the end must not read beyond the crop */
        int begin = low + most > in ? (in > most ? in - most : 0) : low;
        p->begin[axis][j] = begin;
        float *out = p->weight[axis] + j * most;
        memset(out, 0, sizeof(float) * (size_t)most);
        for (int t = low; t < high; t++)
            out[t - begin] = (float)(w[t - low] / sum);
    }
}

FOR_AVX2 static void float_pass_vertical(const unsigned char *rgbx, size_t stride,
                                         const float *weight, int taps, size_t n, float *row)
{
    for (size_t i = 0; i < n; i++)
        row[i] = weight[0] * (float)rgbx[i];
    for (int t = 1; t < taps; t++) {
        const unsigned char *at = rgbx + (size_t)t * stride;
        if (weight[t] != 0)
            for (size_t i = 0; i < n; i++)
                row[i] += weight[t] * (float)at[i];
    }
}

FOR_AVX2 static void float_pass_horizontal(const struct float_pass *p, int taps, float *out)
{
    size_t plane = (size_t)p->size * (size_t)p->size;
    float4 scale = {0}, shift = {0};
    for (int c = 0; c < 3; c++) {
        scale[c] = 1 / (255 * p->std[c]);
        shift[c] = -p->mean[c] / p->std[c];
    }
    for (int j = 0; j < p->size; j++) {
        const float *weight = p->weight[0] + j * p->taps[0], *from = p->row + 4 * p->begin[0][j];
        float4 sum = {0};
        for (int t = 0; t < taps; t++) {
            float4 pixel;
            memcpy(&pixel, from + 4 * t, sizeof pixel);
            sum += pixel * weight[t];
        }
        sum = sum * scale + shift;
        int x = p->flip ? p->size - 1 - j : j;
        for (int c = 0; c < 3; c++)
            out[(size_t)c * plane + (size_t)x] = sum[c];
    }
}

/* Resizes a crop of `rgbx` (rows of stride bytes) to 3 planes of size x size floats. */
static inline void float_pass_run(struct float_pass *p, const unsigned char *rgbx, size_t stride,
                                  float *out)
{
    float_pass_filter(p, 0, p->crop_width);
    float_pass_filter(p, 1, p->crop_height);
    int taps_x = p->taps[0] < p->crop_width ? p->taps[0] : p->crop_width;
    int taps_y = p->taps[1] < p->crop_height ? p->taps[1] : p->crop_height;
    size_t n = 4 * (size_t)p->crop_width;
    p->row = realloc(p->row, n * sizeof(float));
    const unsigned char *crop = rgbx + (size_t)p->crop_y * stride + 4 * (size_t)p->crop_x;
    for (int j = 0; j < p->size; j++) {
        float_pass_vertical(crop + (size_t)p->begin[1][j] * stride, stride,
                            p->weight[1] + j * p->taps[1], taps_y, n, p->row);
        float_pass_horizontal(p, taps_x, out + (size_t)j * (size_t)p->size);
    }
}

#endif
