/*
 * Every orientation is an optional transposition followed by mirrors. Oriented pixel (x, y) is
 * stored pixel (x', y'); x' and y' are exchanged for orientations 5 to 8, and each is counted from
 * the other end if the table says so.
 */
#include "recipe/orient.h"

static const struct {
    int transposed, mirror_x, mirror_y; /* mirrors of the stored image's axes */
} orientations[9] = {
    {0, 0, 0}, {0, 0, 0}, {0, 1, 0}, {0, 1, 1}, {0, 0, 1},
    {1, 0, 0}, {1, 0, 1}, {1, 1, 1}, {1, 1, 0},
};

struct hr_region hr__orient_region(const struct hr_region *region, int width, int height,
                                   int orientation)
{
    struct hr_region stored = *region;
    if (orientations[orientation].transposed)
        stored = (struct hr_region){region->y, region->x, region->height, region->width};
    if (orientations[orientation].mirror_x)
        stored.x = width - stored.x - stored.width;
    if (orientations[orientation].mirror_y)
        stored.y = height - stored.y - stored.height;
    return stored;
}

void hr__orient_mirrors(int orientation, int *columns, int *rows)
{
    int transposed = orientations[orientation].transposed;
    int x = orientations[orientation].mirror_x, y = orientations[orientation].mirror_y;
    *columns = transposed ? y : x;
    *rows = transposed ? x : y;
}

static void orient_plane(const struct hr__planar *in, int c, int orientation,
                         struct hr__planar *out)
{
    int mirror_x = orientations[orientation].mirror_x;
    int mirror_y = orientations[orientation].mirror_y;
    ptrdiff_t step_x = mirror_x ? -1 : 1, step_y = mirror_y ? -in->stride : in->stride;
    const uint8_t *origin = in->plane[c];
    origin += mirror_x ? in->width - 1 : 0;
    origin += mirror_y ? (in->height - 1) * in->stride : 0;
    if (orientations[orientation].transposed) {
        ptrdiff_t swap = step_x;
        step_x = step_y;
        step_y = swap;
    }
    for (int y = 0; y < out->height; y++) {
        const uint8_t *from = origin + y * step_y;
        uint8_t *to = out->plane[c] + y * out->stride;
        for (int x = 0; x < out->width; x++)
            to[x] = from[x * step_x];
    }
}

void hr__orient_pixels(const struct hr__planar *in, int orientation, struct hr__planar *out)
{
    for (int c = 0; c < 3; c++)
        orient_plane(in, c, orientation, out);
}
