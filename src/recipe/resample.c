/*
 * Filter tables and the float resize; see resample.h.
 *
 * Tables are laid out tap by tap, so that each step is one loop over the outputs, which compilers
 * vectorise. Every operation is exact or a correctly rounded IEEE double operation, so the weights
 * do not depend on the vectorisation.
 */
#include "recipe/resample.h"

#include "base/error.h"
#include "base/memory.h"
#include "recipe/fused_kernels.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

/* A filter stretched for one axis. */
struct filter {
    enum hr_interpolation interpolation;
    int antialias;
    double scale;   /* source pixels per output pixel */
    double lead;    /* where the crop begins in pixel 0 */
    double stretch; /* of the filter: max(scale, 1) with antialias */
    double support; /* source pixels on each side of the centre */
};

static struct filter filter_of(const struct hr__axis *axis, enum hr_interpolation interpolation,
                               int antialias)
{
    struct filter f = {.interpolation = interpolation, .antialias = antialias};
    /* powers of two: exact */
    f.scale = (double)axis->in / axis->out / (1 << axis->halvings);
    f.lead = (double)axis->lead / (1 << axis->halvings);
    f.stretch = f.scale > 1 ? f.scale : 1;
    f.support = (interpolation == HR_BICUBIC ? 2.0 : 1.0) * f.stretch;
    return f;
}

static inline double centre_of(const struct filter *f, int output)
{
    return (output + 0.5) * f->scale + f->lead;
}

/* First pixel, and last pixel + 1, of the crop under the filter, rounded like Pillow. */
static inline int antialias_begin(const struct filter *f, double centre)
{
    double b = centre - f->support + 0.5;
    return b > 0 ? (int)b : 0;
}

static inline int antialias_end(const struct filter *f, double centre, int in)
{
    double e = centre + f->support + 0.5;
    return e < in ? (int)e : in;
}

/* Returns the position at which torch interpolates, in pixels of the crop. */
static inline double point_of(const struct filter *f, int output)
{
    double at = f->scale * (output + 0.5) + f->lead - 0.5;
    return f->interpolation == HR_BILINEAR && at < 0 ? 0 : at;
}

static inline int clamp_int(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}

/* Finds the pixels [*begin, *end) that one output reads. */
static void source_of(const struct filter *f, int in, int output, int *begin, int *end)
{
    if (f->antialias) {
        double centre = centre_of(f, output);
        *begin = antialias_begin(f, centre);
        *end = antialias_end(f, centre, in);
    } else {
        int at = (int)floor(point_of(f, output));
        int before = f->interpolation == HR_BICUBIC ? 1 : 0;
        *begin = clamp_int(at - before, 0, in - 1);
        *end = clamp_int(at + before + 1, 0, in - 1) + 1;
    }
}

/* The nearest pixels of outputs 0, 1, ... */
struct nearest {
    enum hr_interpolation interpolation;
    int in, output; /* the next output */
    float scale;    /* of torch */
    double at;      /* where Pillow is */
    double step;
};

static struct nearest nearest_of(const struct hr__axis *axis, enum hr_interpolation interpolation)
{
    double step = (double)axis->in / axis->out;
    return (struct nearest){.interpolation = interpolation,
                            .in = axis->in,
                            .scale = (float)axis->in / (float)axis->out,
                            .at = step * 0.5,
                            .step = step};
}

static int next_nearest(struct nearest *n)
{
    int pixel;
    if (n->interpolation == HR_NEAREST)
        pixel = (int)((float)n->output * n->scale);
    else if (n->interpolation == HR_NEAREST_EXACT)
        pixel = (int)(((float)n->output + 0.5f) * n->scale);
    else
        pixel = (int)n->at;
    n->at += n->step;
    n->output++;
    return pixel < n->in ? pixel : n->in - 1;
}

