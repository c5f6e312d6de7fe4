/* Moves boxes and points; see rows_geometry.h. */
#include "recipe/rows_geometry.h"

#include "recipe/orient.h"

#include <math.h>

/* Calls the functions for each box, and for each point. Either may be NULL. */
static void each(const struct hr__plan_rows *rows, void (*box)(float *box, const float *how),
                 void (*point)(float *point, const float *how), const float *how)
{
    if (!rows->in)
        return;
    const struct hr__rows_layout *layout = rows->in->layout;
    for (size_t c = 0; c < layout->count; c++) {
        if (!rows->moved[c])
            continue;
        int is_box = layout->column[c].role == HR_COLUMN_BOX;
        void (*move)(float *, const float *) = is_box ? box : point;
        size_t step = is_box ? 4 : 3;
        size_t count = rows->in->rows * (layout->value_bytes[c] / (step * sizeof(float)));
        for (size_t i = 0; i < count && move; i++)
            move(rows->moved[c] + i * step, how);
    }
}

static float clamped(float value, float most)
{
    value = value < 0 ? 0 : value;
    return value > most ? most : value;
}

/* how: width, height. */
static void clamp_box(float *box, const float *how)
{
    for (int i = 0; i < 4; i++)
        box[i] = clamped(box[i], how[i & 1]);
}

/* how: x, y, width, height. */
static void cut_box(float *box, const float *how)
{
    for (int i = 0; i < 4; i++)
        box[i] -= how[i & 1];
    clamp_box(box, how + 2);
}

static void cut_point(float *point, const float *how)
{
    point[0] -= how[0];
    point[1] -= how[1];
}

/* how: ratios of x, y. */
static void scale_box(float *box, const float *how)
{
    for (int i = 0; i < 4; i++)
        box[i] *= how[i & 1];
}

static void scale_point(float *point, const float *how)
{
    point[0] *= how[0];
    point[1] *= how[1];
}

static void mirror_box(float *box, float size)
{
    float begin = box[0];
    box[0] = -(box[2] - size);
    box[2] = -(begin - size);
}

/* how: the size. A box is between pixels, a point on one. */
static void mirror_box_x(float *box, const float *how)
{
    mirror_box(box, how[0]);
}

static void mirror_box_y(float *box, const float *how)
{
    mirror_box(box + 1, how[0]);
}

static void mirror_point_x(float *point, const float *how)
{
    point[0] = -(point[0] - (how[0] - 1));
}

static void mirror_point_y(float *point, const float *how)
{
    point[1] = -(point[1] - (how[0] - 1));
}

static void transpose_point(float *point, const float *how)
{
    float x = point[0];
    point[0] = point[1];
    point[1] = x;
}

static void transpose_box(float *box, const float *how)
{
    transpose_point(box, how);
    transpose_point(box + 2, how);
}

void hr__rows_cut(const struct hr__plan_rows *rows, int x, int y, int width, int height)
{
    const float how[4] = {(float)x, (float)y, (float)width, (float)height};
    each(rows, cut_box, cut_point, how);
}

void hr__rows_scale(const struct hr__plan_rows *rows, double ratio_x, double ratio_y)
{
    const float how[2] = {(float)ratio_x, (float)ratio_y};
    each(rows, scale_box, scale_point, how);
}

void hr__rows_mirror(const struct hr__plan_rows *rows, int axis, int size)
{
    const float how[1] = {(float)size};
    each(rows, axis ? mirror_box_y : mirror_box_x, axis ? mirror_point_y : mirror_point_x, how);
}

/* how: a 3 x 3 matrix by rows, whose last row is 0, 0, 1 for an affine map; width, height. */
static void map_point(float *point, const float *how)
{
    float x = point[0] * how[0] + point[1] * how[1] + how[2];
    float y = point[0] * how[3] + point[1] * how[4] + how[5];
    float w = point[0] * how[6] + point[1] * how[7] + how[8];
    point[0] = x / w;
    point[1] = y / w;
}

static void map_box(float *box, const float *how)
{
    float low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        float corner[2] = {box[i & 1 ? 2 : 0], box[i & 2 ? 3 : 1]};
        map_point(corner, how);
        for (int k = 0; k < 2; k++) {
            low[k] = fminf(low[k], corner[k]);
            high[k] = fmaxf(high[k], corner[k]);
        }
    }
    for (int k = 0; k < 2; k++) {
        box[k] = low[k];
        box[2 + k] = high[k];
    }
    clamp_box(box, how + 9);
}

/* Moves the origin to where an image of width x height pixels begins once it is mapped. */
static void expand(float *how, int width, int height)
{
    float low[2] = {INFINITY, INFINITY};
    for (int i = 0; i < 4; i++) {
        float corner[2] = {i & 1 ? (float)width : 0, i & 2 ? (float)height : 0};
        map_point(corner, how);
        low[0] = fminf(low[0], corner[0]);
        low[1] = fminf(low[1], corner[1]);
    }
    how[2] -= low[0];
    how[5] -= low[1];
}

void hr__rows_affine(const struct hr__plan_rows *rows, const struct hr__rows_map *map)
{
    const double *m = map->matrix, determinant = m[0] * m[4] - m[1] * m[3];
    const double middle[2] = {map->from_width * 0.5, map->from_height * 0.5};
    const double forth[4] = {m[4] / determinant, -m[1] / determinant, -m[3] / determinant,
                             m[0] / determinant};
    float how[11] = {[8] = 1, [9] = (float)map->width, [10] = (float)map->height};
    for (int k = 0; k < 2; k++) {
        const double *f = forth + 2 * k;
        how[3 * k] = (float)f[0];
        how[3 * k + 1] = (float)f[1];
        how[3 * k + 2] = (float)(middle[k] - f[0] * (m[2] + middle[0]) - f[1] * (m[5] + middle[1]));
    }
    if (map->is_expanded)
        expand(how, map->from_width, map->from_height);
    each(rows, map_box, map_point, how);
}

void hr__rows_perspective(const struct hr__plan_rows *rows, const double m[8], int width,
                          int height)
{
    /* The inverse of the matrix, times its determinant. */
    const double inverse[9] = {
        m[4] - m[5] * m[7],        m[2] * m[7] - m[1],        m[1] * m[5] - m[2] * m[4],
        m[5] * m[6] - m[3],        m[0] - m[2] * m[6],        m[2] * m[3] - m[0] * m[5],
        m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]};
    double by = inverse[8] != 0 ? inverse[8] : 1;
    float how[11] = {[9] = (float)width, [10] = (float)height};
    for (int i = 0; i < 9; i++)
        how[i] = (float)(inverse[i] / by);
    each(rows, map_box, map_point, how);
}

void hr__rows_clamp(const struct hr__plan_rows *rows, int width, int height)
{
    const float how[2] = {(float)width, (float)height};
    each(rows, clamp_box, NULL, how);
}

void hr__rows_orient(const struct hr__plan_rows *rows, int orientation, int width, int height)
{
    int columns, lines;
    if (orientation >= 5)
        each(rows, transpose_box, transpose_point, NULL);
    hr__orient_mirrors(orientation, &columns, &lines);
    if (columns)
        hr__rows_mirror(rows, 0, width);
    if (lines)
        hr__rows_mirror(rows, 1, height);
}

float *hr__rows_boxes(const struct hr__plan_rows *rows)
{
    return rows->in && rows->in->layout->box >= 0 ? rows->moved[rows->in->layout->box] : NULL;
}
