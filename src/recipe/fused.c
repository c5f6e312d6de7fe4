/*
 * The fused pass: tables per job, then row by row through the ring; see
 * fused.h. What depends on the instruction set is behind fused_kernels.h.
 *
 * Tables are kept while the next job has the same axes, as all samples of one
 * size under a fixed resize do.
 */
#include "recipe/fused.h"

#include "base/error.h"
#include "base/memory.h"
#include "recipe/fused_kernels.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Sums of an output's integer weights. A filter of one tap needs no fractions:
 * its weight is 1, and values pass unchanged. */
#define SUM_BILINEAR 16256
#define SUM_BICUBIC  8128

/* A block of scratch memory that grows. */
struct block {
    void *at;
    size_t bytes;
};

/* What the horizontal tables were made for. */
struct horizontal_key {
    struct hr__axis axis;
    int width, interpolation, antialias;
};

/* What the vertical tables were made for. */
struct vertical_key {
    struct hr__axis axis;
    int interpolation, antialias, sum;
    float scale[3];
};

struct hr__fused {
    const struct hr__fused_kernels *kernels;
    struct hr__taps x, y;
    struct hr__horizontal horizontal;
    int sum;                     /* of the horizontal weights */
    struct horizontal_key x_key; /* in == 0: no tables */
    struct vertical_key y_key;
    struct block begin, weight, table; /* of the horizontal filter */
    struct block column;               /* float [3][y.count][y.taps]: vertical weights */
    struct block extent;               /* int [y.count]: taps without the zeros at their end */
    struct block ring;                 /* float [y.taps][3][padded] */
    struct block rows;                 /* const float *[3][y.taps] */
    struct block pixels;               /* NHWC: one row, channel by channel */
};

static const struct hr__fused_kernels *const versions[] = {
    [HR__ISA_PORTABLE] = &hr__fused_portable,
#if defined(__x86_64__)
    [HR__ISA_AVX2] = &hr__fused_avx2,
    [HR__ISA_AVX512] = &hr__fused_avx512,
#endif
};

const struct hr__fused_kernels *hr__fused_kernels(enum hr__isa isa)
{
    size_t built = sizeof versions / sizeof *versions;
    return versions[(size_t)isa < built ? (size_t)isa : built - 1];
}

int hr__fused_create(struct hr__fused **out, struct hr_error *error)
{
    struct hr__fused *f = hr__alloc(HR__TAG_RECIPE, 1, sizeof *f);
    if (!f)
        return hr__fail(error, -ENOMEM, "no memory for the resize pass");
    f->kernels = hr__fused_kernels(hr__isa());
    *out = f;
    return 0;
}

static void each_block(struct hr__fused *f, struct block *blocks[8])
{
    struct block *all[] = {&f->begin,  &f->weight, &f->table, &f->column,
                           &f->extent, &f->ring,   &f->rows,  &f->pixels};
    memcpy(blocks, all, sizeof all);
}

void hr__fused_destroy(struct hr__fused **fused)
{
    struct hr__fused *f = *fused;
    struct block *blocks[8];
    if (!f)
        return;
    each_block(f, blocks);
    for (int i = 0; i < 8; i++)
        hr__free(blocks[i]->at);
    hr__taps_free(&f->x);
    hr__taps_free(&f->y);
    hr__free(f);
    *fused = NULL;
}

size_t hr__fused_memory(const struct hr__fused *fused)
{
    struct hr__fused copy = *fused;
    struct block *blocks[8];
    size_t bytes = sizeof copy + copy.x.capacity_bytes + copy.y.capacity_bytes;
    each_block(&copy, blocks);
    for (int i = 0; i < 8; i++)
        bytes += blocks[i]->bytes;
    return bytes;
}

int hr__fused_use(struct hr__fused *fused, enum hr__isa isa)
{
    if (isa > hr__isa())
        return -ENOTSUP;
    fused->kernels = hr__fused_kernels(isa);
    fused->x_key.axis.in = 0;
    return 0;
}

int hr__fused_fits(const struct hr__fused_job *job)
{
    return hr__taps_bound(&job->x, job->interpolation, job->antialias) <= HR__FUSED_MAX_TAPS;
}

/* Makes the block hold at least `bytes`; its contents are lost when it grows. */
static int need(struct block *block, size_t bytes, struct hr_error *error)
{
    if (bytes <= block->bytes)
        return 0;
    hr__free(block->at);
    block->bytes = 0;
    block->at = hr__alloc_aligned(HR__TAG_RECIPE, bytes, 64); /* loads overrun rows */
    if (!block->at)
        return hr__fail(error, -ENOMEM, "no memory for the resize pass: %zu bytes", bytes);
    block->bytes = bytes;
    return 0;
}