static void nearest_source(const struct hr__axis *axis, enum hr_interpolation interpolation,
                           int *begin, int *end)
{
    struct nearest n = nearest_of(axis, interpolation);
    while (n.output <= axis->first)
        *begin = next_nearest(&n);
    *end = *begin + 1;
    while (n.output < axis->first + axis->count)
        *end = next_nearest(&n) + 1;
}

static void build_nearest(struct hr__taps *taps, const struct hr__axis *axis,
                          enum hr_interpolation interpolation, int room)
{
    struct nearest n = nearest_of(axis, interpolation);
    memset(taps->weight, 0, (size_t)room * taps->stride * sizeof *taps->weight);
    while (n.output < axis->first + axis->count) {
        int j = n.output - axis->first, pixel = next_nearest(&n);
        if (j < 0)
            continue;
        j = axis->flip ? axis->count - 1 - j : j;
        taps->begin[j] = pixel;
        taps->weight[j] = 1;
    }
}

void hr__axis_source(const struct hr__axis *axis, enum hr_interpolation interpolation,
                     int antialias, int *begin, int *end)
{
    if (hr__is_nearest(interpolation)) {
        nearest_source(axis, interpolation, begin, end);
        return;
    }
    struct filter f = filter_of(axis, interpolation, antialias);
    int unused, pixels = hr__axis_pixels(axis);
    source_of(&f, pixels, axis->first, begin, &unused);
    source_of(&f, pixels, axis->first + axis->count - 1, &unused, end);
}

int hr__taps_bound(const struct hr__axis *axis, enum hr_interpolation interpolation, int antialias)
{
    struct filter f = filter_of(axis, interpolation, antialias);
    int taps = hr__is_nearest(interpolation) ? 1 : interpolation == HR_BICUBIC ? 4 : 2;
    if (antialias && f.scale > 1)
        taps = f.support < 1 << 28 ? (int)(2 * f.support) + 1 : 1 << 29;
    return taps < hr__axis_pixels(axis) ? taps : hr__axis_pixels(axis);
}

/* Returns the output that is written at place j. */
static inline int output_at(const struct hr__axis *axis, int j)
{
    return axis->flip ? axis->first + axis->count - 1 - j : axis->first + j;
}

/* The table has `room` taps, followed by three rows of doubles for intermediate values. */
static void build_antialias(const struct filter *f, struct hr__taps *taps,
                            const struct hr__axis *axis, int room)
{
    double *from = taps->weight + (size_t)room * taps->stride;
    double *length = from + taps->stride, *sum = length + taps->stride;
    int pixels = hr__axis_pixels(axis);
    for (int j = 0; j < taps->count; j++) {
        double centre = centre_of(f, output_at(axis, j));
        int begin = antialias_begin(f, centre);
        taps->begin[j] = begin;
        from[j] = begin - centre + 0.5;
        length[j] = antialias_end(f, centre, pixels) - begin;
    }
    hr__fused_kernels(hr__isa())->weigh(&(struct hr__tap_weights){
        .from = from,
        .length = length,
        .inverse = 1.0 / f->stretch,
        .is_cubic = f->interpolation == HR_BICUBIC,
        .count = taps->count,
        .taps = room,
        .stride = taps->stride,
        .weight = taps->weight,
        .sum = sum,
    });
}

/* Computes the four cubic convolution weights at fraction `t` (a = -0.75). */
static void torch_cubic(double t, double weight[4])
{
    const double a = -0.75;
    double near = t, far = 1 - t;
    weight[0] = ((a * (near + 1) - 5 * a) * (near + 1) + 8 * a) * (near + 1) - 4 * a;
    weight[1] = ((a + 2) * near - (a + 3)) * near * near + 1;
    weight[2] = ((a + 2) * far - (a + 3)) * far * far + 1;
    weight[3] = ((a * (far + 1) - 5 * a) * (far + 1) + 8 * a) * (far + 1) - 4 * a;
}

