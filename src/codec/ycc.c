/*
 * Upsamples and converts a region: determines its rows and columns, handles the edges of
 * components, and passes one row after the other to the kernels.
 *
 * libjpeg-turbo's upsamplers (jdsample.c) clamp at the component's true edges: a missing neighbour
 * is replaced by the sample itself, which the filter then leaves unchanged. For components with at
 * most two samples across, h2 samplings are replicated in both directions; h1v2 is always filtered.
 *
 * The usual samplings, where both chroma components have half of luma's columns, are upsampled and
 * converted in one kernel. All others are upsampled to rows of the pixels' width first.
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

/* Parts of the scratch: a row of each component, and a mixed one. */
enum { SCRATCH_PARTS = 4 };

struct hr__ycc {
    const struct hr__ycc_kernels *kernels;
    struct hr__codec_scratch rows; /* intermediate rows */
};

/* How the pixels of a component are computed from its samples. */
enum ycc_way {
    WAY_SAME,     /* one sample a pixel */
    WAY_BETWEEN,  /* filtered: 1x2 pixels a sample */
    WAY_DOUBLED,  /* filtered: 2x1, 2x2 */
    WAY_REPEATED, /* all others */
};

/* Returns the samples of an axis of `extent` pixels, `per` pixels each. */
static int samples_of(uint32_t extent, uint8_t per)
{
    return (int)((extent + per - 1u) / per);
}

struct hr__ycc_shape hr__ycc_shape_of(const struct hr__item_header *item)
{
    return (struct hr__ycc_shape){
        .width = item->width,
        .height = item->height,
        .components = item->components,
        .rgb = (item->flags & HR__ITEM_RGB) != 0,
        .across = {1, item->h, item->h},
        .down = {1, item->v, item->v},
    };
}

static enum ycc_way find_way(const struct hr__ycc_shape *shape, int c)
{
    int across = shape->across[c], down = shape->down[c];
    if (across == 1)
        return down == 1 ? WAY_SAME : down == 2 ? WAY_BETWEEN : WAY_REPEATED;
    return across == 2 && down <= 2 && samples_of(shape->width, 2) > REPLICATED_MOST ? WAY_DOUBLED
                                                                                     : WAY_REPEATED;
}

int hr__ycc_mixes_rows(const struct hr__ycc_shape *shape)
{
    for (int c = 0; c < shape->components; c++)
        if (shape->down[c] == 2 && find_way(shape, c) != WAY_REPEATED)
            return 1;
    return 0;
}

/* Finds the samples, of `per` pixels each, that the pixels [*at, *at + *count) of an axis depend
 * on. With `filter` an even pixel also needs its sample's left neighbour, an odd one the right. */
static void find_span(int *at, int *count, uint32_t extent, uint8_t per, int filter)
{
    int first = *at, last = *at + *count - 1;
    if (filter && per == 2) {
        int samples = samples_of(extent, 2);
        first = first > 0 ? (first - 1) / 2 : 0;
        last = (last + 1) / 2;
        last = last < samples ? last : samples - 1;
    } else {
        first /= per;
        last /= per;
    }
    *at = first;
    *count = last - first + 1;
}

