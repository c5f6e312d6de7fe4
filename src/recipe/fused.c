/*
 * The fused pass: builds tables for a job, then processes row by row through the ring; see fused.h.
 * fused_kernels.h separates the code for each instruction set.
 *
 * Tables are kept while the next jobs have the same axes, as with samples of one size under a fixed
 * resize.
 */
#include "recipe/fused.h"

#include "base/error.h"
#include "base/memory.h"
#include "recipe/byte_rows.h"
#include "recipe/fused_kernels.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Sum of an output's integer weights. A filter with one tap needs no fractions: its weight is 1, so
 * values pass unchanged. */
#define SUM_BILINEAR 16256
#define SUM_BICUBIC  8128

/* A block of scratch memory that can grow. */
struct block {
    void *at;
    size_t bytes;
};

/* The parameters of the current horizontal tables. */
struct horizontal_key {
    struct hr__axis axis;
    int width, interpolation, antialias;
};

/* The parameters of the current vertical tables. */
struct vertical_key {
    struct hr__axis axis;
    int interpolation, antialias, sum;
    float scale[3];
};

struct hr__fused {
    const struct hr__fused_kernels *kernels;
    struct hr__taps x, y;
    struct hr__horizontal horizontal;
    int sum;                     /* sum of each output's horizontal weights */
    int first, last;             /* columns of the region that the outputs read */
    struct horizontal_key x_key; /* in == 0: no tables */
    struct vertical_key y_key;
    struct block begin, weight, table; /* of the horizontal filter */
    struct block column;               /* float [3][y.count][y.taps]: vertical weights */
    struct block extent;               /* int [y.count]: taps without trailing zeros */
    struct block ring;                 /* float [NHWC: 3][y.taps][padded]; or a mirrored row */
    struct block rows;                 /* float *[NHWC: 3][2 x y.taps]: pointers into the ring */
    struct block staged;               /* one output row; NHWC: also its channels */
};

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
                           &f->extent, &f->ring,   &f->rows,  &f->staged};
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

/* Makes the block hold at least `bytes`; if it grows, its contents are lost. */
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

/* Distributes `gap` units over the weights of one output: each goes to the weight whose exact value
 * exceeds its rounded one most in that direction (the first of equals). Taps with weight 0 get
 * none. */
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

/* Adding and subtracting 1.5 x 2^52 rounds a double to the nearest integer. */
static inline double round_double(double v)
{
    const double magic = 6755399441055744.0;
    return v + magic - magic;
}

/* Rounds the weights of x.taps to integers with sum `sum` per output. */
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
    int low = begin[0] < begin[h->count - 1] ? begin[0] : begin[h->count - 1];
    int high = begin[0] + begin[h->count - 1] - low;
    f->first = low;
    f->last = high + h->taps < h->width ? high + h->taps : h->width;
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
    float *first = f->column.at;
    for (size_t c = 0; c < 3; c++) {
        /* Bicubic values are clamped to 0..255 before scaling. */
        double scale = (job->interpolation == HR_BICUBIC ? 1.0 : job->scale[c]) / f->sum;
        float *weight = first + c * count * taps;
        if (c && job->interpolation == HR_BICUBIC) {
            memcpy(weight, first, count * taps * sizeof *weight);
            continue;
        }
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
    size_t rings = job->layout == HR_NHWC ? 3 : 1;
    int result = need(&f->ring, rings * rows * padded * sizeof(float), error);
    if (!result)
        result = need(&f->rows, rings * 2 * rows * sizeof(float *), error);
    if (!result)
        result = need(&f->staged, 2 * rings * padded * sizeof(float), error);
    return result;
}

/* Returns non-zero if outputs are the pixels themselves, at most mirrored. */
static int is_copy(const struct hr__axis *axis)
{
    return axis->in == axis->out && !axis->halvings;
}

/* The state of one channel's pass over the crop's rows. They are read from the top down, even if
 * the output is flipped and its last row comes first. */
struct pass {
    const struct hr__fused *fused;
    const struct hr__fused_job *job;
    int channel;
    int copies;   /* only converts: rows, next and slot are unused */
    float **rows; /* [2 x y.taps]: the ring's rows, listed twice, so that the rows from any one on
                   * are consecutive */
    int next;     /* first row of the crop that is not in the ring yet */
    int slot;     /* slot of the ring for it */
};

/* How many rows to prefetch ahead of the one being filtered. */
#define ROWS_AHEAD 5