static void build_points(const struct filter *f, struct hr__taps *taps, const struct hr__axis *axis,
                         int room)
{
    int pixels = hr__axis_pixels(axis);
    memset(taps->weight, 0, (size_t)room * taps->stride * sizeof *taps->weight);
    for (int j = 0; j < taps->count; j++) {
        double at = point_of(f, output_at(axis, j)), weight[4];
        int first = (int)floor(at), points;
        if (f->interpolation == HR_BICUBIC) {
            torch_cubic(at - first, weight);
            first -= 1;
            points = 4;
        } else {
            weight[0] = 1 - (at - first);
            weight[1] = at - first;
            points = 2;
        }
        int begin = clamp_int(first, 0, pixels - 1);
        taps->begin[j] = begin;
        /* Pixels beyond the edge repeat it, so the edge pixel gets their weights. */
        for (int t = 0; t < points; t++) {
            int pixel = clamp_int(first + t, 0, pixels - 1);
            taps->weight[(size_t)(pixel - begin) * taps->stride + (size_t)j] += weight[t];
        }
    }
}

static int tap_is_empty(const struct hr__taps *taps, int t)
{
    const double *weight = taps->weight + (size_t)t * taps->stride;
    for (int j = 0; j < taps->count; j++)
        if (weight[j] != 0)
            return 0;
    return 1;
}

static int grow(struct hr__taps *taps, size_t room, struct hr_error *error)
{
    size_t bytes = (room + 3) * taps->stride * sizeof(double) + taps->stride * sizeof(int);
    if (bytes > taps->capacity_bytes) {
        hr__free(taps->weight);
        taps->capacity_bytes = 0;
        taps->weight = hr__alloc_aligned(HR__TAG_RECIPE, bytes, 0);
        if (!taps->weight)
            return hr__fail(error, -ENOMEM, "no memory for a resize table of %zu bytes", bytes);
        taps->capacity_bytes = bytes;
    }
    taps->begin = (int *)(taps->weight + (room + 3) * taps->stride);
    return 0;
}

int hr__taps_build(struct hr__taps *taps, const struct hr__axis *axis,
                   enum hr_interpolation interpolation, int antialias, struct hr_error *error)
{
    assert(axis->in > 0 && axis->out > 0 && axis->count > 0);
    assert(axis->first >= 0 && axis->first + axis->count <= axis->out);
    struct filter f = filter_of(axis, interpolation, antialias);
    /* One tap of spare room: rounding may put one more under the filter than the bound computed
     * with exact arithmetic; its weight would be negligible. */
    int room = hr__taps_bound(axis, interpolation, antialias) + 1;
    taps->count = axis->count;
    taps->stride = ((size_t)axis->count + 15) / 16 * 16;
    int result = grow(taps, (size_t)room, error);
    if (result < 0) {
        taps->count = taps->taps = 0;
        taps->begin = NULL;
        return result;
    }
    if (hr__is_nearest(interpolation))
        build_nearest(taps, axis, interpolation, room);
    else if (antialias)
        build_antialias(&f, taps, axis, room);
    else
        build_points(&f, taps, axis, room);
    taps->taps = room;
    while (taps->taps > 1 && tap_is_empty(taps, taps->taps - 1))
        taps->taps--;
    return 0;
}

void hr__taps_free(struct hr__taps *taps)
{
    hr__free(taps->weight);
    *taps = (struct hr__taps){0};
}

