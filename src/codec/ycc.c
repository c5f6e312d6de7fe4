/*
 * Upsamples and converts a region: determines its rows and columns, handles the edges of
 * components, and passes one row after the other to the kernels.
 *
 * libjpeg-turbo's upsamplers (jdsample.c) clamp at the component's true edges: a missing neighbour
 * is replaced by the sample itself, which the filter then leaves unchanged. For components with at
 * most two samples across, h2 samplings are replicated in both directions; h1v2 is always filtered.
 */
#include "codec/ycc.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/format.h"
#include "codec/ycc_rows.h"

#include <errno.h>
#include <string.h>

/* Components with at most this many samples across are replicated, not filtered. */
#define REPLICATED_MOST 2

struct hr__ycc {
    const struct hr__ycc_kernels *kernels;
    struct hr__codec_scratch rows; /* intermediate rows of Cb and Cr */
};

/* How the chroma of a region is computed from samples. */
enum ycc_way {
    WAY_GREY,
    WAY_SAME,     /* 4:4:4 */
    WAY_BETWEEN,  /* h1v2 */
    WAY_DOUBLED,  /* h2v1, h2v2 */
    WAY_REPEATED, /* h2v1, h2v2 with few samples across */
};

static enum ycc_way find_way(const struct hr__item_header *shape)
{
    if (shape->components == 1)
        return WAY_GREY;
    if (shape->h == 1)
        return shape->v == 1 ? WAY_SAME : WAY_BETWEEN;
    return hr__item_samples(shape->width, shape->h, 1) > REPLICATED_MOST ? WAY_DOUBLED
                                                                         : WAY_REPEATED;
}

/* Finds the samples, of `samples`, that the pixels [*at, *at + *count) of one axis depend on. With
 * `filter` an even pixel also needs its sample's left neighbour, an odd one the right. */
static void find_span(int *at, int *count, int samples, int filter)
{
    int first = *at, last = *at + *count - 1;
    if (filter) {
        first = first > 0 ? (first - 1) / 2 : 0;
        last = (last + 1) / 2;
        last = last < samples ? last : samples - 1;
    } else {
        first /= 2;
        last /= 2;
    }
    *at = first;
    *count = last - first + 1;
}

void hr__ycc_window(const struct hr__item_header *shape, const struct hr_region *region, int c,
                    struct hr_region *window)
{
    *window = *region;
    enum ycc_way way = find_way(shape);
    if (!c || way == WAY_GREY || way == WAY_SAME)
        return;
    int filter = way != WAY_REPEATED;
    if (shape->h == 2)
        find_span(&window->x, &window->width, (int)hr__item_samples(shape->width, 2, 1), filter);
    if (shape->v == 2)
        find_span(&window->y, &window->height, (int)hr__item_samples(shape->height, 2, 1), filter);
}

int hr__ycc_create(struct hr__ycc **out, enum hr__isa isa, struct hr_error *error)
{
    struct hr__ycc *ycc = hr__alloc(HR__TAG_CODEC, 1, sizeof *ycc);
    if (!ycc)
        return hr__fail(error, -ENOMEM, "out of memory for colour conversion");
    ycc->kernels = hr__ycc_kernels(isa);
    *out = ycc;
    return 0;
}

void hr__ycc_destroy(struct hr__ycc **ycc)
{
    if (!*ycc)
        return;
    hr__scratch_free(&(*ycc)->rows);
    hr__free(*ycc);
    *ycc = NULL;
}

size_t hr__ycc_memory(const struct hr__ycc *ycc)
{
    return sizeof *ycc + ycc->rows.capacity;
}

/* Returns sample (x, y) of component c, which must be in its window. */
static const uint8_t *sample(const struct hr__ycc_planes *planes, int c, int x, int y)
{
    const struct hr_region *window = &planes->window[c];
    return planes->at[c] + (y - window->y) * planes->stride[c] + (x - window->x);
}

/* Finds the chroma row that pixel row y is in, and the nearest other one. */
static void find_rows(const struct hr__item_header *shape, int y, int *near, int *far)
{
    int rows = (int)hr__item_samples(shape->height, shape->v, 1);
    *near = *far = y;
    if (shape->v != 2)
        return;
    *near = y / 2;
    *far = y % 2 ? *near + 1 : *near - 1;
    if (*far < 0 || *far >= rows)
        *far = *near;
}

/* The state of one call. */
struct job {
    const struct hr__ycc_planes *planes;
    struct hr_region region;
    struct hr_region window; /* chroma samples that the region needs */
    uint8_t *scratch[2];     /* the parts of Cb and Cr, of equal size */
};

/* Returns the bytes of one component's part of the scratch: 16-bit samples with one more on either
 * side, in whole vectors, plus one that the last vector of pixels may read. */
