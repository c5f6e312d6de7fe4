/*
 * The colour kernels, by rows. This file is compiled for each instruction set, with HR__COLOR_ROWS
 * as the name of its table. It is written for compilers to vectorise: no branches, only selections,
 * and `restrict` planes. It uses no intrinsics: the same operations in the same order per element
 * give the same bits for every width of vectors.
 *
 * Hue goes through HSV as in Smith, "Color gamut transform pairs" (SIGGRAPH'78). The inverse uses
 * the closed form v - v s max(0, min(k, 4 - k, 1)), with k = (n + 6h) mod 6 and n = 5, 3, 1 for
 * red, green and blue. It equals the table of six sectors, without indexing.
 */
#include "recipe/color_rows.h"

#ifndef HR__COLOR_ROWS
#define HR__COLOR_ROWS hr__color_rows_portable
#endif

#define LUMA_RED   0.2989f
#define LUMA_GREEN 0.587f
#define LUMA_BLUE  0.114f

static inline float clamp_255(float v)
{
    v = v < 0.0f ? 0.0f : v;
    return v > 255.0f ? 255.0f : v;
}

static inline float luma(float r, float g, float b)
{
    return r * LUMA_RED + g * LUMA_GREEN + b * LUMA_BLUE;
}

static void brightness_row(float *restrict p, int n, float factor)
{
    for (int i = 0; i < n; i++)
        p[i] = clamp_255(p[i] * factor);
}

/* p x factor + offset, clamped: blends with a constant. */
static void blend_row(float *restrict p, int n, float factor, float offset)
{
    for (int i = 0; i < n; i++)
        p[i] = clamp_255(p[i] * factor + offset);
}

static void saturation_row(float *restrict r, float *restrict g, float *restrict b, int n,
                           float factor)
{
    float rest = 1.0f - factor;
    for (int i = 0; i < n; i++) {
        float grey = luma(r[i], g[i], b[i]) * rest;
        r[i] = clamp_255(r[i] * factor + grey);
        g[i] = clamp_255(g[i] * factor + grey);
        b[i] = clamp_255(b[i] * factor + grey);
    }
}

static void grayscale_row(float *restrict r, float *restrict g, float *restrict b, int n)
{
    for (int i = 0; i < n; i++) {
        float grey = luma(r[i], g[i], b[i]);
        r[i] = grey;
        g[i] = grey;
        b[i] = grey;
    }
}

static inline float hue_channel(float turned, float n, float value, float chroma)
{
    float k = turned + n;
    k = k >= 6.0f ? k - 6.0f : k;
    float down = 4.0f - k;
    float t = k < down ? k : down;
    t = t > 1.0f ? 1.0f : t;
    t = t < 0.0f ? 0.0f : t;
    return value - chroma * t;
}

static void hue_row(float *restrict r, float *restrict g, float *restrict b, int n, float turn)
{
    for (int i = 0; i < n; i++) {
        float red = r[i], green = g[i], blue = b[i];
        float high = red > green ? red : green;
        high = blue > high ? blue : high;
        float low = red < green ? red : green;
        low = blue < low ? blue : low;
        float chroma = high - low;
        float divisor = chroma > 0.0f ? chroma : 1.0f;
        float apart = green == high ? blue - red : red - green;
        float sector = green == high ? 2.0f : 4.0f;
        apart = red == high ? green - blue : apart;
        sector = red == high ? 0.0f : sector;
        float sixths = sector + apart / divisor;
        /* -1..5 sixths, turned by -3..3: bring the result to 0..6 */
        sixths = sixths + turn;
        sixths = sixths < 0.0f ? sixths + 6.0f : sixths;
        sixths = sixths >= 6.0f ? sixths - 6.0f : sixths;
        r[i] = hue_channel(sixths, 5.0f, high, chroma);
        g[i] = hue_channel(sixths, 3.0f, high, chroma);
        b[i] = hue_channel(sixths, 1.0f, high, chroma);
    }
}

static void luma_row(const float *r, const float *g, const float *b, int n,
                     double lane[HR__LUMA_LANES])
{
    int x = 0;
    for (; x + HR__LUMA_LANES <= n; x += HR__LUMA_LANES) {
        for (int k = 0; k < HR__LUMA_LANES; k++)
            lane[k] += (double)luma(r[x + k], g[x + k], b[x + k]);
    }
    for (; x < n; x++)
        lane[x % HR__LUMA_LANES] += (double)luma(r[x], g[x], b[x]);
}

const struct hr__color_rows HR__COLOR_ROWS = {
    .brightness = brightness_row,
    .blend = blend_row,
    .saturation = saturation_row,
    .grayscale = grayscale_row,
    .hue = hue_row,
    .luma = luma_row,
};