static inline float clamp_value(float v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

/* A filter in float, ordered by output, for the horizontal pass. */
struct row_filter {
    int count, taps;
    const int *begin; /* [count] */
    int *length;      /* [count]: taps without trailing zeros */
    float *weight;    /* [count][taps] */
};

static int row_filter_make(struct row_filter *filter, const struct hr__taps *taps,
                           struct hr_error *error)
{
    size_t count = (size_t)taps->count, most = (size_t)taps->taps;
    filter->count = taps->count;
    filter->taps = taps->taps;
    filter->begin = taps->begin;
    filter->length = hr__alloc(HR__TAG_RECIPE, count, sizeof *filter->length);
    filter->weight = hr__alloc(HR__TAG_RECIPE, count * most, sizeof *filter->weight);
    if (!filter->length || !filter->weight)
        return hr__fail(error, -ENOMEM, "no memory for a resize to %d pixels", taps->count);
    for (size_t t = 0; t < most; t++)
        for (size_t j = 0; j < count; j++) {
            double w = taps->weight[t * taps->stride + j];
            filter->weight[j * most + t] = (float)w;
            filter->length[j] = w != 0 ? (int)t + 1 : filter->length[j];
        }
    return 0;
}

/* Applies the horizontal filter to one row. */
static void filter_row(const float *in, const struct row_filter *filter, int clamp, float *out)
{
    for (int j = 0; j < filter->count; j++) {
        const float *weight = filter->weight + (ptrdiff_t)j * filter->taps;
        const float *at = in + filter->begin[j];
        float sum = 0;
        for (int t = 0; t < filter->length[j]; t++)
            sum += weight[t] * at[t];
        out[j] = clamp ? clamp_value(sum) : sum;
    }
}

/* Computes one output row from the filtered rows; `middle` begins with the crop's row `first`. */
static void filter_column(const float *middle, int first, const struct hr__taps *taps, int j,
                          int width, int clamp, float *out)
{
    for (int i = 0; i < width; i++)
        out[i] = 0;
    for (int t = 0; t < taps->taps; t++) {
        float w = (float)taps->weight[(size_t)t * taps->stride + (size_t)j];
        if (w == 0)
            continue;
        const float *row = middle + (ptrdiff_t)(taps->begin[j] + t - first) * width;
        for (int i = 0; i < width; i++)
            out[i] += w * row[i];
    }
    if (clamp)
        for (int i = 0; i < width; i++)
            out[i] = clamp_value(out[i]);
}

/* Returns non-zero if some output reads this row of the crop; only such rows are filtered. */
static int row_is_used(const struct hr__taps *y, int row)
{
    for (int j = 0; j < y->count; j++)
        if (row >= y->begin[j] && row < y->begin[j] + y->taps)
            return 1;
    return 0;
}

int hr__resample_f32(const struct hr__plane_f32 *in, const struct hr__axis *x,
                     const struct hr__axis *y, enum hr_interpolation interpolation, int antialias,
                     struct hr__plane_f32 *out, struct hr_error *error)
{
    struct hr__taps tx = {0}, ty = {0};
    struct row_filter filter = {0};
    float *middle = NULL;
    int begin, end, clamp = interpolation == HR_BICUBIC;
    int result = hr__taps_build(&tx, x, interpolation, antialias, error);
    if (!result)
        result = hr__taps_build(&ty, y, interpolation, antialias, error);
    if (result < 0)
        goto fail;
    hr__axis_source(y, interpolation, antialias, &begin, &end);
    assert(y->origin + begin >= 0 && y->origin + end <= in->height);
    if ((result = row_filter_make(&filter, &tx, error)) < 0)
        goto fail;
    middle = hr__alloc(HR__TAG_RECIPE, (size_t)(end - begin) * (size_t)x->count, sizeof *middle);
    if (!middle) {
        result = hr__fail(error, -ENOMEM, "no memory for resizing %d x %d pixels", x->in, y->in);
        goto fail;
    }
    for (int row = begin; row < end; row++)
        if (antialias || row_is_used(&ty, row))
            filter_row(in->at + (ptrdiff_t)(y->origin + row) * in->stride + x->origin, &filter,
                       clamp && antialias, middle + (ptrdiff_t)(row - begin) * x->count);
    for (int j = 0; j < ty.count; j++)
        filter_column(middle, begin, &ty, j, x->count, clamp, out->at + (ptrdiff_t)j * out->stride);
fail:
    hr__free(filter.length);
    hr__free(filter.weight);
    hr__free(middle);
    hr__taps_free(&tx);
    hr__taps_free(&ty);
    return result;
}