/* Moves `gap` units onto the weights of one output whose fractions are nearest
 * to being rounded the other way; the first one of equals. Only taps with
 * weight take part. */
static void settle(const struct hr__taps *taps, int j, double scale, int gap, int16_t *weight)
{
    while (gap) {
        int unit = gap > 0 ? 1 : -1, best = 0;
        double most = -1e9;
        for (int t = 0; t < taps->taps; t++) {
            double exact = taps->weight[(size_t)t * taps->stride + (size_t)j];
            double lacks = (exact * scale - weight[t]) * unit;
            if (exact != 0 && lacks > most) {
                most = lacks;
                best = t;
            }
        }
        weight[best] = (int16_t)(weight[best] + unit);
        gap -= unit;
    }
}

/* Adding and taking away 1.5 x 2^52 rounds a double to the nearest integer. */
static inline double round_double(double v)
{
    const double magic = 6755399441055744.0;
    return v + magic - magic;
}

/* Rounds the weights of x.taps to integers of sum `sum` per output. */
static void quantise(const struct hr__taps *taps, int sum, int pitch, int16_t *weight)
{
    memset(weight, 0, taps->stride * (size_t)pitch * sizeof *weight);
    for (int t = 0; t < taps->taps; t++) {
        const double *exact = taps->weight + (size_t)t * taps->stride;
        for (int j = 0; j < taps->count; j++)
            weight[(ptrdiff_t)j * pitch + t] = (int16_t)(int)round_double(exact[j] * sum);
    }
    for (int j = 0; j < taps->count; j++) {
        int got = 0;
        for (int t = 0; t < pitch; t++)
            got += weight[(ptrdiff_t)j * pitch + t];
        if (got != sum)
            settle(taps, j, sum, sum - got, weight + (ptrdiff_t)j * pitch);
    }
}

static int horizontal_tables(struct hr__fused *f, const struct hr__fused_job *job,
                             struct hr_error *error)
{
    struct horizontal_key key = {job->x, job->pixels->width, (int)job->interpolation,
                                 !!job->antialias};
    if (!memcmp(&key, &f->x_key, sizeof key))
        return 0;
    f->x_key.axis.in = 0;
    int result = hr__taps_build(&f->x, &job->x, job->interpolation, job->antialias, error);
    if (result < 0)
        return result;
    struct hr__horizontal *h = &f->horizontal;
    h->count = f->x.count;
    h->padded = (int)f->x.stride;
    h->taps = f->x.taps;
    h->pitch = (h->taps + HR__FUSED_PITCH - 1) / HR__FUSED_PITCH * HR__FUSED_PITCH;
    h->width = job->pixels->width;
    f->sum = h->taps == 1 ? 1 : job->interpolation == HR_BICUBIC ? SUM_BICUBIC : SUM_BILINEAR;
    h->ceiling = job->interpolation == HR_BICUBIC && job->antialias ? 255 * f->sum : 0;
    size_t padded = (size_t)h->padded;
    if ((result = need(&f->begin, padded * sizeof *h->begin, error)) < 0 ||
        (result = need(&f->weight, padded * (size_t)h->pitch * sizeof *h->weight, error)) < 0 ||
        (result = need(&f->table, hr__fused_table_bytes(h->padded, h->pitch), error)) < 0)
        return result;
    int32_t *begin = f->begin.at;
    for (int j = 0; j < h->padded; j++)
        begin[j] = f->x.begin[j < h->count ? j : h->count - 1] + job->x.origin;
    quantise(&f->x, f->sum, h->pitch, f->weight.at);
    h->begin = begin;
    h->weight = f->weight.at;
    h->table = f->table.at;
    f->kernels->prepare(h);
    f->x_key = key;
    return 0;
}

