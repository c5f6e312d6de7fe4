/*
 * Cases for tests of the fused pass: random geometry, images between guard pages, and a second
 * implementation of the resize, in double precision, from the definition of the filters and without
 * tables.
 */
#ifndef HR_TEST_FUSED_CASES_H
#define HR_TEST_FUSED_CASES_H

#include "../test.h"

#include "base/random.h"
#include "recipe/fused.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Memory that ends (or begins) right at a page that traps. */
struct guarded {
    uint8_t *map;
    size_t map_bytes;
    uint8_t *at;
};

static inline struct guarded guarded_alloc(size_t bytes, int at_end)
{
    struct guarded g;
    size_t body = (bytes + 4095) / 4096 * 4096;
    g.map_bytes = body + 2 * 4096;
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map, 4096, PROT_NONE), 0);
    assert_int_equal(mprotect(g.map + 4096 + body, 4096, PROT_NONE), 0);
    g.at = g.map + 4096 + (at_end ? body - bytes : 0);
    return g;
}

static inline void guarded_free(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
}

/* A planar image. Reads outside its pixels, [0, width) x [0, height), and the slack trap. */
struct image {
    struct guarded memory[3];
    struct hr__planar planar;
};

enum picture { NOISE, SMOOTH, EDGES };

static inline uint8_t pixel_of(enum picture kind, struct hr__random *r, int c, int x, int y)
{
    switch (kind) {
    case SMOOTH:
        return (uint8_t)abs(255 - (x + 2 * y + 40 * c) % 510);
    case EDGES:
        return ((x / 7 + y / 5 + c) & 1) ? 255 : 0;
    default:
        return (uint8_t)hr__random_u32(r);
    }
}

static inline struct image image_make(struct hr__random *r, int width, int height)
{
    struct image image;
    enum picture kind = (enum picture)hr__random_below(r, 3);
    int at_end = (int)hr__random_below(r, 2);
    image.planar.width = width;
    image.planar.height = height;
    image.planar.stride = (width + 63) / 64 * 64 + 64 * (ptrdiff_t)hr__random_below(r, 2);
    for (int c = 0; c < 3; c++) {
        size_t last = ((size_t)width + HR__PIXEL_SLACK + 63) / 64 * 64;
        size_t bytes = (size_t)image.planar.stride * (size_t)(height - 1) + last;
        image.memory[c] = guarded_alloc(bytes, at_end);
        image.planar.plane[c] = image.memory[c].at;
        memset(image.memory[c].at, 0xa5, bytes);
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++)
                image.planar.plane[c][y * image.planar.stride + x] = pixel_of(kind, r, c, x, y);
    }
    return image;
}

static inline void image_free(struct image *image)
{
    for (int c = 0; c < 3; c++)
        guarded_free(&image->memory[c]);
}

/* Makes a random axis. *pixels: the number of decoded pixels, from -origin on. */
static inline struct hr__axis axis_make(struct hr__random *r, int most, int *pixels,
                                        enum hr_interpolation interpolation, int antialias)
{
    struct hr__axis a = {.in = 1 + (int)hr__random_below(r, (uint64_t)most),
                         .out = 1 + (int)hr__random_below(r, 300)};
    int begin, end;
    if (hr__random_below(r, 8) == 0)
        a.out = a.in < 400 ? a.in : 400;
    a.first = hr__random_below(r, 2) ? (int)hr__random_below(r, (uint64_t)a.out) : 0;
    a.count = a.first ? 1 + (int)hr__random_below(r, (uint64_t)(a.out - a.first)) : a.out;
    a.flip = (int)hr__random_below(r, 2);
    if (hr__random_below(r, 2)) {
        a.halvings = (int)hr__random_below(r, 4);
        a.lead = (int)hr__random_below(r, UINT64_C(1) << a.halvings);
    }
    hr__axis_source(&a, interpolation, antialias, &begin, &end);
    assert_true(begin >= 0 && begin < end && end <= hr__axis_pixels(&a));
    /* On each side, half of the time, exactly the needed pixels are decoded; else some more. */
    int before = hr__random_below(r, 2) ? (int)hr__random_below(r, 20) : 0;
    int after = hr__random_below(r, 2) ? (int)hr__random_below(r, 20) : 0;
    a.origin = before - begin;
    *pixels = before + (end - begin) + after;
    return a;
}

