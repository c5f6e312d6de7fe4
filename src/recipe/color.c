/*
 * Runs colour steps over whole pictures, row by row, with the kernels of the instruction set.
 */
#include "recipe/color.h"

#include "recipe/color_rows.h"

const struct hr__color_rows *hr__color_rows(enum hr__isa isa)
{
#if defined(__x86_64__)
    if (isa >= HR__ISA_AVX2)
        return &hr__color_rows_avx2;
#endif
    return &hr__color_rows_portable;
}

/* Computes the mean luma. Sums in double, in a fixed number of lanes: large images lose no
 * precision, and the width of vectors does not affect the result. */
static double mean_luma(const struct hr__color_rows *rows, const struct hr__picture *p)
{
    double lane[HR__LUMA_LANES] = {0};
    for (int y = 0; y < p->height; y++)
        rows->luma(p->plane[0] + y * p->stride, p->plane[1] + y * p->stride,
                   p->plane[2] + y * p->stride, p->width, lane);
    double sum = 0;
    for (int k = 0; k < HR__LUMA_LANES; k++)
        sum += lane[k];
    return sum / ((double)p->width * p->height);
}

void hr__color_run(const struct hr__step *step, const struct hr__picture *p)
{
    const struct hr__color_rows *rows = hr__color_rows(hr__isa());
    float factor = step->u.factor, offset = 0;
    if (step->kind == HR__STEP_CONTRAST)
        offset = (float)((1.0 - (double)factor) * mean_luma(rows, p));
    for (int y = 0; y < p->height; y++) {
        float *r = p->plane[0] + y * p->stride;
        float *g = p->plane[1] + y * p->stride;
        float *b = p->plane[2] + y * p->stride;
        switch (step->kind) {
        case HR__STEP_SATURATION:
            rows->saturation(r, g, b, p->width, factor);
            break;
        case HR__STEP_HUE:
            rows->hue(r, g, b, p->width, factor * 6.0f);
            break;
        case HR__STEP_GRAYSCALE:
            rows->grayscale(r, g, b, p->width);
            break;
        default:
            for (int c = 0; c < 3; c++) {
                if (step->kind == HR__STEP_CONTRAST)
                    rows->blend(p->plane[c] + y * p->stride, p->width, factor, offset);
                else
                    rows->brightness(p->plane[c] + y * p->stride, p->width, factor);
            }
        }
    }
}
