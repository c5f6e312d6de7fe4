/*
 * Filters of neighbourhoods on bytes: sharpness, Gaussian blur; and Gaussian noise.
 *
 * The blur is separable, in float32: along rows first, whose results are kept in a ring. torch
 * convolves with the product of both kernels, in an order of additions that depends on the machine;
 * so where a sum is within 10^-4 of a half, rounding may differ from torch's. Taps that together
 * cannot change a sum by that much are left out.
 */
#include "recipe/neighbours.h"

#include "recipe/byte_rows.h"
#include "recipe/enhance.h"

#include <math.h>
#include <string.h>

struct hr_region hr__widened(const struct hr_region *need, int x, int y, int width, int height)
{
    int left = need->x > x ? need->x - x : 0, top = need->y > y ? need->y - y : 0;
    int right = need->x + need->width, bottom = need->y + need->height;
    right = right < width - x ? right + x : width;
    bottom = bottom < height - y ? bottom + y : height;
    return (struct hr_region){left, top, right - left, bottom - top};
}

static const uint8_t *pixel(const struct hr__window *w, int c, int x, int y)
{
    return w->plane[c] + (y - w->y) * w->stride + (x - w->x);
}

struct hr_region hr__sharpen_source(const struct hr__step *step, int width, int height,
                                    const struct hr_region *need)
{
    return hr__widened(need, 1, 1, width, height);
}

/* Kernels run pixels one by one that do not fill a vector of so many. */
#define VECTOR 32

/* A row of a channel to sharpen. */
struct sharp_row {
    const struct hr__window *in;
    int c, y;
    double factor;
    hr__sharpen_part *part;
};

/* Sharpens the pixels [x, x + n) of a row, which are not at an edge. */
static void sharpen_row(const struct sharp_row *job, int x, int n, uint8_t *out)
{
    uint8_t smooth[1024], sharp[1024];
    for (int i = 0, part; i < n; i += part) {
        part = n - i < (int)sizeof smooth ? n - i : (int)sizeof smooth;
        if (part >= VECTOR) {
            part -= part % VECTOR;
        } else if (n >= VECTOR) { /* the last vector overlaps the one before it */
            part = VECTOR;
            i = n - part;
        }
        const uint8_t *row = pixel(job->in, job->c, x + i, job->y);
        hr__byte_rows(hr__isa())->smooth(row - job->in->stride, row, row + job->in->stride, part,
                                         smooth);
        job->part(row, smooth, part, job->factor, sharp);
        memcpy(out + i, sharp, (size_t)part);
    }
}

void hr__sharpen_run(double factor, hr__sharpen_part *part, const struct hr__window *in,
                     const struct hr__window *out)
{
    int first = out->x > 1 ? out->x : 1, end = out->x + out->width;
    end = end < in->image_width - 1 ? end : in->image_width - 1;
    int small = in->image_width <= 2 || in->image_height <= 2;
    for (int c = 0; c < 3; c++) {
        for (int y = out->y; y < out->y + out->height; y++) {
            struct sharp_row row = {in, c, y, factor, part};
            uint8_t *to = out->plane[c] + (y - out->y) * out->stride;
            memcpy(to, pixel(in, c, out->x, y), (size_t)out->width);
            if (!small && y > 0 && y < in->image_height - 1 && first < end)
                sharpen_row(&row, first, end - first, to + (first - out->x));
        }
    }
}

static void sharpen_part(const uint8_t *row, const uint8_t *smooth, int n, double factor,
                         uint8_t *out)
{
    hr__byte_rows(hr__isa())->sharpen(row, smooth, n, (float)(1.0 - factor), out);
}

static int sharpen(struct hr__scratch *scratch, const struct hr__step *step,
                   const struct hr__window *in, const struct hr__window *out,
                   struct hr_error *error)
{
    hr__sharpen_run(step->u.filter.value[0], sharpen_part, in, out);
    return 0;
}

void hr__plan_sharpness(struct hr__prepare_plan *plan, double factor)
{
    static const struct hr__filter filter = {
        .name = "sharpness", .source = hr__sharpen_source, .run = sharpen};
    if (factor == 1)
        return;
    struct hr__step *step =
        hr__plan_filter(plan, &filter, hr__plan_width(plan), hr__plan_height(plan));
    step->u.filter.value[0] = factor;
}

/* exp(-(t / sigma)^2 / 2): the distance between torch's taps is one pixel. */
static double tap(int t, double sigma)
{
    return exp(-0.5 * (t / sigma) * (t / sigma));
}