static int vertical_tables(struct hr__fused *f, const struct hr__fused_job *job,
                           struct hr_error *error)
{
    struct vertical_key key = {job->y,
                               (int)job->interpolation,
                               !!job->antialias,
                               f->sum,
                               {job->scale[0], job->scale[1], job->scale[2]}};
    if (!memcmp(&key, &f->y_key, sizeof key))
        return 0;
    f->y_key.axis.in = 0;
    int result = hr__taps_build(&f->y, &job->y, job->interpolation, job->antialias, error);
    if (result < 0)
        return result;
    size_t count = (size_t)f->y.count, taps = (size_t)f->y.taps;
    if ((result = need(&f->column, 3 * count * taps * sizeof(float), error)) < 0 ||
        (result = need(&f->extent, count * sizeof(int), error)) < 0)
        return result;
    int *extent = f->extent.at;
    for (size_t j = 0; j < count; j++)
        extent[j] = 1;
    for (size_t c = 0; c < 3; c++) {
        /* Bicubic values are cut to 0..255 before they are scaled. */
        double scale = (job->interpolation == HR_BICUBIC ? 1.0 : job->scale[c]) / f->sum;
        float *weight = (float *)f->column.at + c * count * taps;
        for (size_t t = 0; t < taps; t++)
            for (size_t j = 0; j < count; j++)
                weight[j * taps + t] = (float)(f->y.weight[t * f->y.stride + j] * scale);
    }
    for (size_t t = 1; t < taps; t++)
        for (size_t j = 0; j < count; j++)
            if (f->y.weight[t * f->y.stride + j] != 0)
                extent[j] = (int)t + 1;
    f->y_key = key;
    return 0;
}

static int memory_for_rows(struct hr__fused *f, const struct hr__fused_job *job,
                           struct hr_error *error)
{
    size_t rows = (size_t)f->y.taps, padded = (size_t)f->horizontal.padded;
    int result = need(&f->ring, rows * 3 * padded * sizeof(float), error);
    if (!result)
        result = need(&f->rows, 3 * rows * sizeof(float *), error);
    if (!result && job->layout == HR_NHWC)
        result = need(&f->pixels, 3 * padded * sizeof(float), error);
    return result;
}

static float *ring_row(const struct hr__fused *f, int row, int channel)
{
    return (float *)f->ring.at +
           ((ptrdiff_t)(row % f->y.taps) * 3 + channel) * f->horizontal.padded;
}

/* Filters row `row` of the crop into the ring. */
static void feed(const struct hr__fused *f, const struct hr__fused_job *job, int row)
{
    const struct hr__planar *p = job->pixels;
    const uint8_t *in[3];
    float *out[3];
    assert(row + job->y.origin >= 0 && row + job->y.origin < p->height);
    for (int c = 0; c < 3; c++) {
        in[c] = p->plane[c] + (row + job->y.origin) * p->stride;
        out[c] = ring_row(f, row, c);
    }
    f->horizontal.run(&f->horizontal, in, out);
}

/* Sums the rows under output row j and stores it. */
static void emit(const struct hr__fused *f, const struct hr__fused_job *job, int j)
{
    size_t taps = (size_t)f->y.taps, width = (size_t)job->x.count, height = (size_t)job->y.count;
    size_t bytes = hr__element_bytes(job->dtype);
    const float **rows = f->rows.at;
    uint8_t *out = job->out, *pixels = f->pixels.at;
    int count = ((const int *)f->extent.at)[j];
    for (int c = 0; c < 3; c++) {
        const float **mine = rows + (size_t)c * taps;
        for (int t = 0; t < count; t++)
            mine[t] = ring_row(f, f->y.begin[j] + t, c);
        struct hr__column column = {
            .rows = mine,
            .weight = (const float *)f->column.at + ((size_t)c * height + (size_t)j) * taps,
            .taps = count,
            .width = job->x.count,
            .clamp = job->interpolation == HR_BICUBIC,
            .scale = job->scale[c],
            .shift = job->shift[c],
            .dtype = job->dtype,
            .stream = job->layout == HR_NCHW,
        };
        if (job->layout == HR_NCHW)
            f->kernels->vertical(&column, out + ((size_t)c * height + (size_t)j) * width * bytes);
        else
            f->kernels->vertical(&column, pixels + (size_t)c * width * bytes);
    }
    if (job->layout == HR_NHWC) {
        const void *const in[3] = {pixels, pixels + width * bytes, pixels + 2 * width * bytes};
        f->kernels->interleave(in, width, bytes, 1, out + (size_t)j * width * 3 * bytes);
    }
}

int hr__fused_run(struct hr__fused *fused, const struct hr__fused_job *job, struct hr_error *error)
{
    int result = horizontal_tables(fused, job, error);
    if (!result)
        result = vertical_tables(fused, job, error);
    if (!result)
        result = memory_for_rows(fused, job, error);
    if (result < 0)
        return result;
    /* From the top of the crop down, also where that is the last output row. */
    int next = 0;
    for (int k = 0; k < job->y.count; k++) {
        int j = job->y.flip ? job->y.count - 1 - k : k;
        int begin = fused->y.begin[j], end = begin + ((const int *)fused->extent.at)[j];
        for (next = next > begin ? next : begin; next < end; next++)
            feed(fused, job, next);
        emit(fused, job, j);
    }
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
    return 0;
}