/* Filters one row of the crop into the ring. */
static void feed(struct pass *p)
{
    const struct hr__planar *pixels = p->job->pixels;
    const struct hr__horizontal *h = &p->fused->horizontal;
    const uint8_t *plane = pixels->plane[p->channel];
    int at = p->next + p->job->y.origin;
    int ahead = at + ROWS_AHEAD < pixels->height ? at + ROWS_AHEAD : pixels->height - 1;
    assert(at >= 0 && at < pixels->height);
    for (int i = p->fused->first; i < p->fused->last; i += 64)
        __builtin_prefetch(plane + ahead * pixels->stride + i);
    h->run(h, plane + at * pixels->stride, p->rows[p->slot]);
    p->next++;
    p->slot = p->slot + 1 < p->fused->y.taps ? p->slot + 1 : 0;
}

/* Converts the row of pixels that is output row j. */
static void convert(struct pass *p, int j, void *out, int stream)
{
    const struct hr__fused *f = p->fused;
    const struct hr__fused_job *job = p->job;
    const struct hr__axis *x = &job->x, *y = &job->y;
    int at = y->origin + y->first + (y->flip ? y->count - 1 - j : j);
    assert(at >= 0 && at < job->pixels->height);
    const uint8_t *row =
        job->pixels->plane[p->channel] + at * job->pixels->stride + x->origin + x->first;
    if (x->flip) {
        hr__byte_rows(hr__isa())->reverse(row, x->count, f->ring.at);
        row = f->ring.at;
    }
    struct hr__column column = {
        .bytes = row,
        .width = x->count,
        .scale = job->scale[p->channel],
        .shift = job->shift[p->channel],
        .dtype = job->dtype,
        .stream = stream,
    };
    if (job->dtype == HR_UINT8 && !stream)
        memcpy(out, row, (size_t)x->count);
    else
        f->kernels->vertical(&column, out);
}

/* Sums the rows for output row j into `out`. */
static void emit(struct pass *p, int j, void *out, int stream)
{
    const struct hr__fused *f = p->fused;
    const struct hr__fused_job *job = p->job;
    if (p->copies) {
        convert(p, j, out, stream);
        return;
    }
    int begin = f->y.begin[j], count = ((const int *)f->extent.at)[j], ring = f->y.taps;
    if (p->next < begin) { /* filters without antialias skip rows */
        p->next = begin;
        p->slot = 0;
    }
    while (p->next < begin + count)
        feed(p);
    int oldest = p->slot - (p->next - begin);
    struct hr__column column = {
        .rows = (const float *const *)p->rows + (oldest < 0 ? oldest + ring : oldest),
        .weight = (const float *)f->column.at + ((ptrdiff_t)p->channel * f->y.count + j) * ring,
        .taps = count,
        .width = job->x.count,
        .clamp = job->interpolation == HR_BICUBIC,
        .scale = job->scale[p->channel],
        .shift = job->shift[p->channel],
        .dtype = job->dtype,
        .stream = stream,
    };
    f->kernels->vertical(&column, out);
}

/* The destination of the output rows. */
struct target {
    const struct hr__fused_kernels *kernels;
    uint8_t *out, *staged; /* the output; a buffer for one row on its way there */
    ptrdiff_t row_bytes;   /* between rows */
    int rows, flip;
    int stream; /* rows bypass the caches */
    int ragged; /* rows would, but are not whole cache lines: go through `staged` */
};

/* How many output rows ahead to prefetch edges. */
#define EDGES_AHEAD 3

/* Returns the output row that is written k-th. If rows share cache lines, those are written through
 * the cache, so this prefetches them. */
static int target_row(const struct target *target, int k)
{
    int j = target->flip ? target->rows - 1 - k : k;
    int edge = target->flip ? j - EDGES_AHEAD : j + 1 + EDGES_AHEAD;
    if (target->ragged && edge >= 0 && edge <= target->rows)
        __builtin_prefetch(target->out + edge * target->row_bytes, 1);
    return j;
}

/* Returns the pixels between two rows of the output. */
static int pitch_of(const struct hr__fused_job *job)
{
    return job->pitch ? job->pitch : job->x.count;
}