/* Returns the distance beyond which all taps together weigh less than 10^-7 of the sum. */
static int radius_of(int kernel_size, double sigma)
{
    double sum = 1, rest = 0;
    int radius = kernel_size / 2;
    for (int t = 1; t <= radius; t++)
        sum += 2 * tap(t, sigma);
    while (radius && rest + 2 * tap(radius, sigma) < 1e-7 * sum)
        rest += 2 * tap(radius--, sigma);
    return radius;
}

static void set_weights(int kernel_size, double sigma, int radius, float *weight)
{
    double sum = 1;
    for (int t = 1; t <= kernel_size / 2; t++)
        sum += 2 * tap(t, sigma);
    for (int t = 0; t <= radius; t++)
        weight[t] = (float)(tap(t, sigma) / sum);
}

static struct hr_region blur_source(const struct hr__step *step, int width, int height,
                                    const struct hr_region *need)
{
    const int *radius = step->u.filter.word + 2;
    struct hr_region wide = hr__widened(need, radius[0], radius[1], width, height);
    /* reflections of a near edge may reach further than the other side */
    if (radius[0] >= width)
        wide.x = 0, wide.width = width;
    if (radius[1] >= height)
        wide.y = 0, wide.height = height;
    return wide;
}

/* The memory of a blur. */
struct blur {
    const struct hr__byte_rows *kernels;
    int radius_x, radius_y;
    float *weight_x, *weight_y; /* radius + 1 of each */
    float *line;                /* a row with its margins */
    float *ring;                /* rows blurred along: `kept` of them, as many as the kernel has, */
    int kept;                   /* or all of the window if it has fewer */
    const float **rows;         /* of the kernel, in order */
};

static int blur_reserve(struct hr__scratch *scratch, const struct hr__step *step, int width,
                        int height, struct blur *b, struct hr_error *error)
{
    b->kernels = hr__byte_rows(hr__isa());
    b->radius_x = step->u.filter.word[2];
    b->radius_y = step->u.filter.word[3];
    size_t taps = (size_t)(2 * b->radius_y + 1), rows = taps * sizeof *b->rows;
    size_t weights = (size_t)b->radius_x + 1 + (size_t)b->radius_y + 1;
    size_t line = (size_t)width + 2 * (size_t)b->radius_x;
    b->kept = (int)taps < height ? (int)taps : height;
    int r = hr__buffer_reserve(
        &scratch->extra, rows + (weights + line + (size_t)b->kept * (size_t)width) * sizeof(float),
        error);
    if (r)
        return r;
    b->rows = scratch->extra.bytes;
    b->weight_x = (float *)(b->rows + taps);
    b->weight_y = b->weight_x + b->radius_x + 1;
    b->line = b->weight_y + b->radius_y + 1;
    b->ring = b->line + line;
    set_weights(step->u.filter.word[0], step->u.filter.value[0], b->radius_x, b->weight_x);
    set_weights(step->u.filter.word[1], step->u.filter.value[0], b->radius_y, b->weight_y);
    return 0;
}

/* Blurs a row of the image along `out`'s columns into place `slot` of the ring. */
static void blur_line(const struct blur *b, const struct hr__window *in, int c, int y, int slot,
                      const struct hr__window *out)
{
    int from = out->x - b->radius_x, n = out->width + 2 * b->radius_x;
    int begin = from < 0 ? -from : 0, end = in->image_width - from; /* of the pixels inside */
    end = end < n ? end : n;
    const uint8_t *row = pixel(in, c, 0, y);
    float *line = b->line;
    b->kernels->floats(row + from + begin, end - begin, line + begin);
    for (int i = begin - 1; i >= 0; i--)
        line[i] = 2 * begin - i < end
                      ? line[2 * begin - i]
                      : row[hr__pad_index(from + i, in->image_width, HR_PAD_REFLECT)];
    for (int i = end; i < n; i++)
        line[i] = 2 * (end - 1) - i >= begin
                      ? line[2 * (end - 1) - i]
                      : row[hr__pad_index(from + i, in->image_width, HR_PAD_REFLECT)];
    b->kernels->blur_along(b->line + b->radius_x, out->width, b->weight_x, b->radius_x,
                           b->ring + (ptrdiff_t)slot * out->width);
}

/* Returns the row that stands for row y, which may be beyond an edge. */
static int reflected(const struct hr__window *in, int y)
{
    return hr__pad_index(y, in->image_height, HR_PAD_REFLECT);
}

/* Sums the kernel's rows around row y. */
static void blur_across(const struct blur *b, const struct hr__window *out, int c, int y)
{
    b->kernels->blur_across(b->rows, out->width, b->weight_y, b->radius_y,
                            out->plane[c] + (y - out->y) * out->stride);
}