/* The filters, from their definitions. */
static inline double direct_weight(double x, enum hr_interpolation interpolation, int antialias)
{
    double a = antialias ? -0.5 : -0.75;
    x = fabs(x);
    if (interpolation == HR_BILINEAR)
        return x < 1 ? 1 - x : 0;
    if (x < 1)
        return (a + 2) * x * x * x - (a + 3) * x * x + 1;
    return x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a : 0;
}

/* Computes the weights of all pixels of the crop for the j-th output that is written. */
static inline void direct_axis(const struct hr__axis *a, int j, enum hr_interpolation interpolation,
                               int antialias, double *weight)
{
    int k = a->flip ? a->first + a->count - 1 - j : a->first + j;
    int pixels = hr__axis_pixels(a);
    double unit = 1 << a->halvings; /* pixels of the image that was not halved */
    double scale = a->in / unit / a->out, stretch = antialias && scale > 1 ? scale : 1, sum = 0;
    double centre = (k + 0.5) * scale + a->lead / unit - 0.5;
    for (int p = 0; p < pixels; p++)
        weight[p] = 0;
    int reach = (int)(3 * stretch) + 3, near = (int)centre;
    for (int p = near - reach; p <= near + reach; p++) {
        int inside = p >= 0 && p < pixels;
        double w = direct_weight((p - centre) / stretch, interpolation, antialias);
        if (inside)
            weight[p] += w;
        else if (!antialias)
            weight[p < 0 ? 0 : pixels - 1] += w;
    }
    for (int p = 0; p < pixels; p++)
        sum += weight[p];
    for (int p = 0; p < pixels; p++)
        weight[p] /= sum;
}

/* Computes the job's values before scale and shift, [3][y.count][x.count]. The caller frees
 * them. */
static inline double *direct_run(const struct hr__fused_job *job)
{
    const struct hr__planar *p = job->pixels;
    int w = job->x.count, h = job->y.count, cubic = job->interpolation == HR_BICUBIC;
    int columns = hr__axis_pixels(&job->x), rows = hr__axis_pixels(&job->y);
    double *out = malloc(sizeof *out * 3 * (size_t)w * (size_t)h);
    double *middle = malloc(sizeof *middle * (size_t)w * (size_t)rows);
    double *weight = malloc(sizeof *weight * (size_t)(columns + rows));
    for (int c = 0; c < 3; c++) {
        for (int j = 0; j < w; j++) {
            direct_axis(&job->x, j, job->interpolation, job->antialias, weight);
            for (int y = 0; y < rows; y++) {
                double sum = 0;
                int at = y + job->y.origin;
                if (at >= 0 && at < p->height)
                    for (int x = 0; x < columns; x++)
                        if (weight[x] != 0 && x + job->x.origin >= 0 &&
                            x + job->x.origin < p->width)
                            sum += weight[x] * p->plane[c][at * p->stride + x + job->x.origin];
                if (cubic && job->antialias)
                    sum = fmin(fmax(sum, 0), 255);
                middle[(size_t)y * (size_t)w + (size_t)j] = sum;
            }
        }
        for (int i = 0; i < h; i++) {
            direct_axis(&job->y, i, job->interpolation, job->antialias, weight);
            for (int j = 0; j < w; j++) {
                double sum = 0;
                for (int y = 0; y < rows; y++)
                    sum += weight[y] * middle[(size_t)y * (size_t)w + (size_t)j];
                if (cubic)
                    sum = fmin(fmax(sum, 0), 255);
                out[((size_t)c * (size_t)h + (size_t)i) * (size_t)w + (size_t)j] = sum;
            }
        }
    }
    free(weight);
    free(middle);
    return out;
}

/* Returns the index of (channel, row, column) in a sample. */
static inline size_t place_of(const struct hr__fused_job *job, int c, int i, int j)
{
    size_t w = (size_t)job->x.count, h = (size_t)job->y.count;
    if (job->layout == HR_NCHW)
        return ((size_t)c * h + (size_t)i) * w + (size_t)j;
    return ((size_t)i * w + (size_t)j) * 3 + (size_t)c;
}

#endif
