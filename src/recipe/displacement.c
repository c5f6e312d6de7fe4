/* Displacement fields; see displacement.h. The Gaussian runs along rows, then along columns; each
 * row of noise is made once. */
#include "recipe/displacement.h"

#include "base/random.h"
#include "recipe/warp_rows.h"

#include <math.h>

/* Numbers per block of random bits: 16 bits each. */
#define BLOCK 8

/* Makes the noise of pixels [first, end) of row y; room for BLOCK - 1 more on both sides. */
static void make_noise(const struct hr__displacement *field, int y, int first, int end, float *out)
{
    const uint32_t key[2] = {(uint32_t)field->seed, (uint32_t)(field->seed >> 32)};
    int begin = first - first % BLOCK;
    float *to = out - first % BLOCK;
    for (int x = begin; x < end; x += BLOCK, to += BLOCK) {
        const uint32_t counter[4] = {(uint32_t)x / BLOCK, (uint32_t)y, field->stream, 0};
        uint32_t bits[4];
        hr__philox(counter, key, bits);
        for (int i = 0; i < BLOCK; i++) {
            uint32_t half = bits[i / 2] >> (i % 2 * 16) & 0xffff;
            to[i] = ((float)half + 0.5f) * (1.0f / 32768.0f) - 1.0f;
        }
    }
}

/* The upper half of a Gaussian whose values sum to 1: weight[i] of the pixels i away. */
static void gaussian(float *weight, int radius, double sigma)
{
    double sum = 0;
    for (int i = -radius; i <= radius; i++)
        sum += exp(-0.5 * (i / sigma) * (i / sigma));
    for (int i = 0; i <= radius; i++)
        weight[i] = (float)(exp(-0.5 * (i / sigma) * (i / sigma)) / sum);
}

/* The part of one direction that pixels [first, first + count) of the result read: from the lowest
 * to the highest pixel, after mirroring. */
static void mirrored_span(int first, int count, int radius, int size, int *begin, int *end)
{
    *begin = size;
    *end = 0;
    for (int i = first - radius; i < first + count + radius; i++) {
        int k = hr__pad_index(i, size, HR_PAD_REFLECT);
        *begin = k < *begin ? k : *begin;
        *end = k >= *end ? k + 1 : *end;
    }
}

/* The memory of one field. */
struct buffers {
    float *weight[2]; /* radius + 1 each: x, y */
    float *noise;     /* a row, with room on both sides */
    float *padded;    /* a row with mirrored edges */
    float *rows;      /* blurred along x: need->width per row */
    int first_row;    /* of these */
};

static void blur_row(const struct buffers *b, int radius, const struct hr__warp_rows *kernels,
                     int count, float *to)
{
    const float *middle = b->padded + radius;
    for (int i = 0; i < count; i++)
        to[i] = b->weight[0][0] * middle[i];
    for (int k = 1; k <= radius; k++)
        kernels->add_pair(to, middle - k, middle + k, b->weight[0][k], count);
}

static void run_rows(const struct hr__displacement *field, const struct hr_region *need,
                     const struct buffers *b, int last_row)
{
    const struct hr__warp_rows *kernels = hr__warp_rows(hr__isa());
    int radius = field->taps / 2, begin, end;
    mirrored_span(need->x, need->width, radius, field->width, &begin, &end);
    for (int y = b->first_row; y < last_row; y++) {
        make_noise(field, y, begin, end, b->noise + BLOCK);
        for (int i = 0; i < need->width + 2 * radius; i++) {
            int x = hr__pad_index(need->x - radius + i, field->width, HR_PAD_REFLECT);
            b->padded[i] = b->noise[BLOCK + x - begin];
        }
        blur_row(b, radius, kernels, need->width,
                 b->rows + (size_t)(y - b->first_row) * (size_t)need->width);
    }
}

static const float *row_at(const struct hr__displacement *field, const struct hr_region *need,
                           const struct buffers *b, int y)
{
    int row = hr__pad_index(y, field->height, HR_PAD_REFLECT) - b->first_row;
    return b->rows + (size_t)row * (size_t)need->width;
}

static void run_columns(const struct hr__displacement *field, const struct hr_region *need,
                        const struct buffers *b, float *out)
{
    const struct hr__warp_rows *kernels = hr__warp_rows(hr__isa());
    for (int y = need->y; y < need->y + need->height; y++, out += need->width) {
        const float *middle = row_at(field, need, b, y);
        for (int i = 0; i < need->width; i++)
            out[i] = b->weight[1][0] * middle[i];
        for (int k = 1; k <= field->taps / 2; k++)
            kernels->add_pair(out, row_at(field, need, b, y - k), row_at(field, need, b, y + k),
                              b->weight[1][k], need->width);
        for (int i = 0; i < need->width; i++)
            out[i] *= field->scale;
    }
}

int hr__displacement_run(struct hr__scratch *scratch, const struct hr__displacement *field,
                         const struct hr_region *need, float *out, struct hr_error *error)
{
    int radius = field->taps / 2, begin, end, first_row, last_row;
    mirrored_span(need->x, need->width, radius, field->width, &begin, &end);
    mirrored_span(need->y, need->height, radius, field->height, &first_row, &last_row);
    size_t half = (size_t)radius + 1, across = (size_t)(end - begin) + 2 * BLOCK;
    size_t padded = (size_t)need->width + 2 * (size_t)radius;
    size_t rows = (size_t)(last_row - first_row) * (size_t)need->width;
    int r = hr__buffer_reserve(&scratch->planes[0],
                               (2 * half + across + padded + rows) * sizeof(float), error);
    if (r)
        return r;
    struct buffers b = {.first_row = first_row};
    b.weight[0] = scratch->planes[0].bytes;
    b.weight[1] = b.weight[0] + half;
    b.noise = b.weight[1] + half;
    b.padded = b.noise + across;
    b.rows = b.padded + padded;
    for (int i = 0; i < 2; i++) {
        if (radius)
            gaussian(b.weight[i], radius, field->sigma[i]);
        else
            b.weight[i][0] = 1;
    }
    run_rows(field, need, &b, last_row);
    run_columns(field, need, &b, out);
    return 0;
}
