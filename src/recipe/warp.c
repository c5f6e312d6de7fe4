/*
 * Runs geometric filters row by row: the coordinates, then for each run of pixels inside the image
 * a fast kernel, outside it the fill, and at its border the mixture of both, pixel by pixel.
 */
#include "recipe/warp.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <string.h>

const struct hr__warp_rows *hr__warp_rows(enum hr__isa isa)
{
#if defined(__x86_64__)
    if (isa >= HR__ISA_AVX2)
        return &hr__warp_rows_avx2;
#endif
    return &hr__warp_rows_portable;
}

static int reserve(struct hr__scratch *scratch, int n, struct hr__warp_row *row,
                   struct hr_error *error)
{
    size_t room = ((size_t)n + 15) & ~(size_t)15;
    int r = hr__buffer_reserve(&scratch->extra,
                               room * (4 * sizeof(float) + 2 * sizeof(int32_t) + 1), error);
    if (r)
        return r;
    float *floats = scratch->extra.bytes;
    row->n = n;
    row->x = floats;
    row->y = floats + room;
    row->part_x = floats + 2 * room;
    row->part_y = floats + 3 * room;
    row->at = (int32_t *)(void *)(floats + 4 * room);
    row->places = row->at + room;
    row->place = (uint8_t *)(row->places + room);
    return 0;
}

/* Returns the end of the run of equal places from `first` on. */
static int run_end(const struct hr__warp_row *row, int first)
{
    uint64_t all = row->place[first] * UINT64_C(0x0101010101010101), eight;
    int i = first;
    while (i + 8 <= row->n) {
        memcpy(&eight, row->place + i, sizeof eight);
        if (eight != all)
            break;
        i += 8;
    }
    while (i < row->n && row->place[i] == row->place[first])
        i++;
    return i;
}

/* Mixes a bilinear pixel that is partly outside: what is outside counts as zero, and the fill is
 * mixed in by the part that is inside. */
static void border_pixel(const struct hr__warp_row *row, int i, const struct hr__window *in,
                         const struct hr__warp_plane planes[3])
{
    int x = (int)hr__round_down(row->x[i]), y = (int)hr__round_down(row->y[i]);
    float right = row->part_x[i], left = 1.0f - right;
    float bottom = row->part_y[i], top = 1.0f - bottom;
    float weight[4] = {top * left, top * right, bottom * left, bottom * right};
    ptrdiff_t at[4];
    for (int k = 0; k < 4; k++) {
        int column = x + k % 2, line = y + k / 2;
        int inside =
            column >= 0 && column < in->image_width && line >= 0 && line < in->image_height;
        weight[k] = inside ? weight[k] : 0;
        at[k] = inside ? (line - in->y) * in->stride + (column - in->x) : 0;
    }
    float inside = weight[0] + weight[1] + weight[2] + weight[3];
    for (int c = 0; c < 3; c++) {
        const struct hr__warp_plane *p = &planes[c];
        const float pixels[4] = {p->from[at[0]], p->from[at[1]], p->from[at[2]], p->from[at[3]]};
        float v = hr__warp_mix(weight, pixels);
        if (p->has_fill)
            v = (v - p->fill) * inside + p->fill;
        p->to[i] = (uint8_t)(int)hr__round_even(v);
    }
}

static void run_row(const struct hr__warp *warp, const struct hr__warp_rows *rows,
                    const struct hr__warp_row *row, const struct hr__window *in,
                    const struct hr__warp_plane planes[3])
{
    for (int i = 0, end; i < row->n; i = end) {
        end = run_end(row, i);
        for (int c = 0; c < 3 && planes[c].to && row->place[i] != HR__WARP_BORDER; c++) {
            if (row->place[i] == HR__WARP_OUTSIDE)
                memset(planes[c].to + i, (int)hr__round_even(planes[c].fill), (size_t)(end - i));
            else if (warp->interpolation == HR_NEAREST)
                rows->take(row, i, end, &planes[c]);
            else
                rows->mix(row, i, end, &planes[c]);
        }
        for (int k = i; k < end && row->place[i] == HR__WARP_BORDER; k++)
            border_pixel(row, k, in, planes);
    }
}

int hr__warp_run(struct hr__scratch *scratch, const struct hr__warp *warp,
                 const struct hr__window *in, const struct hr__window *out, struct hr_error *error)
{
    const struct hr__warp_rows *rows = hr__warp_rows(hr__isa());
    struct hr__warp_row row;
    ptrdiff_t stride = in->stride < 0 ? -in->stride : in->stride;
    if (stride > INT32_MAX / ((ptrdiff_t)in->height + 1))
        return hr__fail(error, -EFBIG,
                        "%d x %d pixels inside the recipe are too many to move: 2 GiB or more",
                        in->width, in->height);
    struct hr__warp_input input = {in->image_width, in->image_height, in->x, in->y,
                                   (int)in->stride};
    int r = reserve(scratch, out->width, &row, error);
    for (int y = 0; y < out->height && !r; y++) {
        struct hr__warp_plane planes[3] = {{.to = NULL}};
        for (int c = 0; c < 3 && out->plane[c]; c++)
            planes[c] =
                (struct hr__warp_plane){in->plane[c], in->stride, out->plane[c] + y * out->stride,
                                        warp->has_fill, warp->fill[c]};
        warp->coordinates(warp->map, out->x, out->y + y, &row);
        if (warp->interpolation == HR_NEAREST)
            rows->nearest(&row, &input);
        else
            rows->bilinear(&row, &input);
        run_row(warp, rows, &row, in, planes);
    }
    return r;
}

/* Sets the pixels [*begin, *end) that coordinates between low and high mix. */
static void span(float low, float high, int size, int *begin, int *end)
{
    double first = fmin(fmax((double)low - 1, 0), size);
    double last = fmin(fmax((double)high + 2, 0), size);
    *begin = (int)first;
    *end = (int)last;
    if (*begin >= *end) {
        *begin = 0;
        *end = 1;
    }
}

struct hr_region hr__warp_region(const float low[2], const float high[2], int width, int height)
{
    struct hr_region region;
    int x_end, y_end;
    span(low[0], high[0], width, &region.x, &x_end);
    span(low[1], high[1], height, &region.y, &y_end);
    region.width = x_end - region.x;
    region.height = y_end - region.y;
    return region;
}

int hr__check_warp(const struct hr__bound *bound, const struct hr__state *state,
                   enum hr_interpolation interpolation, const double fill[3],
                   struct hr_error *error)
{
    if (interpolation != HR_BILINEAR && interpolation != HR_NEAREST)
        return hr__refuse(error, bound, "interpolation %d is not possible: use nearest or bilinear",
                          (int)interpolation);
    for (int c = 0; c < 3; c++) {
        if (!(fill[c] >= 0 && fill[c] <= 255))
            return hr__refuse(error, bound, "the fill value %g is outside 0..255", fill[c]);
    }
    return hr__check_bytes_place(bound, state, error);
}

int hr__check_range(const struct hr__bound *bound, const char *name, const double range[2],
                    struct hr_error *error)
{
    if (isfinite(range[0]) && isfinite(range[1]) && range[0] <= range[1])
        return 0;
    return hr__refuse(error, bound, "%s (%g, %g) must be two finite numbers, the smaller first",
                      name, range[0], range[1]);
}