void hr__ycc_window(const struct hr__ycc_shape *shape, const struct hr_region *region, int c,
                    struct hr_region *window)
{
    int filter = find_way(shape, c) != WAY_REPEATED;
    *window = *region;
    find_span(&window->x, &window->width, shape->width, shape->across[c], filter);
    find_span(&window->y, &window->height, shape->height, shape->down[c], filter);
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

/* The state of one call. */
struct job {
    const struct hr__ycc_kernels *kernels;
    const struct hr__ycc_planes *planes;
    struct hr_region region;
    struct hr_region window[3]; /* samples that the region needs */
    enum ycc_way way[3];
    int fused; /* both chroma components are doubled alike: one kernel does it */
    uint8_t *scratch[SCRATCH_PARTS]; /* of equal size */
};

/* Returns sample (x, y) of component c, which must be in its window. */
static const uint8_t *sample(const struct job *job, int c, int x, int y)
{
    const struct hr_region *window = &job->planes->window[c];
    return job->planes->at[c] + (y - window->y) * job->planes->stride[c] + (x - window->x);
}

/* Finds the row of samples that pixel row y is in, and the nearest other one. */
static void find_rows(const struct hr__ycc_shape *shape, int c, int y, int *near, int *far)
{
    *near = *far = y;
    if (shape->down[c] != 2)
        return;
    *near = y / 2;
    *far = y % 2 ? *near + 1 : *near - 1;
    if (*far < 0 || *far >= samples_of(shape->height, 2))
        *far = *near;
}

/* Returns the bytes of a part of the scratch: 16-bit samples with one more on either side, in whole
 * vectors, plus one that the last vector of pixels may read. */
static size_t scratch_bytes(const struct job *job)
{
    size_t samples = (size_t)job->region.width;
    for (int c = 0; c < job->planes->shape->components; c++)
        if ((size_t)job->window[c].width > samples)
            samples = (size_t)job->window[c].width;
    return (samples * 2 + 4 * HR__YCC_PIXELS) & ~(size_t)(HR__YCC_PIXELS - 1);
}

/* Position of the first mixed sample, which leaves room for one before it. */
#define BEFORE (HR__YCC_PIXELS / 2)

/* Returns what the doubled pixels of row y are computed from: the mix of two rows, from the sample
 * on that covers the region's first pixel. */
static const uint16_t *mix_rows(const struct job *job, int c, int y, uint8_t *scratch)
{
    const struct hr_region *window = &job->window[c];
    int first = job->region.x / 2, last = (job->region.x + job->region.width - 1) / 2;
    int lead = first - window->x; /* left neighbours in the window: 1 or 0 */
    uint16_t *mix = (uint16_t *)scratch + BEFORE;
    int near, far;
    find_rows(job->planes->shape, c, y, &near, &far);
    job->kernels->mix(sample(job, c, window->x, near), sample(job, c, window->x, far), mix - lead,
                      window->width);
    /* The window has no neighbour, at an edge of the component or where none is needed. */
    if (!lead)
        mix[-1] = mix[0];
    if (window->width - lead == last - first + 1)
        mix[last - first + 1] = mix[last - first];
    return mix;
}

/* What is added to sixteenths before rounding down, at even or odd pixels. */
static int rounding_of(const struct hr__ycc_shape *shape, int c, int odd)
{
    return shape->down[c] == 2 ? 8 - odd : 4 + 4 * odd;
}

static void store_doubled(const struct job *job, int c, int y, uint8_t *out)
{
    const uint16_t *mix = mix_rows(job, c, y, job->scratch[SCRATCH_PARTS - 1]);
    for (int i = 0; i < job->region.width; i++) {
        int x = job->region.x + i, odd = x & 1, at = x / 2 - job->region.x / 2;
        out[i] = (uint8_t)((3 * mix[at] + mix[odd ? at + 1 : at - 1] +
                            rounding_of(job->planes->shape, c, odd)) >>
                           4);
    }
}

/* Repeats each sample `across` times. The first one covers `phase` pixels before `out`, and the
 * last one may cover some after the row; up to 3 bytes on either side are overwritten. */
static void store_repeated(const uint8_t *samples, int across, int phase, uint8_t *out, int pixels)
{
    for (int i = -phase; i < pixels; i += across) {
        uint32_t four = *samples++ * UINT32_C(0x01010101);
        memcpy(out + i, &four, sizeof four);
    }
}

/* Returns row y of a component at the pixels' width. */
static const uint8_t *full_row(const struct job *job, int c, int y)
{
    const struct hr__ycc_shape *shape = job->planes->shape;
    uint8_t *out = job->scratch[c] + HR__YCC_PIXELS;
    int x = job->region.x, pixels = job->region.width, across = shape->across[c], near, far;
    switch (job->way[c]) {
    case WAY_SAME:
        return sample(job, c, x, y);
    case WAY_BETWEEN:
        find_rows(shape, c, y, &near, &far);
        job->kernels->between(sample(job, c, x, near), sample(job, c, x, far), out, pixels,
                              y % 2 ? 2 : 1);
        break;
    case WAY_DOUBLED:
        store_doubled(job, c, y, out);
        break;
    case WAY_REPEATED:
        if (across == 1)
            return sample(job, c, x, y / shape->down[c]);
        store_repeated(sample(job, c, x / across, y / shape->down[c]), across, x % across, out,
                       pixels);
        break;
    }
    return out;
}

/* Converts a row with the kernel that also upsamples. */
static void convert_fused(const struct job *job, int y, struct hr__ycc_row *row)
{
    const struct hr__ycc_shape *shape = job->planes->shape;
    struct hr__ycc_mixed mixed = {
        .odd = job->region.x & 1,
        .rounding = {rounding_of(shape, 1, 0), rounding_of(shape, 1, 1)},
    };
    row->luma = sample(job, 0, job->region.x, y);
    for (int k = 0; k < 2; k++)
        mixed.chroma[k] = mix_rows(job, k + 1, y, job->scratch[k]);
    job->kernels->doubled(row, &mixed);
}

static void convert_row(const struct job *job, int y, struct hr__ycc_row *row)
{
    const struct hr__ycc_shape *shape = job->planes->shape;
    const uint8_t *full[3];
    if (job->fused) {
        convert_fused(job, y, row);
        return;
    }
    for (int c = 0; c < shape->components; c++)
        full[c] = full_row(job, c, y);
    if (shape->components == 3 && !shape->rgb) {
        row->luma = full[0];
        job->kernels->same(row, full + 1);
        return;
    }
    for (int c = 0; c < 3; c++)
        memcpy(row->rgb[c], full[shape->components == 1 ? 0 : c], (size_t)row->pixels);
}

/* Finds the windows and ways of all components. */
static void plan(struct job *job)
{
    const struct hr__ycc_shape *shape = job->planes->shape;
    for (int c = 0; c < shape->components; c++) {
        hr__ycc_window(shape, &job->region, c, &job->window[c]);
        job->way[c] = find_way(shape, c);
    }
    job->fused = shape->components == 3 && !shape->rgb && job->way[0] == WAY_SAME &&
                 job->way[1] == WAY_DOUBLED && job->way[2] == WAY_DOUBLED &&
                 shape->down[1] == shape->down[2];
}

int hr__ycc_run(struct hr__ycc *ycc, const struct hr__ycc_planes *planes,
                const struct hr_region *region, const struct hr__planar *out,
                struct hr_error *error)
{
    struct job job = {.kernels = ycc->kernels, .planes = planes, .region = *region};
    plan(&job);
    size_t bytes = scratch_bytes(&job);
    if (SCRATCH_PARTS * bytes > ycc->rows.capacity) {
        int rc = hr__scratch_reserve(&ycc->rows, SCRATCH_PARTS * bytes, error);
        if (rc)
            return rc;
        /* Vectors of the last pixels read samples that are otherwise uninitialised. */
        memset(ycc->rows.bytes, 0, ycc->rows.capacity);
    }
    for (size_t k = 0; k < SCRATCH_PARTS; k++)
        job.scratch[k] = ycc->rows.bytes + k * bytes;
    for (int i = 0; i < region->height; i++) {
        struct hr__ycc_row row = {.pixels = region->width};
        for (int c = 0; c < 3; c++)
            row.rgb[c] = out->plane[c] + i * out->stride;
        convert_row(&job, region->y + i, &row);
    }
    return 0;
}
