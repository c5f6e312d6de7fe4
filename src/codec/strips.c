/* Plans and converts strips; see strips.h. */
#include "codec/strips.h"

#include "base/memory.h"

#include <string.h>

/* Bytes of a strip's samples, about: they stay in the second-level cache beside what else a decode
 * touches. */
#define STRIP_BYTES ((size_t)128 << 10)

/* Most rows of blocks that a strip keeps of the one before. The last 4 pixel rows at most, as many
 * as an MCU has rows of blocks, need samples of the next strip, and the filter reaches one sample
 * up; blocks have 2 samples on an axis, or more, wherever it is used. */
#define MOST_KEPT 2

int hr__strips_create(struct hr__strips *s, struct hr_error *error)
{
    s->bytes = STRIP_BYTES;
    return hr__ycc_create(&s->ycc, hr__isa(), error);
}

void hr__strips_destroy(struct hr__strips *s)
{
    hr__ycc_destroy(&s->ycc);
    hr__scratch_free(&s->samples);
}

size_t hr__strips_memory(const struct hr__strips *s)
{
    return s->samples.capacity + hr__ycc_memory(s->ycc);
}

/* Finds the blocks that the region needs. Returns the bytes of their samples in a row of MCUs. */
static size_t plan_parts(struct hr__strips *s)
{
    size_t bytes = 0;
    for (int c = 0; c < s->shape.components; c++) {
        struct hr__strip_part *p = &s->part[c];
        struct hr_region w;
        hr__ycc_window(&s->shape, &s->region, c, &w);
        p->x = (uint32_t)w.x / p->side;
        p->y = p->top = (uint32_t)w.y / p->side;
        p->columns = ((uint32_t)(w.x + w.width) + p->side - 1) / p->side - p->x;
        p->rows = ((uint32_t)(w.y + w.height) + p->side - 1) / p->side - p->y;
        p->stride = (ptrdiff_t)(((size_t)p->columns * p->side + 63) & ~(size_t)63);
        bytes += (size_t)p->stride * p->v * p->side;
    }
    return bytes;
}

int hr__strips_begin(struct hr__strips *s, const struct hr__decode_job *job, struct hr_error *error)
{
    size_t bytes = 0, at[3];
    s->job = job;
    for (int c = 0; c < s->shape.components && !job; c++)
        s->part[c].rows = 0;
    if (!job)
        return 0;
    s->region = job->region;
    size_t row = plan_parts(s);
    uint32_t first = UINT32_MAX;
    s->next = job->region.y;
    s->height = row < s->bytes ? (uint32_t)(s->bytes / row) : 1;
    for (int c = 0; c < s->shape.components; c++) {
        const struct hr__strip_part *p = &s->part[c];
        uint32_t rows = s->height * p->v + MOST_KEPT;
        first = p->y / p->v < first ? p->y / p->v : first;
        at[c] = bytes;
        bytes += (size_t)p->stride * (p->rows < rows ? p->rows : rows) * p->side;
    }
    s->end = first + s->height;
    int r = hr__scratch_reserve(&s->samples, bytes, error);
    for (int c = 0; !r && c < s->shape.components; c++)
        s->part[c].plane = s->samples.bytes + at[c];
    return r;
}

void hr__strips_shorten(struct hr__strips *s, int end)
{
    s->region.height = end - s->region.y;
    for (int c = 0; c < s->shape.components; c++) {
        struct hr__strip_part *p = &s->part[c];
        struct hr_region w;
        p->rows = 0;
        if (!s->region.height)
            continue;
        hr__ycc_window(&s->shape, &s->region, c, &w);
        p->rows = ((uint32_t)(w.y + w.height) + p->side - 1) / p->side - p->y;
    }
}

/* Converts the rows of pixels up to `end`. */
static int convert(struct hr__strips *s, int end, struct hr_error *error)
{
    const struct hr_region *region = &s->region;
    struct hr_region strip = {region->x, s->next, region->width, end - s->next};
    struct hr__planar out = s->job->out;
    struct hr__ycc_planes planes = {.shape = &s->shape};
    for (int c = 0; c < s->shape.components; c++) {
        const struct hr__strip_part *p = &s->part[c];
        planes.at[c] = p->plane;
        planes.stride[c] = p->stride;
        planes.window[c] =
            (struct hr_region){(int)(p->x * p->side), (int)(p->top * p->side),
                               (int)(p->columns * p->side), (int)(p->rows * p->side)};
    }
    for (int c = 0; c < 3; c++)
        out.plane[c] += (s->next - region->y) * out.stride;
    s->next = end;
    return hr__ycc_run(s->ycc, &planes, &strip, &out, error);
}

/* Moves the samples that the next rows of pixels need to the top, of the `rows` decoded rows of
 * MCUs. */
static void keep(struct hr__strips *s, uint32_t rows)
{
    const struct hr_region *region = &s->region;
    struct hr_region rest = {region->x, s->next, region->width,
                             region->y + region->height - s->next};
    for (int c = 0; c < s->shape.components; c++) {
        struct hr__strip_part *p = &s->part[c];
        struct hr_region w;
        hr__ycc_window(&s->shape, &rest, c, &w);
        uint32_t top = (uint32_t)w.y / p->side, end = rows * p->v;
        end = end < p->y + p->rows ? end : p->y + p->rows;
        size_t line = (size_t)p->stride * p->side;
        if (top < end)
            memmove(p->plane, p->plane + (top - p->top) * line, (end - top) * line);
        p->top = top;
    }
}

int hr__strips_convert(struct hr__strips *s, uint32_t rows, struct hr_error *error)
{
    int last = s->region.y + s->region.height;
    int end = (int)(rows * s->mcu_rows);
    if (hr__ycc_mixes_rows(&s->shape)) /* the last rows need samples of the next row of MCUs */
        end -= (int)s->mcu_v;
    s->end = rows + s->height;
    if (end >= last || end <= s->next)
        return 0;
    int r = convert(s, end, error);
    keep(s, rows);
    return r;
}

int hr__strips_end(struct hr__strips *s, struct hr_error *error)
{
    int last = s->region.y + s->region.height;
    return last > s->next ? convert(s, last, error) : 0;
}