/* With a ring of the kernel's rows: each row, in order, takes the place of the oldest. */
static void blur_through(const struct blur *b, const struct hr__window *in,
                         const struct hr__window *out, int c)
{
    int taps = 2 * b->radius_y + 1, first = out->y - b->radius_y;
    for (int y = first; y < out->y + out->height + b->radius_y; y++) {
        int oldest = (y - first + 1) % taps;
        blur_line(b, in, c, reflected(in, y), (y - first) % taps, out);
        if (y - first < taps - 1)
            continue;
        for (int k = 0; k < taps; k++) {
            b->rows[k] = b->ring + (ptrdiff_t)oldest * out->width;
            oldest = oldest + 1 < taps ? oldest + 1 : 0;
        }
        blur_across(b, out, c, y - b->radius_y);
    }
}

/* With a ring of all rows of the window. */
static void blur_whole(const struct blur *b, const struct hr__window *in,
                       const struct hr__window *out, int c)
{
    for (int y = 0; y < in->height; y++)
        blur_line(b, in, c, in->y + y, y, out);
    for (int y = out->y; y < out->y + out->height; y++) {
        for (int k = -b->radius_y; k <= b->radius_y; k++)
            b->rows[k + b->radius_y] =
                b->ring + (ptrdiff_t)(reflected(in, y + k) - in->y) * out->width;
        blur_across(b, out, c, y);
    }
}

static int blur(struct hr__scratch *scratch, const struct hr__step *step,
                const struct hr__window *in, const struct hr__window *out, struct hr_error *error)
{
    struct blur b;
    int r = blur_reserve(scratch, step, out->width, in->height, &b, error);
    if (r)
        return r;
    for (int c = 0; c < 3; c++)
        (b.kept < 2 * b.radius_y + 1 ? blur_whole : blur_through)(&b, in, out, c);
    return 0;
}

void hr__plan_blur(struct hr__prepare_plan *plan, int width, int height, double sigma)
{
    static const struct hr__filter filter = {
        .name = "gaussian_blur", .source = blur_source, .run = blur};
    int kernel_size[2] = {width, height};
    int radius[2] = {radius_of(width, sigma), radius_of(height, sigma)};
    if (!radius[0] && !radius[1])
        return;
    struct hr__step *step =
        hr__plan_filter(plan, &filter, hr__plan_width(plan), hr__plan_height(plan));
    step->u.filter.value[0] = sigma;
    for (int i = 0; i < 2; i++) {
        step->u.filter.word[i] = kernel_size[i];
        step->u.filter.word[2 + i] = radius[i];
    }
}

static int add_noise(struct hr__scratch *scratch, const struct hr__step *step,
                     const struct hr__window *w, struct hr_error *error)
{
    const struct hr__byte_rows *kernels = hr__byte_rows(hr__isa());
    const double *value = step->u.filter.value;
    const float mean_sigma[2] = {(float)(value[0] * 255), (float)(value[1] * 255)};
    float normal[8 * HR__NORMAL_BLOCK];
    for (int c = 0; c < 3; c++) {
        for (int y = 0; y < w->height; y++) {
            const uint32_t channel_row[2] = {(uint32_t)c, (uint32_t)(w->y + y)};
            uint8_t *row = w->plane[c] + y * w->stride;
            for (int x = w->x; x < w->x + w->width;) {
                int at = x % HR__NORMAL_BLOCK, left = w->x + w->width - x;
                int n = 8 * HR__NORMAL_BLOCK - at < left ? 8 * HR__NORMAL_BLOCK - at : left;
                kernels->normal(step->u.filter.seed, channel_row, (uint32_t)(x - at),
                                (at + n + HR__NORMAL_BLOCK - 1) / HR__NORMAL_BLOCK, normal);
                kernels->noise(row + (x - w->x), normal + at, n, mean_sigma,
                               step->u.filter.word[0]);
                x += n;
            }
        }
    }
    return 0;
}

void hr__plan_noise(struct hr__prepare_plan *plan, double mean, double sigma, int clip,
                    uint64_t seed)
{
    static const struct hr__filter filter = {.name = "gaussian_noise", .change = add_noise};
    struct hr__step *step =
        hr__plan_filter(plan, &filter, hr__plan_width(plan), hr__plan_height(plan));
    step->u.filter.value[0] = mean;
    step->u.filter.value[1] = sigma;
    step->u.filter.word[0] = clip;
    step->u.filter.seed = seed;
}