static size_t scratch_bytes(const struct job *job)
{
    size_t samples =
        (size_t)(job->region.width > job->window.width ? job->region.width : job->window.width);
    return (samples * 2 + 4 * HR__YCC_PIXELS) & ~(size_t)(HR__YCC_PIXELS - 1);
}

/* Position of the first mixed sample, which leaves room for one before it. */
#define BEFORE (HR__YCC_PIXELS / 2)

static void row_doubled(const struct hr__ycc *ycc, const struct job *job, int y,
                        const struct hr__ycc_row *row)
{
    const struct hr__item_header *shape = job->planes->shape;
    int first = job->region.x / 2, last = (job->region.x + job->region.width - 1) / 2;
    int lead = first - job->window.x; /* left neighbours in the window: 1 or 0 */
    int near, far;
    struct hr__ycc_mixed mixed = {.odd = job->region.x & 1,
                                  .rounding = {shape->v == 2 ? 8 : 4, shape->v == 2 ? 7 : 8}};
    find_rows(shape, y, &near, &far);
    for (int k = 0; k < 2; k++) {
        uint16_t *mix = (uint16_t *)job->scratch[k] + BEFORE;
        ycc->kernels->mix(sample(job->planes, k + 1, job->window.x, near),
                          sample(job->planes, k + 1, job->window.x, far), mix - lead,
                          job->window.width);
        /* The window has no neighbour, at an edge of the component or where none is needed. */
        if (!lead)
            mix[-1] = mix[0];
        if (job->window.width - lead == last - first + 1)
            mix[last - first + 1] = mix[last - first];
        mixed.chroma[k] = mix;
    }
    ycc->kernels->doubled(row, &mixed);
}

static void row_between(const struct hr__ycc *ycc, const struct job *job, int y,
                        const struct hr__ycc_row *row)
{
    int near, far;
    find_rows(job->planes->shape, y, &near, &far);
    for (int k = 0; k < 2; k++)
        ycc->kernels->between(sample(job->planes, k + 1, job->region.x, near),
                              sample(job->planes, k + 1, job->region.x, far), job->scratch[k],
                              row->pixels, y % 2 ? 2 : 1);
    ycc->kernels->same(row, (const uint8_t *const[2]){job->scratch[0], job->scratch[1]});
}

static void row_repeated(const struct hr__ycc *ycc, const struct job *job, int y,
                         const struct hr__ycc_row *row)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < row->pixels; i++)
            job->scratch[k][i] =
                *sample(job->planes, k + 1, (job->region.x + i) / 2, y / job->planes->shape->v);
    ycc->kernels->same(row, (const uint8_t *const[2]){job->scratch[0], job->scratch[1]});
}

static void convert_row(const struct hr__ycc *ycc, const struct job *job, int y,
                        const struct hr__ycc_row *row)
{
    int x = job->region.x;
    switch (find_way(job->planes->shape)) {
    case WAY_GREY:
        for (int c = 0; c < 3; c++)
            memcpy(row->rgb[c], row->luma, (size_t)row->pixels);
        break;
    case WAY_SAME:
        ycc->kernels->same(row, (const uint8_t *const[2]){sample(job->planes, 1, x, y),
                                                          sample(job->planes, 2, x, y)});
        break;
    case WAY_BETWEEN:
        row_between(ycc, job, y, row);
        break;
    case WAY_DOUBLED:
        row_doubled(ycc, job, y, row);
        break;
    case WAY_REPEATED:
        row_repeated(ycc, job, y, row);
        break;
    }
}

int hr__ycc_run(struct hr__ycc *ycc, const struct hr__ycc_planes *planes,
                const struct hr_region *region, const struct hr__planar *out,
                struct hr_error *error)
{
    struct job job = {.planes = planes, .region = *region};
    hr__ycc_window(planes->shape, region, 1, &job.window);
    size_t bytes = scratch_bytes(&job);
    if (2 * bytes > ycc->rows.capacity) {
        int rc = hr__scratch_reserve(&ycc->rows, 2 * bytes, error);
        if (rc)
            return rc;
        /* Vectors of the last pixels read samples that are otherwise uninitialised. */
        memset(ycc->rows.bytes, 0, ycc->rows.capacity);
    }
    for (size_t k = 0; k < 2; k++)
        job.scratch[k] = ycc->rows.bytes + k * bytes;
    for (int i = 0; i < region->height; i++) {
        struct hr__ycc_row row = {.luma = sample(planes, 0, region->x, region->y + i),
                                  .pixels = region->width};
        for (int c = 0; c < 3; c++)
            row.rgb[c] = out->plane[c] + i * out->stride;
        convert_row(ycc, &job, region->y + i, &row);
    }
    return 0;
}