static struct target target_of(const struct hr__fused *f, const struct hr__fused_job *job,
                               uint8_t *out, size_t pixel_bytes)
{
    size_t row_bytes = (size_t)pitch_of(job) * pixel_bytes;
    size_t used_bytes = (size_t)job->x.count * pixel_bytes;
    int ragged = ((uintptr_t)out | row_bytes | used_bytes) % HR__LINE_BYTES != 0;
    return (struct target){
        .kernels = f->kernels,
        .out = out,
        .staged = f->staged.at,
        .row_bytes = (ptrdiff_t)row_bytes,
        .rows = job->y.count,
        .flip = job->y.flip,
        .stream = !job->cached && !ragged,
        .ragged = !job->cached && ragged,
    };
}

/* Channel by channel: one output stream at a time, interspersed with filtering. */
static void run_planar(struct pass pass[3])
{
    const struct hr__fused_job *job = pass->job;
    size_t bytes = hr__element_bytes(job->dtype), row_bytes = (size_t)job->x.count * bytes;
    size_t lines = (size_t)(job->lines ? job->lines : job->y.count);
    for (size_t c = 0; c < 3; c++) {
        uint8_t *out = (uint8_t *)job->out + c * lines * (size_t)pitch_of(job) * bytes;
        struct target target = target_of(pass->fused, job, out, bytes);
        for (int k = 0; k < target.rows; k++) {
            int j = target_row(&target, k);
            uint8_t *row = target.out + j * target.row_bytes;
            emit(&pass[c], j, target.ragged ? target.staged : row, target.stream);
            if (target.ragged)
                target.kernels->copy(row, target.staged, row_bytes);
        }
    }
}

/* Row by row: the three channels of a row meet in L1. */
static void run_interleaved(struct pass pass[3])
{
    const struct hr__fused_job *job = pass->job;
    size_t bytes = hr__element_bytes(job->dtype), width = (size_t)job->x.count;
    struct target target = target_of(pass->fused, job, job->out, 3 * bytes);
    uint8_t *pixels = target.staged + 3 * width * bytes;
    const void *const rows[3] = {pixels, pixels + width * bytes, pixels + 2 * width * bytes};
    for (int k = 0; k < target.rows; k++) {
        int j = target_row(&target, k);
        uint8_t *row = target.out + j * target.row_bytes;
        for (size_t c = 0; c < 3; c++)
            emit(&pass[c], j, pixels + c * width * bytes, 0);
        target.kernels->interleave(rows, width, bytes, target.stream,
                                   target.ragged ? target.staged : row);
        if (target.ragged)
            target.kernels->copy(row, target.staged, 3 * width * bytes);
    }
}

/* Prepares passes that filter. */
static int start_filter(struct hr__fused *fused, const struct hr__fused_job *job,
                        struct pass pass[3], struct hr_error *error)
{
    int result = horizontal_tables(fused, job, error);
    if (!result)
        result = vertical_tables(fused, job, error);
    if (!result)
        result = memory_for_rows(fused, job, error);
    if (result < 0)
        return result;
    for (int c = 0; c < 3; c++) {
        /* Planar output finishes one channel before the next begins, so they share a ring. */
        int apart = job->layout == HR_NHWC ? c : 0, taps = fused->y.taps;
        float **rows = (float **)fused->rows.at + (ptrdiff_t)apart * 2 * taps;
        pass[c] = (struct pass){.fused = fused, .job = job, .channel = c, .rows = rows};
        for (int t = 0; t < 2 * taps; t++)
            rows[t] = (float *)fused->ring.at +
                      (ptrdiff_t)(apart * taps + t % taps) * fused->horizontal.padded;
    }
    return 0;
}

/* Prepares passes that only convert. */
static int start_copy(struct hr__fused *fused, const struct hr__fused_job *job, struct pass pass[3],
                      struct hr_error *error)
{
    size_t width = (size_t)job->x.count + HR__PIXEL_SLACK; /* vectors overrun the row */
    int result = need(&fused->ring, width, error);
    if (!result)
        result = need(&fused->staged, 6 * width * sizeof(float), error);
    for (int c = 0; c < 3; c++)
        pass[c] = (struct pass){.fused = fused, .job = job, .channel = c, .copies = 1};
    return result;
}

int hr__fused_run(struct hr__fused *fused, const struct hr__fused_job *job, struct hr_error *error)
{
    struct pass pass[3];
    int result = is_copy(&job->x) && is_copy(&job->y) ? start_copy(fused, job, pass, error)
                                                      : start_filter(fused, job, pass, error);
    if (result < 0)
        return result;
    if (job->layout == HR_NHWC)
        run_interleaved(pass);
    else
        run_planar(pass);
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
    return 0;
}
